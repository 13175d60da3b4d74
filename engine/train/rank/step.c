// One step of a rank: a program's segments, and what the strategy and the precision want between
// them. Without either wanting anything all segments are one run; a gate parts apply from the rest,
// hooks part every segment from the next. The bits are the same.

#include "engine/train/rank/step.h"

#include <stdio.h>
#include <string.h>

#include "engine/train/rank/group/comm_hook.h"
#include "engine/train/rank/group/group.h"
#include "engine/train/rank/programs/counted.h"
#include "engine/train/rank/programs/steps.h"
#include "engine/train/rank/programs/uneven.h"

#define WAIT_SLICE_NS (50 * TD_NS_PER_MS)

static td_status check_ticket(const struct td_rank *r, const char *slot) {
    if (r->ticket != TD_NO_TICKET) return TD_OK;
    return td_status_with_class(td_fail(TD_FAILED_PRECONDITION,
                                        "strategy '%s' gave no ticket from its slot %s; set "
                                        "*out_ticket to that of its last run",
                                        r->strategy_name, slot),
                                TD_CLASS_USER_CODE);
}

static td_status run_at_once(struct td_rank *r, enum td_strategy_step kind,
                             struct td_executable *exe, uint32_t segments,
                             const struct td_buffer *inputs) {
    if (!r->strategy_ops->step) return r->accel_ops->run(exe, segments, inputs, &r->ticket);
    r->ticket = TD_NO_TICKET;
    TD_TRY(r->strategy_ops->step(r->strategy, kind, exe, segments, inputs, &r->ticket));
    return check_ticket(r, "step");
}

static td_status wait_for(struct td_rank *r, td_ticket ticket);

// Does a timeline part each segment from the next?
static bool parts_for_time(const struct td_rank *r, enum td_strategy_step kind) {
    return r->timeline && kind == TD_STEP_TRAIN && !r->strategy_ops->step;
}

// An event of the timeline for each segment; a strategy that runs them by itself has one for all.
static td_status run_in_time(struct td_rank *r, enum td_strategy_step kind,
                             struct td_executable *exe, uint32_t segments,
                             const struct td_buffer *inputs) {
    static const char *const names[] = {"forward", "backward", "finish", "apply"};
    _Static_assert(TD_COUNTOF(names) == TD_SEG_COUNT, "one name per segment");
    const bool is_whole = !parts_for_time(r, kind);
    char args[40];
    snprintf(args, sizeof args, "\"step\":%.0f", r->scalars[TD_SCALAR_STEP]);
    for (int i = 0; i < (is_whole ? 1 : TD_SEG_COUNT); i++) {
        const uint32_t own = is_whole ? segments : segments & (1u << i | TD_RUN_STEADY);
        const char *name = !is_whole ? names[i] : kind == TD_STEP_TRAIN ? "step" : "evaluation";
        const struct td_mono start = td_mono_now();
        if (!(own & TD_SEGS_ALL)) continue;
        TD_TRY(run_at_once(r, kind, exe, own, inputs));
        TD_TRY(wait_for(r, r->ticket));
        TD_TRY(td_timeline_add(r->timeline, name, NULL, start, args));
    }
    return TD_OK;
}

static td_status run(struct td_rank *r, enum td_strategy_step kind, struct td_executable *exe,
                     uint32_t segments, const struct td_buffer *inputs) {
    if (r->steady) segments |= TD_RUN_STEADY;
    return r->timeline ? run_in_time(r, kind, exe, segments, inputs)
                       : run_at_once(r, kind, exe, segments, inputs);
}

// In slices, because a rank whose peer is gone may wait for a sum that never comes.
static td_status wait_for(struct td_rank *r, td_ticket ticket) {
    for (;;) {
        td_status s = r->accel_ops->wait(r->accel, ticket, WAIT_SLICE_NS);
        if (td_status_code(s) != TD_DEADLINE_EXCEEDED) {
            r->done = ticket;
            return s;
        }
        td_status_free(s);
        s = td_control_check_abort(&r->control);
        if (!s && r->group_ops->check) s = r->group_ops->check(r->group);
        if (!s) continue;
        // Its sums end by the same word; then nothing reads the inputs, which the caller frees.
        td_status_free(r->accel_ops->wait(r->accel, ticket, TD_ABORT_PATIENCE_NS));
        return s;
    }
}

