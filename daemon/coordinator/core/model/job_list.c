// See the header.

#include "daemon/coordinator/core/model/job_list.h"

#include <string.h>

#include "daemon/coordinator/core/model/effects.h"
#include "daemon/coordinator/core/model/model.h"

enum { FIRST_CAP = 64 };

uint64_t td_job_key_seq(const struct td_job *j) {
    return j->seq;
}

static void make_room(struct td_job ***list, uint32_t n, uint32_t *cap) {
    if (n < *cap) return;
    uint32_t more = *cap ? 2 * *cap : FIRST_CAP;
    *list = td_core_must(td_realloc(*list, more * sizeof(struct td_job *)));
    *cap = more;
}

void td_jobs_push(struct td_job ***list, uint32_t *n, uint32_t *cap, struct td_job *j) {
    make_room(list, *n, cap);
    (*list)[(*n)++] = j;
}

// The first whose key is at least (or, past: above) this one.
static uint32_t lower(struct td_job *const *list, uint32_t n, uint64_t wanted, bool past,
                      td_job_key_fn *key) {
    uint32_t low = 0, high = n;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        uint64_t k = key(list[mid]);
        if (k < wanted || (past && k == wanted)) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

uint32_t td_jobs_insert(struct td_job ***list, uint32_t *n, uint32_t *cap, struct td_job *j,
                        td_job_key_fn *key) {
    make_room(list, *n, cap);
    bool last = !*n || key((*list)[*n - 1]) <= key(j);
    uint32_t at = last ? *n : lower(*list, *n, key(j), true, key);
    memmove(*list + at + 1, *list + at, (*n - at) * sizeof(struct td_job *));
    (*list)[at] = j;
    (*n)++;
    return at;
}

uint32_t td_jobs_find(struct td_job *const *list, uint32_t n, const struct td_job *j,
                      td_job_key_fn *key) {
    uint32_t at = lower(list, n, key(j), false, key);
    while (at < n && list[at] != j) {
        at++;
    }
    TD_CHECK(at < n);
    return at;
}

void td_jobs_remove(struct td_job **list, uint32_t *n, uint32_t at) {
    (*n)--;
    memmove(list + at, list + at + 1, (*n - at) * sizeof(struct td_job *));
}
