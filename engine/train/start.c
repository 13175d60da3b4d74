// See the header.

#include "engine/train/start.h"

#include "engine/train/checkpoint/outputs.h"
#include "engine/train/checkpoint/restore.h"
#include "engine/train/loop/stage_weights.h"
#include "engine/train/rank/programs/batches.h"
#include "engine/train/rank/state/state.h"

td_status td_start_check(const struct td_rank *r, struct td_progress *out_start) {
    const struct td_train_config *c = r->config;
    struct td_progress start = {0};
    if (c->n_resume_from) {
        struct td_restored found;
        TD_TRY(td_restore_look(c->resume_from, c->n_resume_from, r->arena, &found));
        TD_TRY(td_rank_check_resume(r, &found));
        start = found.manifest.progress;
        td_rank_recount(r, &start);
    } else if (c->init_from) {
        TD_TRY(td_rank_check_weights(r, TD_RANK_WEIGHTS_INITIAL));
    }
    // A later attempt tries the places of the first itself: one that is away for a while is no
    // mistake of the spec.
    if (c->attempt <= 1) TD_TRY(td_outputs_look(c));
    TD_TRY(td_stage_weights_check(r));
    *out_start = start;
    return TD_OK;
}
