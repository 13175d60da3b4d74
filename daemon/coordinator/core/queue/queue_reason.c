// See the header.

#include "daemon/coordinator/core/queue/queue_reason.h"

#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/core/catalog/catalog.h"
#include "daemon/coordinator/core/model/hosts.h"
#include "daemon/coordinator/core/model/job.h"
#include "daemon/coordinator/core/model/model.h"
#include "daemon/coordinator/core/plans/gpu_capacity.h"
#include "daemon/coordinator/core/plans/plans.h"
#include "daemon/coordinator/core/queue/match.h"
#include "daemon/coordinator/core/queue/queue.h"
#include "lib/base/clip.h"
#include "lib/base/cpu_level.h"
#include "lib/base/digest.h"

enum { EXACT_POSITIONS = 10, SHOWN_NODES = TD_MATCH_NAMED, SHOWN_JOBS = 2, FEW_BYTES = 256 };

static bool left_by_an_end(const struct td_job *j) {
    static const char *const codes[] = {"DAEMON_STOPPED", "LAUNCHER_UPGRADED", "STOPPED_ON_NODE",
                                        "NODE_DRAINED"};
    for (size_t i = 0; i < TD_COUNTOF(codes); i++) {
        if (strcmp(j->reason.code, codes[i]) == 0) return true;
    }
    return false;
}

enum why {
    WHY_OWN,
    WHY_DRAINING,
    WHY_NODES,
    WHY_SAVING,
    WHY_AWAY,
    WHY_SOURCE,
    WHY_PLAN,
    WHY_TURN,
    WHY_CORDONED,
    WHY_SMALL,
    WHY_FEW_NODES,
    WHY_UNLISTED,
    WHY_DEVICES,
    WHY_SLOTS
};

// Enough nodes are large enough, and cordons alone keep the job from them.
static bool would_fit_uncordoned(const struct td_match *p) {
    return p->able < p->wanted && p->able + p->cordoned.n >= p->wanted;
}

// WHY_OWN: what the job itself says.
static enum why find_why(const struct td_core *core, const struct td_job *j, struct td_mono now,
                         struct td_match *out_place) {
    memset(out_place, 0, sizeof *out_place);
    if (!j->turn || j->retry_at.ns > now.ns) return WHY_OWN;
    *out_place = td_match_choose(core, j);
    bool none = !td_map_count(core->nodes) || (!out_place->any_ready && !out_place->away);
    if (left_by_an_end(j) && (core->draining || !out_place->any_ready)) return WHY_OWN;
    if (core->draining) return WHY_DRAINING;
    if (td_catalog_pending(j) && now.ns < j->hold_until.ns) return WHY_SAVING;
    if (none) return WHY_NODES;
    if (out_place->away) return WHY_AWAY;
    const struct td_host *place = out_place->node ? out_place->node : out_place->nearest;
    bool soon = out_place->node || td_queue_ahead(core, j);
    if (place && soon && j->source_waits) return WHY_SOURCE;
    if (place && soon && !td_plans_suffice(core, j, place)) return WHY_PLAN;
    if (out_place->node) return WHY_TURN;
    if (would_fit_uncordoned(out_place)) return WHY_CORDONED;
    if (out_place->able < out_place->wanted && out_place->unlisted.n) return WHY_UNLISTED;
    if (out_place->wanted > 1 && out_place->able < out_place->wanted) return WHY_FEW_NODES;
    if (out_place->needed_devices) return WHY_DEVICES;
    return out_place->nearest ? WHY_SLOTS : WHY_SMALL;
}

// " with the labels gpu=h100"; "": it asks for none.
static const char *say_labels(const struct td_job *j, char out[FEW_BYTES]) {
    const char *labels = j->knobs.node_labels;
    out[0] = '\0';
    if (labels[0]) {
        (void)td_clip(out, FEW_BYTES, " with the label%s %s", strchr(labels, ',') ? "s" : "",
                      labels);
    }
    return out;
}

// "2 devices of 'far'", "1 GPU like *H100*": what it needs on a node.
static const char *say_needed(const struct td_job *j, char out[TD_GPU_WORDS]) {
    const struct td_device_want want = td_match_want(j);
    const char *key = j->knobs.accelerator;
    if (td_accel_is_gpu(key)) return td_gpu_words(&want, out);
    (void)td_clip(out, TD_GPU_WORDS, "%u device%s of '%.*s'", want.n, want.n == 1 ? "" : "s",
                  td_accel_name_len(key), key);
    return out;
}

