// See the header.

#include "daemon/coordinator/core/model/hosts.h"

#include <string.h>

#include "daemon/coordinator/core/model/model.h"
#include "lib/base/clip.h"
#include "lib/base/cpu_level.h"
#include "lib/version/version.h"

void td_host_destroy(void *host) {
    struct td_host *n = host;
    if (n) td_host_devices_finish(&n->devices);
    if (n) td_host_gpus_finish(&n->gpus);
    if (n) free(n->labels);
    free(n);
}

struct td_host *td_nodes_find(const struct td_core *core, const char *id) {
    return id && id[0] ? td_map_get(core->nodes, id) : NULL;
}

static bool is_loopback(const char *address) {
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0;
}

bool td_hosts_understand(const struct td_host *a, const struct td_host *b) {
    return a->ranks_language && a->ranks_language == b->ranks_language;
}

bool td_hosts_meet(const struct td_host *a, const struct td_host *b) {
    if (!td_hosts_understand(a, b)) return false;
    const char *x = a->collective_address, *y = b->collective_address;
    if (!x[0] || !y[0] || !strchr(x, ':') != !strchr(y, ':')) return false;
    if (!is_loopback(x) && !is_loopback(y)) return true;
    return is_loopback(x) && is_loopback(y) && strcmp(a->boot_id, b->boot_id) == 0;
}

bool td_host_connected(const struct td_host *n) {
    return n->session && !n->lost;
}

bool td_host_ready(const struct td_host *n) {
    return td_host_connected(n) && !n->unfit[0] && !n->trouble[0];
}

bool td_host_takes(const struct td_host *n) {
    return td_host_ready(n) && !n->cordon.on;
}

void td_host_set_kinds(struct td_host *n, bool commands, bool programs) {
    n->kinds = td_job_kind_bit(TD_KIND_TRAIN);
    if (commands) n->kinds |= td_job_kind_bit(TD_KIND_COMMAND);
    if (programs) n->kinds |= td_job_kind_bit(TD_KIND_PROGRAM);
}

void td_nodes_say_none(const struct td_core *core, char *out, size_t bytes) {
    const struct td_host *unfit = NULL, *troubled = NULL;
    const struct td_host *n;
    for (size_t cursor = 0; (n = td_map_each(core->nodes, &cursor));) {
        if (td_host_connected(n) && n->trouble[0]) troubled = n;
        if ((!n->refused && !td_host_connected(n)) || !n->unfit[0]) continue;
        if (!unfit || strcmp(n->name, unfit->name) < 0) unfit = n;
    }
    if (troubled) {
        (void)td_clip(out, bytes, "nothing can start on node %s: %s", troubled->name,
                      troubled->trouble);
        return;
    }
    if (unfit) {
        (void)td_clip(out, bytes,
                      "no node of a build that the coordinator understands is connected: %s is "
                      "traind %s, the coordinator is traind %s; `trainctl node list` says more",
                      unfit->name, unfit->version, td_version);
        return;
    }
    (void)td_clip(out, bytes, "%s",
                  td_map_count(core->nodes) ? "no node is connected"
                                            : "no node has registered yet");
}

bool td_host_has_level(const struct td_host *n, const char *level) {
    enum td_cpu_level has,
        wanted; // names that are not known here may be higher ones of later builds
    return !td_cpu_level_parse(level, &wanted) || !td_cpu_level_parse(n->cpu_level, &has) ||
           wanted <= has;
}

bool td_nodes_holds(const struct td_core *core, const struct td_attempt_part *p, uint64_t session,
                    const char *key) {
    const struct td_host *n = td_nodes_find(core, p->node);
    if (!n || p->state == TD_ATTEMPT_FENCED) return false;
    if (session) return n->session == session;
    return n->key[0] && ((!n->keyed && !n->holder[0]) || strcmp(n->key, key) == 0);
}

struct td_host *td_nodes_embedded_of(const struct td_core *core, const struct td_attempt *a) {
    for (uint32_t i = 0; i < a->n_parts; i++) {
        struct td_host *n = td_nodes_find(core, a->parts[i].node);
        if (n && n->embedded) return n;
    }
    return NULL;
}
