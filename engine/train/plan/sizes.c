// Sizes. Without a limit of its own a job is measured against the machine, and only by what is
// cheap to know: a rank that starts shall not compile twice. A device's memory has to hold all, so
// there all is measured.

#include "engine/train/plan/sizes.h"

#include <stdio.h>
#include <string.h>

#include "engine/train/config/limits.h"
#include "engine/train/rank/group/comm_hook.h"
#include "engine/train/rank/group/group.h"
#include "engine/train/rank/group/buckets.h"
#include "engine/train/rank/group/join.h"
#include "engine/train/rank/group/pieces.h"
#include "engine/train/rank/programs/batches.h"
#include "engine/train/rank/state/writers.h"
#include "lib/base/clip.h"
#include "lib/base/machine/machine.h"

static double flops_of(const struct td_rank *r, const char *step) {
    double flops = 0;
    int64_t window = r->config->limits.accumulate[0].batches;
    for (size_t i = 0; i < td_programs_count(r->programs); i++) {
        const struct td_compiled *c = td_programs_at(r->programs, i);
        const struct td_program_key *k = &c->program.key;
        if (k->mode != TD_MODE_TRAIN || k->batch != r->config->batch_size || !k->apply) continue;
        if (strcmp(k->step, step) != 0) continue;
        flops = TD_MAX(flops, td_graph_flops(c->graph) * (double)window);
    }
    return flops;
}

// Where a module has several training steps: the mean of them.
static double flops_of_step(const struct td_rank *r) {
    double flops = 0;
    for (int i = 0; i < r->steps.n; i++) {
        flops += flops_of(r, r->steps.step[i].name) / r->steps.n;
    }
    return flops;
}

static td_status measure_scratch(const struct td_rank *r, size_t *out_bytes) {
    const struct td_program *programs[TD_PROGRAMS_MAX];
    size_t n = td_programs_count(r->programs);
    *out_bytes = 0;
    if (!r->accel_ops->program_bytes || !n) return TD_OK;
    for (size_t i = 0; i < n; i++) {
        programs[i] = &td_programs_at(r->programs, i)->program;
    }
    return r->accel_ops->program_bytes(r->accel, programs, n, out_bytes);
}

// Ranks on several nodes have a thread that reduces buckets. Each group has two that wait for other
// nodes, and what comes from these.
static size_t groups_bytes(const struct td_rank *r) {
    const size_t n_nodes = (size_t)r->config->n_nodes, n_groups = td_rank_sums_apart(r) ? 2 : 1;
    if (n_nodes < 2) return 0;
    return TD_SIZES_THREAD +
           n_groups * (2 * TD_SIZES_THREAD + TD_SIZES_GROUP + n_nodes * TD_SIZES_NODE);
}

size_t td_sizes_process_bytes(const struct td_rank *r) {
    const size_t threads = (size_t)TD_MAX(r->config->n_threads, 1);
    return TD_SIZES_PROCESS + r->accel_facts.process_bytes + TD_SIZES_THREAD * threads +
           groups_bytes(r);
}

bool td_sizes_shadows(const struct td_rank *r) {
    return r->accel_facts.own_memory && r->accel_ops->copy_begin;
}

// A rank's part of the limit; gradients of a group are in its shared mapping.
static void add_up(const struct td_rank *r, struct td_sizes *s) {
    const size_t n_local = (size_t)td_rank_local_world(r->config);
    const size_t all = s->state_bytes + s->arena_bytes + s->scratch_bytes;
    const size_t gradients = td_state_region_bytes(r->state, TD_ROLE_GRAD);
    s->staging_bytes = s->pieces_bytes;
    s->memory_bytes = s->snapshot_bytes + s->batch_bytes + s->order_bytes + s->process_bytes +
                      s->hook_bytes + s->shared_bytes / n_local;
    if (r->accel_facts.own_memory) {
        s->device_bytes = all + s->shadow_bytes;
        if (r->group_ops->device_bytes) {
            s->device_bytes += r->group_ops->device_bytes(r->facts.world_size);
        }
        const bool stages = td_rank_sums_buckets(r) && (!td_rank_group_takes_device(r) || r->hook);
        if (stages && !s->shared_bytes) s->staging_bytes += gradients;
    } else {
        s->memory_bytes += all - (s->shared_bytes ? gradients : 0);
    }
    s->memory_bytes += s->staging_bytes;
}

