// See the header. Found by id for each call; everything else looks at all of them, and is rare.

#include "daemon/coordinator/shell/access/members.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/shell/databases/rows.h"
#include "lib/base/arena.h"
#include "lib/base/buf.h"
#include "lib/base/json.h"
#include "lib/base/map.h"
#include "lib/tls/certificate.h"

enum { BODY_MAX = 4096 };
static const uint64_t first_identity = UINT64_C(1) << 49;

struct td_member_table {
    struct td_map *by_id;
    uint64_t n_identities;
    struct td_rows rows;
};

td_status td_member_table_create(struct td_member_table **out_members) {
    struct td_member_table *t = td_calloc(1, sizeof *t);
    if (!t) return td_fail_oom();
    td_status s = td_map_create(TD_MEMBERS_MAX + 1, &t->by_id);
    if (s) {
        free(t);
        return s;
    }
    *out_members = t;
    return TD_OK;
}

const struct td_member *td_member_table_next(const struct td_member_table *t, size_t *cursor) {
    const char *key;
    void *value;
    return td_map_next(t->by_id, cursor, &key, &value) ? value : NULL;
}

void td_member_table_destroy(struct td_member_table *t) {
    if (!t) return;
    size_t cursor = 0;
    const char *key;
    void *value;
    while (td_map_next(t->by_id, &cursor, &key, &value)) {
        free(value);
    }
    td_map_destroy(t->by_id);
    td_rows_finish(&t->rows);
    free(t);
}

// ---- rows ---------------------------------------------------------------------------------------
static void save(struct td_member_table *t, const struct td_member *m) {
    TD_AUTO_BUF body;
    td_buf_init(&body, BODY_MAX);
    td_status s = td_buf_str(&body, "{\"name\":");
    if (!s) s = td_json_print_string(m->name, strlen(m->name), &body);
    if (!s) {
        s = td_buf_printf(&body,
                          ",\"serial\":\"%s\",\"before\":\"%s\",\"address\":\"%s\",\"join_ns\":"
                          "%" PRId64 ",\"expire_ns\":%" PRId64 ",\"revoke_ns\":%" PRId64 "}",
                          m->serial, m->before, m->address, m->join_ns, m->expire_ns, m->revoke_ns);
    }
    TD_CHECK(!s && "out of memory: start again from the disk");
    td_rows_put(&t->rows, TD_RECORD_MEMBER, m->id, td_buf_cstr(&body));
}

struct td_record *td_member_table_take(struct td_member_table *t) {
    return td_rows_take(&t->rows);
}

static td_status add(struct td_member_table *t, const char *id, struct td_member **out) {
    TD_AUTO_FREE struct td_member *m = td_calloc(1, sizeof *m);
    if (!m) return td_fail_oom();
    snprintf(m->id, sizeof m->id, "%s", id);
    m->identity = first_identity + t->n_identities++;
    TD_TRY(td_map_put(t->by_id, m->id, m, NULL));
    *out = td_steal(m);
    return TD_OK;
}

// Printable, without blanks, quotes and slashes; fits.
static bool is_word(const char *s, size_t bytes) {
    for (const char *c = s; *c; c++) {
        if (*c <= ' ' || *c > '~' || *c == '"' || *c == '\\' || *c == '/') return false;
    }
    return s[0] && strlen(s) < bytes;
}

td_status td_member_table_load(struct td_member_table *t, const char *key, const char *body) {
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *v = NULL;
    struct td_member *m = NULL;
    TD_TRY(td_arena_create((size_t)64 << 10, &arena));
    TD_TRY_CTX(td_json_parse(arena, body, strlen(body), &v), "state.db, member '%s'", key);
    const char *serial = td_json_string(td_json_get(v, "serial"), "");
    const char *before = td_json_string(td_json_get(v, "before"), "");
    if (!is_word(key, TD_MEMBER_ID) || !serial[0] || !td_certificate_is_serial(serial) ||
        !td_certificate_is_serial(before)) {
        return td_fail(TD_DATA_LOSS, "state.db, member '%s': its id or its certificate is none",
                       key);
    }
    TD_TRY(add(t, key, &m));
    snprintf(m->name, sizeof m->name, "%s", td_json_string(td_json_get(v, "name"), ""));
    snprintf(m->serial, sizeof m->serial, "%s", serial);
    snprintf(m->before, sizeof m->before, "%s", before);
    snprintf(m->address, sizeof m->address, "%s", td_json_string(td_json_get(v, "address"), ""));
    m->join_ns = td_json_int(td_json_get(v, "join_ns"), 0);
    m->expire_ns = td_json_int(td_json_get(v, "expire_ns"), 0);
    m->revoke_ns = td_json_int(td_json_get(v, "revoke_ns"), 0);
    return TD_OK;
}

