// See the header. A text is found by its id and then held against one digest, in a time that does
// not depend on the secret; the id is no secret. A certificate is found by its serial number, which
// the CA chose at random and the handshake has judged.

#include "daemon/coordinator/shell/access/tokens.h"

#include <stdio.h>
#include <string.h>

#include "lib/base/rng.h"
#include "lib/rpc/rpc.h"

static const int64_t use_grain_ns = 60 * TD_NS_PER_S;

bool td_tokens_names_nodes(const struct td_credential_table *t, const char *name) {
    size_t cursor = 0;
    const struct td_credential *k;
    while ((k = td_credential_table_next(t, TD_CREDENTIAL_TOKEN, &cursor))) {
        if (k->role == TD_ROLE_NODE && strcmp(k->name, name) == 0) return true;
    }
    return false;
}

// ---- giving out and taking back -----------------------------------------------------------------
static td_status check_room(const struct td_credential_table *t, struct td_real now) {
    size_t cursor = 0, n_valid = 0;
    const struct td_credential *k;
    while ((k = td_credential_table_next(t, TD_CREDENTIAL_TOKEN, &cursor))) {
        n_valid += !td_credential_has_ended(k, now, 0);
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
    if (name[0] && !td_credential_name_ok(name)) {
        return bad("name", "at most 63 characters of A-Z a-z 0-9 . _ - @");
    }
    if (strcmp(name, "owner") == 0) return bad("name", "'owner' is the name of the owner's token");
    if (expire_ns && expire_ns <= now.ns) return bad("expires_in_s", "that is in the past");
    return TD_OK;
}

td_status td_tokens_may_add(const struct td_credential_table *t, struct td_real now,
                            const char *name, enum td_access_role role, int64_t expire_ns) {
    TD_TRY(check_new(now, name, role, expire_ns));
    return check_room(t, now);
}

// With an id of its own.
static struct td_credential make(const struct td_credential_table *t, struct td_real now,
                                 const char *name, enum td_access_role role, int64_t expire_ns) {
    uint8_t id[(TD_TOKEN_ID - 1) / 2];
    struct td_credential k = {
        .kind = TD_CREDENTIAL_TOKEN, .role = role, .create_ns = now.ns, .expire_ns = expire_ns};
    do {
        td_random_bytes(id, sizeof id);
        td_credential_hex(id, sizeof id, k.id);
    } while (td_credential_table_get(t, k.kind, k.id));
    snprintf(k.name, sizeof k.name, "%s", name[0] ? name : k.id);
    memset(k.sha256, '0', sizeof k.sha256 - 1);
    return k;
}

static td_status give(struct td_credential_table *t, struct td_real now,
                      const struct td_credential *made, const struct td_credential **out_token) {
    struct td_credential *k;
    TD_TRY(td_credential_table_add(t, now, made, &k));
    td_credential_table_save(t, k);
    *out_token = k;
    return TD_OK;
}

td_status td_tokens_add(struct td_credential_table *t, struct td_real now, const char *name,
                        enum td_access_role role, int64_t expire_ns,
                        const struct td_credential **out_token, char out_text[TD_TOKEN_TEXT]) {
    uint8_t secret[32], digest[TD_TLS_DIGEST_BYTES];
    TD_TRY(td_tokens_may_add(t, now, name, role, expire_ns));
    struct td_credential k = make(t, now, name, role, expire_ns);
    td_random_bytes(secret, sizeof secret);
    int n = snprintf(out_text, TD_TOKEN_TEXT, "td_%s_", k.id);
    td_credential_hex(secret, sizeof secret, out_text + n);
    TD_TRY(td_tls_secret_digest((struct td_str){out_text, strlen(out_text)}, digest));
    td_credential_hex(digest, sizeof digest, k.sha256);
    return give(t, now, &k, out_token);
}

td_status td_tokens_add_certificate(struct td_credential_table *t, struct td_real now,
                                    const char *name, enum td_access_role role,
                                    const struct td_certificate *certificate,
                                    const struct td_credential **out_token) {
    struct td_credential k = make(t, now, name, role, certificate->valid_until_s * TD_NS_PER_S);
    snprintf(k.serial, sizeof k.serial, "%s", certificate->serial);
    return give(t, now, &k, out_token);
}

td_status td_tokens_revoke(struct td_credential_table *t, struct td_real now, const char *id,
                           const struct td_credential **out_token) {
    struct td_credential *k = td_credential_table_get(t, TD_CREDENTIAL_TOKEN, id);
    if (!k) {
        return td_status_with_reason(
            td_fail(TD_NOT_FOUND, "there is no token '%.40s'; `trainctl token list` shows the ids",
                    id),
            "TOKEN_NOT_FOUND");
    }
    const bool over = td_credential_has_ended(k, now, 0);
    if (!over) k->revoke_ns = now.ns;
    if (over) k->used_by[0] = '\0';
    td_credential_table_save(t, k);
    *out_token = k;
    return TD_OK;
}

// ---- judging ------------------------------------------------------------------------------------
static struct td_credential *named_by(const struct td_credential_table *t, struct td_str text) {
    char id[TD_TOKEN_ID];
    if (text.len != TD_TOKEN_TEXT - 1 || memcmp(text.data, "td_", 3) != 0) return NULL;
    snprintf(id, sizeof id, "%.*s", TD_TOKEN_ID - 1, text.data + 3);
    return td_credential_table_get(t, TD_CREDENTIAL_TOKEN, id);
}

static void use(struct td_credential_table *t, struct td_real now, struct td_credential *k) {
    k->use_ns = now.ns;
    if (k->use_ns - k->kept_use_ns >= use_grain_ns) td_credential_table_save(t, k);
}

td_status td_tokens_used(void) {
    return td_status_with_reason(
        td_fail(TD_UNAUTHENTICATED, "this token was used already; ask an admin for another"),
        "TOKEN_USED");
}

bool td_tokens_is_of(const struct td_credential *token,
                     const uint8_t used_by[TD_TLS_DIGEST_BYTES]) {
    char text[sizeof token->used_by];
    td_credential_hex(used_by, TD_TLS_DIGEST_BYTES, text);
    return strcmp(text, token->used_by) == 0;
}

static bool repeatable(const struct td_credential *k, struct td_real now) {
    return k->used_by[0] && (!k->expire_ns || now.ns < k->expire_ns);
}

td_status td_tokens_judge(struct td_credential_table *t, struct td_real now, struct td_str text,
                          bool to_join, const struct td_credential **out_token) {
    uint8_t digest[TD_TLS_DIGEST_BYTES];
    char hex[TD_CREDENTIAL_HEX];
    struct td_credential *k = named_by(t, text);
    if (k && k->serial[0]) k = NULL; // a certificate has no text
    if (k) TD_TRY(td_tls_secret_digest(text, digest));
    if (k) td_credential_hex(digest, sizeof digest, hex);
    if (!k || !td_rpc_secret_equal((struct td_str){hex, sizeof hex - 1},
                                   (struct td_str){k->sha256, sizeof k->sha256 - 1})) {
        return td_status_with_reason(
            td_fail(TD_UNAUTHENTICATED, "wrong token: send one that `trainctl token create` gave, "
                                        "or the owner's (the file `token` in the state "
                                        "directory), as `authorization: Bearer <token>`"),
            "TOKEN_WRONG");
    }
    if (k->role == TD_ROLE_JOIN && k->use_ns) {
        if (!to_join || !repeatable(k, now)) return td_tokens_used();
        *out_token = k;
        return TD_OK;
    }
    if (td_credential_has_ended(k, now, 0)) return td_credential_ended(k);
    *out_token = k;
    if (k->role != TD_ROLE_JOIN) use(t, now, k); // its only use is td_tokens_spend
    return TD_OK;
}

td_status td_tokens_judge_certificate(struct td_credential_table *t, struct td_real now,
                                      const char *serial, const struct td_credential **out_token) {
    struct td_credential *k = td_credential_table_certificate(t, serial);
    if (k && td_credential_has_ended(k, now, 0)) return td_credential_ended(k);
    if (k) use(t, now, k);
    *out_token = k;
    return TD_OK;
}

void td_tokens_spend(struct td_credential_table *t, struct td_real now,
                     const struct td_credential *token,
                     const uint8_t used_by[TD_TLS_DIGEST_BYTES]) {
    struct td_credential *k = td_credential_table_get(t, TD_CREDENTIAL_TOKEN, token->id);
    TD_CHECK(k && k->role == TD_ROLE_JOIN);
    if (!k->use_ns) k->use_ns = k->revoke_ns = now.ns;
    td_credential_hex(used_by, TD_TLS_DIGEST_BYTES, k->used_by);
    td_credential_table_save(t, k);
}