// Did the finish segment that ran last find all gradients finite?
static td_status all_finite(struct td_rank *r, const struct td_runnable *p, bool *out_finite) {
    bool finite = true;
    for (uint32_t i = 0; i < td_graph_n_outputs(p->graph); i++) {
        enum td_output_kind output;
        td_graph_output_at(p->graph, i, NULL, NULL, &output);
        if (output == TD_OUTPUT_GATE) finite = r->outputs[i] != 0;
    }
    *out_finite = finite;
    // Gradients that were not reduced may be finite here and not there.
    if (p->sums || r->facts.world_size == 1) return TD_OK;
    return td_rank_decide(r, finite, true, out_finite);
}

// Does a gate part apply from the rest?
static bool parts_for_gate(const struct td_rank *r, uint32_t segments) {
    return r->precision_ops->step_gate && segments & 1u << TD_SEG_APPLY;
}

// Runs segments. Where apply is one of them the precision's gate may say that the step is to be
// skipped, once the others have run. Without a gate all is one run.
static td_status run_gated(struct td_rank *r, enum td_strategy_step kind,
                           const struct td_runnable *p, uint32_t segments,
                           const struct td_buffer *inputs) {
    const struct td_precision_ops *o = r->precision_ops;
    const uint32_t apply = 1u << TD_SEG_APPLY;
    if (!parts_for_gate(r, segments)) return run(r, kind, p->exe, segments, inputs);
    if (segments & ~apply) {
        TD_TRY(run(r, kind, p->exe, segments & ~apply, inputs));
        TD_TRY(wait_for(r, r->ticket));
    }
    bool finite, steps;
    TD_TRY(all_finite(r, p, &finite));
    TD_TRY(o->step_gate(r->precision, finite, &steps));
    r->skipped = !steps;
    td_rank_hook_end_step(r, steps);
    return steps ? run(r, kind, p->exe, apply, inputs) : TD_OK;
}

static td_status run_backward(struct td_rank *r, enum td_strategy_step kind,
                              const struct td_runnable *p, const struct td_buffer *inputs) {
    const struct td_strategy_ops *o = r->strategy_ops;
    if (!o->backward) return run(r, kind, p->exe, 1u << TD_SEG_BACKWARD, inputs);
    r->ticket = TD_NO_TICKET;
    TD_TRY(o->backward(r->strategy, p->exe, inputs, &r->ticket));
    return check_ticket(r, "backward");
}

// A step that the strategy does not take is as one that the precision skips.
static td_status run_optimizer_step(struct td_rank *r, const struct td_runnable *p,
                                    uint32_t segments, const struct td_buffer *inputs) {
    const td_ticket before = r->ticket;
    bool stepped = true;
    r->ticket = TD_NO_TICKET;
    TD_TRY(r->strategy_ops->optimizer_step(r->strategy, p->exe, segments, inputs, &stepped,
                                           &r->ticket));
    if (!stepped && r->ticket == TD_NO_TICKET) r->ticket = before; // done
    r->skipped = !stepped;
    td_rank_hook_end_step(r, stepped);
    return check_ticket(r, "optimizer_step");
}

// Does a strategy run these segments of an update itself?
static bool has_own_update(const struct td_rank *r, uint32_t segments) {
    return r->strategy_ops->optimizer_step && segments & 1u << TD_SEG_APPLY;
}