// Everything that is known without compiling.
static td_status measure_memory(const struct td_rank *r, struct td_sizes *s) {
    *s = (struct td_sizes){0};
    for (int i = 0; i < TD_STEPS_MAX && !r->accel_facts.plans_memory; i++) {
        s->arena_bytes += td_programs_arena_bytes(r->programs, i);
    }
    for (int role = 0; role < TD_ROLE_COUNT; role++) {
        s->state_bytes += td_state_region_bytes(r->state, (enum td_role)role);
    }
    uint32_t saved;
    TD_TRY(td_rank_written_roles(r, &saved));
    if (saved) TD_TRY(td_checkpointer_room(r->state, saved, &s->snapshot_bytes));
    if (saved) s->snapshot_bytes += td_rank_most_brought(r, saved);
    if (td_sizes_shadows(r)) s->shadow_bytes = s->snapshot_bytes;
    size_t gradients = td_state_region_bytes(r->state, TD_ROLE_GRAD);
    s->shared_bytes = r->base_ops->shared_bytes(td_rank_local_world(r->config), gradients);
    const size_t second = td_rank_second_group_bytes(r);
    if (second) s->shared_bytes = td_align_up(s->shared_bytes, td_page_bytes()) + second;
    s->batch_bytes = td_data_batch_bytes(r->data);
    s->order_bytes = td_data_order_bytes(r->data);
    TD_TRY(td_rank_hook_bytes(r, &s->hook_bytes));
    TD_TRY(td_rank_pieces_bytes(r, &s->pieces_bytes));
    s->process_bytes = td_sizes_process_bytes(r);
    add_up(r, s);
    return TD_OK;
}

static td_status measure_all_memory(const struct td_rank *r, struct td_sizes *s) {
    TD_TRY(measure_memory(r, s));
    TD_TRY(measure_scratch(r, &s->scratch_bytes));
    add_up(r, s);
    return TD_OK;
}

void td_sizes_say_slow(const struct td_rank *r, uint32_t n, const char *names,
                       char out_text[TD_SIZES_SLOW]) {
    (void)td_clip(out_text, TD_SIZES_SLOW,
                  "%u operation%s no fast kernel on %s (%s), so they are slow but right: %s", n,
                  n == 1 ? " has" : "s have", r->accel_name, r->accel_facts.build, names);
}

static td_status find_slow(const struct td_rank *r, char out_text[TD_SIZES_SLOW]) {
    char names[256];
    uint32_t n = 0;
    *out_text = '\0';
    TD_TRY(td_programs_preview_slow(r->programs, r->accel_ops, r->accel, names, sizeof names, &n));
    if (n) td_sizes_say_slow(r, n, names, out_text);
    return TD_OK;
}

td_status td_sizes_measure(const struct td_rank *r, struct td_sizes *out_sizes) {
    struct td_sizes s;
    TD_TRY(measure_all_memory(r, &s));
    TD_TRY(find_slow(r, s.slow)); // before the time of a step, which depends on it
    s.recompute = r->recompute;
    s.samples = td_data_length(r->data, TD_SPLIT_TRAIN);
    s.flops_per_step = flops_of_step(r);
    TD_TRY(td_estimate_step(r, &s.step));
    for (uint32_t i = 0; i < td_state_count(r->state); i++) {
        const struct td_state_info *t = td_state_at(r->state, i);
        if (t->role == TD_ROLE_PARAM) s.parameters += td_shape_elems(&t->shape);
    }
    s.batches_per_epoch = td_rank_epoch_batches(r);
    const struct td_limits windows = td_rank_window_limits(r);
    s.steps_per_epoch = r->steps.n * td_limits_steps_per_epoch(&windows, 0, s.batches_per_epoch);
    td_sizes_start_at(r, &r->start, &s);
    *out_sizes = s;
    return TD_OK;
}

void td_sizes_start_at(const struct td_rank *r, const struct td_progress *start,
                       struct td_sizes *s) {
    if (!(r->config->stages & TD_STAGE_FIT)) return;
    s->total_steps = r->steps.n * td_rank_total_windows(r, start);
}

// ---- the limit ----------------------------------------------------------------------------------
td_status td_sizes_levels(const struct td_rank *r, enum td_recompute *out_first,
                          enum td_recompute *out_last) {
    const char *wish = r->config->recompute ? r->config->recompute : "auto";
    const bool plans = r->accel_facts.plans_memory;
    *out_first = TD_RECOMPUTE_NONE;
    *out_last = plans ? TD_RECOMPUTE_NONE : TD_RECOMPUTE_FULL;
    if (strcmp(wish, "auto") == 0) return TD_OK;
    if (plans && strcmp(wish, "none") != 0) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "recompute is '%s', but accelerator '%s' plans its own memory: leave it out",
                       wish, r->accel_name);
    }
    for (int i = TD_RECOMPUTE_NONE; i <= TD_RECOMPUTE_FULL; i++) {
        if (strcmp(wish, td_recompute_name((enum td_recompute)i)) != 0) continue;
        *out_first = *out_last = (enum td_recompute)i;
        return TD_OK;
    }
    return td_fail(TD_INVALID_ARGUMENT, "recompute is '%s': none, selective, full or auto", wish);
}

// Is it more than the device has? Else it is more than the rank may have of the host's.
static bool exceeds_device(const struct td_rank *r, const struct td_sizes *s) {
    const uint64_t there = r->accel_facts.memory_bytes;
    return r->accel_facts.own_memory && there && s->device_bytes > there;
}

