// Where a waiting job could run: the node that it takes now, or the one that is nearest to fitting
// it. Reads only; the queue decides and keeps places.
//
// A part goes to a node that has slots, devices and memory for its ranks. A job over several nodes
// takes the best of these, those of the highest CPU level first, since all its ranks run at the
// lowest level of its nodes. All of them are of one network (td_hosts_meet): one that could hold
// all parts, and of these the one where most have room. Nodes whose ranks do not understand each
// other (languages.h) are of different networks in this sense.
//
// A node is best-fit: the least free slots that suffice, first the one that has the newest
// checkpoint, and before it those whose devices are known. A job whose newest checkpoint is on one
// node only goes there or nowhere; one over several nodes has that one among them. A node without
// the CPU level that the job asks for is left out where another one with its labels has it. A node
// that lost a launcher of the job is avoided while another known node is large enough. A node that
// is cordoned takes no part, and is remembered for the reason.

#include "daemon/coordinator/core/queue/match.h"

#include <limits.h>
#include <string.h>

#include "daemon/coordinator/core/catalog/catalog.h"
#include "daemon/coordinator/core/model/hosts.h"
#include "daemon/coordinator/core/model/job.h"
#include "daemon/coordinator/core/model/model.h"
#include "daemon/coordinator/core/plans/capacity.h"
#include "daemon/coordinator/core/plans/gpu_capacity.h"
#include "daemon/coordinator/core/plans/plans_cache.h"
#include "lib/base/cpu_level.h"
#include "lib/job/labels.h"

uint32_t td_match_slots(const struct td_job *j, const struct td_host *n) {
    return td_capacity_slots_of(&j->knobs.resources, td_job_node_ranks(j), n);
}

uint32_t td_match_free(const struct td_host *n) {
    if (n->settling || n->reserved || n->cordon.on) return 0;
    return n->used < n->slots ? n->slots - n->used : 0;
}

// What is reserved or kept for the job itself is free to it, whatever a later one has reserved.
static uint32_t free_for(const struct td_job *j, const struct td_host *n) {
    if (n->settling || n->cordon.on || (n->reserved && n->reserved < j->turn)) return 0;
    const uint32_t own = n->kept_for == j->turn ? td_match_slots(j, n) : 0;
    const uint32_t used = n->used - TD_MIN(own, n->used);
    return used < n->slots ? n->slots - used : 0;
}

// ---- where? -------------------------------------------------------------------------------------
const char *td_match_pinned(const struct td_job *j) {
    const struct td_checkpoint *c = td_catalog_find(j, NULL);
    if (!c || c->streamed || j->knobs.checkpoint.dir[0]) return NULL;
    return c->node;
}

// trainer.cpu_level; of a job without a spec (its record was lost), "".
const char *td_match_level(const struct td_job *j) {
    return j->knobs.cpu_level;
}

static bool has_labels(const struct td_job *j, const struct td_host *n) {
    return td_labels_have(n->labels, j->knobs.node_labels);
}

// A known node with its labels has the CPU level that the job asks for: those that do not are left
// out. Where none has, any will do to say so, and what it has.
static bool some_has_level(const struct td_core *core, const struct td_job *j) {
    const struct td_host *n;
    for (size_t cursor = 0; (n = td_map_each(core->nodes, &cursor));) {
        if (has_labels(j, n) && td_host_has_level(n, td_match_level(j))) return true;
    }
    return false;
}

static bool lacks_level(const struct td_job *j, const struct td_host *n, bool picky) {
    return picky && !td_host_has_level(n, td_match_level(j));
}

const struct td_host_accel *td_match_devices(const struct td_job *j, const struct td_host *n) {
    const char *key = j->knobs.accelerator;
    const struct td_host_accel *a =
        td_accel_is_host(key) ? NULL : td_host_accel_find(&n->devices, key);
    return a && !a->is_host ? a : NULL;
}

struct td_device_want td_match_want(const struct td_job *j) {
    const uint32_t ranks = td_job_node_ranks(j);
    if (td_accel_is_gpu(j->knobs.accelerator)) return td_gpu_want(&j->knobs.resources, ranks);
    return (struct td_device_want){.n = ranks, .model = ""};
}

static bool is_known(const struct td_job *j, const struct td_host *n) {
    return td_host_devices_known(&n->devices, j->knobs.accelerator);
}

