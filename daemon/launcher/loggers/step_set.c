// See the header. A step inside of a run that it is not of splits that. Runs that then go on at one
// stride become one.

#include "daemon/launcher/loggers/step_set.h"

#include <string.h>

#include "lib/base/base.h"

enum { ADDED_MOST = 2 }; // runs, by one step: itself, and the second half of one that it splits

void td_step_set_finish(struct td_step_set *s) {
    free(s->run);
    *s = (struct td_step_set){0};
}

// How many runs begin at or before a step. That one is nearly always the newest.
static size_t n_before(const struct td_step_set *s, int32_t step) {
    size_t low = 0, high = s->n_runs;
    if (high && s->run[high - 1].first <= step) return high;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (s->run[mid].first <= step) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

static bool holds(const struct td_step_run *r, int32_t step) {
    if (step == r->first || step == r->last) return true;
    return step < r->last && step > r->first && (step - r->first) % r->stride == 0;
}

bool td_step_set_has(const struct td_step_set *s, int32_t step) {
    size_t n = n_before(s, step);
    return n > 0 && holds(&s->run[n - 1], step);
}

static void insert(struct td_step_set *s, size_t at, struct td_step_run run) {
    memmove(s->run + at + 1, s->run + at, (s->n_runs++ - at) * sizeof run);
    s->run[at] = run;
}

static struct td_step_run run_of(int64_t first, int64_t last, int32_t stride) {
    return (struct td_step_run){(int32_t)first, (int32_t)last, first == last ? 0 : stride};
}

// Makes one of runs at - 1 and at, where they go on at one stride.
static void join(struct td_step_set *s, size_t at) {
    if (at == 0 || at >= s->n_runs) return;
    struct td_step_run *a = &s->run[at - 1], *b = &s->run[at];
    int64_t gap = (int64_t)b->first - a->last;
    if (gap > INT32_MAX || (a->stride && a->stride != gap) || (b->stride && b->stride != gap)) {
        return;
    }
    *a = (struct td_step_run){a->first, b->last, (int32_t)gap};
    memmove(b, b + 1, (--s->n_runs - at) * sizeof *b);
}

bool td_step_set_add(struct td_step_set *s, int32_t step) {
    size_t at = n_before(s, step);
    if (at > 0 && holds(&s->run[at - 1], step)) return false;
    if (s->n_runs + ADDED_MOST > s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 4;
        void *grown = td_realloc(s->run, cap * sizeof *s->run);
        if (!grown) return false;
        s->run = grown;
        s->cap = cap;
    }
    if (at > 0 && step < s->run[at - 1].last) {
        struct td_step_run whole = s->run[at - 1];
        int32_t before = step - (step - whole.first) % whole.stride;
        s->run[at - 1] = run_of(whole.first, before, whole.stride);
        insert(s, at, run_of((int64_t)before + whole.stride, whole.last, whole.stride));
    }
    insert(s, at, run_of(step, step, 0));
    join(s, at + 1);
    join(s, at);
    if (at > 0) join(s, at - 1); // the first half of one that it split
    return true;
}

void td_step_set_halve(struct td_step_set *s) {
    size_t left = s->n_runs / 2;
    if (left == 0) {
        td_step_set_finish(s);
        return;
    }
    memmove(s->run, s->run + (s->n_runs - left), left * sizeof *s->run);
    s->n_runs = left;
    void *less = td_realloc(s->run, left * sizeof *s->run);
    if (!less) return;
    s->run = less;
    s->cap = left;
}
