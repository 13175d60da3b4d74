// See the header. One list of fields says what a row of either kind holds.

#include "daemon/coordinator/shell/access/credentials.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/shell/databases/rows.h"
#include "lib/base/arena.h"
#include "lib/base/buf.h"
#include "lib/base/json.h"
#include "lib/base/map.h"
#include "lib/tls/certificate.h"

enum { BODY_MAX = 4096, ARENA_MAX = 64 << 10 };
// Identities of tokens are 2^48 and above, by their ids; those of members of this start.
static const uint64_t first_member = UINT64_C(1) << 49;

static const struct kind {
    enum td_record_kind record;
    size_t most;
    const char *row; // of state.db, for people
    const char *damage;
} kinds[] = {
    [TD_CREDENTIAL_TOKEN] = {TD_RECORD_TOKEN, 2 * (size_t)TD_TOKENS_MAX, "token",
                             "its name, role or digest is none"},
    [TD_CREDENTIAL_MEMBER] = {TD_RECORD_MEMBER, TD_MEMBERS_MAX, "member",
                              "its id or its certificate is none"},
};
_Static_assert(TD_COUNTOF(kinds) == TD_CREDENTIAL_KINDS, "one row per kind");

struct td_credential_table {
    struct td_map *by_id[TD_CREDENTIAL_KINDS];
    struct td_map *by_serial; // of people's certificates; borrowed from by_id
    uint64_t n_members;
    struct td_rows rows;
};

td_status td_credential_table_create(struct td_credential_table **out_table) {
    TD_AUTO(td_credential_table) *t = td_calloc(1, sizeof *t);
    if (!t) return td_fail_oom();
    for (size_t k = 0; k < TD_CREDENTIAL_KINDS; k++) {
        TD_TRY(td_map_create(kinds[k].most + 1, &t->by_id[k]));
    }
    TD_TRY(td_map_create(kinds[TD_CREDENTIAL_TOKEN].most + 1, &t->by_serial));
    *out_table = td_steal(t);
    return TD_OK;
}

void td_credential_table_destroy(struct td_credential_table *t) {
    if (!t) return;
    for (enum td_credential_kind k = 0; k < TD_CREDENTIAL_KINDS; k++) {
        size_t cursor = 0;
        for (void *c; t->by_id[k] && (c = td_credential_table_next(t, k, &cursor));) {
            free(c);
        }
        td_map_destroy(t->by_id[k]);
    }
    td_map_destroy(t->by_serial);
    td_rows_finish(&t->rows);
    free(t);
}

// ---- reading ------------------------------------------------------------------------------------
struct td_credential *td_credential_table_next(const struct td_credential_table *t,
                                               enum td_credential_kind kind, size_t *cursor) {
    const char *key;
    void *value;
    return td_map_next(t->by_id[kind], cursor, &key, &value) ? value : NULL;
}

struct td_credential *td_credential_table_get(const struct td_credential_table *t,
                                              enum td_credential_kind kind, const char *id) {
    return td_map_get(t->by_id[kind], id);
}

struct td_credential *td_credential_table_certificate(const struct td_credential_table *t,
                                                      const char *serial) {
    return td_map_get(t->by_serial, serial);
}

const struct td_credential *td_credential_table_find(const struct td_credential_table *t,
                                                     uint64_t identity) {
    char id[TD_TOKEN_ID];
    const struct td_credential *c;
    size_t cursor = 0;
    if (identity >> 48 == 1) {
        snprintf(id, sizeof id, "%012" PRIx64, identity & ((UINT64_C(1) << 48) - 1));
        return td_map_get(t->by_id[TD_CREDENTIAL_TOKEN], id);
    }
    while (identity >= first_member &&
           (c = td_credential_table_next(t, TD_CREDENTIAL_MEMBER, &cursor))) {
        if (c->identity == identity) return c;
    }
    return NULL;
}

bool td_credential_has_ended(const struct td_credential *c, struct td_real now, int64_t excuse_ns) {
    return c->revoke_ns || (c->expire_ns && now.ns >= c->expire_ns + excuse_ns);
}

td_status td_credential_ended(const struct td_credential *c) {
    const bool is_member = c->kind == TD_CREDENTIAL_MEMBER, revoked = c->revoke_ns;
    const char *how = revoked ? "was revoked" : "has expired",
               *then = !is_member ? "ask an admin for another"
                       : revoked  ? "join with a new token"
                                  : "renew it";
    if (!c->serial[0]) {
        return td_status_with_reason(td_fail(TD_UNAUTHENTICATED, "this token %s; %s", how, then),
                                     revoked ? "TOKEN_REVOKED" : "TOKEN_EXPIRED");
    }
    return td_status_with_reason(td_fail(TD_UNAUTHENTICATED, "the certificate of %s'%s' %s; %s",
                                         is_member ? "node " : "", is_member ? c->id : c->name, how,
                                         then),
                                 revoked ? "CERTIFICATE_REVOKED" : "CERTIFICATE_EXPIRED");
}

