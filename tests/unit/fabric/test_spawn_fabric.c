// Ranks that a program starts itself, as Fabric and a strategy in them see them: numbered from 0,
// the same before setup and after it. The program that starts them is a rank of none. A strategy
// that does not serve so many ranks refuses them. The weights that they trained come back to it.

#include <math.h>
#include <sys/stat.h>

#include "accelerators/far/far.h"
#include "fabric/config.h"
#include "tests/unit/test.h"
#include "traind/fabric.h"
#include "traind/spawn.h"

static const char far[] = "{name: plugin, accelerator: far}"; // it has 2 devices

// args: the strategy's name, or the accelerator with devices.
static td_status be_a_rank(struct td_spawned *self, const void *args, size_t args_bytes) {
    static const struct td_plugin_desc *const plugins[] = {&td_accelerator_far};
    const bool has_devices = strcmp(args, far) == 0;
    (void)args_bytes;
    const struct td_fabric_options o = {.struct_bytes = sizeof o,
                                        .accelerator = has_devices ? far : "reference",
                                        .strategy = has_devices ? "ddp" : args,
                                        .own_plugins = plugins,
                                        .n_own_plugins = 1,
                                        .threads = 1,
                                        .quiet = true};
    const int32_t rank = td_spawned_rank(self), device = has_devices ? rank : 0;
    struct td_fabric *f;
    bool same = true;
    TD_TRY(td_fabric_create(&o, &f));
    td_status s = td_fabric_setup_module(f, "{name: mlp, layers: [8, 4]}");
    if (!s) s = td_fabric_setup_optimizers(f, "{name: adam, lr: 0.01}", NULL);
    if (!s) {
        s = td_fabric_setup_dataloaders(f, "{name: synthetic, samples: 64, features: 8, "
                                           "classes: 4, batch_size: 8}");
    }
    for (int is_set_up = 0; !s && is_set_up < 2; is_set_up++) {
        struct td_fabric_facts facts = {.struct_bytes = sizeof facts};
        td_fabric_get_facts(f, &facts);
        same &= facts.world_size == td_spawned_world_size(self) && facts.global_rank == rank &&
                facts.local_rank == rank && facts.node_rank == 0 &&
                facts.is_global_zero == (rank == 0) && facts.is_set_up == is_set_up &&
                facts.device == (is_set_up ? device : -1);
        if (!is_set_up) s = td_fabric_setup(f);
    }
    s = td_fabric_finish(f, s);
    td_fabric_destroy(f);
    if (s || same) return s;
    return td_fail(TD_INTERNAL, "Fabric says of rank %d that it is another", rank);
}

// ---- weights that come back ---------------------------------------------------------------------
static td_status set_up(struct td_fabric *f, uint64_t seed) {
    TD_TRY(td_fabric_seed_everything(f, seed));
    TD_TRY(td_fabric_setup_module(f, "{name: mlp, layers: [8, 16, 4]}"));
    TD_TRY(td_fabric_setup_optimizers(f, "{name: adam, lr: 0.01}", NULL));
    TD_TRY(td_fabric_setup_dataloaders(f, "{name: synthetic, samples: 64, features: 8, "
                                          "classes: 4, batch_size: 8}"));
    return td_fabric_setup(f);
}

static td_status train(struct td_fabric *f) {
    struct td_fabric_batch batch = {.struct_bytes = sizeof batch};
    for (;;) {
        TD_TRY(td_fabric_next(f, TD_SPLIT_TRAIN, &batch));
        if (batch.is_over) return TD_OK;
        TD_TRY(td_fabric_forward(f, NULL));
        TD_TRY(td_fabric_backward(f));
        TD_TRY(td_fabric_optimizer_step(f, NULL, NULL));
    }
}

// The mean over all samples of the validation split, whoever has them.
static td_status validate(struct td_fabric *f, double *out_loss) {
    struct td_fabric_batch batch = {.struct_bytes = sizeof batch};
    double sums[2] = {0, 0}, loss;
    for (;;) {
        TD_TRY(td_fabric_next(f, TD_SPLIT_VAL, &batch));
        if (batch.is_over) break;
        if (batch.n_samples == 0) continue;
        TD_TRY(td_fabric_evaluate(f, &batch));
        TD_TRY(td_fabric_value(f, "loss", &loss));
        sums[0] += (double)batch.n_samples;
        sums[1] += loss * (double)batch.n_samples;
    }
    TD_TRY(td_fabric_all_reduce(f, sums, 2, TD_F64, TD_REDUCE_SUM));
    *out_loss = sums[1] / sums[0];
    return TD_OK;
}