// Nodes are large enough, and none has the devices.
static void say_few_devices(const struct td_job *j, const struct td_match *p, struct td_reason *r) {
    char labels[FEW_BYTES], needed[TD_GPU_WORDS];
    const char *node = p->withheld ? p->withheld->name : "";
    td_reason_set(r, "WAITING_FOR_NODE", "no connected node%s has %s%s%s%s", say_labels(j, labels),
                  say_needed(j, needed), *node ? "; node " : "", node,
                  *node ? " has an older build, which gives ranks no devices" : "");
    r->needed_devices = p->few_devices;
}

static void say_small(const struct td_job *j, const struct td_match *p, struct td_reason *r) {
    enum td_cpu_level level;
    char labels[FEW_BYTES];
    const char *name = td_match_level(j);
    bool asks = td_cpu_level_parse(name, &level);
    say_labels(j, labels);
    if (labels[0] && !p->labelled) {
        td_reason_set(r, "WAITING_FOR_NODE", "there is no connected node%s", labels);
        return;
    }
    if (p->few_devices) {
        say_few_devices(j, p, r);
        return;
    }
    if (p->forbidden) {
        td_reason_set(r, "WAITING_FOR_NODE",
                      "no connected node%s that allows %ss (--allow) is large enough for %u ranks",
                      labels, td_job_kind_name(j->knobs.kind), j->n_ranks);
        return;
    }
    td_reason_set(r, "WAITING_FOR_NODE", "no connected node%s%s%s is large enough for %u ranks",
                  asks ? " with CPU level " : "", asks ? name : "", labels, j->n_ranks);
}

// The connected nodes that could hold a part of it, as "a, b"; bounded, with how many are left out.
static void name_able(const struct td_core *core, const struct td_job *j, uint32_t able, char *out,
                      size_t bytes) {
    struct td_host *nodes[TD_SPEC_MAX_RANKS];
    const uint32_t n = td_match_nodes(core, j, nodes), shown = TD_MIN(n, (uint32_t)SHOWN_NODES);
    size_t len = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < shown && len < bytes; i++) {
        len += (size_t)snprintf(out + len, bytes - len, "%s%s", i ? ", " : ": ", nodes[i]->name);
    }
    if (len < bytes && shown && able > shown) {
        snprintf(out + len, bytes - len, " and %u more", able - shown);
    }
}

// "node a", "nodes a, b", "nodes a, b, c, d and 2 more"; with_address: each as "a (10.0.0.1)".
static void name_few(const struct td_match_few *few, bool with_address, char *out, size_t bytes) {
    const uint32_t shown = TD_MIN(few->n, (uint32_t)TD_MATCH_NAMED);
    size_t len = (size_t)snprintf(out, bytes, few->n == 1 ? "node" : "nodes");
    for (uint32_t i = 0; i < shown && len < bytes; i++) {
        const struct td_host *n = few->nodes[i];
        len += (size_t)snprintf(out + len, bytes - len, with_address ? "%s %s (%s)" : "%s %s",
                                i ? "," : "", n->name, n->collective_address);
    }
    if (len < bytes && few->n > shown) {
        snprintf(out + len, bytes - len, " and %u more", few->n - shown);
    }
}

// Nodes that could take a part but for an operator, or for their collective interface; "": there
// are none.
static void say_no_way(const struct td_match *p, char *out, size_t bytes) {
    char names[FEW_BYTES];
    size_t len = 0;
    out[0] = '\0';
    if (p->cordoned.n) {
        name_few(&p->cordoned, false, names, sizeof names);
        len = (size_t)snprintf(out, bytes, "; %s %s cordoned (trainctl node uncordon)", names,
                               p->cordoned.n == 1 ? "is" : "are");
    }
    if (p->apart.n && len < bytes) {
        name_few(&p->apart, false, names, sizeof names);
        len += (size_t)snprintf(out + len, bytes - len,
                                "; %s %s no collective interface "
                                "(traind --collective-interface)",
                                names, p->apart.n == 1 ? "has" : "have");
    }
    if (p->foreign.n && len < bytes) {
        name_few(&p->foreign, false, names, sizeof names);
        len += (size_t)snprintf(out + len, bytes - len,
                                "; %s %s of another build, whose ranks those of the other nodes do "
                                "not understand: install one release on all",
                                names, p->foreign.n == 1 ? "is" : "are");
    }
    if (p->elsewhere.n == 1 && len < bytes) {
        snprintf(out + len, bytes - len,
                 "; node %s has the collective address %s, of another network",
                 p->elsewhere.nodes[0]->name, p->elsewhere.nodes[0]->collective_address);
    } else if (p->elsewhere.n && len < bytes) {
        name_few(&p->elsewhere, true, names, sizeof names);
        snprintf(out + len, bytes - len, "; %s have collective addresses of another network",
                 names);
    }
}

