// See the header. A text is found by its id and then held against one digest, in a time that does
// not depend on the secret; the id is no secret. A certificate is found by its serial number, which
// the CA chose at random and the handshake has judged.

#include "daemon/coordinator/shell/access/tokens.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/shell/databases/rows.h"
#include "lib/base/arena.h"
#include "lib/base/json.h"
#include "lib/base/map.h"
#include "lib/base/rng.h"
#include "lib/rpc/rpc.h"
#include "lib/tls/certificate.h"

static const int64_t use_grain_ns = 60 * TD_NS_PER_S;

enum { BODY_MAX = 1024 };

struct td_token_table {
    struct td_map *by_id;
    struct td_map *by_serial; // of certificates; borrowed from by_id
    struct td_rows rows;
};

td_status td_token_table_create(struct td_token_table **out_tokens) {
    struct td_token_table *t = td_calloc(1, sizeof *t);
    if (!t) return td_fail_oom();
    td_status s = td_map_create(2 * TD_TOKENS_MAX + 1, &t->by_id);
    if (!s) s = td_map_create(2 * TD_TOKENS_MAX + 1, &t->by_serial);
    if (s) {
        td_map_destroy(t->by_id);
        free(t);
        return s;
    }
    *out_tokens = t;
    return TD_OK;
}

void td_token_table_destroy(struct td_token_table *t) {
    if (!t) return;
    size_t cursor = 0;
    const char *key;
    void *value;
    while (td_map_next(t->by_id, &cursor, &key, &value)) {
        free(value);
    }
    td_map_destroy(t->by_id);
    td_map_destroy(t->by_serial);
    td_rows_finish(&t->rows);
    free(t);
}

// ---- rows ---------------------------------------------------------------------------------------
static void hex(const uint8_t *bytes, size_t n, char *out) {
    for (size_t i = 0; i < n; i++) {
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    }
}