// Segments one by one, because the strategy has something to do between them.
static td_status run_with_hooks(struct td_rank *r, enum td_strategy_step kind, uint32_t segments,
                                const struct td_runnable *p, const struct td_buffer *inputs) {
    const struct td_strategy_ops *o = r->strategy_ops;
    const uint32_t update = segments & TD_SEGS_UPDATE;
    r->steady = false; // the hooks may write what they like
    if (segments & 1u << TD_SEG_FORWARD) {
        TD_TRY(run(r, kind, p->exe, 1u << TD_SEG_FORWARD, inputs));
        TD_TRY(wait_for(r, r->ticket));
    }
    if (segments & 1u << TD_SEG_BACKWARD) {
        if (o->pre_backward) TD_TRY(o->pre_backward(r->strategy));
        TD_TRY(run_backward(r, kind, p, inputs));
        TD_TRY(wait_for(r, r->ticket));
        if (o->post_backward) TD_TRY(o->post_backward(r->strategy));
    }
    if (!update) return TD_OK;
    return has_own_update(r, update) ? run_optimizer_step(r, p, update, inputs)
                                     : run_gated(r, kind, p, update, inputs);
}

static bool has_hooks(const struct td_rank *r) {
    const struct td_strategy_ops *o = r->strategy_ops;
    return o->pre_backward || o->backward || o->post_backward || o->optimizer_step;
}

// What one run of a program has. A micro-batch that ends no window has neither finish nor apply, so
// a step slot, which counts optimizer steps by them, does not learn that it has.
static uint32_t segments_of(const struct td_rank *r, enum td_strategy_step kind,
                            const struct td_program_key *key) {
    bool takes_part = r->strategy_ops->step || has_hooks(r);
    bool only_adds = takes_part && kind == TD_STEP_TRAIN && !key->apply;
    return only_adds ? TD_SEGS_ALL & ~TD_SEGS_UPDATE : TD_SEGS_ALL;
}

// ---- the sets of segments that come of all this -------------------------------------------------

struct sets {
    uint32_t *set; // (TD_SEGMENT_SETS)
    size_t n;
};

static void add_set(struct sets *s, uint32_t set) {
    for (size_t i = 0; i < s->n; i++) {
        if (s->set[i] == set) return;
    }
    TD_CHECK(s->n < TD_SEGMENT_SETS);
    if (set) s->set[s->n++] = set;
}

// The segments that always begin a run, as td_rank_queue_segments has it.
static uint32_t begins_of(const struct td_rank *r, const struct td_program_key *key) {
    uint32_t begins = 0;
    if (key->mode != TD_MODE_TRAIN) return 0;
    if (has_hooks(r)) begins |= 1u << TD_SEG_BACKWARD | 1u << TD_SEG_FINISH;
    if (parts_for_time(r, TD_STEP_TRAIN)) begins |= TD_SEGS_ALL;
    if (key->apply && parts_for_gate(r, TD_SEGS_UPDATE)) begins |= 1u << TD_SEG_APPLY;
    return begins;
}

// What a request for these segments comes to.
static void add_request(struct sets *s, const struct td_rank *r, const struct td_program_key *key,
                        uint32_t segments) {
    const uint32_t begins = begins_of(r, key);
    uint32_t set = 0;
    for (uint32_t i = 0; i < TD_SEG_COUNT; i++) {
        if (begins >> i & 1) {
            add_set(s, set);
            set = 0;
        }
        set |= segments & 1u << i;
    }
    add_set(s, set);
    if (key->mode != TD_MODE_TRAIN || !has_own_update(r, segments)) return;
    add_set(s, segments & TD_SEGS_UPDATE); // in its own parts, or at once
    add_set(s, segments & 1u << TD_SEG_FINISH);
    add_set(s, 1u << TD_SEG_APPLY);
}

static bool has_norm(const struct td_graph *g) {
    for (uint32_t i = 0; i < td_graph_n_outputs(g); i++) {
        enum td_output_kind kind;
        td_graph_output_at(g, i, NULL, NULL, &kind);
        if (kind == TD_OUTPUT_NORM) return true;
    }
    return false;
}

// May host code ask for these two and all between them? An update needs gradients that are synced,
// and finish is parted from apply for the norm alone (loop/manual.c).
static bool may_ask(const struct td_program *p, int first, int last) {
    if (last > TD_SEG_BACKWARD && !p->key.apply) return false;
    return (last != TD_SEG_FINISH && first != TD_SEG_APPLY) || has_norm(p->graph);
}

