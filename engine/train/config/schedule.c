// Learning-rate schedules. Computed in double on the host; the loop stores them into the step
// scalars, rounded to fp32 unless parameters are f64. The same on every rank because it depends on
// nothing but its arguments. A length of 0 that the spec allows (no warm-up, no decay) is a phase
// that no step falls into.

#include "engine/train/config/schedule.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *name, *end_knob;
} schedules[TD_SCHEDULE_COUNT] = {
    [TD_SCHEDULE_CONSTANT] = {"constant", NULL},
    [TD_SCHEDULE_WARMUP_COSINE] = {"warmup_cosine", "total_steps"},
    [TD_SCHEDULE_LINEAR] = {"linear", "total_iters"},
    [TD_SCHEDULE_COSINE] = {"cosine", "T_max"},
    [TD_SCHEDULE_STEP] = {"step", NULL},
    [TD_SCHEDULE_MULTISTEP] = {"multistep", NULL},
    [TD_SCHEDULE_EXPONENTIAL] = {"exponential", NULL},
    [TD_SCHEDULE_POLYNOMIAL] = {"polynomial", "total_iters"},
    [TD_SCHEDULE_INVERSE_SQRT] = {"inverse_sqrt", NULL},
    [TD_SCHEDULE_ONE_CYCLE] = {"one_cycle", "total_steps"},
    [TD_SCHEDULE_WARMUP_STABLE_DECAY] = {"warmup_stable_decay", "num_training_steps"},
    [TD_SCHEDULE_REDUCE_ON_PLATEAU] = {"reduce_on_plateau", NULL},
};

const char *td_schedule_name(enum td_schedule_kind kind) {
    return (unsigned)kind < TD_SCHEDULE_COUNT ? schedules[kind].name : "unknown";
}

const char *td_schedule_end_knob(enum td_schedule_kind kind) {
    return (unsigned)kind < TD_SCHEDULE_COUNT ? schedules[kind].end_knob : NULL;
}

bool td_schedule_find(const char *name, enum td_schedule_kind *out_kind) {
    for (unsigned i = 0; i < TD_SCHEDULE_COUNT; i++) {
        if (strcmp(schedules[i].name, name) != 0) continue;
        *out_kind = (enum td_schedule_kind)i;
        return true;
    }
    return false;
}

// ---- curves ------------------------------------------------------------------------------------

// From 1 down to 0 while x goes from 0 to 1. Up is down(1 - x).
static double down(enum td_schedule_curve curve, double x) {
    switch (curve) {
    case TD_CURVE_LINEAR:
        return 1 - x;
    case TD_CURVE_COSINE:
        return 0.5 * (1 + cos(M_PI * x));
    case TD_CURVE_ONE_MINUS_SQRT:
        return 1 - sqrt(x);
    }
    return 0;
}

// How far `step` is on the way to `end`, at most 1.
static double share(int64_t step, int64_t end) {
    return step < end ? (double)step / (double)end : 1;
}

// ---- schedules ---------------------------------------------------------------------------------

static double warmup_cosine(const struct td_schedule_config *s, double base_lr, int64_t step) {
    if (step < s->warmup_steps) return base_lr * (double)(step + 1) / (double)s->warmup_steps;
    int64_t falling = s->total_steps - s->warmup_steps, done = step - s->warmup_steps;
    if (falling <= 0 || done >= falling) return s->min_lr;
    return s->min_lr +
           (base_lr - s->min_lr) * down(TD_CURVE_COSINE, (double)done / (double)falling);
}

static double linear(const struct td_schedule_config *s, int64_t step) {
    return s->start_factor + (s->end_factor - s->start_factor) * share(step, s->total_steps);
}

static double multistep(const struct td_schedule_config *s, int64_t step) {
    int passed = 0;
    for (size_t i = 0; i < s->n_milestones; i++) {
        passed += s->milestone[i] <= step;
    }
    return pow(s->gamma, passed);
}

static double inverse_sqrt(const struct td_schedule_config *s, int64_t step) {
    if (step < s->warmup_steps) return (double)step / (double)s->warmup_steps;
    return 1 / sqrt((double)(step + s->timescale - s->warmup_steps) / (double)s->timescale);
}

// Up from 1/div_factor to 1, down to 1/div_factor/final_div_factor: in one curve, or back to the
// start first. Phases end at steps that need not be whole.
static double one_cycle(const struct td_schedule_config *s, int64_t step) {
    const double low = 1 / s->div_factor, last = low / s->final_div_factor;
    const double up = s->pct_start * (double)s->total_steps - 1;
    const double total = (double)(s->total_steps - 1), back = 2 * up;
    const struct {
        double end, from, to;
    } cycle[] = {{up, low, 1}, {back, 1, low}, {total, s->three_phase ? low : 1, last}};
    double t = fmin((double)step, total), begin = 0;
    for (size_t i = 0; i < TD_COUNTOF(cycle); i++) {
        if (i == 1 && !s->three_phase) continue;
        if (t <= cycle[i].end || i + 1 == TD_COUNTOF(cycle)) {
            double length = cycle[i].end - begin;
            double x = length > 0 ? (t - begin) / length : 1;
            return cycle[i].to + (cycle[i].from - cycle[i].to) * down(s->decay_curve, x);
        }
        begin = cycle[i].end;
    }
    return last;
}

static double warmup_stable_decay(const struct td_schedule_config *s, int64_t step) {
    int64_t falls = s->total_steps - s->decay_steps; // maybe before the rise has ended
    double height = 0;
    if (step < s->warmup_steps) {
        height = down(s->warmup_curve, 1 - (double)step / (double)s->warmup_steps);
    } else if (step < falls) {
        height = 1;
    } else if (step - falls < s->decay_steps) {
        height = down(s->decay_curve, (double)(step - falls) / (double)s->decay_steps);
    }
    return height * (1 - s->end_factor) + s->end_factor;
}

double td_schedule_lr(const struct td_schedule_config *s, double base_lr, int64_t step) {
    switch (s->kind) {
    case TD_SCHEDULE_CONSTANT:
    case TD_SCHEDULE_REDUCE_ON_PLATEAU: // the loop scales it
        return base_lr;
    case TD_SCHEDULE_WARMUP_COSINE:
        return warmup_cosine(s, base_lr, step);
    case TD_SCHEDULE_LINEAR:
        return base_lr * linear(s, step);
    case TD_SCHEDULE_COSINE:
        return s->min_lr +
               (base_lr - s->min_lr) * down(TD_CURVE_COSINE, (double)step / (double)s->total_steps);
    case TD_SCHEDULE_STEP:
        return base_lr * pow(s->gamma, (double)(step / s->period_steps));
    case TD_SCHEDULE_MULTISTEP:
        return base_lr * multistep(s, step);
    case TD_SCHEDULE_EXPONENTIAL:
        return base_lr * pow(s->gamma, (double)step);
    case TD_SCHEDULE_POLYNOMIAL:
        return base_lr * pow(1 - share(step, s->total_steps), s->power);
    case TD_SCHEDULE_INVERSE_SQRT:
        return base_lr * inverse_sqrt(s, step);
    case TD_SCHEDULE_ONE_CYCLE:
        return base_lr * one_cycle(s, step);
    case TD_SCHEDULE_WARMUP_STABLE_DECAY:
        return base_lr * warmup_stable_decay(s, step);
    case TD_SCHEDULE_COUNT:
        break;
    }
    return base_lr;
}
