// See the header.

#include "engine/train/start.h"

#include "engine/train/checkpoint/places.h"
#include "engine/train/checkpoint/restore.h"
#include "engine/train/loop/stage_weights.h"
#include "engine/train/rank/state.h"

td_status td_start_check(const struct td_rank *r) {
    const struct td_train_config *c = r->config;
    if (c->n_resume_from) {
        struct td_restored found;
        TD_TRY(td_restore_look(c->resume_from, c->n_resume_from, r->arena, &found));
        TD_TRY(td_rank_check_resume(r, &found));
    } else if (c->init_from) {
        TD_TRY(td_rank_check_weights(r, TD_RANK_WEIGHTS_INITIAL));
    }
    TD_TRY(td_places_look(c));
    return td_stage_weights_check(r);
}
