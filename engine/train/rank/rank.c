// The end of a rank, and what its failures are called.

#include "engine/train/rank/rank.h"

#include <stdlib.h>

td_status td_rank_classify(td_status s) {
    static const enum td_class of_code[] = {
        [TD_INVALID_ARGUMENT] = TD_CLASS_BAD_SPEC,
        [TD_NOT_FOUND] = TD_CLASS_BAD_SPEC,
        [TD_UNIMPLEMENTED] = TD_CLASS_BAD_SPEC,
        [TD_RESOURCE_EXHAUSTED] = TD_CLASS_OUT_OF_MEMORY,
        [TD_ABORTED] = TD_CLASS_COLLECTIVE,
        [TD_DEADLINE_EXCEEDED] = TD_CLASS_COLLECTIVE,
        [TD_DATA_LOSS] = TD_CLASS_DATA,
        [TD_UNAUTHENTICATED] = TD_CLASS_NONE,
    };
    if (!s || td_status_class(s) != TD_CLASS_NONE) return s;
    enum td_class cls = of_code[td_status_code(s)];
    return td_status_with_class(s, cls == TD_CLASS_NONE ? TD_CLASS_INTERNAL : cls);
}

// A rank that fails may leave a run that is queued. It reads and writes what is freed next. Peers
// that it waits for were woken by the failure (td_rank_fail).
static void end_runs(struct td_rank *r) {
    if (!r->accel || r->ticket == TD_NO_TICKET || r->ticket == r->done) return;
    td_status_free(r->accel_ops->wait(r->accel, r->ticket, TD_ABORT_PATIENCE_NS));
}

void td_rank_close_hook(struct td_rank *r) {
    for (size_t i = 0; i < TD_COUNTOF(r->hooks); i++) {
        if (r->hooks[i].ops) r->hooks[i].ops->close(r->hooks[i].hook);
        r->hooks[i] = (struct td_rank_hook){0};
    }
    r->hook = NULL;
}

void td_rank_destroy(struct td_rank *r) {
    if (!r) return;
    td_background_destroy(r->background); // it may be writing the checkpointer's snapshot
    end_runs(r);
    td_comm_thread_destroy(r->comm); // it may be reducing gradients of a step that failed
    td_checkpointer_destroy(r->checkpointer);
    td_metrics_finish(&r->metrics);
    td_programs_destroy(r->programs);
    td_rank_close_hook(r); // its buckets are the rank's
    for (int i = 0; i < TD_STEPS_MAX; i++) {
        if (r->arena_memory[i].bytes) r->accel_ops->mem_free(r->accel, r->arena_memory[i]);
    }
    for (int role = 0; role < TD_ROLE_COUNT; role++) {
        if (r->owned[role]) r->accel_ops->mem_free(r->accel, r->memory.region[role]);
        free(r->writers.brought[role]);
    }
    free(r->own_staging);
    free(r->sum_staging);
    free(r->piece_memory);
    td_state_table_destroy(r->state);
    if (r->module_ops) r->module_ops->close(r->module);
    td_plugin_state_finish(&r->own);
    td_data_close(r->data);
    if (r->strategy_ops) r->strategy_ops->close(r->strategy);
    if (r->precision_ops) r->precision_ops->close(r->precision);
    if (r->sums) r->group_ops->leave(r->sums);
    if (r->group) r->group_ops->leave(r->group);
    if (r->accel_ops) r->accel_ops->close(r->accel);
    td_timeline_destroy(r->timeline);
    td_arena_destroy(r->arena);
    free(r);
}