// Operators keep it from every node that fits, or from so many that too few are left.
static void say_cordoned(const struct td_job *j, const struct td_match *p, struct td_reason *r) {
    char names[FEW_BYTES], needs[80] = "", pinned[96] = "";
    const char *only = td_match_pinned(j);
    const bool is_one = p->cordoned.n == 1;
    name_few(&p->cordoned, false, names, sizeof names);
    if (p->wanted > 1) {
        snprintf(needs, sizeof needs,
                 "needs %u nodes, and %u other%s could take a part: ", p->wanted, p->able,
                 p->able == 1 ? "" : "s");
    }
    if (only && is_one && strcmp(only, p->cordoned.nodes[0]->id) == 0) {
        snprintf(pinned, sizeof pinned, ", which alone has its checkpoint %.40s,",
                 td_catalog_find(j, NULL)->path);
    }
    td_reason_set(r, "NODES_CORDONED",
                  "%s%s%s %s cordoned; `trainctl node uncordon %s` lets jobs start there", needs,
                  names, pinned, is_one ? "is" : "are",
                  is_one ? p->cordoned.nodes[0]->name : "NODE");
}

// It spans more nodes than there are for it.
static void say_few_nodes(const struct td_core *core, const struct td_job *j,
                          const struct td_match *p, struct td_reason *r) {
    char names[FEW_BYTES], labels[FEW_BYTES], no_way[4 * FEW_BYTES + 320];
    name_able(core, j, p->able, names, sizeof names);
    say_no_way(p, no_way, sizeof no_way);
    td_reason_set(r, "WAITING_FOR_NODE",
                  "needs %u nodes%s for %u rank%s each, %u connected node%s could take a part%s%s",
                  p->wanted, say_labels(j, labels), td_job_node_ranks(j),
                  td_job_node_ranks(j) == 1 ? "" : "s", p->able, p->able == 1 ? "" : "s", names,
                  no_way);
}

// The first of the jobs before it that slots of the node are kept for; NULL: none. out_slots: how
// many are kept, for any of them.
static const struct td_job *find_keeper(const struct td_core *core, const struct td_job *j,
                                        const struct td_host *n, uint32_t *out_slots) {
    bool reserved = n->reserved && n->reserved != j->turn;
    uint64_t turn = n->kept_for ? n->kept_for : reserved ? n->reserved : 0;
    *out_slots = n->kept + (reserved ? n->slots - TD_MIN(n->used, n->slots) : 0);
    if (!*out_slots || turn == j->turn) return NULL;
    for (uint32_t i = 0; i < core->n_waiting && core->waiting[i]->turn <= turn; i++) {
        if (core->waiting[i]->turn == turn) return core->waiting[i];
    }
    return NULL;
}

// ---- whom it waits for --------------------------------------------------------------------------
static bool has_device_of(const struct td_attempt_part *p, const struct td_host_accel *accel) {
    for (uint32_t i = 0; p->devices && i < accel->n; i++) {
        if (td_device_list_has(p->devices, accel->device[i].uuid)) return true;
    }
    return false;
}

static uint32_t find_holders(const struct td_core *core, const struct td_job *j,
                             const struct td_match *p, const struct td_job **out, uint32_t most) {
    const struct td_host *n = p->nearest;
    const struct td_host_accel *accel = n && p->needed_devices ? td_match_devices(j, n) : NULL;
    uint32_t found = 0;
    for (uint32_t i = 0; n && i < core->n_live; i++) {
        const struct td_attempt *live = td_job_live(core->live[i]);
        const struct td_attempt_part *part = live ? td_attempt_part_on(live, n->id) : NULL;
        if (!part || !td_attempt_part_live(part) || (accel && !has_device_of(part, accel))) {
            continue;
        }
        if (found < most) out[found] = core->live[i];
        found++;
    }
    return found;
}

uint32_t td_queue_blockers(const struct td_core *core, const struct td_job *j, struct td_mono now,
                           const struct td_job **out_jobs, uint32_t most) {
    struct td_match p;
    const enum why why = find_why(core, j, now, &p);
    if (why != WHY_SLOTS && why != WHY_DEVICES) return 0;
    return TD_MIN(find_holders(core, j, &p, out_jobs, most), most);
}

