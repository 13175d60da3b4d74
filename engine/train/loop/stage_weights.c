// Decide on rank 0, agree, load, announce.

#include "engine/train/loop/stage_weights.h"

#include <stdio.h>
#include <string.h>

#include "engine/train/rank/group/group.h"
#include "engine/train/rank/group/replicas.h"
#include "engine/train/rank/state/state.h"
#include "lib/base/clip.h"

enum { TEXT_BYTES = 1024 };
static const uint32_t weight_roles = 1u << TD_ROLE_PARAM | 1u << TD_ROLE_BUFFER;

enum source { KEEP, FROM_BEST, FROM_PATH };

// What rank 0 decided; all ranks hold the same.
struct choice {
    enum source source;
    bool missing; // the best was asked for by name, and text says why it cannot be had
    char path[TD_FS_PATH_BYTES];
    char text[TEXT_BYTES]; // for people: "best, a1/step-7 (val_loss 0.36)"
};

static bool asks_for(const struct td_train_config *c, const char *what) {
    return c->evaluate_from && strcmp(c->evaluate_from, what) == 0;
}

static bool wants_path(const struct td_train_config *c) {
    return c->evaluate_from && !asks_for(c, "best") && !asks_for(c, "last");
}

static bool wants_best(const struct td_train_config *c) {
    bool monitors = (c->stages & TD_STAGE_FIT) && c->checkpoint.monitor;
    return asks_for(c, "best") || (!c->evaluate_from && monitors);
}

td_status td_stage_weights_check(const struct td_rank *r) {
    const struct td_train_config *c = r->config;
    if (wants_path(c) && !td_fs_exists(c->evaluate_from)) {
        return td_bad_spec("evaluate_from: there is no '%s' on the node that trains",
                           c->evaluate_from);
    }
    if (asks_for(c, "best") && !c->checkpoint.dir) {
        return td_bad_spec("evaluate_from: best needs a place for checkpoints; set checkpoint.dir");
    }
    return wants_path(c) ? td_rank_check_weights(r, TD_RANK_WEIGHTS_EVALUATED) : TD_OK;
}

// The weights that the rank holds, by where they are from.
static void keep(const struct td_train_loop *l, const char *why, struct choice *out) {
    const struct td_rank *r = l->rank;
    const char *before = *why ? ", because " : "";
    out->source = KEEP;
    if (r->config->stages & TD_STAGE_FIT) {
        (void)td_clip(out->text, sizeof out->text, "last, step %lld%s%s", (long long)l->at.step,
                      before, why);
    } else if (r->resumed) {
        (void)td_clip(out->text, sizeof out->text, "those of %s", r->restored.path);
    } else if (r->config->init_from) {
        (void)td_clip(out->text, sizeof out->text, "those of %s", r->config->init_from);
    } else {
        (void)td_clip(out->text, sizeof out->text, "the initial ones");
    }
}

static void do_without_best(const struct td_train_loop *l, const char *why, struct choice *out) {
    keep(l, why, out);
    if (asks_for(l->rank->config, "best")) {
        out->missing = true;
        (void)td_clip(out->text, sizeof out->text, "%s", why);
        return;
    }
    td_events_note(l->rank->events, "validate, test and predict use the last weights, because %s",
                   why);
}

// Verified, with its manifest in *out_from. False: why says why it cannot be had.
static bool find_best(struct td_train_loop *l, struct choice *out, struct td_restored *out_from,
                      char why[TEXT_BYTES]) {
    struct td_rank *r = l->rank;
    const struct td_checkpoint_config *c = &r->config->checkpoint;
    const struct td_best *b = &l->best;
    if (!c->dir || c->save_top_k == 0) {
        snprintf(why, TEXT_BYTES, "no checkpoint is kept");
        return false;
    }
    if (!b->known) {
        snprintf(why, TEXT_BYTES, "no checkpoint has a value of %s", c->monitor);
        return false;
    }
    td_status s = td_fs_path(out->path, "%s%s", l->best_dir, b->path);
    if (s) {
        (void)td_clip(why, TEXT_BYTES, "the best checkpoint cannot be used: %s",
                      td_status_message(s));
        td_status_free(s);
        return false;
    }
    if (!td_fs_exists(out->path)) { // which is no damage: it may be on another node
        snprintf(why, TEXT_BYTES,
                 "the best checkpoint, %s, is not on this node; with checkpoint.store: stream it "
                 "follows the job, and evaluate_from: <its path> evaluates it where it is",
                 b->path);
        return false;
    }
    const char *candidate = out->path;
    s = td_restore_choose(&candidate, 1, r->events, r->arena, out_from);
    if (s) {
        (void)td_clip(why, TEXT_BYTES, "the best checkpoint, %s, cannot be used: %s", b->path,
                      td_status_message(s));
    }
    td_status_free(s);
    return s == TD_OK;
}

// Rank 0.
static void choose(struct td_train_loop *l, struct choice *out, struct td_restored *out_from) {
    const struct td_train_config *c = l->rank->config;
    const struct td_best *b = &l->best;
    char why[TEXT_BYTES];
    if (wants_path(c)) {
        out->source = FROM_PATH;
        (void)td_clip(out->text, sizeof out->text, "those of %s", c->evaluate_from);
    } else if (!wants_best(c)) {
        keep(l, "", out);
    } else if (!find_best(l, out, out_from, why)) {
        do_without_best(l, why, out);
    } else {
        out->source = FROM_BEST;
        (void)td_clip(out->text, sizeof out->text, "best, %s (%s %.6g)", b->path, b->monitor,
                      b->value);
    }
}

static td_status read_weights(struct td_rank *r, const struct choice *made,
                              struct td_restored *from) {
    const struct td_restore_target to = td_rank_restore_target(r);
    uint32_t roles;
    TD_TRY(td_rank_read_roles(r, &roles));
    if (!(roles & weight_roles)) return TD_OK;
    if (made->source == FROM_PATH) return td_rank_load_weights(r, TD_RANK_WEIGHTS_EVALUATED);
    if (!from->path) {
        const char *candidate = made->path; // another rank than 0 that reads
        TD_TRY(td_restore_choose(&candidate, 1, r->events, r->arena, from));
    }
    return td_restore_load(from, roles & weight_roles, &to);
}

td_status td_stage_weights_load(struct td_train_loop *l) {
    struct td_rank *r = l->rank;
    struct choice made = {.source = KEEP};
    struct td_restored from = {.path = NULL};
    td_control_phase(&r->control, TD_PHASE_LOADING);
    td_rank_expect(r, TD_RANK_SAVES);
    if (r->facts.is_global_zero) choose(l, &made, &from);
    TD_TRY(td_rank_broadcast(r, &made, sizeof made, 0));
    if (made.missing) {
        return td_status_with_class(td_fail(TD_DATA_LOSS, "evaluate_from: best: %s", made.text),
                                    TD_CLASS_DATA);
    }
    if (made.source != KEEP) {
        TD_TRY_CTX(read_weights(r, &made, &from), "weights to evaluate");
        r->steady = false; // not a program wrote them
        TD_TRY(td_rank_set_up_strategy(r));
    }
    if (r->facts.is_global_zero) td_events_weights(r->events, made.text);
    return TD_OK;
}