static const struct td_fabric_options alone = {
    .struct_bytes = sizeof alone, .accelerator = "reference", .threads = 1, .quiet = true};

// Twice: of two that are on their way, the parent has the last.
static td_status fit(struct td_fabric *f, struct td_spawned *self) {
    double loss = NAN;
    TD_TRY(set_up(f, 1));
    TD_TRY(td_fabric_put_weights(f, self));
    TD_TRY(train(f));
    TD_TRY(td_fabric_put_weights(f, self));
    TD_TRY(validate(f, &loss));
    return td_spawned_rank(self) == 0 ? td_spawned_put_double(self, "val_loss", loss) : TD_OK;
}

static td_status train_a_model(struct td_spawned *self, const void *args, size_t args_bytes) {
    struct td_fabric *f;
    (void)args, (void)args_bytes;
    TD_TRY(td_fabric_create(&alone, &f));
    td_status s = td_fabric_finish(f, fit(f, self));
    td_fabric_destroy(f);
    return s;
}

// To the bit, and into a model that began elsewhere.
static void test_parent_goes_on_with_the_weights_of_its_ranks(void **state) {
    struct td_results *r;
    double before, here, there;
    size_t bytes;
    char path[512];
    assert_ok(td_results_create(&r));
    assert_ok(td_spawn(&(struct td_spawn_options){.function = "train_a_model",
                                                  .world_size = 2,
                                                  .timeout_ns = TD_TEST_WAIT_NS},
                       r));
    const void *weights = td_results_weights(r, &bytes);
    assert_non_null(weights);
    assert_ok(td_results_double(r, "val_loss", &there));
    struct td_fabric *f;
    assert_ok(td_fabric_create(&alone, &f));
    assert_ok(set_up(f, 2));
    assert_ok(validate(f, &before));
    assert_ok(td_fabric_load_weights_from(f, weights, bytes, true));
    assert_ok(validate(f, &here));
    assert_true(fabs(here - there) < 1e-6 && fabs(before - there) > 1e-3);
    snprintf(path, sizeof path, "%s/weights", (const char *)*state);
    assert_ok(td_fabric_save_weights(f, path, NULL, NULL));
    assert_ok(td_fabric_finish(f, TD_OK));
    td_fabric_destroy(f);
    TD_AUTO_BUF saved;
    td_buf_init(&saved, 1 << 20);
    assert_ok(td_fs_read(path, 1 << 20, &saved));
    assert_int_equal(saved.len, bytes);
    assert_memory_equal(saved.data, weights, bytes);
    td_results_destroy(r);
}

// Two ranks save one file, and each finds it there.
static td_status save_and_look(struct td_spawned *self, const void *args, size_t args_bytes) {
    struct td_fabric *f;
    (void)self, (void)args_bytes;
    TD_TRY(td_fabric_create(&alone, &f));
    td_status s = set_up(f, 1);
    if (!s) s = td_fabric_save_weights(f, args, NULL, NULL);
    if (!s) s = td_fabric_load_weights(f, args, true);
    s = td_fabric_finish(f, s);
    td_fabric_destroy(f);
    return s;
}

static void test_file_of_weights_is_there_for_every_rank(void **state) {
    char path[512];
    snprintf(path, sizeof path, "%s/weights", (const char *)*state);
    const struct td_spawn_options o = {.function = "save_and_look",
                                       .world_size = 2,
                                       .args = path,
                                       .args_bytes = sizeof path,
                                       .timeout_ns = TD_TEST_WAIT_NS};
    assert_ok(td_spawn(&o, NULL));
    assert_true(td_fs_exists(path));
    snprintf(path, sizeof path, "%s/no/weights", (const char *)*state);
    td_status s = td_spawn(&o, NULL);
    assert_int_equal(td_status_class(s), TD_CLASS_BAD_SPEC);
    assert_non_null(strstr(td_status_message(s), "rank 0: save weights: "));
    td_status_free(s);
}

static td_status call(int32_t world_size, const char *strategy) {
    return td_spawn(&(struct td_spawn_options){.function = "be_a_rank",
                                               .world_size = world_size,
                                               .args = strategy,
                                               .args_bytes = strlen(strategy) + 1,
                                               .timeout_ns = TD_TEST_WAIT_NS},
                    NULL);
}