// With nothing else on it.
static bool has_slots(const struct td_job *j, const struct td_host *n) {
    return td_match_slots(j, n) <= n->slots;
}
static bool has_devices(const struct td_job *j, const struct td_host *n) {
    const struct td_host_accel *a = td_match_devices(j, n);
    const struct td_device_want want = td_match_want(j);
    return !a || td_host_devices_fitting(a, &want) >= want.n;
}
// Of GPUs nothing is known but what the node has said. A plan brings other devices.
static bool is_unlisted(const struct td_job *j, const struct td_host *n) {
    return td_accel_is_gpu(j->knobs.accelerator) && !td_match_devices(j, n);
}
// any: a plan of the job for any level that holds; NULL: there is none, and no other is looked for.
static bool has_memory(const struct td_core *core, const struct td_job *j, const struct td_host *n,
                       const struct td_plan_entry *any) {
    const uint64_t asked = (uint64_t)TD_MAX(j->knobs.resources.memory_bytes, (int64_t)0);
    const struct td_plan_entry *own = any ? td_plans_find(core, td_job_plan_digest(j), n) : NULL;
    return td_capacity_on(n, td_job_node_ranks(j), td_plans_holds(own, j) ? own : any, asked);
}
// What it lacks there now, of slots and devices; 0: nothing.
static uint32_t lacks(const struct td_job *j, const struct td_host *n,
                      struct td_match *out_numbers) {
    const struct td_device_want want = td_match_want(j);
    struct td_match p = {.needed = td_match_slots(j, n), .free = free_for(j, n)};
    const struct td_host_accel *a = td_match_devices(j, n);
    uint32_t missing = p.needed > p.free ? p.needed - p.free : 0;
    uint32_t devices = a ? td_host_devices_free(a, &want, j->turn) : want.n;
    if (devices < want.n) {
        p.needed_devices = want.n;
        p.free_devices = devices;
        p.all_devices = td_host_devices_fitting(a, &want);
        missing += want.n - devices;
    }
    *out_numbers = p;
    return missing;
}

// Names of later builds may be higher ones; they come first.
static int level_of(const struct td_host *n) {
    enum td_cpu_level level;
    return td_cpu_level_parse(n->cpu_level_held, &level) ? (int)level : INT_MAX;
}

static bool better(const struct td_job *j, const struct td_host *a, const struct td_host *b) {
    const struct td_checkpoint *c = td_catalog_find(j, NULL);
    bool a_known = is_known(j, a), b_known = is_known(j, b);
    if (a_known != b_known) return a_known;
    bool a_has = c && strcmp(c->node, a->id) == 0, b_has = c && strcmp(c->node, b->id) == 0;
    if (a_has != b_has) return a_has;
    if (j->knobs.num_nodes > 1 && level_of(a) != level_of(b)) return level_of(a) > level_of(b);
    return td_match_free(a) < td_match_free(b);
}

static void take_numbers(struct td_match *c, const struct td_match *there) {
    c->needed = there->needed;
    c->free = there->free;
    c->needed_devices = there->needed_devices;
    c->free_devices = there->free_devices;
    c->all_devices = there->all_devices;
}

// ---- the best of them ---------------------------------------------------------------------------
struct best {
    struct td_host **nodes; // the best first
    uint32_t n, cap;
};

static void add_best(const struct td_job *j, struct best *b, struct td_host *n) {
    uint32_t at = b->n;
    while (at > 0 && better(j, n, b->nodes[at - 1])) {
        at--;
    }
    if (at == b->cap) return;
    if (b->n < b->cap) b->n++;
    memmove(b->nodes + at + 1, b->nodes + at, (b->n - 1 - at) * sizeof(struct td_host *));
    b->nodes[at] = n;
}

static void add_few(struct td_match_few *few, const struct td_host *n) {
    uint32_t at = TD_MIN(few->n, (uint32_t)TD_MATCH_NAMED);
    few->n++;
    while (at > 0 && strcmp(n->name, few->nodes[at - 1]->name) < 0) {
        at--;
        if (at + 1 < TD_MATCH_NAMED) few->nodes[at + 1] = few->nodes[at];
    }
    if (at < TD_MATCH_NAMED) few->nodes[at] = n;
}

