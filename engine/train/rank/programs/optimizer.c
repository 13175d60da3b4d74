// Groups and marks.

#include "engine/train/rank/programs/optimizer.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/train/rank/programs/pattern.h"
#include "lib/base/clip.h"
#include "traind/op.h"

enum { SHOWN_NAMES = 300 };
static const double no_rate = DBL_MIN; // an lr_scale of 0 would stand for 1

// NULL: none.
static const struct td_optimizer_group *group_of(const struct td_optimizer_config *c,
                                                 const char *name) {
    for (size_t i = 0; i < c->n_groups; i++) {
        if (td_pattern_matches(c->groups[i].match, name)) return &c->groups[i];
    }
    return NULL;
}

// ---- what a parameter gets ---------------------------------------------------------------------

// Hidden matrices are Muon's, everything else AdamW's.
static void choose_muon(const struct td_optimizer_config *c, const struct td_state_info *param,
                        struct td_optim_choice *io) {
    if (param->shape.n_dims != 2 || param->marks & TD_PARAM_NOT_HIDDEN) {
        io->op = TD_OP_ADAMW;
        io->attrs = c->muon.adamw;
        io->attrs.lr_scale = c->lr > 0 ? fmax(c->muon.adamw_lr / c->lr, no_rate) : 1;
        return;
    }
    const int32_t at = io->in_out ? 1 : 0; // of what the matrix puts out
    double out = (double)TD_MAX(param->shape.dim[at], 1);
    double in = (double)TD_MAX(param->shape.dim[1 - at], 1);
    const double scales[] = {
        [TD_MUON_ORIGINAL] = sqrt(fmax(1, out / in)),
        [TD_MUON_MATCH_RMS_ADAMW] = 0.2 * sqrt(fmax(out, in)),
        [TD_MUON_SPECTRAL_UNCLAMPED] = sqrt(out / in),
    };
    io->attrs.update_scale = scales[c->muon.scale];
    io->ns_steps = c->muon.ns_steps;
    memcpy(io->ns_coefficients, c->muon.ns_coefficients, sizeof io->ns_coefficients);
}

// The step from 1 to the next number of a type.
static double epsilon_of(enum td_dtype t) {
    const double steps[TD_DTYPE_COUNT] = {
        [TD_F32] = 0x1p-23, [TD_F64] = 0x1p-52, [TD_BF16] = 0x1p-7, [TD_F16] = 0x1p-10};
    return steps[t];
}

static void choose(const void *arg, const struct td_state_info *param, struct td_optim_choice *io) {
    const struct td_optimizer_config *c = arg;
    if (io->op == TD_OP_MUON) choose_muon(c, param, io);
    if (io->op == TD_OP_ADAFACTOR && io->attrs.eps == 0) io->attrs.eps = epsilon_of(param->dtype);
    if (param->marks & TD_PARAM_NO_DECAY) io->attrs.weight_decay = 0;
    const struct td_optimizer_group *group = group_of(c, param->name);
    if (!group) return;
    if (group->has_weight_decay) io->attrs.weight_decay = group->weight_decay;
    io->frozen = group->lr_scale == 0;
    double scale = group->lr_scale * (io->attrs.lr_scale != 0 ? io->attrs.lr_scale : 1);
    if (group->lr_scale != 1) io->attrs.lr_scale = fmax(scale, no_rate);
}

static enum td_op op_of(const struct td_optimizer_config *config) {
    static const enum td_op op[] = {
        [TD_OPTIMIZER_SGD] = TD_OP_SGD,
        [TD_OPTIMIZER_ADAM] = TD_OP_ADAM,
        [TD_OPTIMIZER_ADAMW] = TD_OP_ADAMW,
        [TD_OPTIMIZER_LION] = TD_OP_LION,
        [TD_OPTIMIZER_ADAFACTOR] = TD_OP_ADAFACTOR,
        [TD_OPTIMIZER_MUON] = TD_OP_MUON,
    };
    return op[config->kind];
}

void td_optimizer_options(const struct td_optimizer_config *config,
                          struct td_optimizer_options *out_options) {
    *out_options = (struct td_optimizer_options){
        .op = op_of(config),
        .attrs = config->attrs,
        .clip_norm = config->max_norm,
        .clip_value = config->max_value,
        .stochastic = config->stochastic,
        .report_norm = config->log_norm,
        .choose = choose,
        .choose_arg = config,
    };
}

// ---- several optimizers -------------------------------------------------------------------------

void td_optimizers_of(const struct td_train_config *config, const char *param, int *out_first,
                      int *out_second) {
    *out_first = config->n_optimizers ? -1 : 0;
    *out_second = -1;
    for (int i = 0; i < config->n_optimizers && *out_second < 0; i++) {
        if (!td_pattern_matches(config->optimizers[i].match, param)) continue;
        *(*out_first < 0 ? out_first : out_second) = i;
    }
}

// A parameter of none is named once all of them are known; until then it is the first one's.
static void choose_among(const void *arg, const struct td_state_info *param,
                         struct td_optim_choice *io) {
    const struct td_train_config *c = arg;
    int first, second;
    td_optimizers_of(c, param->name, &first, &second);
    const struct td_optimizer_config *o = &c->optimizers[TD_MAX(first, 0)].optimizer;
    io->op = op_of(o);
    io->attrs = o->attrs;
    choose(o, param, io);
}

