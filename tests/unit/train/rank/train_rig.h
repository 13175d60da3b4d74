#ifndef TRAIND_TESTS_UNIT_TRAIN_RANK_TRAIN_RIG_H
#define TRAIND_TESTS_UNIT_TRAIN_RANK_TRAIN_RIG_H

// A run of a rank in this process: a small mlp on random numbers, without launcher and daemon. A
// test changes the configuration before it calls td_train.

#include <fcntl.h>

#include "accelerators/far/far.h"
#include "accelerators/reference/reference.h"
#include "collectives/collectives.h"
#include "engine/train/train.h"
#include "lib/plugin/registry.h"
#include "precisions/precisions.h"
#include "strategies/strategies.h"
#include "tests/unit/plugin/knobs_rig.h"
#include "workloads/workloads.h"

#include "tests/unit/test.h"

struct run {
    struct td_arena *arena;
    struct td_registry *registry;
    struct td_train_config config;
    struct td_rank_page page;
    void *ring;
    struct td_train_io io;
    struct td_events events;
};

static inline const struct td_json *knobs(struct run *r, const struct td_plugin_desc *desc,
                                          const char *text) {
    struct td_json *v = NULL;
    assert_ok(knobs_of(r->arena, desc, text, &v));
    return v;
}

// own: a plugin of the test, in place of one of its kind and name; NULL: none.
static inline void prepare_run(struct run *r, const struct td_plugin_desc *own,
                               const char *strategy, const char *dir) {
    static const struct td_plugin_desc *const plugins[] = {
        &td_accelerator_reference,
        &td_accelerator_far,
        &td_collective_local,
        &td_collective_shm,
        &td_precision_fp32,
        &td_precision_fp16_mixed,
        &td_precision_bf16_mixed,
        &td_precision_fp64,
        &td_precision_bf16_true,
        &td_precision_fp16_true,
        &td_strategy_single_device,
        &td_strategy_ddp,
        &td_module_mlp,
        &td_dataset_synthetic,
    };
    *r = (struct run){0};
    assert_ok(td_arena_create(1 << 20, &r->arena));
    assert_ok(td_registry_create("/nonexistent", &r->registry));
    for (size_t i = 0; i < TD_COUNTOF(plugins); i++) {
        const bool replaced =
            own && own->kind == plugins[i]->kind && strcmp(own->name, plugins[i]->name) == 0;
        if (!replaced) assert_ok(td_registry_add(r->registry, plugins[i]));
    }
    if (own) assert_ok(td_registry_add(r->registry, own));
    struct td_amount all = {.is_fraction = true, .fraction = 1};
    r->config = (struct td_train_config){
        .job = "j",
        .attempt = 1,
        .world_size = 1,
        .model = {"mlp", knobs(r, &td_module_mlp, "{\"layers\":[8,4]}")},
        .data = {"synthetic",
                 knobs(r, &td_dataset_synthetic,
                       "{\"samples\":16,\"features\":8,\"classes\":4,\"batch_size\":4}")},
        .accelerator = "reference",
        .collective = "local",
        .collective_timeout_ns = 300 * TD_NS_PER_S,
        .save_timeout_ns = 300 * TD_NS_PER_S,
        .strategy = strategy,
        .precision = "32-true",
        .optimizer = {.kind = TD_OPTIMIZER_SGD, .lr = 0.1, .max_norm = 1.0},
        .seed = 1,
        .stages = TD_STAGE_FIT,
        .batch_size = 4,
        .shuffle = true,
        .limits = {.max_epochs = 1,
                   .max_steps = -1,
                   .train_batches = all,
                   .val_batches = all,
                   .test_batches = all,
                   .val_check_interval = all,
                   .check_val_every_n_epoch = 1,
                   .log_every_n_steps = 1,
                   .accumulate = {{0, 2}},
                   .n_accumulate = 1},
        .checkpoint = {.dir = dir, .label = "a1", .save_top_k = 1, .patience_ns = TD_TEST_WAIT_NS},
        .n_threads = 1,
        .registry = r->registry,
        .build = "test",
        .spec_digest = "",
    };
    size_t ring = td_ring_bytes(sizeof(struct td_metric_record), 1024);
    size_t bytes = td_align_up(ring, TD_LINE_BYTES);
    r->ring = aligned_alloc(TD_LINE_BYTES, bytes);
    assert_non_null(r->ring);
    r->io = (struct td_train_io){.page = &r->page};
    td_rank_page_answer_drain(&r->page, INT32_MAX); // no launcher drains: do not wait for one
    assert_ok(td_ring_format(r->ring, bytes, sizeof(struct td_metric_record), 1024, &r->io.ring));
    td_events_init(&r->events, open("/dev/null", O_WRONLY | O_CLOEXEC)); // sends fail: no socket
}

static inline void dispose(struct run *r) {
    close(r->events.fd);
    td_events_finish(&r->events);
    free(r->ring);
    td_registry_destroy(r->registry);
    td_arena_destroy(r->arena);
}

#endif