// Whether the job may run there at all; if not, c says why.
static bool is_able(const struct td_core *core, const struct td_job *j, const struct td_host *n,
                    const struct td_plan_entry *any, struct td_match *c) {
    if (!has_labels(j, n)) return false;
    if (!td_job_kind_is_in(n->kinds, j->knobs.kind)) {
        c->forbidden = true;
        return false;
    }
    if (!has_slots(j, n) || !has_memory(core, j, n, any)) return false;
    if (is_unlisted(j, n)) {
        add_few(&c->unlisted, n);
        return false;
    }
    if (!has_devices(j, n)) {
        c->few_devices = td_match_want(j).n;
        if (td_host_devices_withheld(&n->devices, j->knobs.accelerator)) c->withheld = n;
        return false;
    }
    if (j->knobs.num_nodes > 1 && !n->collective_address[0]) {
        add_few(&c->apart, n);
        return false;
    }
    const struct td_host *like = c->network ? c->network : n;
    if (j->knobs.num_nodes > 1 && !td_hosts_understand(like, n)) {
        add_few(&c->foreign, n);
        return false;
    }
    if (c->network && !td_hosts_meet(c->network, n)) {
        add_few(&c->elsewhere, n);
        return false;
    }
    return true;
}

// Nodes that are not excluded could hold all of it.
static bool others_fit(const struct td_core *core, const struct td_job *j, bool picky,
                       const struct td_plan_entry *any, const struct td_host *network) {
    struct td_match c = {.network = network};
    const struct td_host *n;
    uint32_t n_able = 0;
    for (size_t cursor = 0; (n = td_map_each(core->nodes, &cursor));) {
        n_able += td_host_takes(n) && !lacks_level(j, n, picky) && !td_job_excludes(j, n->id) &&
                  is_able(core, j, n, any, &c);
    }
    return n_able >= TD_MAX(j->knobs.num_nodes, (uint32_t)1);
}

static void look_at(const struct td_core *core, const struct td_job *j, struct td_host *n,
                    const struct td_plan_entry *any, struct td_match *c, struct best *b,
                    uint32_t *least_missing) {
    struct td_match there;
    if (!is_able(core, j, n, any, c)) return;
    c->able++;
    uint32_t missing = lacks(j, n, &there);
    if (!missing) {
        c->fit++;
        add_best(j, b, n);
    } else if (missing < *least_missing) {
        *least_missing = missing;
        c->nearest = n;
        take_numbers(c, &there);
    }
}

// It is judged alone, of whatever network: what is asked is whether an operator keeps the job from
// it.
static void note_cordoned(const struct td_core *core, const struct td_job *j,
                          const struct td_host *n, const struct td_plan_entry *any,
                          struct td_match *c) {
    struct td_match alone = {0};
    if (is_able(core, j, n, any, &alone)) add_few(&c->cordoned, n);
}

// How good n's network is for it, by what find_best would look at there. What counts most: that it
// could hold all parts, how many have room now, that no excluded node is needed, how many could.
static uint64_t rate_network(const struct td_core *core, const struct td_job *j, bool picky,
                             const struct td_plan_entry *any, const struct td_host *n) {
    const bool avoid = j->n_excluded && others_fit(core, j, picky, any, n);
    struct td_match c = {.network = n}, there;
    const struct td_host *k;
    uint32_t fit = 0, able = 0;
    for (size_t cursor = 0; (k = td_map_each(core->nodes, &cursor));) {
        if (!td_host_takes(k) || lacks_level(j, k, picky)) continue;
        if ((avoid && td_job_excludes(j, k->id)) || !is_able(core, j, k, any, &c)) continue;
        able++;
        fit += !lacks(j, k, &there);
    }
    const uint32_t wanted = j->knobs.num_nodes;
    return (uint64_t)(able >= wanted) << 63 | (uint64_t)TD_MIN(fit, wanted) << 32 |
           (uint64_t)avoid << 31 | able;
}

// A node of the best network. NULL: all that have an address meet.
static const struct td_host *find_network(const struct td_core *core, const struct td_job *j,
                                          bool picky, const struct td_plan_entry *any) {
    const struct td_host *best = NULL;
    uint64_t most = 0;
    const struct td_host *n;
    bool several = false;
    if (j->knobs.num_nodes < 2) return NULL;
    for (size_t cursor = 0; (n = td_map_each(core->nodes, &cursor));) {
        if (!td_host_takes(n) || !n->collective_address[0]) continue;
        if (best && td_hosts_meet(best, n)) continue;
        if (best && !several) most = rate_network(core, j, picky, any, best);
        several = several || best;
        const uint64_t here = several ? rate_network(core, j, picky, any, n) : 0;
        if (best && here <= most) continue;
        best = n;
        most = here;
    }
    return several ? best : NULL;
}

