// See the header. Values that wait are an array, whose taken part is cut off when it is half.

#include "daemon/launcher/command/talk_values.h"

#include <string.h>

void td_talk_values_finish(struct td_talk_values *v) {
    for (size_t i = 0; i < v->n_names; i++) {
        td_step_set_finish(&v->name[i].said);
    }
    free(v->name);
    free(v->value);
    *v = (struct td_talk_values){0};
}

// NULL: there are too many, or there is no memory.
static struct td_talk_name *name_of(struct td_talk_values *v, const char *text) {
    for (size_t i = 0; i < v->n_names; i++) {
        size_t at = (v->last + 1 + i) % v->n_names;
        if (strcmp(v->name[at].text, text) != 0) continue;
        v->last = at;
        return &v->name[at];
    }
    if (v->n_names == TD_TALK_NAMES) return NULL;
    if (v->n_names == v->names_cap) {
        size_t cap = v->names_cap ? 2 * v->names_cap : 16;
        void *grown = td_realloc(v->name, cap * sizeof *v->name);
        if (!grown) return NULL;
        v->name = grown;
        v->names_cap = cap;
    }
    struct td_talk_name *t = &v->name[v->last = v->n_names++];
    *t = (struct td_talk_name){0};
    memcpy(t->text, text, strnlen(text, sizeof t->text - 1));
    return t;
}

// Its newest value, while that is open.
static struct td_talk_value *open_value(struct td_talk_values *v, const struct td_talk_name *t,
                                        struct td_mono now) {
    if (!t->newest || t->newest < v->first) return NULL; // it was taken
    struct td_talk_value *x = &v->value[v->at + (size_t)(t->newest - v->first)];
    x->closed |= now.ns >= x->until.ns;
    return x->closed ? NULL : x;
}

static bool append(struct td_talk_values *v, const struct td_metric_point *p,
                   struct td_mono until) {
    if (v->at > v->n) {
        memmove(v->value, v->value + v->at, v->n * sizeof *v->value);
        v->at = 0;
    }
    if (v->at + v->n == v->cap) {
        size_t cap = v->cap ? 2 * v->cap : 64;
        void *grown = td_realloc(v->value, cap * sizeof *v->value);
        if (!grown) return false;
        v->value = grown;
        v->cap = cap;
    }
    v->value[v->at + v->n++] = (struct td_talk_value){.point = *p, .until = until};
    if (!v->first) v->first = 1;
    return true;
}

// Makes room for runs. Equal names would all have TD_TALK_RUNS / TD_TALK_NAMES, so it is not soon
// called again.
static void forget_steps(struct td_talk_values *v) {
    struct td_step_set *most = &v->name[0].said;
    for (size_t i = 1; i < v->n_names; i++) {
        if (v->name[i].said.n_runs > most->n_runs) most = &v->name[i].said;
    }
    v->n_runs -= most->n_runs;
    td_step_set_halve(most);
    v->n_runs += most->n_runs;
}

static enum td_talk_said drop(struct td_talk_values *v, enum td_talk_said why) {
    v->dropped++;
    return why;
}

enum td_talk_said td_talk_values_say(struct td_talk_values *v, const struct td_metric_point *p,
                                     struct td_mono now, int64_t open_ns) {
    struct td_talk_name *t = name_of(v, p->name);
    if (!t) return drop(v, TD_TALK_FULL);
    struct td_talk_value *open = open_value(v, t, now);
    if (open && open->point.step == p->step) {
        open->point = *p;
        return TD_TALK_TAKEN;
    }
    if (td_step_set_has(&t->said, p->step)) return drop(v, TD_TALK_REPEATED);
    if (v->n_runs >= TD_TALK_RUNS) forget_steps(v);
    if (open) open->closed = true;
    const size_t runs = t->said.n_runs;
    if (!append(v, p, td_mono_add(now, open_ns))) return drop(v, TD_TALK_FULL);
    t->newest = v->first + v->n - 1;
    (void)td_step_set_add(&t->said, p->step); // without memory a repeat of it is not known
    v->n_runs = v->n_runs - runs + t->said.n_runs;
    return TD_TALK_TAKEN;
}

bool td_talk_values_take(struct td_talk_values *v, struct td_mono now, bool all,
                         struct td_metric_point *out_point) {
    if (v->n == 0) return false;
    const struct td_talk_value *x = &v->value[v->at];
    const bool is_closed = x->closed || now.ns >= x->until.ns;
    if (!all && !is_closed && v->n <= TD_TALK_OPEN) return false;
    *out_point = x->point;
    v->at++;
    v->n--;
    v->first++;
    return true;
}