size_t td_rank_segment_sets(const struct td_rank *r, const struct td_program *p,
                            uint32_t out_sets[TD_SEGMENT_SETS]) {
    const struct td_program_key *key = &p->key;
    const bool is_training = key->mode == TD_MODE_TRAIN;
    struct sets s = {.set = out_sets};
    if (is_training && td_rank_is_manual(r)) {
        for (int i = 0; i < TD_SEG_COUNT * TD_SEG_COUNT; i++) {
            const int first = i / TD_SEG_COUNT, last = i % TD_SEG_COUNT;
            if (first > last || !may_ask(p, first, last)) continue;
            add_request(&s, r, key, (2u << last) - (1u << first));
        }
    } else if (is_training && td_rank_divides(r)) {
        add_request(&s, r, key, TD_SEGS_PASS);
        if (key->apply) add_request(&s, r, key, TD_SEGS_UPDATE);
    } else {
        add_request(&s, r, key,
                    segments_of(r, is_training ? TD_STEP_TRAIN : TD_STEP_VALIDATE, key));
    }
    return s.n;
}

td_status td_rank_prepare(const struct td_rank *r) {
    uint32_t sets[TD_SEGMENT_SETS];
    for (size_t i = 0; i < td_programs_count(r->programs); i++) {
        const struct td_program *p = &td_programs_at(r->programs, i)->program;
        const size_t n = td_rank_segment_sets(r, p, sets);
        TD_TRY(td_programs_prepare(r->programs, i, sets, n));
    }
    return TD_OK;
}

// ---- what ranks agree on ------------------------------------------------------------------------

// All ranks act on the sum of their control flags. Where no bucket carried them, the strategy
// reduces nothing in its programs, or in another way. One that left the tail alone would go unseen
// until a rank is to stop, and the others do not.
static td_status agree(struct td_rank *r, bool summed) {
    const float *ranks = &r->control.flags[TD_CONTROL_RANKS];
    if (!summed && r->facts.world_size > 1) {
        TD_TRY(td_rank_sum(r, r->control.flags, TD_CONTROL_FLAGS, TD_F32));
    }
    if (*ranks == (float)r->facts.world_size) {
        td_control_agreed(&r->control);
        return TD_OK;
    }
    return td_status_with_class(
        td_fail(TD_FAILED_PRECONDITION,
                "strategy '%s' did not sum the control tail over the world: 1 of each of %d ranks "
                "came to %g; reduce_gradients has to sum the control flags of the last bucket",
                r->strategy_name, r->facts.world_size, (double)*ranks),
        TD_CLASS_USER_CODE);
}

td_status td_rank_sum_flags(struct td_rank *r, bool step_follows, float *out_flags) {
    td_control_beat(&r->control);
    td_control_raise(&r->control, out_flags, step_follows);
    TD_TRY(td_control_check_abort(&r->control));
    return td_rank_sum(r, out_flags, TD_CONTROL_FLAGS, TD_F32);
}

td_status td_rank_agree(struct td_rank *r, bool step_follows) {
    TD_TRY(td_rank_sum_flags(r, step_follows, r->control.flags));
    return agree(r, true);
}

bool td_rank_runs_ahead(const struct td_rank *r) {
    const struct td_strategy_ops *o = r->strategy_ops;
    const bool takes_part =
        has_hooks(r) || o->step || o->step_end || o->batch_to_device || r->facts.hooks_batches;
    const bool meets = r->facts.world_size > 1 && !td_programs_sum(r->programs);
    return r->accel_facts.run_ahead && !takes_part && !meets && !r->precision_ops->step_gate &&
           !r->config->detect_anomaly && !r->timeline && r->steps.n == 1 && !td_rank_divides(r);
}

td_status td_rank_move_batch(struct td_rank *r, int loader, const struct td_buffer *inputs,
                             struct td_buffer out_inputs[TD_DATA_FIELDS]) {
    const struct td_strategy_ops *o = r->strategy_ops;
    size_t n_fields;
    (void)td_data_fields(r->data, &n_fields);
    if (o->batch_to_device) {
        return o->batch_to_device(r->strategy, loader, inputs, n_fields, out_inputs);
    }
    memcpy(out_inputs, inputs, n_fields * sizeof *inputs);
    return TD_OK;
}

