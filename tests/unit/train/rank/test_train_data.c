// Data of a rank: loaders that divide a split, and what is refused of a dataset that is a
// stranger's, and the type of numbers that one is asked for.

#include "accelerators/reference/reference.h"
#include "engine/train/rank/data/data.h"
#include "tests/unit/test.h"
#include "tests/unit/train/rank/train_rig.h"

enum { SAMPLES = 7 };

static struct {
    int64_t samples[TD_LOADERS_MAX];
    size_t n;
} answer; // of the dataset, when it is asked for its loaders

static td_status numbers_open(const struct td_dataset_config *config,
                              struct td_dataset **out_dataset) {
    (void)config;
    *out_dataset = (struct td_dataset *)&answer;
    return TD_OK;
}
static void numbers_close(struct td_dataset *d) {
    (void)d;
}
static size_t numbers_fields(struct td_dataset *d, struct td_field out_fields[8]) {
    (void)d;
    out_fields[0] =
        (struct td_field){.name = "x", .dtype = TD_I32, .sample_shape = {.n_dims = 1, .dim = {1}}};
    return 1;
}
static int64_t numbers_length(struct td_dataset *d, enum td_split split) {
    (void)d;
    return split == TD_SPLIT_PREDICT ? 0 : SAMPLES;
}
static td_status numbers_gather(struct td_dataset *d, enum td_split split, const int64_t *index,
                                int64_t n, void *const *out) {
    (void)d;
    (void)split;
    for (int64_t i = 0; i < n; i++) {
        ((int32_t *)out[0])[i] = (int32_t)index[i];
    }
    return TD_OK;
}
static size_t numbers_loaders(struct td_dataset *d, enum td_split split,
                              int64_t out_samples[TD_LOADERS_MAX]) {
    (void)d;
    (void)split;
    memcpy(out_samples, answer.samples, sizeof answer.samples);
    return answer.n;
}

static const struct td_dataset_ops numbers = {
    .struct_bytes = sizeof(struct td_dataset_ops),
    .open = numbers_open,
    .close = numbers_close,
    .fields = numbers_fields,
    .length = numbers_length,
    .gather = numbers_gather,
    .loaders = numbers_loaders,
};

static struct td_data *open_numbers(void) {
    const struct td_dataset_config config = {.struct_bytes = sizeof config};
    struct td_data *d;
    assert_ok(td_data_open(td_accelerator_reference.ops, NULL, &numbers, &config, 2, &d));
    return d;
}

static td_status divide(struct td_data *d, enum td_split split, int32_t rank, int32_t world) {
    const struct td_sampler_config config = {
        .n_samples = td_data_length(d, split), .world_size = world, .ends = TD_SAMPLER_UNPADDED};
    return td_data_divide(d, split, rank, &config);
}

static void test_loaders_give_each_sample_once_when_ranks_divide_them(void **state) {
    (void)state;
    answer.samples[0] = 4;
    answer.samples[1] = 3;
    answer.n = 2;
    int seen[2][SAMPLES] = {{0}};
    for (int32_t rank = 0; rank < 2; rank++) {
        TD_AUTO(td_data) *d = open_numbers();
        assert_ok(divide(d, TD_SPLIT_VAL, rank, 2));
        assert_int_equal(td_data_n_loaders(d, TD_SPLIT_VAL), 2);
        assert_int_equal(td_data_n_loaders(d, TD_SPLIT_TEST), 0); // not divided
        for (int i = 0; i < 2; i++) {
            const struct td_sampler *s = td_data_loader(d, TD_SPLIT_VAL, i);
            struct td_buffer inputs[TD_DATA_FIELDS];
            int64_t n;
            for (int64_t at = 0; td_sampler_batches(s, at, 2) > 0; at = td_sampler_next(s, at, 2)) {
                assert_ok(td_data_batch(d, TD_SPLIT_VAL, i, at, inputs, &n));
                for (int64_t k = 0; k < n; k++) {
                    seen[i][((const int32_t *)td_buffer_host(inputs[0]))[k]]++;
                }
            }
        }
    }
    for (int k = 0; k < SAMPLES; k++) {
        assert_int_equal(seen[0][k], k < 4);
        assert_int_equal(seen[1][k], k >= 4);
    }
}