static bool is_rank(void) {
    const struct td_rank_env *e;
    assert_ok(td_fabric_env(&e));
    return e != NULL;
}

// Contract 17: ranks that a program starts are numbered, before setup and after it
static void test_ranks_are_numbered_with_every_strategy(void **state) {
    (void)state;
    assert_false(is_rank());
    for (int32_t world = 1; world <= 3; world++) {
        assert_ok(call(world, "ddp"));
    }
    assert_ok(call(1, "single_device"));
    assert_false(is_rank());
    td_test_over("strategy", "ddp");
    td_test_over("strategy", "single_device");
}

// Contract 21: ranks that the strategy does not serve are refused, with the one that does
static void test_ranks_are_refused_when_the_strategy_serves_one(void **state) {
    (void)state;
    td_status s = call(2, "single_device");
    assert_int_equal(td_status_class(s), TD_CLASS_BAD_SPEC);
    assert_non_null(strstr(td_status_message(s), "single_device takes 1 device; use ddp"));
    td_status_free(s);
    td_test_over("strategy", "single_device");
}

static void test_ranks_have_a_device_each_or_are_refused(void **state) {
    (void)state;
    for (int32_t world = 1; world <= 2; world++) {
        assert_ok(call(world, far));
    }
    td_status s = call(3, far);
    assert_int_equal(td_status_class(s), TD_CLASS_BAD_SPEC);
    assert_non_null(strstr(td_status_message(s), "3 ranks on this machine need a device of 'far' "
                                                 "each, it has 2"));
    td_status_free(s);
}

// args: the ranks that the program says it has.
static td_status be_one_of(struct td_spawned *self, const void *args, size_t args_bytes) {
    struct td_fabric_options o = alone;
    struct td_fabric *f;
    (void)self, (void)args_bytes;
    o.devices = *(const int32_t *)args;
    TD_TRY(td_fabric_create(&o, &f));
    td_fabric_destroy(f);
    return td_fail(TD_INTERNAL, "nothing was refused");
}

static void test_ranks_are_refused_when_the_program_says_it_has_others(void **state) {
    (void)state;
    const int32_t said = 3;
    td_status s = td_spawn(&(struct td_spawn_options){.function = "be_one_of",
                                                      .world_size = 2,
                                                      .args = &said,
                                                      .args_bytes = sizeof said,
                                                      .timeout_ns = TD_TEST_WAIT_NS},
                           NULL);
    assert_int_equal(td_status_class(s), TD_CLASS_BAD_SPEC);
    assert_non_null(strstr(td_status_message(s), "devices is 3, but 2 ranks were started; leave "
                                                 "devices 0"));
    td_status_free(s);
}

// ---- what ranks do together ---------------------------------------------------------------------
enum { WORLD = 3, PATH_BYTES = 512, BIG_BYTES = 4 << 20 };

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x)) return td_fail(TD_INTERNAL, "line %d: not %s", __LINE__, #x);                    \
    } while (0)

static td_status reduce_and_gather(struct td_fabric *f, int32_t rank) {
    int64_t sums[2] = {rank + 1, 10 * rank}, most[1] = {rank == 1 ? 7 : -rank};
    int32_t told = rank == 2 ? 42 : -1, own[2] = {rank, 100 + rank}, all[WORLD][2] = {{0}};
    double mean = rank;
    TD_TRY(td_fabric_all_reduce(f, sums, 2, TD_I64, TD_REDUCE_SUM));
    CHECK(sums[0] == 6 && sums[1] == 30);
    TD_TRY(td_fabric_all_reduce(f, most, 1, TD_I64, TD_REDUCE_MAX));
    CHECK(most[0] == 7);
    TD_TRY(td_fabric_all_reduce(f, &mean, 1, TD_F64, TD_REDUCE_MEAN));
    CHECK(mean == 1);
    TD_TRY(td_fabric_broadcast(f, &told, sizeof told, 2));
    CHECK(told == 42);
    TD_TRY(td_fabric_all_gather(f, own, sizeof own, all));
    for (int32_t i = 0; i < WORLD; i++) {
        CHECK(all[i][0] == i && all[i][1] == 100 + i);
    }
    return td_fabric_barrier(f, "all are here");
}

