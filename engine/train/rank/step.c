// One step of a rank: a program's segments, and what the strategy and the precision want between
// them. Without either wanting anything all segments are one run; a gate parts apply from the rest,
// hooks part every segment from the next. The bits are the same.

#include "engine/train/rank/step.h"

#include "engine/train/rank/group.h"

#define WAIT_SLICE_NS (50 * TD_NS_PER_MS)
#define NO_TICKET     UINT64_MAX

static td_status check_ticket(const struct td_rank *r, const char *slot) {
    if (r->ticket != NO_TICKET) return TD_OK;
    return td_status_with_class(td_fail(TD_FAILED_PRECONDITION,
                                        "strategy '%s' gave no ticket from its slot %s; set "
                                        "*out_ticket to that of its last run",
                                        r->strategy_name, slot),
                                TD_CLASS_USER_CODE);
}

static td_status run(struct td_rank *r, enum td_strategy_step kind, struct td_executable *exe,
                     uint32_t segments, const void *const *inputs) {
    if (r->steady) segments |= TD_RUN_STEADY;
    if (!r->strategy_ops->step) return r->accel_ops->run(exe, segments, inputs, &r->ticket);
    r->ticket = NO_TICKET;
    TD_TRY(r->strategy_ops->step(r->strategy, kind, exe, segments, inputs, &r->ticket));
    return check_ticket(r, "step");
}

// In slices, because a rank whose peer is gone may wait for a sum that never comes.
td_status td_rank_wait(struct td_rank *r) {
    for (;;) {
        td_status s = r->accel_ops->wait(r->accel, r->ticket, WAIT_SLICE_NS);
        if (td_status_code(s) != TD_DEADLINE_EXCEEDED) return s;
        td_status_free(s);
        TD_TRY(td_control_check_abort(&r->control));
    }
}

// Runs `segments` and then apply, unless the precision's gate says that the step is to be skipped.
// Without a gate all is one run.
static td_status run_gated(struct td_rank *r, enum td_strategy_step kind, struct td_executable *exe,
                           const struct td_graph *g, uint32_t segments, const void *const *inputs) {
    const struct td_precision_ops *o = r->precision_ops;
    const uint32_t apply = 1u << TD_SEG_APPLY;
    if (!o->step_gate) return run(r, kind, exe, segments | apply, inputs);
    TD_TRY(run(r, kind, exe, segments, inputs));
    TD_TRY(td_rank_wait(r));
    bool finite = true, steps;
    for (uint32_t i = 0; i < td_graph_n_outputs(g); i++) {
        enum td_output_kind output;
        td_graph_output_at(g, i, NULL, NULL, &output);
        if (output == TD_OUTPUT_GATE) finite = r->outputs[i] != 0;
    }
    // Gradients that were not reduced may be finite here and not there.
    if (!r->summed && r->facts.world_size > 1) TD_TRY(td_rank_decide(r, finite, true, &finite));
    TD_TRY(o->step_gate(r->precision, finite, &steps));
    r->skipped = !steps;
    return steps ? run(r, kind, exe, apply, inputs) : TD_OK;
}

// Segments one by one, because the strategy has something to do between them.
static td_status run_with_hooks(struct td_rank *r, enum td_strategy_step kind, bool apply,
                                struct td_executable *exe, const struct td_graph *g,
                                const void *const *inputs) {
    const struct td_strategy_ops *o = r->strategy_ops;
    r->steady = false; // the hooks may write what they like
    TD_TRY(run(r, kind, exe, 1u << TD_SEG_FORWARD, inputs));
    TD_TRY(td_rank_wait(r));
    if (o->pre_backward) TD_TRY(o->pre_backward(r->strategy));
    TD_TRY(run(r, kind, exe, 1u << TD_SEG_BACKWARD, inputs));
    TD_TRY(td_rank_wait(r));
    if (o->post_backward) TD_TRY(o->post_backward(r->strategy));
    if (!apply) return TD_OK;
    if (o->optimizer_step) {
        r->ticket = NO_TICKET;
        TD_TRY(o->optimizer_step(r->strategy, exe, inputs, &r->ticket));
        return check_ticket(r, "optimizer_step");
    }
    return run_gated(r, kind, exe, g, 1u << TD_SEG_FINISH, inputs);
}