void td_optimizers_options(const struct td_train_config *config,
                           struct td_optimizer_options *out_options) {
    const bool several = config->n_optimizers > 0;
    td_optimizer_options(several ? &config->optimizers[0].optimizer : &config->optimizer,
                         out_options);
    if (!several) return;
    out_options->choose = choose_among;
    out_options->choose_arg = config;
}

// ---- mistakes ----------------------------------------------------------------------------------

static void list_parameters(const struct td_state_table *state, char out[SHOWN_NAMES]) {
    struct td_clip_list names;
    td_clip_list_init(&names, out, SHOWN_NAMES, ", ");
    for (uint32_t i = 0; i < td_state_count(state); i++) {
        const struct td_state_info *t = td_state_at(state, i);
        if (t->role == TD_ROLE_PARAM) td_clip_list_add(&names, "%s", t->name);
    }
}

// A pattern that is cut would match other names.
static td_status check_pattern_lengths(const struct td_optimizer_group *group, size_t i) {
    for (const char *at = group->match; *at;) {
        size_t len = strcspn(at, "|");
        if (len >= TD_PATTERN_BYTES) {
            return td_bad_spec("optimizer.groups[%zu].match: a pattern of %zu bytes; %d are the "
                               "most",
                               i, len, TD_PATTERN_BYTES - 1);
        }
        at += len + (at[len] == '|');
    }
    return TD_OK;
}

static bool names_any(const struct td_state_table *state, const char *pattern) {
    for (uint32_t i = 0; i < td_state_count(state); i++) {
        const struct td_state_info *t = td_state_at(state, i);
        if (t->role == TD_ROLE_PARAM && td_pattern_matches(pattern, t->name)) return true;
    }
    return false;
}

static bool owns_any(const struct td_optimizer_config *c, const struct td_optimizer_group *group,
                     const struct td_state_table *state) {
    for (uint32_t i = 0; i < td_state_count(state); i++) {
        const struct td_state_info *t = td_state_at(state, i);
        if (t->role == TD_ROLE_PARAM && group_of(c, t->name) == group) return true;
    }
    return false;
}

td_status td_optimizer_check(const struct td_optimizer_config *config,
                             const struct td_state_table *state) {
    char pattern[TD_PATTERN_BYTES], names[SHOWN_NAMES];
    if (config->kind == TD_OPTIMIZER_MUON && config->lr == 0 && config->muon.adamw_lr > 0) {
        return td_bad_spec("optimizer.adamw_lr follows the schedule as a share of "
                           "optimizer.lr, which is 0; leave the matrices alone with "
                           "lr_scale: 0 of a group instead");
    }
    for (size_t i = 0; i < config->n_groups; i++) {
        const struct td_optimizer_group *group = &config->groups[i];
        TD_TRY(check_pattern_lengths(group, i));
        for (const char *at = group->match; (at = td_pattern_next(at, pattern));) {
            if (names_any(state, pattern)) continue;
            list_parameters(state, names);
            return td_bad_spec("optimizer.groups[%zu].match: '%s' is the name of no "
                               "parameter; the model has %s",
                               i, pattern, names);
        }
        if (owns_any(config, group, state)) continue;
        return td_bad_spec("optimizer.groups[%zu]: all that '%s' names belongs to earlier "
                           "groups already; put the narrower group first",
                           i, group->match);
    }
    return TD_OK;
}

static td_status check_owner(const struct td_train_config *c, const char *param) {
    int first, second;
    td_optimizers_of(c, param, &first, &second);
    if (second >= 0) {
        return td_bad_spec("parameter '%s' belongs to two optimizers, '%s' and '%s'; let one "
                           "`match` alone name it",
                           param, c->optimizers[first].name, c->optimizers[second].name);
    }
    if (first >= 0) return TD_OK;
    return td_bad_spec("parameter '%s' belongs to no optimizer; let a `match` of optimizers name "
                       "it, and freeze it by a group with lr_scale: 0 if it is to stay as it is",
                       param);
}

static td_status check_named(const struct td_train_config *c, int i,
                             const struct td_state_table *state) {
    char pattern[TD_PATTERN_BYTES], names[SHOWN_NAMES];
    for (const char *at = c->optimizers[i].match; (at = td_pattern_next(at, pattern));) {
        if (names_any(state, pattern)) continue;
        list_parameters(state, names);
        return td_bad_spec("optimizers[%d].match: '%s' is the name of no parameter; the model has "
                           "%s",
                           i, pattern, names);
    }
    TD_TRY_CTX(td_optimizer_check(&c->optimizers[i].optimizer, state), "optimizers[%d]", i);
    return TD_OK;
}

td_status td_optimizers_check(const struct td_train_config *config,
                              const struct td_state_table *state) {
    if (!config->n_optimizers) return td_optimizer_check(&config->optimizer, state);
    for (int i = 0; i < config->n_optimizers; i++) {
        TD_TRY(check_named(config, i, state));
    }
    for (uint32_t i = 0; i < td_state_count(state); i++) {
        const struct td_state_info *t = td_state_at(state, i);
        if (t->role == TD_ROLE_PARAM) TD_TRY(check_owner(config, t->name));
    }
    return TD_OK;
}
