#ifndef TRAIND_TESTS_UNIT_TRAIN_RANK_UNEVEN_RIG_H
#define TRAIND_TESTS_UNIT_TRAIN_RANK_UNEVEN_RIG_H

// A module whose programs sum over ranks, and data of which ranks have different numbers of
// samples. Sample i has the number (i + 1)^2 twice, and label 0.
//
// What is summed is the mean of a batch: one number, whatever the batch. It is the loss, and is
// added to what is predicted.

#include "tests/unit/train/rank/fields_rig.h"
#include "traind/build.h"
#include "traind/dataset.h"
#include "traind/plugin.h"

enum { UNEVEN_FEATURES = 2 };
static int64_t uneven_samples; // of each split
static bool uneven_sums_rows;  // what is summed is the batch

static inline td_status uneven_record(struct td_module *m, struct td_graph *g, int64_t batch) {
    const struct td_shape in = {2, {batch, UNEVEN_FEATURES}}, label = {1, {batch}};
    const struct td_shape row = {2, {1, UNEVEN_FEATURES}};
    td_value x, y, all, loss;
    TD_TRY(td_graph_input(g, m->x.name, m->x.dtype, &in, &x));
    TD_TRY(td_graph_input(g, m->y.name, m->y.dtype, &label, &y));
    if (uneven_sums_rows) {
        TD_TRY(td_build_rank_sum(g, x, &all));
        TD_TRY(td_build_reduce_mean(g, all, &row, &all));
    } else {
        TD_TRY(td_build_reduce_mean(g, x, &row, &all));
        TD_TRY(td_build_rank_sum(g, all, &all));
    }
    if (td_graph_mode(g) == TD_MODE_PREDICT) {
        TD_TRY(td_build_add(g, x, all, &x));
        return td_graph_result(g, "logits", x);
    }
    TD_TRY(td_build_mean(g, all, &loss));
    TD_TRY(td_graph_output(g, "loss", loss, TD_OUTPUT_MEAN));
    return td_graph_loss(g, loss);
}

static const struct td_module_ops uneven_ops = {
    .struct_bytes = sizeof uneven_ops,
    .open = fields_open,
    .close = fields_close,
    .record = uneven_record,
};
static const struct td_plugin_desc uneven_module =
    TD_PLUGIN_DESC(MODULE, "uneven", "a sum over ranks of the mean of a batch", &uneven_ops);

// ---- data ---------------------------------------------------------------------------------------
struct td_dataset {
    char none;
};

static inline td_status squares_open(const struct td_dataset_config *config,
                                     struct td_dataset **out_dataset) {
    (void)config;
    *out_dataset = td_calloc(1, sizeof **out_dataset);
    return *out_dataset ? TD_OK : td_fail_oom();
}

static inline void squares_close(struct td_dataset *d) {
    free(d);
}

static inline size_t squares_fields(struct td_dataset *d, struct td_field out_fields[8]) {
    (void)d;
    out_fields[0] = (struct td_field){"x", TD_F32, {1, {UNEVEN_FEATURES}}, 0};
    out_fields[1] = (struct td_field){"y", TD_I32, {0}, UNEVEN_FEATURES};
    return 2;
}

static inline int64_t squares_length(struct td_dataset *d, enum td_split split) {
    (void)d, (void)split;
    return uneven_samples;
}

static inline td_status squares_gather(struct td_dataset *d, enum td_split split,
                                       const int64_t *index, int64_t n, void *const *out) {
    float *x = out[0];
    int32_t *y = out[1];
    (void)d, (void)split;
    for (int64_t i = 0; i < n; i++) {
        for (int f = 0; f < UNEVEN_FEATURES; f++) {
            x[i * UNEVEN_FEATURES + f] = (float)((index[i] + 1) * (index[i] + 1));
        }
        y[i] = 0;
    }
    return TD_OK;
}

static const struct td_dataset_ops squares_ops = {
    .struct_bytes = sizeof squares_ops,
    .open = squares_open,
    .close = squares_close,
    .fields = squares_fields,
    .length = squares_length,
    .gather = squares_gather,
};
static const struct td_plugin_desc squares =
    TD_PLUGIN_DESC(DATASET, "squares", "1, 4, 9 and so on", &squares_ops);

#endif
