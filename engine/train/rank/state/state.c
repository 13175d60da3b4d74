// See the header.

#include "engine/train/rank/state/state.h"

#include <stdlib.h>
#include <string.h>

#include "engine/train/checkpoint/weights.h"
#include "engine/train/rank/data/shares.h"
#include "engine/train/rank/group/group.h"
#include "engine/train/rank/group/replicas.h"
#include "engine/train/rank/programs/batches.h"
#include "engine/train/rank/state/init.h"
#include "engine/train/rank/state/apart.h"
#include "engine/train/rank/state/own_state.h"
#include "engine/train/rank/state/resume.h"
#include "engine/train/rank/state/writers.h"
#include "lib/base/digest.h"
#include "lib/base/floats/floats.h"

// ---- where to start -----------------------------------------------------------------------------

// The checkpoint that a rank would take, as ranks compare it.
struct offer {
    int64_t step;    // -1: this rank reads none
    uint64_t digest; // of its files' digests
};

static struct offer offer_of(const struct td_manifest *m) {
    struct offer o = {.step = m->progress.step};
    for (size_t i = 0; i < m->n_files; i++) {
        o.digest = o.digest * 31 + td_xxh3_64(m->file[i].digest, strlen(m->file[i].digest));
    }
    return o;
}

struct verdict {
    bool same;  // all ranks that read would take one
    bool level; // they would not, and none is of an older step
    struct offer least;
    int32_t rank; // whose that is
};

static td_status compare_offers(struct td_rank *r, struct offer own, struct verdict *out_verdict) {
    struct verdict v = {.same = true, .level = true, .least = {.step = -1}};
    const int32_t world = r->facts.world_size;
    TD_AUTO_FREE struct offer *all = td_calloc((size_t)world, sizeof own);
    if (!all) return td_fail_oom();
    TD_TRY_CTX(td_rank_all_gather(r, TD_GROUP_WORLD, &own, sizeof own, all),
               "compare checkpoints of ranks");
    for (int32_t i = 0; i < world; i++) {
        if (all[i].step < 0) continue;
        const bool is_first = v.least.step < 0;
        v.level &= is_first || all[i].step == v.least.step;
        v.same &= is_first || (all[i].step == v.least.step && all[i].digest == v.least.digest);
        if (!is_first && all[i].step >= v.least.step) continue;
        v.least = all[i];
        v.rank = i;
    }
    *out_verdict = v;
    return TD_OK;
}

static td_status fail_apart(const struct verdict *v) {
    td_status s = td_fail(TD_DATA_LOSS,
                          "no checkpoint is whole for all ranks that read one; rank %d would take "
                          "that of step %lld",
                          v->rank, (long long)v->least.step);
    return td_status_with_reason(td_status_with_class(s, TD_CLASS_DATA), "NO_CHECKPOINT");
}

// Each rank reads files of its own node, where others may be damaged. So they move on, newest
// first, until all that read would take the same.
static td_status choose_together(struct td_rank *r, bool reads) {
    const struct td_train_config *c = r->config;
    size_t next = 0;
    for (;;) {
        struct offer own = {.step = -1};
        struct verdict v = {.same = true};
        if (reads) {
            TD_TRY(td_restore_choose(c->resume_from + next, c->n_resume_from - next, r->events,
                                     r->arena, &r->restored));
            own = offer_of(&r->restored.manifest);
        }
        if (r->facts.world_size > 1) TD_TRY(compare_offers(r, own, &v));
        if (v.same) return TD_OK;
        if (!reads) continue;
        while (c->resume_from[next] != r->restored.path) {
            next++;
        }
        if (own.step == v.least.step && !v.level) continue; // the others come to it
        if (v.level) {
            td_events_note(r->events,
                           "checkpoint %s is not taken: ranks have files of step %lld that differ",
                           r->restored.path, (long long)v.least.step);
        } else {
            td_events_note(r->events,
                           "checkpoint %s is not taken: rank %d would take that of step %lld",
                           r->restored.path, v.rank, (long long)v.least.step);
        }
        if (++next == c->n_resume_from) return fail_apart(&v);
    }
}