// ---- joining ------------------------------------------------------------------------------------
static int64_t end_of(const struct td_member *m) {
    return m->revoke_ns ? m->revoke_ns : m->expire_ns;
}

static bool has_ended(const struct td_member *m, struct td_real now, int64_t excuse_ns) {
    return m->revoke_ns || now.ns >= m->expire_ns + excuse_ns;
}

static const struct td_member *oldest_ended(const struct td_member_table *t, struct td_real now) {
    const struct td_member *oldest = NULL, *m;
    size_t cursor = 0;
    while ((m = td_member_table_next(t, &cursor))) {
        if (!has_ended(m, now, 0)) continue;
        if (!oldest || end_of(m) < end_of(oldest)) oldest = m;
    }
    return oldest;
}

static td_status exists(const struct td_member *m, const char *what) {
    return td_status_with_reason(
        td_fail(TD_ALREADY_EXISTS,
                "node %s ('%s') joined from %s and has this %s; if it is this machine, or is gone, "
                "`trainctl node revoke %s` makes room, else give this one %s of its own",
                m->id, m->name, m->address, what, m->id,
                what[0] == 'i' ? "a state directory" : "a --name"),
        "NODE_EXISTS");
}

td_status td_member_table_may_join(const struct td_member_table *t, struct td_real now,
                                   int64_t excuse_ns, const char *id, const char *name) {
    if (!is_word(id, TD_MEMBER_ID) || !is_word(name, TD_MEMBER_NAME)) {
        return td_status_with_reason(
            td_fail(TD_INVALID_ARGUMENT,
                    "node_id and name: printable, without blanks, quotes and slashes, at most %d "
                    "and %d bytes",
                    TD_MEMBER_ID - 1, TD_MEMBER_NAME - 1),
            "FIELD_INVALID");
    }
    const struct td_member *m;
    size_t cursor = 0;
    while ((m = td_member_table_next(t, &cursor))) {
        if (has_ended(m, now, excuse_ns)) continue;
        if (strcmp(m->id, id) == 0) return exists(m, "id");
        if (strcmp(m->name, name) == 0) return exists(m, "name");
    }
    if (td_map_get(t->by_id, id) || td_map_count(t->by_id) < TD_MEMBERS_MAX ||
        oldest_ended(t, now)) {
        return TD_OK;
    }
    return td_status_with_reason(td_fail(TD_RESOURCE_EXHAUSTED,
                                         "%d nodes are members; revoke those that are gone",
                                         TD_MEMBERS_MAX),
                                 "LIMIT_MEMBERS");
}

td_status td_member_table_may_name(const struct td_member_table *t, struct td_real now,
                                   int64_t excuse_ns, const char *id, const char *name) {
    const struct td_member *m;
    size_t cursor = 0;
    while ((m = td_member_table_next(t, &cursor))) {
        const bool is_its = strcmp(m->id, id) != 0 && strcmp(m->name, name) == 0;
        if (is_its && !has_ended(m, now, excuse_ns)) return exists(m, "name");
    }
    return TD_OK;
}

static void set(struct td_member_table *t, struct td_member *m, const char *before,
                const char *address, const struct td_certificate *certificate) {
    char was[TD_TLS_SERIAL_BYTES];
    snprintf(was, sizeof was, "%s", before); // it may be one of the two
    memcpy(m->before, was, sizeof was);
    snprintf(m->serial, sizeof m->serial, "%s", certificate->serial);
    snprintf(m->address, sizeof m->address, "%s", address);
    m->expire_ns = certificate->valid_until_s * TD_NS_PER_S;
    m->cut = false;
    save(t, m);
}