// The one that expires first, of those whose end somebody waits for; NULL: none.
static struct td_credential *first_to_expire(const struct td_credential_table *t) {
    struct td_credential *first = NULL, *c;
    for (enum td_credential_kind k = 0; k < TD_CREDENTIAL_KINDS; k++) {
        size_t cursor = 0;
        while ((c = td_credential_table_next(t, k, &cursor))) {
            if (!c->expire_ns || c->cut || c->revoke_ns) continue;
            if (!first || c->expire_ns < first->expire_ns) first = c;
        }
    }
    return first;
}

const struct td_credential *td_credential_table_expired(struct td_credential_table *t,
                                                        struct td_real now) {
    struct td_credential *c = first_to_expire(t);
    if (!c || now.ns < c->expire_ns) return NULL;
    c->cut = true;
    return c;
}

int64_t td_credential_table_next_expiry(const struct td_credential_table *t) {
    const struct td_credential *c = first_to_expire(t);
    return c ? c->expire_ns : 0;
}

// ---- room ---------------------------------------------------------------------------------------
static int64_t end_of(const struct td_credential *c) {
    return c->revoke_ns ? c->revoke_ns : c->expire_ns;
}

static struct td_credential *oldest_ended(const struct td_credential_table *t,
                                          enum td_credential_kind kind, struct td_real now) {
    struct td_credential *oldest = NULL, *c;
    size_t cursor = 0;
    while ((c = td_credential_table_next(t, kind, &cursor))) {
        if (!td_credential_has_ended(c, now, 0)) continue;
        if (!oldest || end_of(c) < end_of(oldest)) oldest = c;
    }
    return oldest;
}

static bool is_full(const struct td_credential_table *t, enum td_credential_kind kind) {
    return td_map_count(t->by_id[kind]) >= kinds[kind].most;
}

bool td_credential_table_has_room(const struct td_credential_table *t, enum td_credential_kind kind,
                                  struct td_real now) {
    return !is_full(t, kind) || oldest_ended(t, kind, now);
}

static void make_room(struct td_credential_table *t, enum td_credential_kind kind,
                      struct td_real now) {
    struct td_credential *oldest = is_full(t, kind) ? oldest_ended(t, kind, now) : NULL;
    if (!oldest) return;
    td_rows_put(&t->rows, kinds[kind].record, oldest->id, NULL);
    td_map_remove(t->by_serial, oldest->serial);
    td_map_remove(t->by_id[kind], oldest->id);
    free(oldest);
}

static td_status keep(struct td_credential_table *t, const struct td_credential *made,
                      struct td_credential **out) {
    TD_AUTO_FREE struct td_credential *c = td_calloc(1, sizeof *c);
    if (!c) return td_fail_oom();
    *c = *made;
    const bool is_token = c->kind == TD_CREDENTIAL_TOKEN;
    if (!is_token) c->role = TD_ROLE_NODE;
    c->identity =
        is_token ? UINT64_C(1) << 48 | strtoull(c->id, NULL, 16) : first_member + t->n_members++;
    if (is_token && c->serial[0]) TD_TRY(td_map_put(t->by_serial, c->serial, c, NULL));
    td_status full = td_map_put(t->by_id[c->kind], c->id, c, NULL);
    if (full) {
        if (is_token) td_map_remove(t->by_serial, c->serial);
        return full;
    }
    *out = td_steal(c);
    return TD_OK;
}

td_status td_credential_table_add(struct td_credential_table *t, struct td_real now,
                                  const struct td_credential *made, struct td_credential **out) {
    make_room(t, made->kind, now);
    return keep(t, made, out);
}

// ---- rows ---------------------------------------------------------------------------------------
enum { OF_TOKENS = 1 << TD_CREDENTIAL_TOKEN, OF_MEMBERS = 1 << TD_CREDENTIAL_MEMBER };

#define TEXT(kinds, key, field)                                                                    \
    { kinds, key, offsetof(struct td_credential, field), sizeof((struct td_credential){0}.field) }
#define NUMBER(kinds, key, field)                                                                  \
    { kinds, key, offsetof(struct td_credential, field), 0 }
// In the order in which they are written: by the first, a salvage knows the row (salvage_pages.c).
static const struct field {
    int kinds;
    const char *key;
    size_t at, text_bytes; // 0: a number
} fields[] = {
    TEXT(OF_TOKENS | OF_MEMBERS, "name", name),
    TEXT(OF_TOKENS, "sha256", sha256),
    TEXT(OF_TOKENS | OF_MEMBERS, "serial", serial),
    TEXT(OF_TOKENS, "used_by", used_by),
    TEXT(OF_MEMBERS, "before", before),
    TEXT(OF_MEMBERS, "address", address),
    NUMBER(OF_TOKENS, "create_ns", create_ns),
    NUMBER(OF_MEMBERS, "join_ns", create_ns),
    NUMBER(OF_TOKENS | OF_MEMBERS, "expire_ns", expire_ns),
    NUMBER(OF_TOKENS, "use_ns", use_ns),
    NUMBER(OF_TOKENS | OF_MEMBERS, "revoke_ns", revoke_ns),
};