td_status td_rank_queue_segments(struct td_rank *r, enum td_strategy_step kind,
                                 const struct td_program_key *key, const struct td_buffer *inputs,
                                 uint32_t segments, struct td_rank_run *out_run) {
    struct td_runnable program;
    r->skipped = false;
    TD_TRY(td_programs_find(r->programs, key, &program));
    bool hooked = kind == TD_STEP_TRAIN && has_hooks(r);
    if (hooked) {
        TD_TRY(run_with_hooks(r, kind, segments, &program, inputs));
    } else if (kind == TD_STEP_TRAIN && key->apply) {
        TD_TRY(run_gated(r, kind, &program, segments, inputs));
    } else {
        TD_TRY(run(r, kind, program.exe, segments, inputs));
    }
    r->steady = !hooked;
    const bool reduces = segments & 1u << TD_SEG_BACKWARD;
    *out_run = (struct td_rank_run){.graph = program.graph,
                                    .ticket = r->ticket,
                                    .agrees = kind == TD_STEP_TRAIN && key->sync && reduces,
                                    .sums = program.sums,
                                    .ends = segments & 1u << TD_SEG_FORWARD,
                                    .kind = kind,
                                    .n_samples = key->batch};
    return TD_OK;
}

td_status td_rank_queue(struct td_rank *r, enum td_strategy_step kind,
                        const struct td_program_key *key, int loader,
                        const struct td_buffer *inputs, struct td_rank_run *out_run) {
    struct td_buffer moved[TD_DATA_FIELDS];
    TD_TRY(td_rank_move_batch(r, loader, inputs, moved));
    return td_rank_queue_segments(r, kind, key, moved, segments_of(r, kind, key), out_run);
}

td_status td_rank_step_end(struct td_rank *r, const struct td_rank_run *run) {
    const struct td_strategy_ops *o = r->strategy_ops;
    if (!o->step_end || !run->ends) return TD_OK;
    return o->step_end(r->strategy, run->kind, run->graph, run->n_samples, r->outputs);
}

td_status td_rank_read(struct td_rank *r, const struct td_rank_run *run) {
    TD_TRY(wait_for(r, run->ticket));
    if (run->agrees) TD_TRY(agree(r, run->sums));
    return td_rank_step_end(r, run);
}

td_status td_rank_step(struct td_rank *r, enum td_strategy_step kind,
                       const struct td_program_key *key, int loader, const struct td_buffer *inputs,
                       const struct td_graph **out_graph) {
    struct td_rank_run run;
    TD_TRY(td_rank_queue(r, kind, key, loader, inputs, &run));
    TD_TRY(td_rank_read(r, &run));
    *out_graph = run.graph;
    return TD_OK;
}

td_status td_rank_step_idle(struct td_rank *r, enum td_strategy_step kind, int loader) {
    const enum td_mode mode = kind == TD_STEP_PREDICT ? TD_MODE_PREDICT : TD_MODE_EVAL;
    struct td_buffer inputs[TD_DATA_FIELDS];
    struct td_program_key key;
    struct td_rank_run run;
    if (!td_rank_idle_key(r, mode, &key)) return TD_OK;
    TD_TRY(td_data_zeros(r->data, key.batch, inputs));
    TD_TRY(td_rank_queue(r, kind, &key, loader, inputs, &run));
    return wait_for(r, run.ticket);
}

td_status td_rank_hook(struct td_rank *r, enum td_strategy_hook hook, int64_t batch) {
    return r->strategy_ops->hook ? r->strategy_ops->hook(r->strategy, hook, batch) : TD_OK;
}

td_status td_rank_sum(struct td_rank *r, void *data, int64_t n, enum td_dtype dtype) {
    return td_rank_reduce(r, TD_GROUP_WORLD, data, n, dtype, TD_REDUCE_SUM);
}
