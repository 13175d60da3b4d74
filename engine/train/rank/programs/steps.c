// What a step trains is read off its programs: the gradients that their backward segments write.

#include "engine/train/rank/programs/steps.h"

#include <string.h>

#include "engine/train/rank/programs/optimizer.h"
#include "engine/train/rank/programs/pattern.h"
#include "lib/base/clip.h"
#include "traind/op.h"

enum { SHOWN_NAMES = 300 };
static const char name_letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_";

// ---- the list -----------------------------------------------------------------------------------

static td_status refuse(td_status s) {
    return td_status_with_class(s, TD_CLASS_USER_CODE);
}

static td_status check_name(const struct td_rank *r, int i, const char *name) {
    const size_t len = name ? strlen(name) : 0;
    if (!len || len >= TD_STEP_NAME || strspn(name, name_letters) != len) {
        return refuse(td_fail(TD_FAILED_PRECONDITION,
                              "model '%s' calls its training step %d '%s'; a name has 1 to %d of "
                              "a-z, 0-9 and _",
                              r->config->model.name, i, name ? name : "", TD_STEP_NAME - 1));
    }
    for (int k = 0; k < i; k++) {
        if (strcmp(r->steps.step[k].name, name) != 0) continue;
        return refuse(td_fail(TD_FAILED_PRECONDITION,
                              "model '%s' has two training steps '%s'; give each its own name",
                              r->config->model.name, name));
    }
    return TD_OK;
}

static td_status take_step(struct td_rank *r, int i, const struct td_step_info *info) {
    if (i == TD_STEPS_MAX) {
        return refuse(td_fail(TD_FAILED_PRECONDITION, "model '%s' has more than %d training steps",
                              r->config->model.name, TD_STEPS_MAX));
    }
    TD_TRY(check_name(r, i, info->name));
    struct td_rank_step_names *to = &r->steps.step[i];
    memcpy(to->name, info->name, strlen(info->name) + 1);
    to->trains = info->trains ? td_arena_strdup(r->arena, info->trains) : NULL;
    if (info->trains && !to->trains) return td_fail_oom();
    r->steps.n = i + 1;
    return TD_OK;
}

td_status td_rank_list_steps(struct td_rank *r) {
    r->steps.n = 0;
    if (!r->module_ops->step_at) {
        const struct td_step_info only = {.struct_bytes = sizeof only, .name = "train"};
        return take_step(r, 0, &only);
    }
    for (uint32_t i = 0;; i++) {
        struct td_step_info info = {.struct_bytes = sizeof info};
        if (!r->module_ops->step_at(r->module, i, &info)) break;
        TD_TRY(take_step(r, (int)i, &info));
    }
    if (r->steps.n) return TD_OK;
    return refuse(td_fail(TD_FAILED_PRECONDITION,
                          "model '%s' names no training step; leave step_at out for one 'train'",
                          r->config->model.name));
}

static const struct td_rank_step_names *find(const struct td_rank *r, const char *name) {
    for (int i = 0; i < r->steps.n; i++) {
        if (strcmp(r->steps.step[i].name, name) == 0) return &r->steps.step[i];
    }
    return NULL;
}

bool td_rank_step_trains(const struct td_rank *r, const struct td_program_key *key,
                         const char *param) {
    const struct td_rank_step_names *step = find(r, key->step);
    return !step || !step->trains || td_pattern_matches(step->trains, param);
}

// ---- what each of them trains -------------------------------------------------------------------

// By state index: the number of the step that writes the parameter's gradient, plus one.
static void take_gradient(const struct td_graph *g, td_value v, int step, int *owner, int *other) {
    const struct td_value_info *info = v ? td_graph_value(g, v) : NULL;
    if (!info || info->kind != TD_VALUE_STATE) return;
    const struct td_state_info *t = td_state_at(td_graph_state(g), info->index);
    if (t->role != TD_ROLE_GRAD) return;
    if (!owner[t->param]) owner[t->param] = step + 1;
    if (owner[t->param] != step + 1) other[t->param] = step + 1;
}

// The last linear layer's is written in the forward segment where its logits never exist whole.
static void take_gradients(const struct td_graph *g, int step, int *owner, int *other) {
    for (td_node n = 0; n < td_graph_n_nodes(g); n++) {
        const struct td_node_info *node = td_graph_node(g, n);
        if (node->segment > TD_SEG_BACKWARD || td_op_is(node->op, TD_OP_IS_START)) continue;
        take_gradient(g, node->into, step, owner, other);
        for (uint32_t i = 0; i < node->n_inputs; i++) {
            if (!td_op_writes(node->op, &node->attrs, i)) continue;
            take_gradient(g, node->inputs[i], step, owner, other);
        }
    }
}

static void find_owners(const struct td_rank *r, int *owner, int *other) {
    for (size_t i = 0; i < td_programs_count(r->programs); i++) {
        const struct td_compiled *c = td_programs_at(r->programs, i);
        const struct td_rank_step_names *step = find(r, c->program.key.step);
        if (c->program.key.mode != TD_MODE_TRAIN || !step) continue;
        take_gradients(c->graph, (int)(step - r->steps.step), owner, other);
    }
}

