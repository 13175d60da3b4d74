// bench_fabric MODEL DATA OPTIMIZER TRAINER PRECISION THREADS STEPS WINDOW CACHE: the plain loop of
// a program over so many steps. It logs after each window, as the job beside it does.

#include <stdio.h>
#include <stdlib.h>

#include "traind/fabric.h"

enum { MODEL = 1, DATA, OPTIMIZER, TRAINER, PRECISION, THREADS, STEPS, WINDOW, CACHE, N_ARGS };

static td_status train(struct td_fabric *f, char **argv) {
    const long steps = strtol(argv[STEPS], NULL, 10), window = strtol(argv[WINDOW], NULL, 10);
    struct td_fabric_batch batch = {.struct_bytes = sizeof batch};
    TD_TRY(td_fabric_seed_everything(f, 1));
    TD_TRY(td_fabric_setup_module(f, argv[MODEL]));
    TD_TRY(td_fabric_setup_optimizers(f, argv[OPTIMIZER], NULL));
    TD_TRY(td_fabric_setup_dataloaders(f, argv[DATA]));
    TD_TRY(td_fabric_setup(f));
    for (long i = 1; i <= steps; i++) {
        TD_TRY(td_fabric_next(f, TD_SPLIT_TRAIN, &batch));
        if (batch.is_over) TD_TRY(td_fabric_next(f, TD_SPLIT_TRAIN, &batch));
        TD_TRY(td_fabric_forward(f, NULL));
        TD_TRY(td_fabric_backward(f));
        TD_TRY(td_fabric_optimizer_step(f, NULL, NULL));
        if (i % window == 0) TD_TRY(td_fabric_log_step(f));
    }
    return TD_OK;
}

int main(int argc, char **argv) {
    if (argc != N_ARGS) {
        fprintf(stderr, "bench_fabric takes %d arguments\n", N_ARGS - 1);
        return 2;
    }
    struct td_fabric *f = NULL;
    const struct td_fabric_options options = {.struct_bytes = sizeof options,
                                              .accelerator = "cpu",
                                              .precision = argv[PRECISION],
                                              .threads = (int32_t)strtol(argv[THREADS], NULL, 10),
                                              .trainer = argv[TRAINER],
                                              .cache_dir = argv[CACHE]};
    td_status s = td_fabric_create(&options, &f);
    if (!s) s = train(f, argv);
    return td_fabric_exit(f, s);
}
