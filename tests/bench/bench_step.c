// The bare training step: mlp 784-512-512-10, batch 128, fp32, AdamW, on the cpu accelerator with
// every core, without loader, loop or collective. Prints one JSON line: milliseconds a step
// (median, least and greatest of windows of 50 steps) and the share of GFLOP/s it comes to.
// The distance from here to `traind-worker run` is what loop and loader cost.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/graph/compile.h"
#include "engine/train/rank/state/init.h"
#include "lib/base/clock.h"
#include "lib/base/machine/proc.h"
#include "lib/plugin/registry.h"
#include "tests/bench/loops.h"
#include "tests/unit/plugin/knobs_rig.h"
#include "traind/accelerator.h"
#include "traind/module.h"
#include "workloads/workloads.h"

enum { BATCH = 128, WINDOWS = 40, STEPS = 50 };
#define TIMEOUT_NS (60 * TD_NS_PER_S)

struct bench {
    const struct td_module_ops *module_ops;
    struct td_module *module;
    const struct td_accelerator_ops *accel_ops;
    struct td_accelerator *accel;
    struct td_state_table *state;
    struct td_compiled *compiled;
    struct td_executable *exe;
    struct td_bindings bind;
    double scalars[TD_SCALAR_COUNT];
    uint32_t random[TD_RANDOM_WORDS];
    double outputs[8];
    uint8_t x[BATCH * 784];
    int32_t y[BATCH];
};

static td_status record(void *arg, struct td_graph *g, int64_t batch) {
    struct bench *b = arg;
    return b->module_ops->record(b->module, g, batch);
}

static td_status open_parts(struct bench *b, struct td_registry *r, struct td_arena *arena,
                            int threads) {
    static const char knobs[] = "{\"layers\":[784,512,512,10]}";
    const struct td_plugin_desc *accel;
    struct td_json *tree;
    const struct td_field fields[] = {
        {.name = "x", .dtype = TD_U8, .sample_shape = {1, {784}}},
        {.name = "y", .dtype = TD_I32, .n_classes = 10},
    };
    const struct td_accel_config config = {.struct_bytes = sizeof config, .n_threads = threads};
    b->module_ops = td_module_mlp.ops;
    TD_TRY(knobs_of(arena, &td_module_mlp, knobs, &tree));
    TD_TRY(b->module_ops->open(tree, fields, 2, &b->module));
    TD_TRY(td_registry_find(r, TD_PLUGIN_ACCELERATOR, "cpu", &accel));
    b->accel_ops = accel->ops;
    return b->accel_ops->open(&config, &b->accel);
}

static td_status compile(struct bench *b) {
    const struct td_optimizer_options optimizer = {
        .op = TD_OP_ADAMW,
        .attrs = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01},
    };
    const struct td_compile_options options = {
        .key =
            {.step = "train", .mode = TD_MODE_TRAIN, .batch = BATCH, .sync = true, .apply = true},
        .state = b->state,
        .record = record,
        .record_arg = b,
        .optimizer = &optimizer,
    };
    TD_TRY(td_compile(&options, &b->compiled));
    TD_TRY(td_state_layout(b->state));
    b->bind.struct_bytes = sizeof b->bind;
    b->bind.scalars = b->scalars;
    b->bind.random = b->random;
    b->bind.outputs = b->outputs;
    size_t arena_bytes = b->compiled->program.arena_bytes;
    TD_TRY(b->accel_ops->mem_alloc(b->accel, arena_bytes, &b->bind.arena));
    for (int role = 0; role < TD_ROLE_COUNT; role++) {
        size_t bytes = td_state_region_bytes(b->state, (enum td_role)role);
        TD_TRY(b->accel_ops->mem_alloc(b->accel, bytes, &b->bind.region[role]));
    }
    return b->accel_ops->compile(b->accel, &b->compiled->program, &b->bind, &b->exe);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static td_status measure(struct bench *b, int threads) {
    double ms[WINDOWS];
    const struct td_buffer inputs[] = {td_buffer_of_host(b->x, sizeof b->x),
                                       td_buffer_of_host(b->y, sizeof b->y)};
    b->scalars[TD_SCALAR_LR] = 1e-3f;
    b->scalars[TD_SCALAR_LOSS_SCALE] = b->scalars[TD_SCALAR_WINDOW] = 1;
    for (int w = 0; w < WINDOWS; w++) {
        int64_t start = td_mono_now().ns;
        for (int i = 0; i < STEPS; i++) {
            b->scalars[TD_SCALAR_STEP] = w * STEPS + i + 1;
            uint32_t steady = w || i ? TD_RUN_STEADY : 0; // as the loop runs it
            td_ticket ticket;
            TD_TRY(b->accel_ops->run(b->exe, TD_SEGS_ALL | steady, inputs, &ticket));
            TD_TRY(b->accel_ops->wait(b->accel, ticket, TIMEOUT_NS));
        }
        ms[w] = (double)(td_mono_now().ns - start) / 1e6 / STEPS;
    }
    double loss = b->outputs[0];
    qsort(ms, WINDOWS, sizeof ms[0], by_value);
    printf("{\"name\":\"step mlp fp32\",\"median\":%.4f,\"min\":%.4f,\"max\":%.4f,\"unit\":\"ms\","
           "\"n\":%d,\"threads\":%d,\"gflops\":%.1f,\"loss\":%.4f}\n",
           ms[WINDOWS / 2], ms[0], ms[WINDOWS - 1], WINDOWS, threads,
           td_graph_flops(b->compiled->graph) / ms[WINDOWS / 2] / 1e6, loss);
    return TD_OK;
}

static td_status run(struct bench *b, struct td_registry *r, struct td_arena *arena) {
    int threads = td_proc_n_cpus();
    TD_TRY(td_state_table_create(&b->state));
    TD_TRY(open_parts(b, r, arena, threads));
    TD_TRY(compile(b));
    for (uint32_t i = 0; i < td_state_count(b->state); i++) {
        const struct td_state_info *s = td_state_at(b->state, i);
        if (s->role != TD_ROLE_PARAM) continue;
        TD_TRY(td_init_fill(
            1, s, (float *)(void *)((char *)td_buffer_host(b->bind.region[s->role]) + s->offset)));
    }
    for (int i = 0; i < BATCH * 784; i++) {
        b->x[i] = (uint8_t)(i * 2654435761u >> 24);
    }
    for (int i = 0; i < BATCH; i++) {
        b->y[i] = i % 10;
    }
    return measure(b, threads);
}

int main(void) {
    static struct bench b;
    struct td_registry *r = NULL;
    struct td_arena *arena = NULL;
    char dir[4096], plugins[4200];
    td_status failed = td_proc_self_dir(dir, sizeof dir);
    snprintf(plugins, sizeof plugins, "%s/../../lib/traind", dir);
    if (!failed) failed = bench_hold_level();
    if (!failed) failed = td_registry_create(plugins, &r);
    if (!failed) failed = td_arena_create(1 << 20, &arena);
    if (!failed) failed = run(&b, r, arena);
    if (failed) fprintf(stderr, "bench_step: %s\n", td_status_message(failed));
    int code = failed ? 1 : 0;
    td_status_free(failed);
    td_arena_destroy(arena);
    return code;
}