td_status td_sizes_fit(const struct td_rank *r, bool *out_fits) {
    const struct td_train_config *c = r->config;
    const bool own_memory = r->accel_facts.own_memory;
    size_t own = c->memory_bytes, machine = own_memory ? 0 : r->accel_facts.memory_bytes;
    size_t limit = own ? own : machine / (size_t)c->world_size;
    struct td_sizes s;
    *out_fits = true;
    const bool whole = own || (own_memory && r->accel_facts.memory_bytes);
    if (!limit && !whole) return TD_OK;
    TD_TRY(whole ? measure_all_memory(r, &s) : measure_memory(r, &s));
    *out_fits = (!limit || s.memory_bytes <= limit) && !exceeds_device(r, &s);
    return TD_OK;
}

// A computed order of the samples helps, if without theirs it would fit.
static const char *say_sampler(const struct td_sizes *s, size_t allowed) {
    const bool helps = s->order_bytes && s->memory_bytes - s->order_bytes <= allowed;
    return helps ? "set trainer.sampler: keyed, whose order of the samples takes no memory, or "
                 : "";
}

static td_status describe_excess(const struct td_rank *r, const struct td_sizes *s) {
    const size_t mib = (size_t)1 << 20, allowed = r->config->memory_bytes;
    const char *const level = td_recompute_name(r->recompute);
    if (exceeds_device(r, s)) {
        return td_fail(TD_FAILED_PRECONDITION,
                       "a rank needs %zu bytes of its device, '%s' has %zu: %zu MiB of state, %zu "
                       "of activations (recompute %s), %zu of scratch, %zu of a snapshot's shadow. "
                       "Lower data.batch_size (with trainer.accumulate_grad_batches for the same "
                       "step) or the model's sizes",
                       s->device_bytes, r->accel_facts.device_name,
                       (size_t)r->accel_facts.memory_bytes, s->state_bytes / mib,
                       s->arena_bytes / mib, level, s->scratch_bytes / mib, s->shadow_bytes / mib);
    }
    if (r->accel_facts.own_memory) {
        const size_t shared_bytes = s->shared_bytes / (size_t)td_rank_local_world(r->config);
        return td_fail(TD_FAILED_PRECONDITION,
                       "a rank needs %zu bytes of the host, resources.memory_bytes allows %zu: %zu "
                       "MiB of snapshot, %zu of batches, %zu of the order of samples, %zu of "
                       "process, %zu of gradients on their way, %zu of comm_hook. Raise "
                       "resources.memory_bytes, or %slower data.batch_size or the model's sizes",
                       s->memory_bytes, allowed, s->snapshot_bytes / mib, s->batch_bytes / mib,
                       s->order_bytes / mib, s->process_bytes / mib,
                       (s->staging_bytes + shared_bytes) / mib, s->hook_bytes / mib,
                       say_sampler(s, allowed));
    }
    const bool keeps = r->recompute != TD_RECOMPUTE_FULL && !r->accel_facts.plans_memory;
    return td_fail(TD_FAILED_PRECONDITION,
                   "a rank needs %zu bytes, resources.memory_bytes allows %zu: %zu MiB of state, "
                   "%zu of activations (recompute %s), %zu of scratch, %zu of snapshot, %zu of "
                   "batches, %zu of the order of samples, %zu of process, %zu of comm_hook. Raise "
                   "resources.memory_bytes, or %slower data.batch_size (with "
                   "trainer.accumulate_grad_batches for the same step) or "
                   "the model's sizes%s",
                   s->memory_bytes, allowed, s->state_bytes / mib, s->arena_bytes / mib, level,
                   s->scratch_bytes / mib, s->snapshot_bytes / mib, s->batch_bytes / mib,
                   s->order_bytes / mib, s->process_bytes / mib, s->hook_bytes / mib,
                   say_sampler(s, allowed), keeps ? ", or set trainer.recompute: full" : "");
}

td_status td_sizes_refuse(const struct td_rank *r) {
    struct td_sizes s;
    TD_TRY(measure_all_memory(r, &s));
    return td_status_with_class(describe_excess(r, &s), TD_CLASS_OUT_OF_MEMORY);
}

// ---- what is held -------------------------------------------------------------------------------
td_status td_sizes_announce(const struct td_rank *r) {
    const struct td_accelerator_ops *ops = r->accel_ops;
    size_t state = 0, arena = 0, scratch = 0;
    for (int role = 0; role < TD_ROLE_COUNT; role++) {
        state += r->memory.region[role].bytes;
    }
    if (ops->program_bytes) TD_TRY(ops->program_bytes(r->accel, NULL, 0, &scratch));
    for (int i = 0; i < TD_STEPS_MAX; i++) {
        arena += r->arena_memory[i].bytes;
    }
    td_events_memory(r->events, state, arena, scratch, td_recompute_name(r->recompute));
    return TD_OK;
}