// "; job j-1 (mnist) runs there", "; jobs j-1 (mnist), j-2 (gpt) and 3 more run there"; "": none.
static void name_holders(const struct td_core *core, const struct td_job *j,
                         const struct td_match *p, char *out, size_t bytes) {
    const struct td_job *first[SHOWN_JOBS];
    const uint32_t n = find_holders(core, j, p, first, SHOWN_JOBS);
    size_t len = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < TD_MIN(n, (uint32_t)SHOWN_JOBS) && len < bytes; i++) {
        len += (size_t)snprintf(out + len, bytes - len, "%s %s (%.40s)",
                                i        ? ","
                                : n == 1 ? "; job"
                                         : "; jobs",
                                first[i]->id, first[i]->name);
    }
    if (n > SHOWN_JOBS && len < bytes) {
        len += (size_t)snprintf(out + len, bytes - len, " and %u more", n - SHOWN_JOBS);
    }
    if (n && len < bytes) snprintf(out + len, bytes - len, " %s there", n == 1 ? "runs" : "run");
}

static void say_slots(const struct td_core *core, const struct td_job *j, const struct td_match *p,
                      struct td_reason *r) {
    uint32_t kept = 0;
    char why[128] = "", holders[FEW_BYTES];
    const struct td_job *keeper = find_keeper(core, j, p->nearest, &kept);
    if (keeper) {
        snprintf(why, sizeof why, ", %u kept for job %s (%.40s) before it", kept, keeper->id,
                 keeper->name);
    }
    name_holders(core, j, p, holders, sizeof holders);
    if (p->wanted > 1) {
        td_reason_set(r, "WAITING_FOR_SLOTS",
                      "needs %u slot%s on each of %u nodes, %u of %u have them; %u free on node %s "
                      "(%u slots%s)%s",
                      p->needed, p->needed == 1 ? "" : "s", p->wanted, p->fit, p->able, p->free,
                      p->nearest->name, p->nearest->slots, why, holders);
        r->needed_slots = p->needed;
        r->free_slots = p->free;
        return;
    }
    td_reason_set(r, "WAITING_FOR_SLOTS", "needs %u slot%s, %u free on node %s (%u slots%s)%s",
                  p->needed, p->needed == 1 ? "" : "s", p->free, p->nearest->name,
                  p->nearest->slots, why, holders);
    r->needed_slots = p->needed;
    r->free_slots = p->free;
}

// "; GPU-8932f937 is held by pid 4242": devices of the node that would do and that no job gets now.
static void name_barred(const struct td_job *j, const struct td_match *p, char *out, size_t bytes) {
    const struct td_host_accel *a = td_match_devices(j, p->nearest);
    struct td_clip_list list;
    out[0] = '\0';
    snprintf(out, bytes, "; ");
    td_clip_list_init(&list, out + 2, bytes - 2, "; ");
    for (uint32_t i = 0; a && i < a->n; i++) {
        const struct td_host_device *d = &a->device[i];
        if (!d->barred[0] || d->held == TD_DEVICE_ATTEMPT) continue;
        td_clip_list_add(&list, "%.12s: %s", d->uuid, d->barred);
    }
    if (!list.len) out[0] = '\0';
}

static void say_unlisted(const struct td_job *j, const struct td_match *p, struct td_reason *r) {
    char names[FEW_BYTES], needed[TD_GPU_WORDS];
    name_few(&p->unlisted, false, names, sizeof names);
    const Traind__V1__GpuList *list = p->unlisted.nodes[0]->gpus.list;
    const char *why = p->unlisted.n == 1 && list ? list->why : "";
    td_reason_set(r, "WAITING_FOR_DEVICES", "needs %s; %s %s not said yet which GPUs %s%s%.300s",
                  say_needed(j, needed), names, p->unlisted.n == 1 ? "has" : "have",
                  p->unlisted.n == 1 ? "it has" : "they have", *why ? ": " : "", why);
    r->needed_devices = td_match_want(j).n;
}

static void say_devices(const struct td_core *core, const struct td_job *j,
                        const struct td_match *p, struct td_reason *r) {
    const char *key = j->knobs.accelerator;
    char holders[FEW_BYTES], barred[FEW_BYTES], needed[TD_GPU_WORDS];
    name_holders(core, j, p, holders, sizeof holders);
    const char *what = td_accel_is_gpu(key) ? "GPU" : "device";
    name_barred(j, p, barred, sizeof barred);
    td_reason_set(r, "WAITING_FOR_DEVICES", "needs %s, %u free on node %s (%u %s%s)%s%s",
                  say_needed(j, needed), p->free_devices, p->nearest->name, p->all_devices, what,
                  p->all_devices == 1 ? "" : "s", barred, holders);
    r->needed_devices = p->needed_devices;
    r->free_devices = p->free_devices;
    r->all_devices = p->all_devices;
}

