#ifndef TRAIND_TESTS_SIM_DISK_H
#define TRAIND_TESTS_SIM_DISK_H

// The disk of a node in the simulation: which checkpoints have a directory, and the messages that
// wait to be carried out on it. What the catalog keeps must be there: that is checked with each.

#include <stdlib.h>

#include "daemon/coordinator/core/catalog/reconcile.h"
#include "lib/base/map.h"
#include "tests/unit/test.h"

enum { SIM_DISK_WAITING = 64 };

struct sim_disk {
    struct td_map *dirs; // "<job>/a<n>/step-<n>"
    Traind__V1__CoordinatorMessage *waiting[SIM_DISK_WAITING];
};

static inline void sim_disk_write(struct sim_disk *d, const char *job, uint32_t attempt,
                                  uint32_t step) {
    char key[96];
    snprintf(key, sizeof key, "%s/a%u/step-%u", job, attempt, step);
    assert_ok(td_map_put(d->dirs, key, d, NULL));
}

static inline void sim_disk_keep(struct sim_disk *d, const Traind__V1__CoordinatorMessage *m) {
    size_t bytes = traind__v1__coordinator_message__get_packed_size(m);
    uint8_t *packed = malloc(bytes);
    traind__v1__coordinator_message__pack(m, packed);
    int at = 0, n = 0;
    for (int i = 0; i < SIM_DISK_WAITING; i++) {
        if (d->waiting[i]) {
            n++;
        } else {
            at = i;
        }
    }
    assert_true(n < TD_RECONCILE_WINDOW); // the coordinator keeps to it
    d->waiting[at] = traind__v1__coordinator_message__unpack(NULL, bytes, packed);
    free(packed);
}

// The session is over.
static inline void sim_disk_drop(struct sim_disk *d) {
    for (int i = 0; i < SIM_DISK_WAITING; i++) {
        if (d->waiting[i]) traind__v1__coordinator_message__free_unpacked(d->waiting[i], NULL);
        d->waiting[i] = NULL;
    }
}

// Those of one job come in their order.
static inline bool sim_disk_is_first(const struct sim_disk *d, const Traind__V1__Reconcile *m) {
    for (int i = 0; i < SIM_DISK_WAITING; i++) {
        const Traind__V1__Reconcile *other = d->waiting[i] ? d->waiting[i]->reconcile : NULL;
        if (other && other->request < m->request && strcmp(other->job, m->job) == 0) return false;
    }
    return true;
}

static inline bool sim_disk_is_over(const Traind__V1__Reconcile *m, uint32_t attempt) {
    for (size_t i = 0; i < m->n_over; i++) {
        if (m->over[i] == attempt) return true;
    }
    return false;
}

static inline bool sim_disk_is_named(const Traind__V1__Reconcile *m, const char *path) {
    for (size_t i = 0; i < m->n_checkpoints; i++) {
        if (strcmp(m->checkpoints[i]->path, path) == 0) return true;
    }
    return false;
}

static inline void sim_disk_carry_out(struct sim_disk *d, const Traind__V1__Reconcile *m) {
    size_t cursor = 0, len = strlen(m->job);
    const char *key;
    void *value;
    while (td_map_next(d->dirs, &cursor, &key, &value)) {
        unsigned attempt;
        if (strncmp(key, m->job, len) != 0 || key[len] != '/') continue;
        assert_int_equal(sscanf(key + len, "/a%u/", &attempt), 1);
        if (sim_disk_is_over(m, attempt) && !sim_disk_is_named(m, key + len + 1)) {
            td_map_remove(d->dirs, key);
        }
    }
    for (size_t i = 0; i < m->n_checkpoints; i++) {
        char path[96];
        snprintf(path, sizeof path, "%s/%s", m->job, m->checkpoints[i]->path);
        if (m->checkpoints[i]->here) assert_non_null(td_map_get(d->dirs, path));
    }
}

#endif
