// Two machines with one id share a copied state directory. Most differ in their boot and in their
// address; a machine that has just booted keeps its address, so it is not taken for another.
// Containers of one machine have one boot, and those that share a router have one address.
// Of these a random number says which start of a daemon speaks: one that was driven out and comes
// back was not followed by another start of itself.

#include "daemon/coordinator/core/nodes/register_check.h"

#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/core/model/hosts.h"
#include "daemon/coordinator/core/model/model.h"
#include "lib/attempt/segments.h"
#include "lib/base/clip.h"
#include "lib/base/utf8.h"
#include "lib/spec/language.h"
#include "lib/version/version.h"

enum { MAX_SLOTS = 4096, MAX_HELD = 4096 };

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
    const struct td_host *n;
    for (size_t cursor = 0; (n = td_map_each(core->nodes, &cursor));) {
        if (n->session && !n->lost && strcmp(n->id, id) != 0 && strcmp(n->name, name) == 0) {
            return n;
        }
    }
    return NULL;
}

// Its launchers and ours would not understand each other.
static td_status check_build(const Traind__V1__Register *m) {
    if (m->launcher_major == TD_LAUNCHER_MAJOR) return TD_OK;
    return td_status_with_reason(
        td_fail(TD_FAILED_PRECONDITION,
                "this node is traind %.40s, whose launchers speak version %u; the coordinator is "
                "traind %s and reads version %d: install one release on both",
                m->version, m->launcher_major, td_version, TD_LAUNCHER_MAJOR),
        "ABI_MISMATCH");
}

bool td_register_is_mismatch(td_status borrow_status) {
    return strcmp(td_status_reason(borrow_status), "ABI_MISMATCH") == 0;
}

void td_register_judge(struct td_host *n, const Traind__V1__Register *m) {
    static const char rest[] = "It gets no jobs, and what runs on it goes on: install one release "
                               "on both";
    char language[TD_DIGEST_HEX];
    td_spec_language(language);
    n->unfit[0] = '\0';
    n->trouble[0] = '\0'; // its first heartbeat says it again
    n->refused = false;
    if (!m->plan_language[0]) {
        (void)td_clip(
            n->unfit, sizeof n->unfit,
            "this node is traind %.40s, an older build, which does not say what plans its "
            "ranks read; the coordinator is traind %s. %s",
            m->version, td_version, rest);
    } else if (strcmp(m->plan_language, language) != 0) {
        (void)td_clip(n->unfit, sizeof n->unfit,
                      "this node is traind %.40s, whose ranks read plans of another form (%.32s); "
                      "the coordinator is traind %s and writes form %s. %s",
                      m->version, m->plan_language, td_version, language, rest);
    }
    td_utf8_scrub(n->unfit);
}

const char *td_register_bad(const Traind__V1__Register *m) {
    size_t len = strlen(m->node_id);
    if (!len || len >= sizeof((struct td_host *)0)->id) return "node_id must have 1 to 63 bytes";
    for (const char *c = m->node_id; *c; c++) {
        if (*c <= ' ' || *c > '~' || *c == '/' || *c == '"') {
            return "node_id holds a byte that ids do not have";
        }
    }
    if (!m->cores || !m->slots || m->slots > MAX_SLOTS) return "cores or slots out of range";
    if (m->n_attempts > MAX_HELD) return "too many attempts";
    return NULL;
}

void td_register_fill(struct td_host *n, const struct td_node_session *s,
                      const Traind__V1__Register *m) {
    bool same = strcmp(n->boot_id, m->boot_id) == 0 && strcmp(n->plugins, m->plugins) == 0;
    if (!same) (void)td_host_devices_forget(&n->devices); // it will report them
    td_host_devices_forget_refused(&n->devices);
    n->devices.withheld = !m->devices;
    td_host_set_kinds(n, m->commands, m->programs);
    td_host_gpus_register(&n->gpus, m->gpus, strcmp(n->boot_id, m->boot_id) != 0);
    n->devices.no_gpus = !m->gives_gpus;
    (void)td_host_devices_take_gpus(&n->devices, &n->gpus);
    snprintf(n->boot_id, sizeof n->boot_id, "%s", m->boot_id);
    (void)td_clip(n->name, sizeof n->name, "%s", m->name[0] ? m->name : m->node_id);
    snprintf(n->version, sizeof n->version, "%s", m->version);
    snprintf(n->cpu_level, sizeof n->cpu_level, "%s", m->cpu_level);
    snprintf(n->cpu_level_held, sizeof n->cpu_level_held, "%s", m->cpu_level_held);
    snprintf(n->plugins, sizeof n->plugins, "%s", m->plugins);
    snprintf(n->collective_address, sizeof n->collective_address, "%s", m->collective_address);
    n->accelerators[0] = '\0';
    for (size_t i = 0; i < m->n_accelerators; i++) {
        size_t len = strlen(n->accelerators);
        snprintf(n->accelerators + len, sizeof n->accelerators - len, "%s%s", i ? "," : "",
                 m->accelerators[i]);
    }
    char *const texts[] = {n->boot_id,   n->name,           n->version, n->accelerators,
                           n->cpu_level, n->cpu_level_held, n->plugins, n->collective_address};
    for (size_t i = 0; i < TD_COUNTOF(texts); i++) {
        td_utf8_scrub(texts[i]); // any of them may have been cut
    }
    n->first_port = m->first_port;
    n->last_port = TD_MAX(m->last_port, m->first_port);
    n->cores = m->cores;
    n->slots = m->slots;
    n->memory_bytes = m->memory_bytes;
    n->launcher_major = m->launcher_major;
    n->embedded = s->embedded;
    n->keyed = m->keyed;
    n->ranks_language = m->ranks_language;
    memcpy(n->holder, s->holder, sizeof n->holder);
    memcpy(n->from, s->from, sizeof n->from);
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
