// An array of k + 2 entries in order of saving; linear scans, because k is small where it matters.

#include "engine/train/retention.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct entry {
    int64_t step;
    double value;
};

struct td_retention {
    int32_t top_k; // -1: all
    bool by_value, larger_is_better;
    int64_t protected_step; // -1: none
    struct entry *entry;
    size_t n, cap;
};

td_status td_retention_create(const struct td_checkpoint_config *config, const char *resumed_from,
                              struct td_retention **out_retention) {
    TD_AUTO(td_retention) *r = td_calloc(1, sizeof *r);
    if (!r) return td_fail_oom();
    r->top_k = config->save_top_k;
    r->by_value = config->monitor && *config->monitor;
    r->larger_is_better = config->monitor_max;
    r->protected_step = -1;
    size_t dir_len = strlen(config->dir);
    long long step;
    if (resumed_from && strncmp(resumed_from, config->dir, dir_len) == 0 &&
        sscanf(resumed_from + dir_len, "/step-%lld", &step) == 1)
        r->protected_step = step;
    r->cap = r->top_k < 0 ? 0 : (size_t)r->top_k + 2;
    r->entry = td_calloc(r->cap + 1, sizeof *r->entry);
    if (!r->entry) return td_fail_oom();
    *out_retention = td_steal(r);
    return TD_OK;
}

void td_retention_destroy(struct td_retention *r) {
    if (!r) return;
    free(r->entry);
    free(r);
}

void td_retention_add(struct td_retention *r, int64_t step, double value) {
    if (r->top_k < 0 || step == r->protected_step) return;
    TD_CHECK(r->n < r->cap); // the caller takes victims after each addition
    r->entry[r->n++] = (struct entry){.step = step, .value = value};
}

bool td_retention_wants(const struct td_retention *r, double value) {
    if (r->top_k < 0) return true;
    if (!r->by_value || isnan(value)) return false;
    size_t better = 0;
    for (size_t i = 0; i < r->n; i++) {
        double v = r->entry[i].value;
        better += !isnan(v) && (r->larger_is_better ? v > value : v < value);
    }
    return better < (size_t)r->top_k;
}

// Is a worse than b? Entries stand in order of saving, so "older" is the smaller index.
static bool is_worse(const struct td_retention *r, size_t a, size_t b) {
    double va = r->entry[a].value, vb = r->entry[b].value;
    if (!r->by_value || (isnan(va) && isnan(vb))) return a < b;
    if (va == vb) return a > b;
    if (isnan(va) || isnan(vb)) return isnan(va);
    return r->larger_is_better ? va < vb : va > vb;
}

bool td_retention_victim(struct td_retention *r, int64_t *out_step) {
    if (r->top_k < 0 || r->n <= 1) return false;
    size_t newest = r->n - 1, better_than_newest = 0, worst = 0;
    for (size_t i = 0; i < newest; i++) {
        if (is_worse(r, newest, i)) better_than_newest++;
        if (is_worse(r, i, worst)) worst = i;
    }
    // The newest always stays; it counts among the k only when it is one of the best.
    bool newest_is_extra = better_than_newest >= (size_t)r->top_k;
    size_t allowed = (size_t)r->top_k + (newest_is_extra ? 1 : 0);
    if (r->n <= allowed) return false;
    *out_step = r->entry[worst].step;
    memmove(r->entry + worst, r->entry + worst + 1, (r->n - worst - 1) * sizeof *r->entry);
    r->n--;
    return true;
}
