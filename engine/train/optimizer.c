// Groups and marks. Patterns are the C library's (fnmatch), so they are what people know from a
// shell; a dot is a letter like any other.

#include "engine/train/optimizer.h"

#include <float.h>
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PATTERN_MAX = 256, SHOWN_NAMES = 300 };

// The next of the patterns between '|'; NULL after the last.
static const char *next_pattern(const char *at, char out[PATTERN_MAX]) {
    if (!*at) return NULL;
    size_t len = strcspn(at, "|");
    snprintf(out, PATTERN_MAX, "%.*s", (int)TD_MIN(len, PATTERN_MAX - 1), at);
    return at[len] ? at + len + 1 : at + len;
}

static bool matches(const struct td_optimizer_group *group, const char *name) {
    char pattern[PATTERN_MAX];
    for (const char *at = group->match; (at = next_pattern(at, pattern));) {
        if (fnmatch(pattern, name, 0) == 0) return true;
    }
    return false;
}

// NULL: none.
static const struct td_optimizer_group *group_of(const struct td_optimizer_config *c,
                                                 const char *name) {
    for (size_t i = 0; i < c->n_groups; i++) {
        if (matches(&c->groups[i], name)) return &c->groups[i];
    }
    return NULL;
}

// ---- what a parameter gets ---------------------------------------------------------------------

static void choose(const void *arg, const struct td_state_info *param, struct td_optim_choice *io) {
    const struct td_optimizer_config *c = arg;
    if (param->marks & TD_PARAM_NO_DECAY) io->attrs.weight_decay = 0;
    const struct td_optimizer_group *group = group_of(c, param->name);
    if (!group) return;
    if (group->has_weight_decay) io->attrs.weight_decay = (float)group->weight_decay;
    io->frozen = group->lr_scale == 0;
    if (group->lr_scale != 1) io->attrs.lr_scale = fmaxf((float)group->lr_scale, FLT_MIN);
}

void td_optimizer_options(const struct td_optimizer_config *config,
                          struct td_optimizer_options *out_options) {
    static const enum td_op op[] = {
        [TD_OPTIMIZER_SGD] = TD_OP_SGD,
        [TD_OPTIMIZER_ADAM] = TD_OP_ADAM,
        [TD_OPTIMIZER_ADAMW] = TD_OP_ADAMW,
    };
    *out_options = (struct td_optimizer_options){
        .op = op[config->kind],
        .attrs = config->attrs,
        .clip_norm = config->max_norm,
        .clip_value = config->max_value,
        .stochastic = config->stochastic,
        .report_norm = config->log_norm,
        .choose = choose,
        .choose_arg = config,
    };
}

// ---- mistakes ----------------------------------------------------------------------------------

static td_status bad_spec(td_status s) {
    return td_status_with_class(s, TD_CLASS_BAD_SPEC);
}

// "fc1.weight, fc1.bias, ... and 4 more"
static void list_parameters(const struct td_state_table *state, char out[SHOWN_NAMES]) {
    size_t len = 0, left_out = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < td_state_count(state); i++) {
        const struct td_state_info *t = td_state_at(state, i);
        if (t->role != TD_ROLE_PARAM) continue;
        size_t room = SHOWN_NAMES - 32;
        if (left_out || len + strlen(t->name) + 2 > room) {
            left_out++;
            continue;
        }
        len += (size_t)snprintf(out + len, room - len, "%s%s", len ? ", " : "", t->name);
    }
    if (left_out) snprintf(out + len, SHOWN_NAMES - len, " and %zu more", left_out);
}

static bool names_any(const struct td_state_table *state, const char *pattern) {
    for (uint32_t i = 0; i < td_state_count(state); i++) {
        const struct td_state_info *t = td_state_at(state, i);
        if (t->role == TD_ROLE_PARAM && fnmatch(pattern, t->name, 0) == 0) return true;
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
    char pattern[PATTERN_MAX], names[SHOWN_NAMES];
    for (size_t i = 0; i < config->n_groups; i++) {
        const struct td_optimizer_group *group = &config->groups[i];
        for (const char *at = group->match; (at = next_pattern(at, pattern));) {
            if (names_any(state, pattern)) continue;
            list_parameters(state, names);
            return bad_spec(td_fail(TD_INVALID_ARGUMENT,
                                    "optimizer.groups[%zu].match: '%s' is the name of no "
                                    "parameter; the model has %s",
                                    i, pattern, names));
        }
        if (owns_any(config, group, state)) continue;
        return bad_spec(td_fail(TD_INVALID_ARGUMENT,
                                "optimizer.groups[%zu]: all that '%s' names belongs to earlier "
                                "groups already; put the narrower group first",
                                i, group->match));
    }
    return TD_OK;
}