static bool unhex(const char *text, uint8_t *out, size_t n) {
    if (strlen(text) != 2 * n || strspn(text, "0123456789abcdef") != 2 * n) return false;
    for (size_t i = 0; i < n; i++) {
        char pair[3] = {text[2 * i], text[2 * i + 1], '\0'};
        out[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    return true;
}

static void save(struct td_token_table *t, struct td_token *k) {
    char digest[2 * TD_TLS_DIGEST_BYTES + 1], body[BODY_MAX];
    hex(k->digest, TD_TLS_DIGEST_BYTES, digest);
    k->kept_use_ns = k->use_ns;
    snprintf(body, sizeof body, // a name holds nothing that JSON escapes
             "{\"name\":\"%s\",\"role\":\"%s\",\"sha256\":\"%s\",\"create_ns\":%" PRId64
             ",\"expire_ns\":%" PRId64 ",\"use_ns\":%" PRId64 ",\"revoke_ns\":%" PRId64
             ",\"serial\":\"%s\",\"used_by\":\"%s\"}",
             k->name, td_access_role_name(k->role), digest, k->create_ns, k->expire_ns, k->use_ns,
             k->revoke_ns, k->serial, k->used_by);
    td_rows_put(&t->rows, TD_RECORD_TOKEN, k->id, body);
}

struct td_record *td_token_table_take(struct td_token_table *t) {
    return td_rows_take(&t->rows);
}

static enum td_access_role parse_role(const char *name) {
    for (int r = TD_ROLE_VIEWER; r < TD_ROLE_COUNT; r++) {
        if (strcmp(td_access_role_name((enum td_access_role)r), name) == 0) {
            return (enum td_access_role)r;
        }
    }
    return TD_ROLE_NONE;
}

static bool name_ok(const char *name) {
    size_t n = strlen(name);
    return n > 0 && n < TD_TOKEN_NAME &&
           strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-@") == n;
}

static bool decode(const struct td_json *v, struct td_token *k) {
    const char *name = td_json_string(td_json_get(v, "name"), "");
    k->role = parse_role(td_json_string(td_json_get(v, "role"), ""));
    k->create_ns = td_json_int(td_json_get(v, "create_ns"), 0);
    k->expire_ns = td_json_int(td_json_get(v, "expire_ns"), 0);
    k->use_ns = k->kept_use_ns = td_json_int(td_json_get(v, "use_ns"), 0);
    k->revoke_ns = td_json_int(td_json_get(v, "revoke_ns"), 0);
    const char *serial = td_json_string(td_json_get(v, "serial"), "");
    snprintf(k->used_by, sizeof k->used_by, "%s", td_json_string(td_json_get(v, "used_by"), ""));
    bool ok = name_ok(name) && k->role != TD_ROLE_NONE && td_certificate_is_serial(serial);
    if (!ok) return false;
    snprintf(k->name, sizeof k->name, "%s", name);
    snprintf(k->serial, sizeof k->serial, "%s", serial);
    return unhex(td_json_string(td_json_get(v, "sha256"), ""), k->digest, TD_TLS_DIGEST_BYTES);
}

static td_status keep(struct td_token_table *t, struct td_token *take_token) {
    struct td_token *k = take_token;
    td_status full = k->serial[0] ? td_map_put(t->by_serial, k->serial, k, NULL) : TD_OK;
    if (!full) full = td_map_put(t->by_id, k->id, k, NULL);
    if (!full) return TD_OK;
    td_map_remove(t->by_serial, k->serial);
    free(k);
    return full;
}

static bool id_ok(const char *id) {
    return strlen(id) == TD_TOKEN_ID - 1 && strspn(id, "0123456789abcdef") == TD_TOKEN_ID - 1;
}

td_status td_token_table_load(struct td_token_table *t, const char *key, const char *body) {
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *v = NULL;
    TD_TRY(td_arena_create((size_t)64 << 10, &arena));
    TD_TRY_CTX(td_json_parse(arena, body, strlen(body), &v), "state.db, token '%s'", key);
    TD_AUTO_FREE struct td_token *k = td_calloc(1, sizeof *k);
    if (!k) return td_fail_oom();
    if (!id_ok(key) || !decode(v, k)) {
        return td_fail(TD_DATA_LOSS, "state.db, token '%s': its name, role or digest is none", key);
    }
    memcpy(k->id, key, sizeof k->id);
    return keep(t, td_steal(k));
}

// ---- reading ------------------------------------------------------------------------------------
bool td_token_valid(const struct td_token *token, struct td_real now) {
    return !token->revoke_ns && (!token->expire_ns || now.ns < token->expire_ns);
}

uint64_t td_token_identity(const struct td_token *token) {
    return UINT64_C(1) << 48 | strtoull(token->id, NULL, 16);
}

const struct td_token *td_token_table_find(const struct td_token_table *t, uint64_t identity) {
    char id[TD_TOKEN_ID];
    if (identity >> 48 != 1) return NULL;
    snprintf(id, sizeof id, "%012" PRIx64, identity & ((UINT64_C(1) << 48) - 1));
    return td_map_get(t->by_id, id);
}

const struct td_token *td_token_table_next(const struct td_token_table *t, size_t *cursor) {
    const char *key;
    void *value;
    return td_map_next(t->by_id, cursor, &key, &value) ? value : NULL;
}

bool td_token_table_names_nodes(const struct td_token_table *t, const char *name) {
    size_t cursor = 0;
    const struct td_token *k;
    while ((k = td_token_table_next(t, &cursor))) {
        if (k->role == TD_ROLE_NODE && strcmp(k->name, name) == 0) return true;
    }
    return false;
}

const struct td_token *td_token_table_expired(struct td_token_table *t, struct td_real now) {
    size_t cursor = 0;
    const char *key;
    void *value;
    while (td_map_next(t->by_id, &cursor, &key, &value)) {
        struct td_token *k = value;
        if (k->cut || !k->expire_ns || now.ns < k->expire_ns) continue;
        k->cut = true;
        return k;
    }
    return NULL;
}

int64_t td_token_table_next_expiry(const struct td_token_table *t) {
    int64_t next = 0;
    size_t cursor = 0;
    const struct td_token *k;
    while ((k = td_token_table_next(t, &cursor))) {
        bool waits = k->expire_ns && !k->cut && !k->revoke_ns;
        if (waits && (!next || k->expire_ns < next)) next = k->expire_ns;
    }
    return next;
}

// ---- giving out and taking back -----------------------------------------------------------------
static int64_t end_of(const struct td_token *k) {
    return k->revoke_ns ? k->revoke_ns : k->expire_ns;
}

static void drop_oldest_ended(struct td_token_table *t, struct td_real now) {
    const struct td_token *oldest = NULL, *k;
    size_t cursor = 0;
    while ((k = td_token_table_next(t, &cursor))) {
        if (td_token_valid(k, now)) continue;
        if (!oldest || end_of(k) < end_of(oldest)) oldest = k;
    }
    TD_CHECK(oldest);
    td_rows_put(&t->rows, TD_RECORD_TOKEN, oldest->id, NULL);
    td_map_remove(t->by_serial, oldest->serial);
    free(td_map_remove(t->by_id, oldest->id));
}

static td_status check_room(const struct td_token_table *t, struct td_real now) {
    size_t cursor = 0, n_valid = 0;
    const struct td_token *k;
    while ((k = td_token_table_next(t, &cursor))) {
        n_valid += td_token_valid(k, now);
    }
    if (n_valid >= TD_TOKENS_MAX) {
        return td_status_with_reason(td_fail(TD_RESOURCE_EXHAUSTED,
                                             "%d tokens are valid already; revoke those that are "
                                             "not needed (`trainctl token list`)",
                                             TD_TOKENS_MAX),
                                     "LIMIT_TOKENS");
    }
    return TD_OK;
}

static td_status bad(const char *field, const char *text) {
    td_status s = td_fail(TD_INVALID_ARGUMENT, "%s: %s", field, text);
    return td_status_with_field(td_status_with_reason(s, "FIELD_INVALID"), field, "%s", text);
}

static td_status check_new(struct td_real now, const char *name, enum td_access_role role,
                           int64_t expire_ns) {
    if (role <= TD_ROLE_NONE || role >= TD_ROLE_COUNT) {
        return bad("role", "viewer, submitter, operator, admin or node");
    }
    if (name[0] && !name_ok(name)) {
        return bad("name", "at most 63 characters of A-Z a-z 0-9 . _ - @");
    }
    if (strcmp(name, "owner") == 0) return bad("name", "'owner' is the name of the owner's token");
    if (expire_ns && expire_ns <= now.ns) return bad("expires_in_s", "that is in the past");
    return TD_OK;
}

td_status td_token_table_may_add(const struct td_token_table *t, struct td_real now,
                                 const char *name, enum td_access_role role, int64_t expire_ns) {
    TD_TRY(check_new(now, name, role, expire_ns));
    return check_room(t, now);
}

// With an id of its own, and a place in the table.
static td_status make(struct td_token_table *t, struct td_real now, const char *name,
                      enum td_access_role role, int64_t expire_ns, struct td_token **out_token) {
    uint8_t id[6];
    if (td_map_count(t->by_id) >= 2 * TD_TOKENS_MAX) drop_oldest_ended(t, now);
    struct td_token *k = td_calloc(1, sizeof *k);
    if (!k) return td_fail_oom();
    do {
        td_random_bytes(id, sizeof id);
        hex(id, sizeof id, k->id);
    } while (td_map_get(t->by_id, k->id));
    snprintf(k->name, sizeof k->name, "%s", name[0] ? name : k->id);
    k->role = role;
    k->create_ns = now.ns;
    k->expire_ns = expire_ns;
    *out_token = k;
    return TD_OK;
}

td_status td_token_table_add(struct td_token_table *t, struct td_real now, const char *name,
                             enum td_access_role role, int64_t expire_ns,
                             const struct td_token **out_token, char out_text[TD_TOKEN_TEXT]) {
    uint8_t secret[32];
    TD_TRY(td_token_table_may_add(t, now, name, role, expire_ns));
    TD_AUTO_FREE struct td_token *k = NULL;
    TD_TRY(make(t, now, name, role, expire_ns, &k));
    td_random_bytes(secret, sizeof secret);
    int n = snprintf(out_text, TD_TOKEN_TEXT, "td_%s_", k->id);
    hex(secret, sizeof secret, out_text + n);
    TD_TRY(td_tls_secret_digest((struct td_str){out_text, strlen(out_text)}, k->digest));
    struct td_token *kept = td_steal(k);
    TD_TRY(keep(t, kept));
    save(t, kept);
    *out_token = kept;
    return TD_OK;
}

td_status td_token_table_add_certificate(struct td_token_table *t, struct td_real now,
                                         const char *name, enum td_access_role role,
                                         const struct td_certificate *certificate,
                                         const struct td_token **out_token) {
    struct td_token *k = NULL;
    TD_TRY(make(t, now, name, role, certificate->valid_until_s * TD_NS_PER_S, &k));
    snprintf(k->serial, sizeof k->serial, "%s", certificate->serial);
    TD_TRY(keep(t, k));
    save(t, k);
    *out_token = k;
    return TD_OK;
}

td_status td_token_table_revoke(struct td_token_table *t, struct td_real now, const char *id,
                                const struct td_token **out_token) {
    struct td_token *k = td_map_get(t->by_id, id);
    if (!k) {
        return td_status_with_reason(
            td_fail(TD_NOT_FOUND, "there is no token '%.40s'; `trainctl token list` shows the ids",
                    id),
            "TOKEN_NOT_FOUND");
    }
    if (td_token_valid(k, now)) {
        k->revoke_ns = now.ns;
        save(t, k);
    } else if (k->used_by[0]) {
        k->used_by[0] = '\0';
        save(t, k);
    }
    *out_token = k;
    return TD_OK;
}

// ---- judging ------------------------------------------------------------------------------------
static struct td_token *named_by(const struct td_token_table *t, struct td_str text) {
    char id[TD_TOKEN_ID];
    if (text.len != TD_TOKEN_TEXT - 1 || memcmp(text.data, "td_", 3) != 0) return NULL;
    snprintf(id, sizeof id, "%.*s", TD_TOKEN_ID - 1, text.data + 3);
    return td_map_get(t->by_id, id);
}

static td_status ended(const char *how, const char *reason) {
    return td_status_with_reason(
        td_fail(TD_UNAUTHENTICATED, "this token %s; ask an admin for another", how), reason);
}

static void use(struct td_token_table *t, struct td_real now, struct td_token *k) {
    k->use_ns = now.ns;
    if (k->use_ns - k->kept_use_ns >= use_grain_ns) save(t, k);
}

td_status td_token_used(void) {
    return ended("was used already", "TOKEN_USED");
}

bool td_token_is_of(const struct td_token *token, const uint8_t used_by[TD_TLS_DIGEST_BYTES]) {
    char text[sizeof token->used_by];
    hex(used_by, TD_TLS_DIGEST_BYTES, text);
    return strcmp(text, token->used_by) == 0;
}

static bool repeatable(const struct td_token *k, struct td_real now) {
    return k->used_by[0] && (!k->expire_ns || now.ns < k->expire_ns);
}

static td_status judge(struct td_token_table *t, struct td_real now, struct td_str text,
                       bool to_join, const struct td_token **out_token) {
    uint8_t digest[TD_TLS_DIGEST_BYTES];
    struct td_token *k = named_by(t, text);
    if (k && k->serial[0]) k = NULL; // a certificate has no text
    if (k) TD_TRY(td_tls_secret_digest(text, digest));
    if (!k || !td_rpc_secret_equal((struct td_str){(const char *)digest, sizeof digest},
                                   (struct td_str){(const char *)k->digest, sizeof k->digest})) {
        return td_status_with_reason(
            td_fail(TD_UNAUTHENTICATED, "wrong token: send one that `trainctl token create` gave, "
                                        "or the owner's (the file `token` in the state "
                                        "directory), as `authorization: Bearer <token>`"),
            "TOKEN_WRONG");
    }
    if (k->role == TD_ROLE_JOIN && k->use_ns) {
        if (!to_join || !repeatable(k, now)) return td_token_used();
        *out_token = k;
        return TD_OK;
    }
    if (k->revoke_ns) return ended("was revoked", "TOKEN_REVOKED");
    if (!td_token_valid(k, now)) return ended("has expired", "TOKEN_EXPIRED");
    *out_token = k;
    if (k->role != TD_ROLE_JOIN) use(t, now, k); // its only use is td_token_table_spend
    return TD_OK;
}

td_status td_token_table_judge(struct td_token_table *t, struct td_real now, struct td_str text,
                               const struct td_token **out_token) {
    return judge(t, now, text, false, out_token);
}

td_status td_token_table_judge_join(struct td_token_table *t, struct td_real now,
                                    struct td_str text, const struct td_token **out_token) {
    return judge(t, now, text, true, out_token);
}

td_status td_token_table_judge_certificate(struct td_token_table *t, struct td_real now,
                                           const char *serial, const struct td_token **out_token) {
    struct td_token *k = td_map_get(t->by_serial, serial);
    if (k && !td_token_valid(k, now)) {
        bool revoked = k->revoke_ns;
        return td_status_with_reason(td_fail(TD_UNAUTHENTICATED,
                                             "the certificate of '%s' %s; ask an admin for another",
                                             k->name, revoked ? "was revoked" : "has expired"),
                                     revoked ? "CERTIFICATE_REVOKED" : "CERTIFICATE_EXPIRED");
    }
    if (k) use(t, now, k);
    *out_token = k;
    return TD_OK;
}

void td_token_table_spend(struct td_token_table *t, struct td_real now,
                          const struct td_token *token,
                          const uint8_t used_by[TD_TLS_DIGEST_BYTES]) {
    struct td_token *k = td_map_get(t->by_id, token->id);
    TD_CHECK(k && k->role == TD_ROLE_JOIN);
    if (!k->use_ns) k->use_ns = k->revoke_ns = now.ns;
    hex(used_by, TD_TLS_DIGEST_BYTES, k->used_by);
    save(t, k);
}
