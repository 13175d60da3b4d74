#ifndef TRAIND_TESTS_SIM_COORDINATOR_HISTORY_H
#define TRAIND_TESTS_SIM_COORDINATOR_HISTORY_H

// What a history of the coordinator's simulator begins with, and how its time passes.
// test_sim_coordinator.c draws histories, test_sim_silence.c writes some down.

#include "tests/sim/coordinator_nodes.h"

// ---- a history ----------------------------------------------------------------------------------
static inline char *make_spec(int devices, int num_nodes, const char *labels) {
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *tree = NULL;
    TD_AUTO_BUF text;
    char set[32], nodes[32], on[64];
    const bool shared = devices % 2 && num_nodes < 3;
    snprintf(set, sizeof set, "trainer.devices=%d", devices);
    snprintf(nodes, sizeof nodes, "trainer.num_nodes=%d", num_nodes);
    snprintf(on, sizeof on, "resources.labels={%s}", labels);
    const char *overrides[] = {set,
                               nodes,
                               on,
                               "restart.max=1000",
                               "restart.backoff=[0, 1]",
                               shared ? "checkpoint.store=fs" : "checkpoint.store=stream"};
    static const char spec[] =
        "{name: sim, model: {name: mlp, layers: [2, 2]},"
        " data: {name: synthetic, samples: 8, features: 2, classes: 2, batch_size: 2},"
        " optimizer: {name: sgd, lr: 0.1}, checkpoint: {dir: /shared}}";
    td_buf_init(&text, 1 << 20);
    assert_ok(td_arena_create(TD_SPEC_ARENA_BYTES, &arena));
    assert_ok(td_spec_parse(arena, spec, strlen(spec), overrides, TD_COUNTOF(overrides), &tree));
    assert_ok(td_json_print(tree, false, &text));
    return td_buf_take_cstr(&text);
}

static inline struct world *make_world(uint64_t seed) {
    struct world *w = calloc(1, sizeof *w);
    w->carry_out = carry_out;
    w->rng = seed;
    w->now_ns = TD_NS_PER_S;
    w->batches_tail = &w->batches;
    w->points_tail = &w->points;
    w->gate_tail = &w->gate;
    for (int k = 0; k < TD_RECORD_KIND_COUNT; k++) {
        assert_ok(td_map_create(100000, &w->rows[k]));
    }
    assert_ok(td_map_create(100000, &w->cursors));
    assert_ok(td_map_create(1000000, &w->passed));
    assert_ok(td_map_create(100000, &w->saved));
    assert_ok(td_map_create(100000, &w->attempts));
    assert_ok(td_map_create(100000, &w->given_up));
    for (int i = 1; i <= MAX_RANKS; i++) {
        w->specs[i] = make_spec(i, 1, "");
    }
    static const int gangs[N_GANGS][2] = {{1, 2}, {2, 2}, {1, 3}};
    for (int i = 0; i < N_GANGS; i++) {
        w->specs[MAX_RANKS + 1 + i] = make_spec(gangs[i][0], gangs[i][1], "");
    }
    w->specs[N_SPECS] = make_spec(1, 1, "role: gold");
    for (int i = 0; i < N_NODES; i++) {
        snprintf(w->nodes[i].id, sizeof w->nodes[i].id, "n%d", i);
        snprintf(w->nodes[i].boot, sizeof w->nodes[i].boot, "boot");
        w->nodes[i].slots = (uint32_t)(2 + i);
        assert_ok(td_map_create(100000, &w->nodes[i].disk.dirs));
    }
    start_core(w);
    return w;
}

static inline void free_world(struct world *w) {
    drop_pending(w);
    td_core_destroy(w->core);
    for (int k = 0; k < TD_RECORD_KIND_COUNT; k++) {
        free_map(w->rows[k]);
    }
    free_map(w->cursors);
    free_map(w->passed);
    free_map(w->saved);
    free_map(w->attempts);
    free_map(w->given_up);
    for (int i = 1; i <= N_SPECS; i++) {
        free(w->specs[i]);
    }
    for (int i = 0; i < N_NODES; i++) {
        for (int h = 0; h < MAX_HELD; h++) {
            if (w->nodes[i].held[h].used) drop_held(&w->nodes[i].held[h]);
        }
        sim_disk_drop(&w->nodes[i].disk);
        td_map_destroy(w->nodes[i].disk.dirs);
    }
    free(w);
}

static inline void create(struct world *w, int i, uint64_t spec) {
    const struct td_job *j = NULL;
    bool again = false;
    char request[24];
    snprintf(w->jobs[i].id, sizeof w->jobs[i].id, "j-%012llx",
             (unsigned long long)(draw(w) & 0xffffffffffff));
    snprintf(request, sizeof request, "request-%d", i);
    const struct td_core_create_job r = {
        .id = w->jobs[i].id, .spec_json = w->specs[spec], .request_id = "", .digest = request};
    td_status s = td_core_create_job(w->core, now(w), &r, &j, &again);
    after(w);
    if (!s) {
        w->jobs[i].created = true;
        w->jobs[i].created_ns = w->now_ns;
        put(w, NULL, i);
    }
    td_status_free(s);
}

static inline void pass_time(struct world *w) {
    w->now_ns += STEP_MS * TD_NS_PER_MS;
    run_store(w);
    if (td_core_wake(w->core).ns <= w->now_ns) {
        td_core_tick(w->core, now(w));
        after(w);
    }
}

static inline const struct td_job *job_of(struct world *w, int i) {
    const struct td_job *j = NULL;
    assert_ok(td_core_find_job(w->core, w->jobs[i].id, &j));
    return j;
}

#endif