static td_status decide(struct td_fabric *f, int32_t rank) {
    static const struct {
        bool said[WORLD], all, is;
    } rows[] = {{{true, true, true}, true, true},
                {{true, false, true}, true, false},
                {{false, false, true}, false, true},
                {{false, false, false}, false, false}};
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        bool is = !rows[i].is;
        TD_TRY(td_fabric_reduce_boolean_decision(f, rows[i].said[rank], rows[i].all, &is));
        CHECK(is == rows[i].is);
    }
    return TD_OK;
}

// Rank 0 takes its time: a file, whole on the disk. The others look for the whole of it.
struct first {
    const char *path; // ends in '!': rank 0 fails
    bool is_first;
};

static td_status make_or_find(void *arg) {
    const struct first *of = arg;
    struct stat st;
    const bool fails = of->path[strlen(of->path) - 1] == '!';
    if (!of->is_first) {
        if (fails) return td_fs_write(of->path, "x", 1, 0600, 0); // nobody comes here
        CHECK(stat(of->path, &st) == 0 && st.st_size == BIG_BYTES);
        return TD_OK;
    }
    if (fails) return td_fail(TD_UNAVAILABLE, "there is no data today");
    TD_AUTO_FREE char *big = td_calloc(1, BIG_BYTES);
    if (!big) return td_fail_oom();
    return td_fs_write(of->path, big, BIG_BYTES, 0600, TD_FS_WRITE_DURABLE);
}

static td_status together(struct td_fabric *f, int32_t rank, const char *path) {
    TD_TRY(set_up(f, 1));
    TD_TRY(reduce_and_gather(f, rank));
    TD_TRY(decide(f, rank));
    struct first of = {path, rank == 0};
    return td_fabric_rank_zero_first(f, make_or_find, &of);
}

// args: a path.
static td_status meet(struct td_spawned *self, const void *args, size_t args_bytes) {
    struct td_fabric *f;
    (void)args_bytes;
    TD_TRY(td_fabric_create(&alone, &f));
    td_status s = td_fabric_finish(f, together(f, td_spawned_rank(self), args));
    td_fabric_destroy(f);
    return s;
}

static td_status meet_at(const char *scratch, const char *name, char path[PATH_BYTES]) {
    snprintf(path, PATH_BYTES, "%s/%s", scratch, name);
    return td_spawn(&(struct td_spawn_options){.function = "meet",
                                               .world_size = WORLD,
                                               .args = path,
                                               .args_bytes = PATH_BYTES,
                                               .timeout_ns = TD_TEST_WAIT_NS},
                    NULL);
}

static void test_ranks_reduce_gather_and_decide_together(void **state) {
    char path[PATH_BYTES];
    assert_ok(meet_at(*state, "data", path));
    assert_true(td_fs_exists(path));
}

static void test_failure_of_rank_0_is_that_of_all_when_it_comes_first(void **state) {
    char path[PATH_BYTES];
    td_status s = meet_at(*state, "data!", path);
    assert_non_null(s);
    assert_non_null(strstr(td_status_message(s), "rank 0: there is no data today"));
    td_status_free(s);
    assert_false(td_fs_exists(path));
}

static const struct td_spawn_function functions[] = {{"be_a_rank", be_a_rank},
                                                     {"meet", meet},
                                                     {"be_one_of", be_one_of},
                                                     {"train_a_model", train_a_model},
                                                     {"save_and_look", save_and_look}};

int main(int argc, char **argv) {
    td_status s = td_main(argc, argv, functions, TD_COUNTOF(functions));
    if (s) {
        fprintf(stderr, "%s\n", td_status_message(s));
        td_status_free(s);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_are_numbered_with_every_strategy),
        cmocka_unit_test(test_ranks_are_refused_when_the_strategy_serves_one),
        cmocka_unit_test(test_ranks_have_a_device_each_or_are_refused),
        cmocka_unit_test(test_ranks_are_refused_when_the_program_says_it_has_others),
        cmocka_unit_test_setup_teardown(test_parent_goes_on_with_the_weights_of_its_ranks,
                                        td_test_scratch_make, td_test_scratch_remove),
        cmocka_unit_test_setup_teardown(test_ranks_reduce_gather_and_decide_together,
                                        td_test_scratch_make, td_test_scratch_remove),
        cmocka_unit_test_setup_teardown(test_failure_of_rank_0_is_that_of_all_when_it_comes_first,
                                        td_test_scratch_make, td_test_scratch_remove),
        cmocka_unit_test_setup_teardown(test_file_of_weights_is_there_for_every_rank,
                                        td_test_scratch_make, td_test_scratch_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
