// Arrays of k + 2 entries in order of saving; lib/attempt/retention.h chooses among them.

#include "engine/train/checkpoint/retention.h"

#include <math.h>
#include <string.h>

#include "lib/attempt/checkpoint_name.h"
#include "lib/attempt/retention.h"

struct td_retention {
    struct td_retention_rule rule;
    int64_t protected_step; // -1: none
    int64_t *step;          // (cap), the first n count
    double *value;          // (cap), NaN: there is none
    size_t n, cap;
};

td_status td_retention_create(const struct td_checkpoint_config *config, const char *resumed_from,
                              struct td_retention **out_retention) {
    TD_AUTO(td_retention) *r = td_calloc(1, sizeof *r);
    if (!r) return td_fail_oom();
    r->rule = (struct td_retention_rule){.top_k = config->save_top_k,
                                         .by_value = config->monitor && *config->monitor,
                                         .larger_is_better = config->monitor_max};
    r->protected_step = -1;
    size_t dir_len = strlen(config->dir);
    if (resumed_from && strncmp(resumed_from, config->dir, dir_len) == 0 &&
        resumed_from[dir_len] == '/') {
        r->protected_step = td_checkpoint_name_step(resumed_from + dir_len + 1, "");
    }
    r->cap = config->save_top_k < 0 ? 0 : (size_t)config->save_top_k + 2;
    r->step = td_calloc(r->cap + 1, sizeof *r->step);
    r->value = td_calloc(r->cap + 1, sizeof *r->value);
    if (!r->step || !r->value) return td_fail_oom();
    *out_retention = td_steal(r);
    return TD_OK;
}

void td_retention_destroy(struct td_retention *r) {
    if (!r) return;
    free(r->step);
    free(r->value);
    free(r);
}

void td_retention_add(struct td_retention *r, int64_t step, double value) {
    if (r->rule.top_k < 0 || step == r->protected_step) return;
    TD_CHECK(r->n < r->cap); // the caller takes victims after each addition
    r->step[r->n] = step;
    r->value[r->n++] = value;
}

bool td_retention_wants(const struct td_retention *r, double value) {
    if (r->rule.top_k < 0) return true;
    if (!r->rule.by_value || isnan(value)) return false;
    size_t no_worse = 0; // an equal one is older, so it is the better of the two
    for (size_t i = 0; i < r->n; i++) {
        double v = r->value[i];
        no_worse += !isnan(v) && (r->rule.larger_is_better ? v >= value : v <= value);
    }
    return no_worse < (size_t)r->rule.top_k;
}

bool td_retention_victim(struct td_retention *r, int64_t *out_step) {
    size_t at;
    if (!td_retention_worst(&r->rule, r->value, r->n, &at)) return false;
    *out_step = r->step[at];
    memmove(r->step + at, r->step + at + 1, (r->n - at - 1) * sizeof *r->step);
    memmove(r->value + at, r->value + at + 1, (r->n - at - 1) * sizeof *r->value);
    r->n--;
    return true;
}