void td_queue_reason(const struct td_core *core, const struct td_job *j, struct td_mono now,
                     struct td_reason *out_reason) {
    struct td_match p;
    char none[FEW_BYTES];
    const struct td_host *away;
    const struct td_checkpoint *c = td_catalog_find(j, NULL);
    switch (find_why(core, j, now, &p)) {
    case WHY_OWN:
        *out_reason = j->reason;
        return;
    case WHY_DRAINING:
        td_reason_set(out_reason, "DRAINING", "the coordinator is stopping");
        break;
    case WHY_NODES:
        td_nodes_say_none(core, none, sizeof none);
        td_reason_set(out_reason, "NO_NODES", "%s", none);
        break;
    case WHY_SAVING:
        td_reason_set(out_reason, "SAVING_CHECKPOINT", "its last checkpoint is on its way");
        break;
    case WHY_AWAY:
        away = td_nodes_find(core, c->node);
        td_reason_set(out_reason, "WAITING_FOR_NODE", "its checkpoint %s is on node %s, which %s",
                      c->path, c->node,
                      away && away->unfit[0] ? "gets no jobs: `trainctl node list` says why"
                                             : "is away");
        break;
    case WHY_SOURCE:
        td_reason_set(out_reason, "SAVING_CHECKPOINT",
                      "the checkpoint that it begins from is on its way to the coordinator");
        break;
    case WHY_PLAN:
        td_reason_set(out_reason, "PLANNING", "a node works out its memory and steps");
        break;
    case WHY_TURN:
        td_reason_set(out_reason, "PLACING", "it starts next on %s%s",
                      p.wanted > 1 ? "several nodes, among them " : "node ", p.node->name);
        break;
    case WHY_CORDONED:
        say_cordoned(j, &p, out_reason);
        break;
    case WHY_SMALL:
        say_small(j, &p, out_reason);
        break;
    case WHY_FEW_NODES:
        say_few_nodes(core, j, &p, out_reason);
        break;
    case WHY_UNLISTED:
        say_unlisted(j, &p, out_reason);
        break;
    case WHY_DEVICES:
        say_devices(core, j, &p, out_reason);
        break;
    case WHY_SLOTS:
        say_slots(core, j, &p, out_reason);
        break;
    }
    out_reason->position = td_queue_position(core, j);
}

static uint64_t few_mark(const struct td_match *p) {
    return (uint64_t)p->wanted << 12 ^ p->able ^ (uint64_t)p->apart.n << 16 ^
           (uint64_t)p->elsewhere.n << 20 ^ (uint64_t)p->foreign.n << 24 ^
           (uint64_t)p->cordoned.n << 28;
}

static uint64_t device_mark(const struct td_job *j, const struct td_match *p) {
    char barred[FEW_BYTES];
    name_barred(j, p, barred, sizeof barred);
    return (td_xxh3_64(barred, strlen(barred)) << 24) ^ (uint64_t)p->needed_devices << 12 ^
           p->free_devices;
}

uint64_t td_queue_reason_mark(const struct td_core *core, const struct td_job *j,
                              struct td_mono now) {
    struct td_match p;
    enum why why = find_why(core, j, now, &p);
    uint64_t position = td_queue_position(core, j), unit = 1;
    while (position / unit >= EXACT_POSITIONS) {
        unit *= 10;
    }
    if (unit > 1) position = position * 10 / unit * unit; // two digits of it
    uint64_t slots = why == WHY_SLOTS       ? (uint64_t)p.needed << 12 | (p.free + 31 * p.fit)
                     : why == WHY_FEW_NODES ? few_mark(&p)
                     : why == WHY_CORDONED  ? few_mark(&p)
                     : why == WHY_SMALL     ? p.labelled
                     : why == WHY_UNLISTED  ? p.unlisted.n
                     : why == WHY_DEVICES   ? device_mark(j, &p)
                                            : 0;
    const struct td_host *n = why == WHY_SLOTS ? p.nearest : NULL;
    uint64_t keeper = n ? (n->kept_for + n->reserved) * 31 + n->kept : 0;
    const struct td_job *holder[SHOWN_JOBS] = {NULL};
    if (why == WHY_SLOTS || why == WHY_DEVICES) {
        keeper += find_holders(core, j, &p, holder, SHOWN_JOBS);
        for (size_t i = 0; i < SHOWN_JOBS && holder[i]; i++) {
            keeper = keeper * 31 + holder[i]->seq;
        }
    }
    return keeper << 40 ^ position << 32 ^ slots << 4 ^ (uint64_t)why ^ (uint64_t)j->state << 60;
}
