// Finish: the end of a program's run. What is queued and what is being written is waited for, ranks
// meet once more, and a launcher learns how it ended, once. After a failure nobody is waited for.
// destroy takes down what there is, from any point that create and setup reached.

#include <stdio.h>

#include "engine/train/rank/group/group.h"
#include "fabric/fabric.h"
#include "fabric/signals/fatal.h"
#include "fabric/signals/stop_signals.h"
#include "lib/attempt/exit_codes.h"
#include "lib/base/log.h"

static td_status end_rank(struct td_fabric *f) {
    struct td_rank *r = f->rank;
    TD_TRY(td_fabric_leave_pass(f));
    TD_TRY(td_manual_drain(&f->manual));
    if (f->optimizer) {
        TD_TRY(td_rank_hook(r, TD_HOOK_TRAIN_END, 0));
        if (r->facts.is_global_zero) {
            td_events_stage_end(&f->events, "fit",
                                f->stopping ? TD_OUTCOME_STOPPED : TD_OUTCOME_DONE);
        }
    }
    TD_TRY(td_checkpointer_wait(r->checkpointer));
    TD_TRY(td_checkpointer_poll(r->checkpointer));
    return td_rank_finish(r);
}

td_status td_fabric_finish(struct td_fabric *f, td_status status) {
    TD_CHECK(f->magic == TD_FABRIC_MAGIC);
    if (f->ended) return status;
    f->ended = true;
    if (!status && f->failure) {
        status = td_fabric_misuse("td_fabric_finish without a failure, but a call had failed: %s",
                                  f->failure);
    }
    if (!status && f->rank) status = end_rank(f);
    status = td_fabric_failed(f, status);
    atomic_store_explicit(&f->io.train.page->phase, TD_PHASE_ENDED, memory_order_relaxed);
    const enum td_outcome outcome = status        ? TD_OUTCOME_FAILED
                                    : f->stopping ? TD_OUTCOME_STOPPED
                                                  : TD_OUTCOME_DONE;
    td_events_end(&f->events, outcome, status, f->loop.at.step);
    if (status) td_fatal_last_words(f->io.train.page, td_status_message(status));
    return status;
}

void td_fabric_destroy(struct td_fabric *f) {
    if (!f) return;
    if (!f->ended) {
        td_status s = td_fabric_misuse("the program ended without td_fabric_finish");
        td_status_free(td_fabric_finish(f, s));
    }
    if (f->in_job) td_stop_signals_finish();
    td_rank_destroy(f->rank);
    td_rank_config_destroy(f->config);
    if (f->io.train.page) {
        td_events_finish(&f->events);
        td_rank_detach(&f->io);
    }
    td_arena_destroy(f->arena);
    f->magic = 0;
    free(f);
}

// A spec may be wrong in several places, each of which is a field.
static void print(td_status s) {
    fprintf(stderr, "%s\n", td_status_message(s));
    for (size_t i = 1; i < td_status_n_fields(s); i++) {
        const char *path, *text;
        td_status_field(s, i, &path, &text);
        fprintf(stderr, "  %s: %s\n", path, text);
    }
}

int td_fabric_exit(struct td_fabric *f, td_status status) {
    bool stopped = false, in_job = false;
    if (f) {
        status = td_fabric_finish(f, status);
        stopped = f->stopping;
        in_job = f->in_job;
    }
    status = td_rank_classify(status);
    const int code = status              ? td_exit_code_of(td_status_class(status))
                     : stopped && in_job ? TD_EXIT_STOPPED
                                         : TD_EXIT_DONE;
    if (status) print(status);
    td_status_free(status);
    td_fabric_destroy(f);
    return code;
}
