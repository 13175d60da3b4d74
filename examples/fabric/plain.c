// A plain loop: a perceptron on Fashion-MNIST, trained and validated by this program itself.
//
//   make -C examples/fabric
//   ./plain              alone
//   ./plain --ranks 2    as ranks that it starts itself
//   trainctl submit plain.yaml --set command="[$PWD/plain, --epochs, 3]"    as a job
//
// Alone it trains to the same bits as the job of the same spec does.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "traind/fabric.h"
#include "traind/spawn.h"

#define DATA "{name: idx, path: /usr/share/datasets/fashion-mnist, batch_size: 128, shuffle: true}"

enum { LOG_EVERY = 50 };
struct args {
    int epochs, steps;                        // 0: as many steps as there are
    char checkpoint_dir[512], cache_dir[512]; // "": none; the whole struct goes to the ranks
};

static td_status set_up(struct td_fabric *fabric) {
    TD_TRY(td_fabric_seed_everything(fabric, 1));
    TD_TRY(td_fabric_setup_module(fabric, "{name: mlp, layers: [784, 512, 512, 10]}"));
    TD_TRY(td_fabric_setup_optimizers(fabric, "{name: adamw, lr: 0.001}", NULL));
    TD_TRY(td_fabric_setup_dataloaders(fabric, DATA));
    return td_fabric_setup(fabric);
}

static td_status validate(struct td_fabric *fabric) {
    struct td_fabric_batch batch = {.struct_bytes = sizeof batch};
    double sums[2] = {0, 0}, right; // samples, and how many of them are classified rightly
    for (;;) {
        TD_TRY(td_fabric_next(fabric, TD_SPLIT_VAL, &batch));
        if (batch.is_over) break;
        TD_TRY(td_fabric_evaluate(fabric, &batch));
        if (batch.n_samples == 0) continue; // another rank has one more
        TD_TRY(td_fabric_value(fabric, "accuracy", &right));
        sums[0] += (double)batch.n_samples;
        sums[1] += right * (double)batch.n_samples;
    }
    TD_TRY(td_fabric_all_reduce(fabric, sums, 2, TD_F64, TD_REDUCE_SUM));
    TD_TRY(td_fabric_log(fabric, "val_accuracy", sums[1] / sums[0]));
    return td_fabric_print(fabric, "validation accuracy %.4f", sums[1] / sums[0]);
}

static td_status train(struct td_fabric *fabric, const struct args *args) {
    struct td_fabric_facts facts = {.struct_bytes = sizeof facts};
    struct td_fabric_wishes wishes = {.struct_bytes = sizeof wishes};
    struct td_fabric_batch batch = {.struct_bytes = sizeof batch};
    td_fabric_get_facts(fabric, &facts); // of a job that was started again: where it goes on
    for (int64_t epoch = facts.epoch; epoch < args->epochs; epoch++) {
        for (;;) {
            TD_TRY(td_fabric_next(fabric, TD_SPLIT_TRAIN, &batch));
            if (batch.is_over) break;
            TD_TRY(td_fabric_forward(fabric, NULL));
            TD_TRY(td_fabric_backward(fabric));
            TD_TRY(td_fabric_optimizer_step(fabric, NULL, NULL));
            if ((batch.batch_idx + 1) % LOG_EVERY == 0) TD_TRY(td_fabric_log_step(fabric));
            TD_TRY(td_fabric_take_wishes(fabric, &wishes));
            if (wishes.save) TD_TRY(td_fabric_save(fabric));
            td_fabric_get_facts(fabric, &facts);
            if (wishes.stop) return TD_OK;
            if (args->steps && facts.global_step >= args->steps) {
                return facts.can_save ? td_fabric_save(fabric) : TD_OK;
            }
        }
        TD_TRY(validate(fabric));
        if (facts.can_save) TD_TRY(td_fabric_save(fabric));
    }
    return TD_OK;
}

// Of one rank, whoever started it.
static td_status run(struct td_spawned *self, const void *data, size_t bytes) {
    const struct args *args = data;
    struct td_fabric *fabric;
    const struct td_fabric_options options = {
        .struct_bytes = sizeof options,
        .accelerator = "cpu",
        .checkpoint_dir = args->checkpoint_dir[0] ? args->checkpoint_dir : NULL,
        .cache_dir = args->cache_dir[0] ? args->cache_dir : NULL};
    (void)self, (void)bytes;
    TD_TRY(td_fabric_create(&options, &fabric));
    td_status s = set_up(fabric);
    if (!s) s = train(fabric, args);
    s = td_fabric_finish(fabric, s);
    td_fabric_destroy(fabric);
    return s;
}

static void copy(char to[512], const char *from) {
    snprintf(to, 512, "%s", from);
}

int main(int argc, char **argv) {
    static const struct td_spawn_function functions[] = {{"run", run}};
    struct args args = {.epochs = 1};
    int ranks = 0;
    td_status s = td_main(argc, argv, functions, 1);
    for (int i = 1; i + 1 < argc; i += 2) {
        const int n = (int)strtol(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--ranks") == 0) ranks = n;
        if (strcmp(argv[i], "--epochs") == 0) args.epochs = n;
        if (strcmp(argv[i], "--steps") == 0) args.steps = n;
        if (strcmp(argv[i], "--save") == 0) copy(args.checkpoint_dir, argv[i + 1]);
        if (strcmp(argv[i], "--cache") == 0) copy(args.cache_dir, argv[i + 1]);
    }
    const struct td_spawn_options options = {
        .function = "run", .world_size = ranks, .args = &args, .args_bytes = sizeof args};
    if (!s) s = ranks ? td_spawn(&options, NULL) : run(NULL, &args, sizeof args);
    return td_fabric_exit(NULL, s);
}
