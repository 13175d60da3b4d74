// Gradients of several micro-batches that add up: ranks exchange them once a window, which
// td_fabric_no_backward_sync says. Four batches of 32 make the step that one of 128 would make.
//
//   ./accumulate [steps [ranks]]

#include <stdio.h>
#include <stdlib.h>

#include "traind/fabric.h"
#include "traind/spawn.h"

#define DATA "{name: idx, path: /usr/share/datasets/fashion-mnist, batch_size: 32, shuffle: true}"

enum { WINDOW = 4 };

static td_status set_up(struct td_fabric *fabric) {
    TD_TRY(td_fabric_seed_everything(fabric, 1));
    TD_TRY(td_fabric_setup_module(fabric, "{name: mlp, layers: [784, 512, 512, 10]}"));
    TD_TRY(td_fabric_setup_optimizers(fabric, "{name: adamw, lr: 0.001}", NULL));
    TD_TRY(td_fabric_setup_dataloaders(fabric, DATA));
    TD_TRY(td_fabric_setup(fabric));
    return td_fabric_divide_loss(fabric, WINDOW); // gradients add up to a mean
}

static td_status train(struct td_fabric *fabric, int64_t steps) {
    struct td_fabric_batch batch = {.struct_bytes = sizeof batch};
    double loss, norm;
    for (int64_t micro = 1; micro <= steps * WINDOW; micro++) {
        const bool ends = micro % WINDOW == 0;
        TD_TRY(td_fabric_next(fabric, TD_SPLIT_TRAIN, &batch));
        if (batch.is_over) TD_TRY(td_fabric_next(fabric, TD_SPLIT_TRAIN, &batch));
        TD_TRY(td_fabric_no_backward_sync(fabric, !ends));
        TD_TRY(td_fabric_forward(fabric, NULL));
        TD_TRY(td_fabric_backward(fabric));
        if (!ends) continue;
        TD_TRY(td_fabric_clip_gradients(fabric, NULL, &norm));
        TD_TRY(td_fabric_optimizer_step(fabric, NULL, NULL));
        if (micro / WINDOW % 20 != 0) continue;
        TD_TRY(td_fabric_value(fabric, "loss", &loss));
        TD_TRY(td_fabric_all_reduce(fabric, &loss, 1, TD_F64, TD_REDUCE_MEAN));
        TD_TRY(td_fabric_print(fabric, "step %lld loss %.4f norm %.4f", (long long)(micro / WINDOW),
                               loss, norm));
    }
    return TD_OK;
}

static td_status run(struct td_spawned *self, const void *steps, size_t bytes) {
    struct td_fabric *fabric;
    const struct td_fabric_options options = {.struct_bytes = sizeof options,
                                              .accelerator = "cpu",
                                              .accumulates = true,
                                              .quiet = true,
                                              .trainer = "{gradient_clip_val: 1.0}"};
    (void)self, (void)bytes;
    TD_TRY(td_fabric_create(&options, &fabric));
    td_status s = set_up(fabric);
    if (!s) s = train(fabric, *(const int64_t *)steps);
    s = td_fabric_finish(fabric, s);
    td_fabric_destroy(fabric);
    return s;
}

int main(int argc, char **argv) {
    static const struct td_spawn_function functions[] = {{"run", run}};
    const int64_t steps = argc > 1 ? strtol(argv[1], NULL, 10) : 100;
    const int ranks = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 0;
    td_status s = td_main(argc, argv, functions, 1);
    const struct td_spawn_options options = {
        .function = "run", .world_size = ranks, .args = &steps, .args_bytes = sizeof steps};
    if (!s) s = ranks ? td_spawn(&options, NULL) : run(NULL, &steps, sizeof steps);
    return td_fabric_exit(NULL, s);
}
