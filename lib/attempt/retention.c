// Linear scans: k is small where it matters. See the header.

#include "lib/attempt/retention.h"

#include <math.h>

// Is a worse than b? Values come oldest first, so "older" is the smaller index.
static bool is_worse(const struct td_retention_rule *rule, const double *values, size_t a,
                     size_t b) {
    double va = values[a], vb = values[b];
    if (!rule->by_value || (isnan(va) && isnan(vb))) return a < b;
    if (va == vb) return a > b;
    if (isnan(va) || isnan(vb)) return isnan(va);
    return rule->larger_is_better ? va < vb : va > vb;
}

bool td_retention_worst(const struct td_retention_rule *rule, const double *values, size_t n,
                        size_t *out_at) {
    if (rule->top_k < 0 || n <= 1) return false;
    size_t newest = n - 1, better_than_newest = 0, worst = 0;
    for (size_t i = 0; i < newest; i++) {
        if (is_worse(rule, values, newest, i)) better_than_newest++;
        if (is_worse(rule, values, i, worst)) worst = i;
    }
    // The newest always stays; it counts among the k only when it is one of the best.
    bool newest_is_extra = better_than_newest >= (size_t)rule->top_k;
    size_t allowed = (size_t)rule->top_k + (newest_is_extra ? 1 : 0);
    if (n <= allowed) return false;
    *out_at = worst;
    return true;
}

bool td_retention_best(const struct td_retention_rule *rule, const double *values, size_t n,
                       size_t *out_at) {
    size_t best = 0;
    for (size_t i = 1; i < n; i++) {
        if (is_worse(rule, values, best, i)) best = i;
    }
    if (n == 0 || isnan(values[best])) return false;
    *out_at = best;
    return true;
}