// The ranks that read choose; what all need to know is broadcast.
td_status td_rank_choose_start(struct td_rank *r) {
    const struct td_train_config *c = r->config;
    if (c->n_resume_from == 0) return TD_OK;
    uint32_t reads;
    TD_TRY(td_rank_read_roles(r, &reads));
    TD_TRY(choose_together(r, reads != 0));
    if (reads) {
        r->start = r->restored.manifest.progress;
        // Another job that goes on from here trains until its own next check.
        if (strcmp(r->restored.manifest.job, c->job) != 0) {
            r->start.early_stop.decided = r->start.early_stop.revocable = false;
        }
        TD_TRY(td_rank_read_own_state(r));
    }
    TD_TRY(td_rank_broadcast(r, &r->start, sizeof r->start, 0));
    r->resumed = true;
    if (r->precision_ops->state_load) {
        TD_TRY(r->precision_ops->state_load(r->precision, &r->start.precision));
    }
    td_rank_recount(r, &r->start);
    return TD_OK;
}

// ---- memory and values --------------------------------------------------------------------------

static td_status allocate(struct td_rank *r, enum td_role role, size_t bytes) {
    const struct td_accelerator_ops *o = r->accel_ops;
    if (o->state_alloc) return o->state_alloc(r->accel, r->state, role, &r->memory.region[role]);
    return o->mem_alloc(r->accel, bytes, &r->memory.region[role]);
}

static td_status provide(struct td_rank *r, enum td_role role) {
    const size_t bytes = td_state_region_bytes(r->state, role);
    if (r->memory.region[role].bytes || !bytes) return TD_OK;
    TD_TRY_CTX(allocate(r, role, bytes), "%zu bytes for the %s state", bytes, td_role_name(role));
    r->owned[role] = true;
    return TD_OK;
}

// What waits for the strategy's setup.
static uint32_t late_roles(const struct td_rank *r) {
    return r->facts.late_optimizers ? 1u << TD_ROLE_OPTIM : 0;
}

td_status td_rank_lay_state(struct td_rank *r) {
    if (r->strategy_ops->place) {
        TD_TRY_CTX(r->strategy_ops->place(r->strategy, r->state, &r->memory), "strategy '%s'",
                   r->strategy_name);
    }
    for (int role = 0; role < TD_ROLE_COUNT; role++) {
        if (late_roles(r) & 1u << role) continue;
        TD_TRY(provide(r, (enum td_role)role));
    }
    if (r->accel_facts.plans_memory) return TD_OK;
    for (int i = 0; i < TD_STEPS_MAX; i++) {
        const size_t bytes = td_programs_arena_bytes(r->programs, i);
        if (!bytes) continue;
        TD_TRY_CTX(r->accel_ops->mem_alloc(r->accel, bytes, &r->arena_memory[i]),
                   "%zu bytes for activations", bytes);
    }
    return TD_OK;
}

// Values made aside, in the tensor's type, and copied to the device.
static td_status initialize_aside(struct td_rank *r, const struct td_state_info *t) {
    size_t n = (size_t)td_shape_elems(&t->shape), bytes, all = td_state_whole_bytes(t);
    if (!td_size_mul(n, sizeof(float), &bytes)) return td_fail_oom();
    TD_AUTO_FREE float *values = malloc(TD_MAX(bytes, 1));
    TD_AUTO_FREE void *stored = t->dtype == TD_F32 ? NULL : malloc(TD_MAX(all, 1));
    if (!values || (!stored && t->dtype != TD_F32)) return td_fail_oom();
    TD_TRY(td_init_fill(r->config->seed, t, values));
    if (stored) td_float_convert(TD_F32, values, (int64_t)n, t->dtype, stored);
    struct td_buffer host = td_buffer_of_host(stored ? stored : (void *)values, all);
    return r->accel_ops->copy(r->accel, r->memory.region[t->role], t->offset, host, 0, all);
}

static td_status initialize_tensor(struct td_rank *r, const struct td_state_info *t) {
    if (t->init.kind == TD_INIT_ZERO) return TD_OK; // memory comes zeroed
    if (td_state_is_apart(t)) {
        return td_fail(TD_UNIMPLEMENTED, "initial values of '%s', of which each rank has a piece",
                       t->name);
    }
    if (!td_is_float(t->dtype)) {
        return td_fail(TD_UNIMPLEMENTED, "initial values of '%s' in %s", t->name,
                       td_dtype_name(t->dtype));
    }
    char *there = td_rank_address(r, t->role);
    if (!there || t->dtype != TD_F32) return initialize_aside(r, t);
    return td_init_fill(r->config->seed, t, (float *)(void *)(there + t->offset));
}

static td_status initialize(struct td_rank *r, uint32_t roles) {
    for (uint32_t i = 0; i < td_state_count(r->state); i++) {
        const struct td_state_info *t = td_state_at(r->state, i);
        if (roles & 1u << t->role) TD_TRY(initialize_tensor(r, t));
    }
    return TD_OK;
}

