// A program that evaluates a module which sums over ranks, where a rank has no samples of the last
// batch. Its td_fabric_evaluate takes part in the sums, and puts out nothing.

#include "tests/unit/test.h"

#include "tests/unit/train/rank/uneven_rig.h"
#include "traind/fabric.h"
#include "traind/spawn.h"

static const struct td_plugin_desc *const plugins[] = {&uneven_module, &squares};

struct uneven {
    int32_t world;
    int64_t samples, batches; // of 2 samples of each rank, the last of rank 0 alone
    double loss;              // added up over samples
};

// Nothing of the last batch is there on a rank without samples, nor of the one before.
static td_status expect_nothing(struct td_fabric *f) {
    float logits[2 * UNEVEN_FEATURES];
    double loss;
    td_status s = td_fabric_value(f, "loss", &loss);
    const bool has_none = td_status_code(s) == TD_NOT_FOUND;
    td_status_free(s);
    s = td_fabric_result(f, "logits", logits, 2 * UNEVEN_FEATURES);
    const bool is_before = td_status_code(s) == TD_FAILED_PRECONDITION;
    td_status_free(s);
    return has_none && is_before ? TD_OK : td_fail(TD_INTERNAL, "zeros were put out");
}

static td_status evaluate(struct td_fabric *f, enum td_split split, const struct uneven *u) {
    struct td_fabric_batch batch = {.struct_bytes = sizeof batch};
    double sums[2] = {0, 0}, loss;
    int64_t batches = 0;
    for (;; batches++) {
        TD_TRY(td_fabric_next(f, split, &batch));
        if (batch.is_over) break;
        TD_TRY(td_fabric_evaluate(f, &batch));
        if (batch.n_samples == 0) {
            TD_TRY(expect_nothing(f));
            continue;
        }
        TD_TRY(td_fabric_value(f, "loss", &loss));
        sums[0] += (double)batch.n_samples;
        sums[1] += loss * (double)batch.n_samples;
    }
    TD_TRY(td_fabric_all_reduce(f, sums, 2, TD_F64, TD_REDUCE_SUM));
    if (batches == u->batches && sums[0] == (double)u->samples && sums[1] == u->loss) return TD_OK;
    return td_fail(TD_INTERNAL, "%lld batches of %g samples with a loss of %g", (long long)batches,
                   sums[0], sums[1]);
}

static td_status evaluate_all(struct td_fabric *f, const struct uneven *u) {
    TD_TRY(td_fabric_setup_module(f, "{name: plugin, module: uneven}"));
    TD_TRY(td_fabric_setup_dataloaders(f, "{name: plugin, dataset: squares, batch_size: 2}"));
    TD_TRY(td_fabric_setup(f));
    TD_TRY(evaluate(f, TD_SPLIT_VAL, u));
    TD_TRY(evaluate(f, TD_SPLIT_TEST, u));
    return evaluate(f, TD_SPLIT_VAL, u);
}

static td_status be_a_rank(struct td_spawned *self, const void *args, size_t args_bytes) {
    const struct uneven *u = args;
    const struct td_fabric_options o = {.struct_bytes = sizeof o,
                                        .accelerator = "reference",
                                        .strategy = "ddp",
                                        .threads = 1,
                                        .quiet = true,
                                        .trainer = "{collective_timeout: 5}",
                                        .own_plugins = plugins,
                                        .n_own_plugins = TD_COUNTOF(plugins)};
    struct td_fabric *f;
    (void)self, (void)args_bytes;
    uneven_samples = u->samples;
    TD_TRY(td_fabric_create(&o, &f));
    td_status s = td_fabric_finish(f, evaluate_all(f, u));
    td_fabric_destroy(f);
    return s;
}

static void test_program_evaluates_each_sample_once_when_some_ranks_have_none(void **state) {
    static const struct uneven rows[] = {{2, 5, 2, 4 * (5 + 10) + 25}, {2, 1, 1, 1}, {3, 1, 1, 1}};
    (void)state;
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        assert_ok(td_spawn(&(struct td_spawn_options){.function = "be_a_rank",
                                                      .world_size = rows[i].world,
                                                      .args = &rows[i],
                                                      .args_bytes = sizeof rows[i],
                                                      .timeout_ns = TD_TEST_WAIT_NS},
                           NULL));
    }
}

static const struct td_spawn_function functions[] = {{"be_a_rank", be_a_rank}};

int main(int argc, char **argv) {
    td_status s = td_main(argc, argv, functions, TD_COUNTOF(functions));
    if (s) {
        fprintf(stderr, "%s\n", td_status_message(s));
        td_status_free(s);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_program_evaluates_each_sample_once_when_some_ranks_have_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