// Of a job over several nodes whose checkpoint is on one: that one's, which takes a part.
static const struct td_host *pinned_network(const struct td_core *core, const struct td_job *j,
                                            const char *only) {
    const struct td_host *n = only && j->knobs.num_nodes > 1 ? td_nodes_find(core, only) : NULL;
    return n && td_host_ready(n) && n->collective_address[0] ? n : NULL;
}

static bool is_among(const struct best *b, const char *id) {
    for (uint32_t i = 0; i < b->n; i++) {
        if (strcmp(b->nodes[i]->id, id) == 0) return true;
    }
    return false;
}

static void find_best(const struct td_core *core, const struct td_job *j, struct td_match *c,
                      struct best *b) {
    const char *only = td_match_pinned(j);
    bool picky = some_has_level(core, j);
    const struct td_plan_entry *any = td_plans_find_held(core, j); // goes over all
    c->network = pinned_network(core, j, only);
    if (!c->network) c->network = find_network(core, j, picky, any);
    bool avoid = !only && j->n_excluded && others_fit(core, j, picky, any, c->network);
    struct td_host *n;
    uint32_t least_missing = UINT32_MAX;
    c->away = only != NULL;
    for (size_t cursor = 0; (n = td_map_each(core->nodes, &cursor));) {
        if (!td_host_ready(n)) continue;
        c->any_ready = true;
        c->labelled += has_labels(j, n);
        const bool has_it = only && strcmp(only, n->id) == 0;
        if (only && !has_it && j->knobs.num_nodes < 2) continue;
        if (has_it) c->away = false;
        if (avoid && td_job_excludes(j, n->id)) continue;
        if (lacks_level(j, n, picky)) continue;
        if (n->cordon.on) {
            note_cordoned(core, j, n, any, c);
            continue;
        }
        look_at(core, j, n, any, c, b, &least_missing);
    }
    if (only && !is_among(b, only)) b->n = 0;
}

struct td_match td_match_choose(const struct td_core *core, const struct td_job *j) {
    struct td_host *nodes[TD_SPEC_MAX_RANKS];
    struct td_match c = {.wanted = TD_MAX(j->knobs.num_nodes, (uint32_t)1)};
    struct best b = {nodes, 0, TD_MIN(c.wanted, (uint32_t)TD_SPEC_MAX_RANKS)};
    find_best(core, j, &c, &b);
    if (b.n < c.wanted) return c;
    c.node = nodes[0];
    for (uint32_t i = 1; i < b.n; i++) {
        bool known = is_known(j, c.node);
        bool lower = level_of(nodes[i]) < level_of(c.node);
        if (known && (lower || !is_known(j, nodes[i]))) c.node = nodes[i];
    }
    return c;
}

static int by_name(const void *a, const void *b) {
    const struct td_host *const *x = a, *const *y = b;
    int name = strcmp((*x)->name, (*y)->name);
    return name ? name : strcmp((*x)->id, (*y)->id);
}

uint32_t td_match_nodes(const struct td_core *core, const struct td_job *j,
                        struct td_host *out_nodes[TD_SPEC_MAX_RANKS]) {
    struct td_match c = {0};
    const uint32_t wanted = TD_MAX(j->knobs.num_nodes, (uint32_t)1);
    struct best b = {out_nodes, 0, TD_MIN(wanted, (uint32_t)TD_SPEC_MAX_RANKS)};
    find_best(core, j, &c, &b);
    qsort(out_nodes, b.n, sizeof(struct td_host *), by_name);
    return b.n;
}

const char *td_match_common_level(struct td_host *const *nodes, uint32_t n_nodes) {
    const struct td_host *lowest = nodes[0];
    for (uint32_t i = 1; i < n_nodes; i++) {
        if (level_of(nodes[i]) < level_of(lowest)) lowest = nodes[i];
    }
    return level_of(lowest) == INT_MAX ? "" : lowest->cpu_level_held;
}