td_status td_rank_initialize_state(struct td_rank *r) {
    return initialize(r, ~late_roles(r));
}

static void announce_resume(struct td_rank *r, uint32_t roles) {
    struct td_resume_reasons reasons;
    char all[TD_RESUME_BYTES];
    td_resume_compare(r, roles, &reasons);
    for (size_t i = 0; i < reasons.n; i++) {
        td_events_note(r->events, "resume is not bit-exact: %s", reasons.text[i]);
    }
    td_resume_join(&reasons, all);
    td_events_resumed(r->events, r->start.step, all);
}

struct td_restore_target td_rank_restore_target(struct td_rank *r) {
    return (struct td_restore_target){
        .state = r->state,
        .memory = &r->memory,
        .accel_ops = r->accel_ops,
        .accel = r->accel,
    };
}

static struct td_weights_options weights_of(const struct td_rank *r, enum td_rank_weights which,
                                            struct td_events *events) {
    const struct td_train_config *c = r->config;
    bool initial = which == TD_RANK_WEIGHTS_INITIAL;
    return (struct td_weights_options){
        .knob = !initial       ? "evaluate_from"
                : c->init_data ? "load"
                               : "init_from",
        .path = initial ? c->init_from : c->evaluate_from,
        .data = initial ? c->init_data : NULL,
        .data_bytes = c->init_data_bytes,
        .strict = !initial || !c->init_loosely,
        .filter = initial ? c->init_filter : NULL,
        .filter_arg = c->init_filter_arg,
        .module_ops = r->module_ops,
        .module = r->module,
        .events = events,
    };
}

td_status td_rank_load_weights(struct td_rank *r, enum td_rank_weights which) {
    const struct td_restore_target to = td_rank_restore_target(r);
    const struct td_weights_options o = weights_of(r, which, r->events);
    return td_weights_load(&o, &to);
}

td_status td_rank_check_weights(const struct td_rank *r, enum td_rank_weights which) {
    const struct td_weights_options o = weights_of(r, which, NULL);
    uint32_t roles;
    TD_TRY(td_rank_read_roles(r, &roles));
    if (!roles) return TD_OK; // another rank reads them
    return td_weights_check(&o, r->state);
}

td_status td_rank_check_resume(const struct td_rank *r, const struct td_restored *from) {
    const uint32_t weights = 1u << TD_ROLE_PARAM | 1u << TD_ROLE_BUFFER;
    uint32_t roles;
    TD_TRY(td_rank_read_roles(r, &roles));
    TD_TRY_CTX(td_restore_compare(from, roles & weights, r->state), "resume from '%s'", from->path);
    return TD_OK;
}

// Of those that this rank reads, what a resumed run takes from its checkpoint.
static uint32_t restored_of(const struct td_rank *r, uint32_t reads) {
    const bool optimizer = (r->config->stages & TD_STAGE_FIT) && r->facts.restore_optimizer;
    return optimizer ? reads : reads & ~(1u << TD_ROLE_OPTIM);
}

static td_status restore(struct td_rank *r, uint32_t roles) {
    const struct td_restore_target to = td_rank_restore_target(r);
    TD_TRY_CTX(td_restore_load(&r->restored, roles, &to), "resume from '%s'", r->restored.path);
    return TD_OK;
}

static td_status read_state(struct td_rank *r) {
    uint32_t reads;
    TD_TRY(td_rank_read_roles(r, &reads));
    if (!reads) return TD_OK;
    if (r->resumed) {
        const uint32_t roles = restored_of(r, reads);
        TD_TRY(restore(r, roles & ~late_roles(r)));
        if (!late_roles(r)) announce_resume(r, roles);
    } else if (r->config->init_from) {
        return td_rank_load_weights(r, TD_RANK_WEIGHTS_INITIAL);
    }
    return TD_OK;
}

td_status td_rank_restore_state(struct td_rank *r) {
    TD_TRY(read_state(r));
    return late_roles(r) ? TD_OK : td_rank_hand_out_pieces(r);
}

td_status td_rank_create_late(struct td_rank *r) {
    uint32_t reads;
    const uint32_t late = late_roles(r);
    if (!late) return TD_OK;
    TD_TRY(provide(r, TD_ROLE_OPTIM));
    TD_TRY(initialize(r, late));
    TD_TRY(td_rank_read_roles(r, &reads));
    if (r->resumed && reads) {
        const uint32_t roles = restored_of(r, reads);
        if (roles & late) TD_TRY(restore(r, roles & late));
        announce_resume(r, roles);
    }
    TD_TRY(td_rank_hand_out_pieces(r));
    return td_rank_share(r, late);
}

