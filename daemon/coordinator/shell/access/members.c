// See the header. Found by id for each call; everything else looks at all of them, and is rare.

#include "daemon/coordinator/shell/access/members.h"

#include <stdio.h>
#include <string.h>

// ---- joining ------------------------------------------------------------------------------------
static struct td_credential *get(const struct td_credential_table *t, const char *id) {
    return td_credential_table_get(t, TD_CREDENTIAL_MEMBER, id);
}

static struct td_credential *next(const struct td_credential_table *t, size_t *cursor) {
    return td_credential_table_next(t, TD_CREDENTIAL_MEMBER, cursor);
}

static td_status exists(const struct td_credential *m, const char *what) {
    return td_status_with_reason(
        td_fail(TD_ALREADY_EXISTS,
                "node %s ('%s') joined from %s and has this %s; if it is this machine, or is gone, "
                "`trainctl node revoke %s` makes room, else give this one %s of its own",
                m->id, m->name, m->address, what, m->id,
                what[0] == 'i' ? "a state directory" : "a --name"),
        "NODE_EXISTS");
}

td_status td_members_may_join(const struct td_credential_table *t, struct td_real now,
                              int64_t excuse_ns, const char *id, const char *name) {
    if (!td_credential_word_ok(id, TD_CREDENTIAL_ID) ||
        !td_credential_word_ok(name, TD_CREDENTIAL_NAME)) {
        return td_status_with_reason(
            td_fail(TD_INVALID_ARGUMENT,
                    "node_id and name: printable, without blanks, quotes and slashes, at most %d "
                    "and %d bytes",
                    TD_CREDENTIAL_ID - 1, TD_CREDENTIAL_NAME - 1),
            "FIELD_INVALID");
    }
    const struct td_credential *m;
    size_t cursor = 0;
    while ((m = next(t, &cursor))) {
        if (td_credential_has_ended(m, now, excuse_ns)) continue;
        if (strcmp(m->id, id) == 0) return exists(m, "id");
        if (strcmp(m->name, name) == 0) return exists(m, "name");
    }
    if (get(t, id) || td_credential_table_has_room(t, TD_CREDENTIAL_MEMBER, now)) return TD_OK;
    return td_status_with_reason(td_fail(TD_RESOURCE_EXHAUSTED,
                                         "%d nodes are members; revoke those that are gone",
                                         TD_MEMBERS_MAX),
                                 "LIMIT_MEMBERS");
}

td_status td_members_may_name(const struct td_credential_table *t, struct td_real now,
                              int64_t excuse_ns, const char *id, const char *name) {
    const struct td_credential *m;
    size_t cursor = 0;
    while ((m = next(t, &cursor))) {
        const bool is_its = strcmp(m->id, id) != 0 && strcmp(m->name, name) == 0;
        if (is_its && !td_credential_has_ended(m, now, excuse_ns)) return exists(m, "name");
    }
    return TD_OK;
}

static void set(struct td_credential_table *t, struct td_credential *m, const char *before,
                const char *address, const struct td_certificate *certificate) {
    char was[TD_TLS_SERIAL_BYTES];
    snprintf(was, sizeof was, "%s", before); // it may be one of the two
    memcpy(m->before, was, sizeof was);
    snprintf(m->serial, sizeof m->serial, "%s", certificate->serial);
    snprintf(m->address, sizeof m->address, "%s", address);
    m->expire_ns = certificate->valid_until_s * TD_NS_PER_S;
    m->cut = false;
    td_credential_table_save(t, m);
}

const struct td_credential *td_members_join(struct td_credential_table *t, struct td_real now,
                                            const char *id, const char *name, const char *address,
                                            const struct td_certificate *certificate) {
    struct td_credential *m = get(t, id), made = {.kind = TD_CREDENTIAL_MEMBER};
    snprintf(made.id, sizeof made.id, "%s", id);
    if (!m) {
        TD_CHECK(!td_credential_table_add(t, now, &made, &m) &&
                 "out of memory: start again from the disk");
    }
    snprintf(m->name, sizeof m->name, "%s", name);
    m->create_ns = now.ns;
    m->revoke_ns = 0;
    set(t, m, "", address, certificate);
    return m;
}

void td_members_renew(struct td_credential_table *t, const struct td_credential *member,
                      const char *serial, const char *address,
                      const struct td_certificate *certificate) {
    set(t, get(t, member->id), serial, address, certificate);
}

// ---- taking back --------------------------------------------------------------------------------
static struct td_credential *named(const struct td_credential_table *t, const char *node) {
    struct td_credential *found = get(t, node), *m;
    size_t cursor = 0;
    while (!found && (m = next(t, &cursor))) {
        if (!m->revoke_ns && strcmp(m->name, node) == 0) found = m;
    }
    return found;
}

td_status td_members_revoke(struct td_credential_table *t, struct td_real now, const char *node,
                            const struct td_credential **out_member) {
    struct td_credential *m = named(t, node);
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
        td_credential_table_save(t, m);
    }
    *out_member = m;
    return TD_OK;
}

// ---- judging ------------------------------------------------------------------------------------
td_status td_members_judge(const struct td_credential_table *t, const char *id, const char *serial,
                           const struct td_credential **out_member) {
    const struct td_credential *m = get(t, id);
    if (!m || !*serial || (strcmp(m->serial, serial) != 0 && strcmp(m->before, serial) != 0)) {
        return td_status_with_reason(
            td_fail(TD_UNAUTHENTICATED,
                    "this coordinator knows no such certificate of '%s' (serial %s): a newer one "
                    "has replaced it, or it was never given here; a node joins with a new token, a "
                    "person asks an admin for another",
                    id, serial),
            "CERTIFICATE_UNKNOWN");
    }
    if (m->revoke_ns) return td_credential_ended(m);
    *out_member = m;
    return TD_OK;
}
