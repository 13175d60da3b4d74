// Learning-rate schedules. Computed in double on the host, stored into the step scalars as fp32 by
// the loop; the same on every rank because it depends on nothing but its arguments.

#include "engine/train/schedule.h"

#include <math.h>

static double warmup_cosine(const struct td_schedule_config *s, double base_lr, int64_t step) {
    if (step < s->warmup_steps) return base_lr * (double)(step + 1) / (double)s->warmup_steps;
    int64_t falling = s->total_steps - s->warmup_steps;
    int64_t done = step - s->warmup_steps;
    if (falling <= 0 || done >= falling) return s->min_lr;
    double x = (double)done / (double)falling;
    return s->min_lr + (base_lr - s->min_lr) * 0.5 * (1.0 + cos(M_PI * x));
}

double td_schedule_lr(const struct td_schedule_config *s, double base_lr, int64_t step) {
    switch (s->kind) {
    case TD_SCHEDULE_CONSTANT:
        return base_lr;
    case TD_SCHEDULE_WARMUP_COSINE:
        return warmup_cosine(s, base_lr, step);
    }
    return base_lr;
}

const char *td_schedule_name(enum td_schedule_kind kind) {
    switch (kind) {
    case TD_SCHEDULE_CONSTANT:
        return "constant";
    case TD_SCHEDULE_WARMUP_COSINE:
        return "warmup_cosine";
    }
    return "unknown";
}
