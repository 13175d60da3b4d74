// The state machine of plateau.h. The order of its four steps is torch's and is seen from outside.
// A value in the cooldown still becomes the best, and the validation that ends the cooldown is the
// last that cannot be bad.

#include "engine/train/config/plateau.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void td_plateau_begin(struct td_plateau *p, const struct td_plateau_config *c) {
    if (strcmp(p->monitor, c->monitor) == 0) return;
    double lr_scale = *p->monitor ? p->lr_scale : 1;
    *p = (struct td_plateau){.lr_scale = lr_scale};
    snprintf(p->monitor, sizeof p->monitor, "%s", c->monitor);
}

static bool is_better(const struct td_plateau *p, const struct td_plateau_config *c, double value) {
    if (!isfinite(value)) return false;
    if (!p->has_best) return true;
    double sign = c->larger_is_better ? 1 : -1;
    double bar = c->threshold_is_absolute ? p->best + sign * c->threshold
                                          : p->best * (1 + sign * c->threshold);
    return c->larger_is_better ? value > bar : value < bar;
}

static bool reduce(struct td_plateau *p, const struct td_plateau_config *c, double base_lr) {
    double lr = base_lr * p->lr_scale, lower = fmax(lr * c->factor, c->min_lr);
    if (!(lr - lower > c->eps)) return false;
    p->lr_scale = lower / base_lr; // not 0: lr is above lower
    return true;
}

bool td_plateau_receive(struct td_plateau *p, const struct td_plateau_config *c, double base_lr,
                        double value) {
    p->bad++;
    if (is_better(p, c, value)) {
        p->best = value;
        p->has_best = true;
        p->bad = 0;
    }
    if (p->cooldown > 0) {
        p->cooldown--;
        p->bad = 0;
    }
    if (p->bad <= c->patience) return false;
    p->cooldown = c->cooldown;
    p->bad = 0;
    return reduce(p, c, base_lr);
}
