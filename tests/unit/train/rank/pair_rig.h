#ifndef TRAIND_TESTS_UNIT_TRAIN_RANK_PAIR_RIG_H
#define TRAIND_TESTS_UNIT_TRAIN_RANK_PAIR_RIG_H

// Pair: a module of two training steps, small enough to say by hand what they do. The second reads
// a parameter that the first trains, so their order shows.

#include <string.h>

#include "tests/unit/train/rank/fields_rig.h"
#include "tests/unit/train/rank/ranks_rig.h"
#include "traind/build.h"

// Step "first": loss a^2, which trains a. Step "second": loss (b - a)^2, which trains b alone. With
// `noise`, each loss has a term that depends on the samples and on dropout.
static struct td_step_info steps[TD_STEPS_MAX + 1];
static uint32_t n_steps;
static bool noise, idle;

static void name_steps(void) {
    n_steps = 2;
    steps[0] = (struct td_step_info){.name = "first", .trains = "a"};
    steps[1] = (struct td_step_info){.name = "second", .trains = "b"};
    noise = idle = false;
}

static bool pair_step_at(struct td_module *m, uint32_t i, struct td_step_info *out_info) {
    (void)m;
    if (i >= n_steps) return false;
    out_info->name = steps[i].name;
    out_info->trains = steps[i].trains;
    return true;
}

static td_status add_input(struct td_graph *g, const struct td_field *f, int64_t batch,
                           td_value *out) {
    struct td_shape shape = f->sample_shape;
    memmove(shape.dim + 1, shape.dim, (size_t)shape.n_dims++ * sizeof *shape.dim);
    shape.dim[0] = batch;
    return td_graph_input(g, f->name, f->dtype, &shape, out);
}

// (B, 8) -> a row of 8, one sample after the other dropped at random.
static td_status add_noise(struct td_graph *g, td_value x, td_value *io) {
    const struct td_shape row = {2, {1, 8}};
    td_value v;
    TD_TRY(td_build_dropout(g, x, td_graph_step(g), 0.5, &v));
    TD_TRY(td_build_reduce_mean(g, v, &row, &v));
    return td_build_mul(g, *io, v, io);
}

static td_status pair_record(struct td_module *m, struct td_graph *g, int64_t batch) {
    const struct td_shape shape = {2, {1, 8}};
    const struct td_init one = {TD_INIT_CONST, 1, 0}, four = {TD_INIT_CONST, 4, 0};
    const bool first = strcmp(td_graph_step(g), "second") != 0;
    td_value x, y, a, b, h, loss;
    TD_TRY(add_input(g, &m->x, batch, &x));
    TD_TRY(add_input(g, &m->y, batch, &y));
    TD_TRY(td_graph_param(g, "a", TD_F32, &shape, one, &a));
    if (idle) TD_TRY(td_graph_param(g, "idle", TD_F32, &shape, one, &h));
    h = a;
    if (!first) {
        TD_TRY(td_graph_param(g, "b", TD_F32, &shape, four, &b));
        TD_TRY(td_build_sub(g, b, a, &h));
    }
    if (noise) TD_TRY(add_noise(g, x, &h));
    TD_TRY(td_build_mul(g, h, h, &h));
    TD_TRY(td_build_mean(g, h, &loss));
    TD_TRY(td_graph_output(g, first ? "loss_a" : "loss_b", loss, TD_OUTPUT_MEAN));
    return td_graph_loss(g, loss);
}

static const struct td_module_ops pair_ops = {
    .struct_bytes = sizeof pair_ops,
    .open = fields_open,
    .close = fields_close,
    .record = pair_record,
    .step_at = pair_step_at,
};
static const struct td_plugin_desc pair = TD_PLUGIN_DESC(MODULE, "pair", "two steps", &pair_ops);

static void use_pair(struct run *r, const char *dir) {
    (void)dir;
    r->config.model = (struct td_part){"pair", NULL};
    r->config.optimizer.max_norm = 0;
}

#endif
