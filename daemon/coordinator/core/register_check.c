// Two machines with one id share a copied state directory. Most differ in their boot and in their
// address; a machine that has just booted keeps its address, so it is not taken for another.
// Containers of one machine have one boot, and those that share a router have one address.
// Of these a random number says which start of a daemon speaks: one that was driven out and comes
// back was not followed by another start of itself.

#include "daemon/coordinator/core/register_check.h"

#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/core/core_state.h"
#include "lib/attempt/segments.h"
#include "lib/spec/language.h"
#include "lib/version/version.h"

// Without the port.
static bool same_host(const char *a, const char *b) {
    const char *end_a = strrchr(a, ':'), *end_b = strrchr(b, ':');
    return end_a && end_b && end_a - a == end_b - b && memcmp(a, b, (size_t)(end_a - a)) == 0;
}

static td_status exists(const struct td_host *first, const char *what) {
    return td_status_with_reason(
        td_fail(TD_ALREADY_EXISTS,
                "node %s ('%s') has this %s and speaks from %s; give this machine %s of its own",
                first->id, first->name, what, first->from[0] ? first->from : "the coordinator",
                what[0] == 'i' ? "a state directory" : "a --name"),
        "NODE_EXISTS");
}

static const struct td_host *other_of_name(const struct td_core *core, const char *id,
                                           const char *name) {
    size_t cursor = 0;
    const char *key;
    void *value;
    while (td_map_next(core->nodes, &cursor, &key, &value)) {
        const struct td_host *n = value;
        if (n->session && !n->lost && strcmp(n->id, id) != 0 && strcmp(n->name, name) == 0) {
            return n;
        }
    }
    return NULL;
}

// What the two would not understand of each other: what launchers say, or what is in plans.
static td_status check_build(const Traind__V1__Register *m) {
    char language[TD_DIGEST_HEX];
    td_status s = TD_OK;
    td_spec_language(language);
    if (m->launcher_major != TD_LAUNCHER_MAJOR) {
        s = td_fail(TD_FAILED_PRECONDITION,
                    "this node is traind %.40s, whose launchers speak version %u; the coordinator "
                    "is traind %s and reads version %d: install one release on both",
                    m->version, m->launcher_major, td_version, TD_LAUNCHER_MAJOR);
    } else if (m->plan_language[0] && strcmp(m->plan_language, language) != 0) {
        s = td_fail(TD_FAILED_PRECONDITION,
                    "this node is traind %.40s, whose ranks read plans of another form (%.32s); "
                    "the coordinator is traind %s and writes form %s: install one release on both",
                    m->version, m->plan_language, td_version, language);
    }
    return s ? td_status_with_reason(s, "ABI_MISMATCH") : TD_OK;
}

static bool is_start(const char *a, const char *b) {
    return a[0] && strcmp(a, b) == 0;
}

td_status td_register_check(const struct td_core *core, const struct td_host *known,
                            const struct td_node_session *s, const Traind__V1__Register *m) {
    TD_TRY(check_build(m));
    bool lives = known && known->session && known->session != s->id && !known->lost;
    if (lives && is_start(known->copy, m->daemon)) return exists(known, "id");
    if (lives && !is_start(known->robbed, m->daemon) && strcmp(known->boot_id, m->boot_id) != 0 &&
        known->from[0] && s->from[0] && !same_host(known->from, s->from)) {
        return exists(known, "id");
    }
    const struct td_host *other = other_of_name(core, m->node_id, m->name);
    return other && m->name[0] ? exists(other, "name") : TD_OK;
}

bool td_register_take(struct td_host *known, const Traind__V1__Register *m) {
    bool robs = known->session && !known->lost && known->daemon[0] && m->daemon[0] &&
                strcmp(known->daemon, m->daemon) != 0;
    bool is_back = robs && is_start(known->robbed, m->daemon);
    if (is_start(known->copy, m->daemon)) known->copy[0] = '\0'; // nobody else is there
    if (is_back) memcpy(known->copy, known->daemon, sizeof known->copy);
    known->robbed[0] = '\0';
    if (robs && !is_back) memcpy(known->robbed, known->daemon, sizeof known->robbed);
    snprintf(known->daemon, sizeof known->daemon, "%s", m->daemon);
    return is_back;
}

td_status td_register_refuse_copy(const struct td_host *known) {
    return exists(known, "id");
}