static td_status check_step(const struct td_rank *r, int i, const int *owner) {
    const struct td_rank_step_names *step = &r->steps.step[i];
    const struct td_state_table *state = r->state;
    char pattern[TD_PATTERN_BYTES];
    bool any = false;
    for (uint32_t k = 0; k < td_state_count(state); k++) {
        any |= owner[k] == i + 1;
    }
    for (const char *at = step->trains; at && (at = td_pattern_next(at, pattern));) {
        bool matches = false;
        for (uint32_t k = 0; k < td_state_count(state); k++) {
            const struct td_state_info *t = td_state_at(state, k);
            matches |= t->role == TD_ROLE_PARAM && td_pattern_matches(pattern, t->name);
        }
        if (matches) continue;
        return refuse(td_fail(TD_FAILED_PRECONDITION,
                              "step '%s' of model '%s' trains '%s', which is the name of no "
                              "parameter",
                              step->name, r->config->model.name, pattern));
    }
    if (any) return TD_OK;
    return refuse(td_fail(TD_FAILED_PRECONDITION,
                          "step '%s' of model '%s' trains nothing: its loss depends on none of the "
                          "parameters that it is to train",
                          step->name, r->config->model.name));
}

static td_status check_shared(const struct td_rank *r, const int *owner, const int *other) {
    for (uint32_t i = 0; i < td_state_count(r->state); i++) {
        if (!other[i]) continue;
        return refuse(td_fail(TD_FAILED_PRECONDITION,
                              "parameter '%s' of model '%s' is trained by the steps '%s' and '%s'; "
                              "name it in `trains` of one of them alone",
                              td_state_at(r->state, i)->name, r->config->model.name,
                              r->steps.step[owner[i] - 1].name, r->steps.step[other[i] - 1].name));
    }
    return TD_OK;
}

// A step ends in one update, with one rate.
static td_status settle_optimizers(struct td_rank *r, const int *owner) {
    const struct td_train_config *c = r->config;
    const char *by[TD_STEPS_MAX] = {0}; // a parameter that says which optimizer a step has
    for (uint32_t i = 0; i < td_state_count(r->state); i++) {
        const char *name = td_state_at(r->state, i)->name;
        int first, second, step = owner[i] - 1;
        if (step < 0) continue;
        td_optimizers_of(c, name, &first, &second);
        struct td_rank_step_names *s = &r->steps.step[step];
        if (!by[step]) s->optimizer = first;
        if (!by[step]) by[step] = name;
        if (s->optimizer == first) continue;
        return td_bad_spec("step '%s' of model '%s' trains '%s', which is of optimizer '%s', and "
                           "'%s' of '%s'; a training step has one optimizer",
                           s->name, c->model.name, by[step], c->optimizers[s->optimizer].name, name,
                           c->optimizers[first].name);
    }
    return TD_OK;
}

// What a group of the job freezes is not to be trained, whether a loss reaches it or not.
static bool is_frozen(const struct td_rank *r, const struct td_state_info *param) {
    struct td_optim_choice choice = {.op = r->optimizer.op, .attrs = r->optimizer.attrs};
    if (r->optimizer.choose) r->optimizer.choose(r->optimizer.choose_arg, param, &choice);
    return choice.frozen;
}

static td_status check_reached(const struct td_rank *r, const int *owner) {
    char names[SHOWN_NAMES];
    struct td_clip_list list;
    uint32_t n = 0;
    td_clip_list_init(&list, names, sizeof names, ", ");
    for (uint32_t i = 0; i < td_state_count(r->state); i++) {
        const struct td_state_info *t = td_state_at(r->state, i);
        if (t->role != TD_ROLE_PARAM || owner[i] || is_frozen(r, t)) continue;
        td_clip_list_add(&list, "%s", t->name);
        n++;
    }
    // A job that has begun goes on: a build before this one had no such knob, and said it in a
    // note.
    const bool goes_on = r->config->attempt > 1 || r->config->n_resume_from;
    if (!n || goes_on || r->config->find_unused_parameters) return TD_OK;
    return td_status_with_class(
        td_fail(TD_FAILED_PRECONDITION,
                "no training step reaches %u parameter%s of model '%s': %s. Take %s out of the "
                "model, freeze %s by a group with lr_scale: 0, or set "
                "trainer.find_unused_parameters: true",
                n, n == 1 ? "" : "s", r->config->model.name, names, n == 1 ? "it" : "them",
                n == 1 ? "it" : "them"),
        TD_CLASS_BAD_SPEC);
}

td_status td_rank_check_steps(struct td_rank *r) {
    if (r->module_ops->training_step && td_limits_ever_accumulates(&r->config->limits)) {
        return td_bad_spec("accumulate_grad_batches with module '%s', whose training_step adds up "
                           "gradients itself",
                           r->config->model.name);
    }
    const uint32_t n = td_state_count(r->state);
    if (!td_programs_graph(r->programs, NULL, TD_MODE_TRAIN)) return TD_OK; // it has no batch
    TD_AUTO_FREE int *owner = td_calloc(n + 1, sizeof *owner);
    TD_AUTO_FREE int *other = td_calloc(n + 1, sizeof *other);
    if (!owner || !other) return td_fail_oom();
    find_owners(r, owner, other);
    for (int i = 0; i < r->steps.n; i++) {
        TD_TRY(check_step(r, i, owner));
    }
    TD_TRY(check_shared(r, owner, other));
    TD_TRY(settle_optimizers(r, owner));
    return check_reached(r, owner);
}

bool td_rank_is_manual(const struct td_rank *r) {
    return r->config->manual || r->module_ops->training_step;
}

bool td_rank_adds_up(const struct td_rank *r) {
    return r->config->manual ? r->config->manual_accumulates : td_rank_is_manual(r);
}

bool td_rank_keeps_forwards(const struct td_rank *r) {
    const bool own = r->module_ops->training_step && r->module_ops->keeps_forwards;
    return r->config->manual ? r->config->manual_keeps_forwards : own;
}