static void test_only_what_is_evaluated_has_loaders(void **state) {
    (void)state;
    answer.n = 99; // nobody asks
    TD_AUTO(td_data) *d = open_numbers();
    assert_ok(divide(d, TD_SPLIT_TRAIN, 0, 1));
    assert_ok(divide(d, TD_SPLIT_PREDICT, 0, 1));
    assert_int_equal(td_data_n_loaders(d, TD_SPLIT_TRAIN), 1);
    assert_int_equal(td_data_n_loaders(d, TD_SPLIT_PREDICT), 0);
}

static void test_loaders_are_refused_when_they_do_not_make_the_split(void **state) {
    (void)state;
    static const struct {
        size_t n;
        int64_t samples[TD_LOADERS_MAX];
        const char *what;
    } cases[] = {{0, {0}, "has 0 loaders of split val; 1 to 8"},
                 {9, {1}, "has 9 loaders of split val; 1 to 8"},
                 {2, {4, 4}, "do not make its 7 samples"},
                 {2, {4, 2}, "do not make its 7 samples"},
                 {2, {7, 0}, "do not make its 7 samples"},
                 {2, {-1, 8}, "do not make its 7 samples"},
                 {2, {INT64_MAX, INT64_MAX}, "do not make its 7 samples"}};
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        TD_AUTO(td_data) *d = open_numbers();
        answer.n = cases[i].n;
        memcpy(answer.samples, cases[i].samples, sizeof answer.samples);
        td_status s = divide(d, TD_SPLIT_VAL, 0, 1);
        assert_int_equal(td_status_class(s), TD_CLASS_USER_CODE);
        assert_fails(s, TD_INVALID_ARGUMENT, cases[i].what);
        assert_int_equal(td_data_n_loaders(d, TD_SPLIT_VAL), 0);
    }
}

// ---- what a dataset is asked for -------------------------------------------------------------
// Its programs read f32, whatever it says of products: nothing makes them read f64.
static enum td_dtype asked;

static td_status asked_open(const struct td_dataset_config *config, struct td_dataset **out) {
    asked = config->floats;
    return ((const struct td_dataset_ops *)td_dataset_synthetic.ops)->open(config, out);
}

static td_status wide_facts(struct td_precision *p, struct td_precision_facts *out_facts) {
    const struct td_precision_ops *fp32 = td_precision_fp32.ops;
    TD_TRY(fp32->facts(p, out_facts));
    out_facts->compute = TD_F64;
    return TD_OK;
}

static void test_numbers_stay_f32_when_a_precision_rewrites_no_program(void **state) {
    struct run r;
    struct td_train_result result;
    struct td_precision_ops wide_ops = *(const struct td_precision_ops *)td_precision_fp32.ops;
    struct td_dataset_ops asked_ops = *(const struct td_dataset_ops *)td_dataset_synthetic.ops;
    struct td_plugin_desc wide = td_precision_fp32, data = td_dataset_synthetic;
    wide_ops.facts = wide_facts;
    wide.name = "wide";
    wide.ops = &wide_ops;
    asked_ops.open = asked_open;
    asked_ops.takes_floats = true;
    data.name = "asked";
    data.ops = &asked_ops;
    asked = TD_F64;
    prepare_run(&r, NULL, "single_device", *state);
    assert_null(wide_ops.rewrite);
    assert_ok(td_registry_add(r.registry, &wide));
    assert_ok(td_registry_add(r.registry, &data));
    r.config.precision = wide.name;
    r.config.data.name = data.name;
    assert_ok(td_train(&r.config, &r.io, &r.events, &result));
    assert_int_equal(asked, TD_F32);
    dispose(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loaders_give_each_sample_once_when_ranks_divide_them),
        cmocka_unit_test(test_only_what_is_evaluated_has_loaders),
        cmocka_unit_test(test_loaders_are_refused_when_they_do_not_make_the_split),
        test_in_scratch(test_numbers_stay_f32_when_a_precision_rewrites_no_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