static void digest_loaders(const struct td_rank *r, enum td_split split, struct td_digest *d) {
    const int n = td_data_n_loaders(r->data, split);
    td_digest_update(d, &n, sizeof n);
    for (int i = 0; i < n; i++) {
        const int64_t n_batches = td_rank_loader_batches(r, split, i);
        td_digest_update(d, &n_batches, sizeof n_batches);
    }
}

// What ranks say to each other. They need to have in common the digest of what each would train,
// and what the strategy says that decides which collective calls are made. The rest is each rank's
// own.
struct common {
    char digest[TD_DIGEST_HEX];
    bool late_optimizers, restore_optimizer;
    struct td_strategy_shard share[TD_SPLIT_COUNT];
    uint32_t writes; // bits 1 << td_role, of a checkpoint
};

static td_status common_of(const struct td_rank *r, struct common *out_common) {
    TD_AUTO(td_digest) *d = NULL;
    TD_TRY(td_digest_create(&d));
    for (uint32_t i = 0; i < td_state_count(r->state); i++) {
        const struct td_state_info *t = td_state_at(r->state, i);
        if (t->role == TD_ROLE_RESULT) {
            continue; // one a batch size, and the last batches may differ
        }
        td_digest_update(d, t->name, strlen(t->name) + 1);
        td_digest_update(d, &t->bytes, sizeof t->bytes);
    }
    const int64_t n_batches = td_rank_epoch_batches(r);
    td_digest_update(d, &n_batches, sizeof n_batches);
    for (int split = TD_SPLIT_VAL; split < TD_SPLIT_COUNT; split++) {
        digest_loaders(r, (enum td_split)split, d);
    }
    *out_common = (struct common){.late_optimizers = r->facts.late_optimizers,
                                  .restore_optimizer = r->facts.restore_optimizer};
    memcpy(out_common->share, r->share, sizeof r->share);
    td_digest_hex(d, out_common->digest);
    return r->config->checkpoint.dir ? td_rank_written_roles(r, &out_common->writes) : TD_OK;
}

static td_status fail_facts(const struct td_rank *r, int32_t peer, const char *fact) {
    return td_status_with_class(
        td_fail(TD_FAILED_PRECONDITION,
                "strategy '%s' says another %s on rank %d than on rank %d; its environment has to "
                "say the same on all ranks",
                r->strategy_name, fact, peer, r->facts.global_rank),
        TD_CLASS_USER_CODE);
}

static td_status compare_with(const struct td_rank *r, const struct common *own, int32_t peer,
                              const struct common *theirs) {
    if (theirs->late_optimizers != own->late_optimizers) {
        return fail_facts(r, peer, "late_optimizers");
    }
    if (theirs->restore_optimizer != own->restore_optimizer) {
        return fail_facts(r, peer, "restore_optimizer");
    }
    if (memcmp(theirs->digest, own->digest, sizeof own->digest) == 0) return TD_OK;
    return td_fail(TD_FAILED_PRECONDITION,
                   "rank %d and rank %d see different models or amounts of data; they need the "
                   "same plan and the same files",
                   r->facts.global_rank, peer);
}

// How ranks divide the data and the roles of checkpoints.
static td_status divide(struct td_rank *r, const struct common *all) {
    const size_t world = (size_t)r->facts.world_size;
    struct td_strategy_shard *shares = td_arena_alloc(r->arena, world * sizeof r->share);
    TD_AUTO_FREE uint32_t *writes = td_calloc(world, sizeof *writes);
    if (!shares || !writes) return td_fail_oom();
    for (size_t i = 0; i < world; i++) {
        memcpy(shares + i * TD_SPLIT_COUNT, all[i].share, sizeof r->share);
        writes[i] = all[i].writes;
    }
    TD_TRY(td_rank_keep_shares(r, shares));
    return td_rank_claim_roles(r, writes);
}

// Ranks that would do different things say so before they wait for each other.
td_status td_rank_compare(struct td_rank *r) {
    struct common own;
    TD_TRY(common_of(r, &own));
    const int32_t world = r->facts.world_size;
    TD_AUTO_FREE struct common *all = td_calloc((size_t)world, sizeof own);
    if (!all) return td_fail_oom();
    TD_TRY(td_rank_all_gather(r, TD_GROUP_WORLD, &own, sizeof own, all));
    TD_TRY(divide(r, all));
    for (int32_t i = 0; i < world; i++) {
        TD_TRY(compare_with(r, &own, i, &all[i]));
    }
    return TD_OK;
}
