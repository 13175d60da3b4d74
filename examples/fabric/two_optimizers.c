// Two optimizers that take turns: the GAN of examples/plugins/gan.c, whose loop is here. The
// discriminator trains on every batch, the generator on every second one. A job may take such
// turns, too: a training_step of the module says them (docs/plugins.md). Here the whole loop is the
// program's.
//
//   make -C ../plugins
//   ./two_optimizers "$(realpath ../plugins/module-gan.so)" [steps [ranks]]

#include <stdio.h>
#include <stdlib.h>

#include "traind/fabric.h"
#include "traind/spawn.h"

#define DATA "{name: idx, path: /usr/share/datasets/fashion-mnist, batch_size: 64, shuffle: true}"
#define OPTIMIZERS                                                                                 \
    "[{name: disc, match: \"disc.*\", optimizer: {name: adam, lr: 0.0002, betas: [0.5, 0.999]}}, " \
    "{name: gen, match: \"gen.*\", optimizer: {name: adam, lr: 0.0004, betas: [0.5, 0.999]}}]"

#define USAGE                                                                                      \
    "usage: two_optimizers PLUGIN [steps [ranks]]; PLUGIN is the absolute path of module-gan.so, " \
    "which make -C examples/plugins builds"

struct args {
    char plugin[1024];
    int steps;
};

static td_status set_up(struct td_fabric *fabric) {
    TD_TRY(td_fabric_seed_everything(fabric, 1));
    TD_TRY(td_fabric_setup_module(fabric, "{name: plugin, module: gan, knobs: {latent: 64}}"));
    TD_TRY(td_fabric_setup_optimizers(fabric, OPTIMIZERS, NULL));
    TD_TRY(td_fabric_setup_dataloaders(fabric, DATA));
    return td_fabric_setup(fabric);
}

static td_status update(struct td_fabric *fabric, const char *step, const char *name,
                        double *out_loss) {
    TD_TRY(td_fabric_forward(fabric, step));
    TD_TRY(td_fabric_backward(fabric));
    TD_TRY(td_fabric_optimizer_step(fabric, step, NULL));
    return td_fabric_value(fabric, name, out_loss);
}

static td_status train(struct td_fabric *fabric, int steps) {
    struct td_fabric_batch batch = {.struct_bytes = sizeof batch};
    double disc = 0, gen = 0;
    for (int i = 1; i <= steps; i++) {
        TD_TRY(td_fabric_next(fabric, TD_SPLIT_TRAIN, &batch));
        if (batch.is_over) TD_TRY(td_fabric_next(fabric, TD_SPLIT_TRAIN, &batch));
        TD_TRY(update(fabric, "discriminator", "loss_disc", &disc));
        if (i % 2 == 0) TD_TRY(update(fabric, "generator", "loss_gen", &gen));
        if (i % 50 == 0) {
            TD_TRY(td_fabric_print(fabric, "batch %d loss_disc %.4f loss_gen %.4f", i, disc, gen));
        }
    }
    return TD_OK;
}

static td_status run(struct td_spawned *self, const void *data, size_t bytes) {
    const struct args *args = data;
    const char *const plugins[] = {args->plugin};
    struct td_fabric *fabric;
    const struct td_fabric_options options = {.struct_bytes = sizeof options,
                                              .accelerator = "cpu",
                                              .quiet = true,
                                              .plugins = plugins,
                                              .n_plugins = 1};
    (void)self, (void)bytes;
    TD_TRY(td_fabric_create(&options, &fabric));
    td_status s = set_up(fabric);
    if (!s) s = train(fabric, args->steps);
    s = td_fabric_finish(fabric, s);
    td_fabric_destroy(fabric);
    return s;
}

int main(int argc, char **argv) {
    static const struct td_spawn_function functions[] = {{"run", run}};
    struct args args = {.steps = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 200};
    const int ranks = argc > 3 ? (int)strtol(argv[3], NULL, 10) : 0;
    td_status s = td_main(argc, argv, functions, 1);
    if (!s && (argc < 2 || argv[1][0] != '/')) s = td_fail(TD_INVALID_ARGUMENT, USAGE);
    if (argc > 1) snprintf(args.plugin, sizeof args.plugin, "%s", argv[1]);
    const struct td_spawn_options options = {
        .function = "run", .world_size = ranks, .args = &args, .args_bytes = sizeof args};
    if (!s) s = ranks ? td_spawn(&options, NULL) : run(NULL, &args, sizeof args);
    return td_fabric_exit(NULL, s);
}