const struct td_member *td_member_table_join(struct td_member_table *t, struct td_real now,
                                             const char *id, const char *name, const char *address,
                                             const struct td_certificate *certificate) {
    struct td_member *m = td_map_get(t->by_id, id);
    if (!m && td_map_count(t->by_id) >= TD_MEMBERS_MAX) {
        const struct td_member *oldest = oldest_ended(t, now);
        TD_CHECK(oldest);
        td_rows_put(&t->rows, TD_RECORD_MEMBER, oldest->id, NULL);
        free(td_map_remove(t->by_id, oldest->id));
    }
    if (!m) TD_CHECK(!add(t, id, &m) && "out of memory: start again from the disk");
    snprintf(m->name, sizeof m->name, "%s", name);
    m->join_ns = now.ns;
    m->revoke_ns = 0;
    set(t, m, "", address, certificate);
    return m;
}

void td_member_table_renew(struct td_member_table *t, const struct td_member *member,
                           const char *serial, const char *address,
                           const struct td_certificate *certificate) {
    set(t, td_map_get(t->by_id, member->id), serial, address, certificate);
}

// ---- taking back --------------------------------------------------------------------------------
static struct td_member *named(const struct td_member_table *t, const char *node) {
    struct td_member *found = td_map_get(t->by_id, node);
    size_t cursor = 0;
    const char *key;
    void *value;
    while (!found && td_map_next(t->by_id, &cursor, &key, &value)) {
        struct td_member *m = value;
        if (!m->revoke_ns && strcmp(m->name, node) == 0) found = m;
    }
    return found;
}

td_status td_member_table_revoke(struct td_member_table *t, struct td_real now, const char *node,
                                 const struct td_member **out_member) {
    struct td_member *m = named(t, node);
    if (!m) {
        return td_status_with_reason(
            td_fail(TD_NOT_FOUND,
                    "no node has joined by the id or name '%.80s' (`trainctl node list`); one that "
                    "came with a token ends with `trainctl token revoke`",
                    node),
            "NODE_NOT_FOUND");
    }
    if (!m->revoke_ns) {
        m->revoke_ns = now.ns;
        save(t, m);
    }
    *out_member = m;
    return TD_OK;
}

// ---- judging ------------------------------------------------------------------------------------
td_status td_member_table_judge(const struct td_member_table *t, const char *id, const char *serial,
                                const struct td_member **out_member) {
    const struct td_member *m = td_map_get(t->by_id, id);
    if (!m || !*serial || (strcmp(m->serial, serial) != 0 && strcmp(m->before, serial) != 0)) {
        return td_status_with_reason(
            td_fail(TD_UNAUTHENTICATED,
                    "this coordinator knows no such certificate of '%s' (serial %s): a newer one "
                    "has replaced it, or it was never given here; a node joins with a new token, a "
                    "person asks an admin for another",
                    id, serial),
            "CERTIFICATE_UNKNOWN");
    }
    if (m->revoke_ns) {
        return td_status_with_reason(
            td_fail(TD_UNAUTHENTICATED,
                    "the certificate of node '%s' was revoked; join with a new token", id),
            "CERTIFICATE_REVOKED");
    }
    *out_member = m;
    return TD_OK;
}

const struct td_member *td_member_table_by_id(const struct td_member_table *t, const char *id) {
    return td_map_get(t->by_id, id);
}

const struct td_member *td_member_table_find(const struct td_member_table *t, uint64_t identity) {
    const struct td_member *m;
    size_t cursor = 0;
    while (identity >= first_identity && (m = td_member_table_next(t, &cursor))) {
        if (m->identity == identity) return m;
    }
    return NULL;
}

const struct td_member *td_member_table_expired(struct td_member_table *t, struct td_real now) {
    size_t cursor = 0;
    const char *key;
    void *value;
    while (td_map_next(t->by_id, &cursor, &key, &value)) {
        struct td_member *m = value;
        if (m->cut || m->revoke_ns || now.ns < m->expire_ns) continue;
        m->cut = true;
        return m;
    }
    return NULL;
}

int64_t td_member_table_next_expiry(const struct td_member_table *t) {
    int64_t next = 0;
    size_t cursor = 0;
    const struct td_member *m;
    while ((m = td_member_table_next(t, &cursor))) {
        bool waits = m->expire_ns && !m->cut && !m->revoke_ns;
        if (waits && (!next || m->expire_ns < next)) next = m->expire_ns;
    }
    return next;
}