// What one run of a program has. A micro-batch that ends no window has neither finish nor apply, so
// a step slot, which counts optimizer steps by them, does not learn that it has.
static uint32_t segments_of(const struct td_rank *r, enum td_strategy_step kind,
                            const struct td_program_key *key) {
    const uint32_t update = 1u << TD_SEG_FINISH | 1u << TD_SEG_APPLY;
    bool only_adds = r->strategy_ops->step && kind == TD_STEP_TRAIN && !key->apply;
    return only_adds ? TD_SEGS_ALL & ~update : TD_SEGS_ALL;
}

// All ranks act on the sum of their control flags. Where no bucket carried them, the strategy
// reduces nothing in its programs, or in another way. One that left the tail alone would go unseen
// until a rank is to stop, and the others do not.
static td_status agree(struct td_rank *r) {
    const float *ranks = &r->control.flags[TD_CONTROL_RANKS];
    if (!r->summed && r->facts.world_size > 1) {
        TD_TRY(td_rank_sum(r, r->control.flags, TD_CONTROL_FLAGS, TD_F32));
    }
    if (*ranks == (float)r->facts.world_size) return TD_OK;
    return td_status_with_class(
        td_fail(TD_FAILED_PRECONDITION,
                "strategy '%s' did not sum the control tail over the world: 1 of each of %d ranks "
                "came to %g; reduce_gradients has to sum its n_tail elements after the bucket",
                r->strategy_name, r->facts.world_size, (double)*ranks),
        TD_CLASS_USER_CODE);
}

td_status td_rank_step(struct td_rank *r, enum td_strategy_step kind,
                       const struct td_program_key *key, const void *const *inputs,
                       const struct td_graph **out_graph) {
    const struct td_strategy_ops *o = r->strategy_ops;
    const void *moved[TD_DATA_FIELDS];
    struct td_runnable program;
    r->skipped = false;
    r->summed = false;
    TD_TRY(td_programs_find(r->programs, key, &program));
    if (o->batch_to_device) {
        size_t n_fields;
        (void)td_data_fields(r->data, &n_fields);
        TD_TRY(o->batch_to_device(r->strategy, inputs, n_fields, moved));
        inputs = moved;
    }
    bool hooked =
        kind == TD_STEP_TRAIN && (o->pre_backward || o->post_backward || o->optimizer_step);
    if (hooked) {
        TD_TRY(run_with_hooks(r, kind, key->apply, program.exe, program.graph, inputs));
    } else if (kind == TD_STEP_TRAIN && key->apply) {
        TD_TRY(run_gated(r, kind, program.exe, program.graph, TD_SEGS_ALL & ~(1 << TD_SEG_APPLY),
                         inputs));
    } else {
        TD_TRY(run(r, kind, program.exe, segments_of(r, kind, key), inputs));
    }
    TD_TRY(td_rank_wait(r));
    r->steady = !hooked;
    if (kind == TD_STEP_TRAIN && key->sync) TD_TRY(agree(r));
    *out_graph = program.graph;
    return TD_OK;
}

td_status td_rank_hook(struct td_rank *r, enum td_strategy_hook hook, int64_t batch) {
    return r->strategy_ops->hook ? r->strategy_ops->hook(r->strategy, hook, batch) : TD_OK;
}

td_status td_rank_sum(struct td_rank *r, void *data, int64_t n, enum td_dtype dtype) {
    return td_rank_reduce(r, data, n, dtype, TD_REDUCE_SUM);
}