static td_status print(const struct td_credential *c, struct td_buf *out) {
    TD_AUTO(td_arena) *arena = NULL;
    TD_TRY(td_arena_create(ARENA_MAX, &arena));
    struct td_json *row = td_json_new(arena, TD_JSON_OBJECT);
    bool ok = true;
    for (size_t i = 0; i < TD_COUNTOF(fields); i++) {
        const struct field *f = &fields[i];
        const char *at = (const char *)c + f->at;
        int64_t number = 0;
        if (!(f->kinds >> c->kind & 1)) continue;
        if (!f->text_bytes) memcpy(&number, at, sizeof number);
        ok &= td_json_set(arena, row, f->key,
                          f->text_bytes ? td_json_new_string(arena, at)
                                        : td_json_new_int(arena, number));
    }
    if (c->kind == TD_CREDENTIAL_TOKEN) {
        const char *role = td_access_role_name(c->role);
        ok &= td_json_set(arena, row, "role", td_json_new_string(arena, role));
    }
    return ok ? td_json_print(row, false, out) : td_fail_oom();
}

void td_credential_table_save(struct td_credential_table *t, struct td_credential *c) {
    TD_AUTO_BUF body;
    td_buf_init(&body, BODY_MAX);
    c->kept_use_ns = c->use_ns;
    TD_CHECK(!print(c, &body) && "out of memory: start again from the disk");
    td_rows_put(&t->rows, kinds[c->kind].record, c->id, td_buf_cstr(&body));
}

struct td_record *td_credential_table_take(struct td_credential_table *t) {
    return td_rows_take(&t->rows);
}

bool td_credential_word_ok(const char *s, size_t bytes) {
    for (const char *c = s; *c; c++) {
        if (*c <= ' ' || *c > '~' || *c == '"' || *c == '\\' || *c == '/') return false;
    }
    return s[0] && strlen(s) < bytes;
}

bool td_credential_name_ok(const char *name) {
    const size_t n = strlen(name);
    return n > 0 && n < TD_TOKEN_NAME &&
           strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-@") == n;
}

void td_credential_hex(const uint8_t *bytes, size_t n, char *out) {
    for (size_t i = 0; i < n; i++) {
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    }
}

static bool is_hex(const char *text, size_t n) {
    return strlen(text) == n && strspn(text, "0123456789abcdef") == n;
}

static enum td_access_role parse_role(const char *name) {
    for (int r = TD_ROLE_VIEWER; r < TD_ROLE_COUNT; r++) {
        const enum td_access_role role = (enum td_access_role)r;
        if (strcmp(td_access_role_name(role), name) == 0) return role;
    }
    return TD_ROLE_NONE;
}

static bool is_whole(const struct td_credential *c) {
    if (!td_certificate_is_serial(c->serial)) return false;
    if (c->kind == TD_CREDENTIAL_MEMBER) {
        return td_credential_word_ok(c->id, sizeof c->id) && c->serial[0] &&
               td_certificate_is_serial(c->before);
    }
    return is_hex(c->id, TD_TOKEN_ID - 1) && td_credential_name_ok(c->name) && c->role &&
           is_hex(c->sha256, sizeof c->sha256 - 1);
}

// False: a text is longer than any that is written.
static bool decode(const struct td_json *v, struct td_credential *c) {
    for (size_t i = 0; i < TD_COUNTOF(fields); i++) {
        const struct field *f = &fields[i];
        char *at = (char *)c + f->at;
        const struct td_json *value = td_json_get(v, f->key);
        const char *text = td_json_string(value, "");
        const int64_t number = td_json_int(value, 0);
        if (!(f->kinds >> c->kind & 1)) continue;
        if (!f->text_bytes) {
            memcpy(at, &number, sizeof number);
        } else if ((size_t)snprintf(at, f->text_bytes, "%s", text) >= f->text_bytes) {
            return false;
        }
    }
    c->role = parse_role(td_json_string(td_json_get(v, "role"), ""));
    c->kept_use_ns = c->use_ns;
    return true;
}

td_status td_credential_table_load(struct td_credential_table *t, enum td_credential_kind kind,
                                   const char *key, const char *body) {
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *v = NULL;
    struct td_credential read = {.kind = kind}, *c;
    TD_TRY(td_arena_create(ARENA_MAX, &arena));
    TD_TRY_CTX(td_json_parse(arena, body, strlen(body), &v), "state.db, %s '%s'", kinds[kind].row,
               key);
    const bool fits = (size_t)snprintf(read.id, sizeof read.id, "%s", key) < sizeof read.id;
    if (!fits || !decode(v, &read) || !is_whole(&read)) {
        return td_fail(TD_DATA_LOSS, "state.db, %s '%s': %s", kinds[kind].row, key,
                       kinds[kind].damage);
    }
    return keep(t, &read, &c);
}
