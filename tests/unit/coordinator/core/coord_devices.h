#ifndef TRAIND_TESTS_UNIT_COORDINATOR_CORE_COORD_DEVICES_H
#define TRAIND_TESTS_UNIT_COORDINATOR_CORE_COORD_DEVICES_H

// Tests of devices in the coordinator's core: jobs on an accelerator that has them, answers to
// plans and lists of probes that name them.

#include "daemon/coordinator/core/model/host_devices.h"
#include "daemon/coordinator/core/view.h"
#include "tests/unit/coordinator/core/coord_rig.h"

// ---- what nodes say -----------------------------------------------------------------------------
static const char two[] = "{\"accelerator\":\"far\",\"devices\":["
                          "{\"uuid\":\"far-0\",\"name\":\"a\",\"memory_bytes\":7},"
                          "{\"uuid\":\"far-1\",\"name\":\"b\",\"memory_bytes\":7}]}";

enum { MOST_LISTED = 4 };
struct listed {
    Traind__V1__Device device[MOST_LISTED][2];
    Traind__V1__Device *devices[MOST_LISTED][2];
    Traind__V1__AcceleratorDevices accel[MOST_LISTED], *list[MOST_LISTED];
    char name[MOST_LISTED][8];
    size_t n;
};

static char uuids[2][8] = {"far-0", "far-1"};

// n_devices -1: the host is its device.
static inline void list(struct listed *l, const char *name, int n_devices) {
    size_t at = l->n++;
    Traind__V1__AcceleratorDevices *a = l->list[at] = &l->accel[at];
    traind__v1__accelerator_devices__init(a);
    snprintf(l->name[at], sizeof l->name[at], "%s", name);
    a->accelerator = l->name[at];
    a->is_host = n_devices < 0;
    a->devices = l->devices[at];
    for (int i = 0; i < n_devices; i++) {
        traind__v1__device__init(&l->device[at][i]);
        l->device[at][i].uuid = uuids[i];
        l->devices[at][a->n_devices++] = &l->device[at][i];
    }
}

static inline void say_list(struct rig *r, const struct listed *l) {
    Traind__V1__PluginList plugins = TRAIND__V1__PLUGIN_LIST__INIT;
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    Traind__V1__AcceleratorDevices *copy[MOST_LISTED];
    memcpy(copy, l->list, sizeof copy);
    plugins.accelerators = copy;
    plugins.n_accelerators = l->n;
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_PLUGIN_LIST;
    m.plugin_list = &plugins;
    say(r, &m);
    settle(r);
}

// ---- jobs ---------------------------------------------------------------------------------------
static inline char *far_spec_of(int seed, int n_ranks, const char *head, const char *accelerator) {
    char spec[640];
    snprintf(spec, sizeof spec,
             "{name: n, %sseed_everything: %d, model: {name: mlp, layers: [2, 2]},"
             " data: {name: synthetic, samples: 8, features: 2, classes: 2, batch_size: 2},"
             " optimizer: {name: sgd, lr: 0.1}, trainer: {devices: %d,"
             " accelerator: {name: plugin, accelerator: %s}}}",
             head, seed, n_ranks, accelerator);
    return make_canonical(spec);
}

static inline char *far_spec(int seed, int n_ranks) {
    return far_spec_of(seed, n_ranks, "", "far");
}

static inline void answer_plans_with(struct rig *r, const char *json) {
    while (r->n_requests) {
        answer_plan_with(r, r->requests[--r->n_requests], json);
        settle(r);
    }
}

static inline size_t shown(struct rig *r, size_t *out_used) {
    TD_AUTO(td_arena) *arena = NULL;
    assert_ok(td_arena_create(1 << 20, &arena));
    const Traind__V1__ListNodesResponse *m =
        td_view_nodes(arena, r->core, r->now, td_page_of(0), "");
    assert_int_equal(m->n_nodes, 1);
    *out_used = 0;
    if (!m->nodes[0]->n_devices) return 0;
    for (size_t i = 1; i < m->nodes[0]->n_devices; i++) {
        assert_string_not_equal(m->nodes[0]->devices[i]->accelerator, "far");
    }
    const Traind__V1__AcceleratorDevices *a = m->nodes[0]->devices[0];
    assert_string_equal(a->accelerator, "far");
    for (size_t i = 0; i < a->n_devices; i++) {
        *out_used += a->devices[i]->used;
    }
    return a->n_devices;
}

static inline struct td_attempt *last(struct rig *r, int number) {
    const struct td_job *j = job(r, number);
    return td_job_attempt(j, j->n_attempts);
}

#endif
