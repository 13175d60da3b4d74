// Where a waiting job could run: the node that it takes now, or the one that is nearest to fitting
// it. Reads only; the queue decides and keeps places.
//
// A node is best-fit: the least free slots that suffice, first the one that has the newest
// checkpoint, and before it those whose devices are known. A job whose newest checkpoint is on one
// node only goes there or nowhere. A node without the CPU level that the job asks for is left out
// where another has it. A node that lost a launcher of the job is avoided while another known node
// is large enough.

#include "daemon/coordinator/core/place.h"

#include <string.h>

#include "daemon/coordinator/core/catalog.h"
#include "daemon/coordinator/core/core_state.h"
#include "daemon/coordinator/core/fits.h"
#include "daemon/coordinator/core/hosts.h"
#include "daemon/coordinator/core/job.h"

uint32_t td_place_slots(const struct td_job *j, const struct td_host *n) {
    return td_fits_slots_of(&j->knobs.resources, j->n_ranks, n);
}

uint32_t td_place_free(const struct td_host *n) {
    if (n->settling || n->reserved) return 0;
    return n->used < n->slots ? n->slots - n->used : 0;
}

// What is reserved for the job itself is free to it.
static uint32_t free_for(const struct td_job *j, const struct td_host *n) {
    bool own = n->reserved && n->reserved == j->turn && !n->settling;
    if (!own) return td_place_free(n);
    return n->used < n->slots ? n->slots - n->used : 0;
}

// ---- where? -------------------------------------------------------------------------------------
// Its newest checkpoint is on one node only: that node, or nothing.
static const char *pinned(const struct td_job *j) {
    const struct td_checkpoint *c = td_catalog_find(j, NULL);
    if (!c || c->streamed || j->knobs.checkpoint.dir[0]) return NULL;
    return c->node;
}

// trainer.cpu_level; of a job without a spec (its record was lost), "".
const char *td_place_level(const struct td_job *j) {
    return j->knobs.cpu_level;
}

// A known node has the CPU level that the job asks for: those that do not are left out. Where none
// has, any will do to say so, and what it has.
static bool some_has_level(const struct td_core *core, const struct td_job *j) {
    size_t cursor = 0;
    const char *key;
    void *value;
    while (td_map_next(core->nodes, &cursor, &key, &value)) {
        if (td_host_has_level(value, td_place_level(j))) return true;
    }
    return false;
}

static bool lacks_level(const struct td_job *j, const struct td_host *n, bool picky) {
    return picky && !td_host_has_level(n, td_place_level(j));
}

const struct td_host_accel *td_place_devices(const struct td_job *j, const struct td_host *n) {
    const char *key = j->knobs.accelerator;
    const struct td_host_accel *a =
        td_accel_is_host(key) ? NULL : td_host_accel_find(&n->devices, key);
    return a && !a->is_host ? a : NULL;
}

bool td_place_known(const struct td_job *j, const struct td_host *n) {
    const char *key = j->knobs.accelerator;
    return td_accel_is_host(key) || td_host_accel_find(&n->devices, key);
}

// With nothing else on it.
static bool has_slots(const struct td_job *j, const struct td_host *n) {
    return td_place_slots(j, n) <= n->slots;
}
static bool has_devices(const struct td_job *j, const struct td_host *n) {
    const struct td_host_accel *a = td_place_devices(j, n);
    return !a || a->n >= j->n_ranks;
}
static bool could_hold(const struct td_job *j, const struct td_host *n) {
    return has_slots(j, n) && has_devices(j, n);
}

// What it lacks there now, of slots and devices; 0: nothing.
static uint32_t lacks(const struct td_job *j, const struct td_host *n,
                      struct td_place *out_numbers) {
    struct td_place p = {.needed = td_place_slots(j, n), .free = free_for(j, n)};
    const struct td_host_accel *a = td_place_devices(j, n);
    uint32_t missing = p.needed > p.free ? p.needed - p.free : 0;
    uint32_t devices = a ? td_host_devices_free(a, j->turn, j->n_ranks) : j->n_ranks;
    if (devices < j->n_ranks) {
        p.needed_devices = j->n_ranks;
        p.free_devices = devices;
        p.all_devices = a->n;
        missing += j->n_ranks - devices;
    }
    *out_numbers = p;
    return missing;
}

static bool other_fits(const struct td_core *core, const struct td_job *j, bool picky) {
    size_t cursor = 0;
    const char *key;
    void *value;
    while (td_map_next(core->nodes, &cursor, &key, &value)) {
        const struct td_host *n = value;
        if (td_host_ready(n) && !lacks_level(j, n, picky) && !td_job_excludes(j, n->id) &&
            td_job_kind_is_in(n->kinds, j->knobs.kind) && could_hold(j, n)) {
            return true;
        }
    }
    return false;
}

static bool better(const struct td_job *j, const struct td_host *a, const struct td_host *b) {
    const struct td_checkpoint *c = td_catalog_find(j, NULL);
    bool a_known = td_place_known(j, a), b_known = td_place_known(j, b);
    if (a_known != b_known) return a_known;
    bool a_has = c && strcmp(c->node, a->id) == 0, b_has = c && strcmp(c->node, b->id) == 0;
    if (a_has != b_has) return a_has;
    return td_place_free(a) < td_place_free(b);
}

static void take_numbers(struct td_place *c, const struct td_place *there) {
    c->needed = there->needed;
    c->free = there->free;
    c->needed_devices = there->needed_devices;
    c->free_devices = there->free_devices;
    c->all_devices = there->all_devices;
}

struct td_place td_place_choose(const struct td_core *core, const struct td_job *j) {
    struct td_place c = {0};
    const char *only = pinned(j);
    bool picky = some_has_level(core, j);
    bool avoid = !only && j->n_excluded && other_fits(core, j, picky);
    size_t cursor = 0;
    const char *key;
    void *value;
    uint32_t least_missing = UINT32_MAX;
    c.away = only != NULL;
    while (td_map_next(core->nodes, &cursor, &key, &value)) {
        struct td_host *n = value;
        if (!td_host_ready(n)) continue;
        c.any_ready = true;
        if (only && strcmp(only, n->id) != 0) continue;
        c.away = false;
        if (avoid && td_job_excludes(j, n->id)) continue;
        if (lacks_level(j, n, picky)) continue;
        if (!td_job_kind_is_in(n->kinds, j->knobs.kind)) {
            c.forbidden = true;
            continue;
        }
        if (!has_slots(j, n)) continue;
        if (!has_devices(j, n)) {
            c.few_devices = j->n_ranks;
            if (n->devices.withheld) c.withheld = n;
            continue;
        }
        struct td_place there;
        uint32_t missing = lacks(j, n, &there);
        if (!missing) {
            if (!c.node || better(j, n, c.node)) c.node = n;
        } else if (missing < least_missing) {
            least_missing = missing;
            c.nearest = n;
            take_numbers(&c, &there);
        }
    }
    return c;
}
