// Dataset `synthetic`: the same numbers for the same seed, splits that do not overlap, labels that
// a linear model can learn and chance cannot guess, and sizes that are refused.

#include "tests/unit/workloads/dataset_rig.h"

static const struct td_dataset_ops *synthetic_ops(void) {
    return td_dataset_synthetic.ops;
}

static td_status open_synthetic(const char *text, struct td_dataset **out_dataset) {
    return rig_open(&td_dataset_synthetic, "", text, NULL, out_dataset);
}

enum { N = 400, FEATURES = 8, CLASSES = 3 };

struct samples {
    float x[N][FEATURES];
    int32_t y[N];
};

static void gather(struct td_dataset *d, enum td_split split, int64_t n, struct samples *out) {
    int64_t index[N];
    for (int64_t i = 0; i < n; i++) {
        index[i] = i;
    }
    assert_ok(synthetic_ops()->gather(d, split, index, n, (void *[]){out->x, out->y}));
}

static void test_samples_repeat_when_the_seed_does(void **state) {
    (void)state;
    static struct samples a, b, eval;
    struct td_dataset *d;
    const char *const text[] = {"{\"samples\":400,\"features\":8,\"classes\":3,\"seed\":1}",
                                "{\"samples\":400,\"features\":8,\"classes\":3,\"seed\":2}"};
    assert_ok(open_synthetic(text[0], &d));
    struct td_field f[8];
    assert_int_equal(synthetic_ops()->fields(d, f), 2);
    assert_int_equal(f[0].sample_shape.dim[0], FEATURES);
    assert_int_equal(f[1].n_classes, CLASSES);
    assert_int_equal(synthetic_ops()->length(d, TD_SPLIT_TRAIN), N);
    assert_int_equal(synthetic_ops()->length(d, TD_SPLIT_VAL), N / 8);
    gather(d, TD_SPLIT_TRAIN, N, &a);
    gather(d, TD_SPLIT_TEST, N / 8, &eval);
    assert_memory_not_equal(a.x, eval.x, sizeof a.x[0]);
    const int64_t outside = N;
    assert_fails(synthetic_ops()->gather(d, TD_SPLIT_TRAIN, &outside, 1, (void *[]){b.x, b.y}),
                 TD_OUT_OF_RANGE, "sample 400 of 400 in split train");
    synthetic_ops()->close(d);
    for (int i = 0; i < 2; i++) {
        assert_ok(open_synthetic(text[i], &d));
        gather(d, TD_SPLIT_TRAIN, N, &b);
        assert_int_equal(memcmp(&a, &b, sizeof a) == 0, i == 0);
        synthetic_ops()->close(d);
    }
}

// The perceptron, on the training split; how many of the other split it then gets right.
static int perceptron(const struct samples *train, const struct samples *test, int n_test) {
    float w[CLASSES][FEATURES] = {{0}};
    for (int step = 0; step < 50 * N; step++) {
        const float *x = train->x[step % N];
        float best = -1e30f, score[CLASSES] = {0};
        int guess = 0;
        for (int c = 0; c < CLASSES; c++) {
            for (int f = 0; f < FEATURES; f++) {
                score[c] += w[c][f] * x[f];
            }
            if (score[c] > best) best = score[guess = c];
        }
        if (guess == train->y[step % N]) continue;
        for (int f = 0; f < FEATURES; f++) {
            w[train->y[step % N]][f] += x[f];
            w[guess][f] -= x[f];
        }
    }
    int right = 0;
    for (int i = 0; i < n_test; i++) {
        float best = -1e30f, score[CLASSES] = {0};
        int guess = 0;
        for (int c = 0; c < CLASSES; c++) {
            for (int f = 0; f < FEATURES; f++) {
                score[c] += w[c][f] * test->x[i][f];
            }
            if (score[c] > best) best = score[guess = c];
        }
        right += guess == test->y[i];
    }
    return right;
}

static void test_labels_can_be_learned_when_the_model_is_linear(void **state) {
    (void)state;
    static struct samples train, test;
    struct td_dataset *d;
    assert_ok(open_synthetic("{\"samples\":400,\"features\":8,\"classes\":3,\"seed\":7}", &d));
    gather(d, TD_SPLIT_TRAIN, N, &train);
    gather(d, TD_SPLIT_VAL, N / 8, &test);
    int of_class[CLASSES] = {0};
    for (int i = 0; i < N; i++) {
        of_class[train.y[i]]++;
    }
    for (int c = 0; c < CLASSES; c++) {
        assert_true(of_class[c] > N / 20);
    }
    assert_true(perceptron(&train, &test, N / 8) > N / 8 * 85 / 100);
    synthetic_ops()->close(d);
}

static void test_open_is_refused_when_a_knob_is_out_of_range(void **state) {
    (void)state;
    struct td_dataset *d = NULL;
    assert_fails(open_synthetic("{\"samples\":0}", &d), TD_INVALID_ARGUMENT, "data.samples");
    assert_fails(open_synthetic("{\"classes\":1}", &d), TD_INVALID_ARGUMENT, "data.classes");
    assert_fails(open_synthetic("{\"features\":0}", &d), TD_INVALID_ARGUMENT, "data.features");
    assert_fails(open_synthetic("{\"seed\":-1}", &d), TD_INVALID_ARGUMENT, "data.seed");
    assert_fails(open_synthetic("{\"samples\":2000000000,\"features\":1000}", &d),
                 TD_RESOURCE_EXHAUSTED, "at most");
    assert_null(d);
    synthetic_ops()->close(NULL);
}

static td_status open_once(void *arg) {
    (void)arg;
    struct td_dataset *d = NULL;
    TD_TRY(open_synthetic("{\"samples\":10}", &d));
    synthetic_ops()->close(d);
    return TD_OK;
}
static void test_open_fails_cleanly_when_any_allocation_fails(void **state) {
    (void)state;
    td_test_failing_allocations(open_once, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples_repeat_when_the_seed_does),
        cmocka_unit_test(test_labels_can_be_learned_when_the_model_is_linear),
        cmocka_unit_test(test_open_is_refused_when_a_knob_is_out_of_range),
        cmocka_unit_test(test_open_fails_cleanly_when_any_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
