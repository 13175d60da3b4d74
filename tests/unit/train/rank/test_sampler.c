// The sampler against torch's DistributedSampler, index for index (golden/sampler.txt, made by
// tests/tools/make_golden.py), and the properties torch does not give: batches at any
// offset, resume with another world, unpadded evaluation.

#include "tests/unit/test.h"

#include "engine/train/rank/data/sampler.h"

#define GOLDEN "tests/golden/sampler.txt"

enum { SAMPLES_MAX = 300 }; // of the unpadded ones

static struct td_sampler *make(int64_t n, int32_t world, uint64_t seed, bool shuffle,
                               enum td_sampler_ends ends) {
    struct td_sampler_config config = {
        .n_samples = n, .world_size = world, .seed = seed, .shuffle = shuffle, .ends = ends};
    struct td_sampler *s = NULL;
    td_status st = td_sampler_create(&config, &s);
    if (st) fail_msg("%s", td_status_message(st));
    return s;
}

static uint64_t fnv1a(const int64_t *v, int64_t n) {
    uint64_t h = 0xcbf29ce484222325u;
    for (int64_t i = 0; i < n; i++) {
        for (int b = 0; b < 8; b++) {
            h = (h ^ ((uint64_t)v[i] >> (8 * b) & 0xff)) * 0x100000001b3u;
        }
    }
    return h;
}

// One line of the golden file: "n world shuffle drop_last seed epoch rank count digest first...".
static void check_golden_line(char *line) {
    char *rest = line;
    uint64_t v[8];
    for (int i = 0; i < 8; i++) {
        v[i] = strtoull(rest, &rest, 10);
    }
    uint64_t digest = strtoull(rest, &rest, 16);
    struct td_sampler *s = make((int64_t)v[0], (int32_t)v[1], v[4], v[2] != 0,
                                v[3] ? TD_SAMPLER_DROP_LAST : TD_SAMPLER_PAD);
    assert_null(td_sampler_set_epoch(s, (int64_t)v[5]));
    int64_t count = td_sampler_left(s, 0, (int32_t)v[6]);
    if (count != (int64_t)v[7]) fail_msg("%lld indices for: %s", (long long)count, line);
    int64_t *idx = calloc((size_t)count + 1, sizeof *idx);
    assert_int_equal(td_sampler_indices(s, 0, (int32_t)v[6], count + 7, idx), count);
    for (int64_t i = 0; *rest == ' '; i++) {
        if (idx[i] != strtoll(rest, &rest, 10)) fail_msg("index %lld of: %s", (long long)i, line);
    }
    if (fnv1a(idx, count) != digest) fail_msg("digest of: %s", line);
    free(idx);
    td_sampler_destroy(s);
}

// Contract 2: the sampler's order is the reference's
static void test_indices_equal_torch_when_shuffled_padded_or_cut(void **state) {
    (void)state;
    FILE *f = fopen(GOLDEN, "r");
    if (!f) fail_msg("open '%s'; tests run at the root of the tree", GOLDEN);
    char line[4096];
    int n_lines = 0;
    while (fgets(line, sizeof line, f)) {
        if (line[0] == '#') continue;
        check_golden_line(line);
        n_lines++;
    }
    fclose(f);
    assert_int_equal(n_lines, 1308);
}

// Batches one after another give the same as one long batch, whatever the batch size.
static void test_batches_follow_each_other_when_taken_by_offset(void **state) {
    (void)state;
    for (int32_t world = 1; world <= 5; world++) {
        for (int ends = TD_SAMPLER_PAD; ends <= TD_SAMPLER_UNPADDED; ends++) {
            for (int64_t batch = 1; batch <= 11; batch += 5) {
                struct td_sampler *s = make(103, world, 3, true, (enum td_sampler_ends)ends);
                for (int32_t r = 0; r < world; r++) {
                    int64_t whole[128], part[128], got = 0, offset = 0, steps = 0;
                    int64_t n = td_sampler_indices(s, 0, r, 128, whole);
                    for (; steps < td_sampler_batches(s, 0, batch); steps++) {
                        assert_int_equal(td_sampler_batches(s, offset, batch),
                                         td_sampler_batches(s, 0, batch) - steps);
                        got += td_sampler_indices(s, offset, r, batch, part + got);
                        offset = td_sampler_next(s, offset, batch);
                    }
                    assert_int_equal(got, n);
                    assert_memory_equal(part, whole, (size_t)n * sizeof *part);
                    assert_int_equal(offset, td_sampler_total(s, 0));
                    assert_int_equal(td_sampler_left(s, offset, r), 0);
                }
                td_sampler_destroy(s);
            }
        }
    }
}

// The counts of all ranks, unpadded: each sample is one rank's, and no rank has two more than
// another.
static void expect_unpadded(int64_t n_samples, int32_t world, int64_t consumed) {
    struct td_sampler *s = make(n_samples, world, 0, false, TD_SAMPLER_UNPADDED);
    int seen[SAMPLES_MAX] = {0};
    int64_t least = n_samples, most = 0;
    for (int32_t r = 0; r < world; r++) {
        int64_t idx[SAMPLES_MAX], n = td_sampler_indices(s, consumed, r, SAMPLES_MAX, idx);
        least = TD_MIN(least, n);
        most = TD_MAX(most, n);
        for (int64_t i = 0; i < n; i++) {
            seen[idx[i]]++;
        }
    }
    assert_true(most - least <= 1);
    for (int64_t i = 0; i < n_samples; i++) {
        assert_int_equal(seen[i], i >= consumed);
    }
    td_sampler_destroy(s);
}

// Contract 3: unpadded counts of ranks differ by one at most
static void test_counts_differ_by_one_at_most_when_unpadded(void **state) {
    (void)state;
    for (int64_t n = 1; n <= SAMPLES_MAX; n += n < 10 ? 1 : 31) {
        for (int32_t world = 1; world <= 9; world++) {
            expect_unpadded(n, world, 0);
            expect_unpadded(n, world, n / 2); // the rest of an epoch
        }
    }
}

// A resume with another world goes on where the first one stopped: nothing lost, nothing twice.
static void test_rest_of_epoch_comes_once_when_world_changes(void **state) {
    (void)state;
    struct td_sampler *two = make(103, 2, 9, true, TD_SAMPLER_PAD);
    struct td_sampler *three = make(103, 3, 9, true, TD_SAMPLER_PAD);
    assert_null(td_sampler_set_epoch(two, 4));
    assert_null(td_sampler_set_epoch(three, 4));
    int seen[103] = {0};
    int64_t idx[64], offset = 0;
    for (int step = 0; step < 4; step++, offset = td_sampler_next(two, offset, 5)) {
        for (int32_t r = 0; r < 2; r++) {
            int64_t n = td_sampler_indices(two, offset, r, 5, idx);
            for (int64_t i = 0; i < n; i++) {
                seen[idx[i]]++;
            }
        }
    }
    assert_int_equal(offset, 40);
    for (; td_sampler_batches(three, offset, 5) > 0; offset = td_sampler_next(three, offset, 5)) {
        for (int32_t r = 0; r < 3; r++) {
            int64_t n = td_sampler_indices(three, offset, r, 5, idx);
            for (int64_t i = 0; i < n; i++) {
                seen[idx[i]]++;
            }
        }
    }
    for (int i = 0; i < 103; i++) {
        assert_int_equal(seen[i], 1); // 63 left: a multiple of three
    }
    td_sampler_destroy(two);
    td_sampler_destroy(three);
}

static void test_epoch_is_empty_when_there_are_no_samples(void **state) {
    (void)state;
    int64_t idx[4];
    for (int ends = TD_SAMPLER_PAD; ends <= TD_SAMPLER_UNPADDED; ends++) {
        struct td_sampler *s = make(0, 3, 0, true, (enum td_sampler_ends)ends);
        assert_int_equal(td_sampler_batches(s, 0, 4), 0);
        assert_int_equal(td_sampler_indices(s, 0, 2, 4, idx), 0);
        assert_int_equal(td_sampler_next(s, 0, 4), 0);
        td_sampler_destroy(s);
    }
    struct td_sampler *few = make(2, 3, 0, false, TD_SAMPLER_DROP_LAST);
    assert_int_equal(td_sampler_batches(few, 0, 4), 0); // fewer samples than ranks, all cut
    td_sampler_destroy(few);
}

static void test_create_fails_when_the_configuration_makes_no_sense(void **state) {
    (void)state;
    const struct td_sampler_config bad[] = {
        {.n_samples = -1, .world_size = 1},
        {.n_samples = TD_SAMPLER_MAX_SAMPLES + 1, .world_size = 1},
        {.n_samples = 1, .world_size = 0},
    };
    for (size_t i = 0; i < TD_COUNTOF(bad); i++) {
        struct td_sampler *s = NULL;
        td_status st = td_sampler_create(&bad[i], &s);
        assert_int_equal(td_status_code(st), TD_INVALID_ARGUMENT);
        assert_null(s);
        td_status_free(st);
    }
}

static struct td_sampler *make_keyed(int64_t n, int32_t world, uint64_t seed, bool plans) {
    const struct td_sampler_config config = {.n_samples = n,
                                             .world_size = world,
                                             .seed = seed,
                                             .shuffle = true,
                                             .ends = TD_SAMPLER_UNPADDED,
                                             .keyed = true,
                                             .plans = plans};
    struct td_sampler *s = NULL;
    assert_int_equal(td_sampler_order_bytes(&config), 0);
    td_status st = td_sampler_create(&config, &s);
    if (st) fail_msg("%s", td_status_message(st));
    return s;
}

// The ranks' batches of an epoch, one after the other; how many are where they are without order.
static int64_t play_keyed(int64_t n, int32_t world, uint64_t seed, int64_t epoch, int64_t *out) {
    struct td_sampler *s = make_keyed(n, world, seed, false);
    int64_t at = 0, same = 0;
    assert_ok(td_sampler_set_epoch(s, epoch));
    for (int64_t offset = 0; offset < n; offset = td_sampler_next(s, offset, 7)) {
        int64_t idx[7];
        for (int32_t r = 0; r < world; r++) {
            const int64_t got = td_sampler_indices(s, offset, r, 7, idx);
            for (int64_t i = 0; i < got; i++) {
                same += idx[i] == at;
                out[at++] = idx[i];
            }
        }
    }
    assert_int_equal(at, n);
    td_sampler_destroy(s);
    return same;
}

static void test_keyed_order_has_each_sample_once_and_is_another_in_each_epoch(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 16, 17, 63, 64, 65, 1000, 4097};
    static int64_t one[4097], two[4097];
    static bool seen[4097];
    for (size_t k = 0; k < TD_COUNTOF(sizes); k++) {
        const int64_t n = sizes[k];
        memset(seen, 0, sizeof seen);
        const int64_t same = play_keyed(n, 3, 5, 0, one);
        for (int64_t i = 0; i < n; i++) {
            assert_true(one[i] >= 0 && one[i] < n && !seen[one[i]]);
            seen[one[i]] = true;
        }
        play_keyed(n, 3, 5, 1, two);
        if (n < 1000) continue;
        int64_t equal = 0;
        for (int64_t i = 0; i < n; i++) {
            equal += one[i] == two[i];
        }
        assert_true(same < 10 && equal < 10); // one is expected of each
    }
}

static void test_keyed_order_of_all_that_there_may_be_takes_no_time(void **state) {
    (void)state;
    struct td_sampler *s = make_keyed(TD_SAMPLER_MAX_SAMPLES, 1, 3, false);
    int64_t idx[64];
    assert_int_equal(td_sampler_indices(s, TD_SAMPLER_MAX_SAMPLES - 64, 0, 64, idx), 64);
    for (int i = 0; i < 64; i++) {
        assert_true(idx[i] >= 0 && idx[i] < TD_SAMPLER_MAX_SAMPLES);
    }
    td_sampler_destroy(s);
}

// 16 GiB of an order that nobody asks for.
static void test_sampler_of_a_plan_knows_its_batches_and_stores_no_order(void **state) {
    (void)state;
    const struct td_sampler_config config = {
        .n_samples = TD_SAMPLER_MAX_SAMPLES, .world_size = 2, .shuffle = true, .plans = true};
    struct td_sampler *s = NULL;
    assert_int_equal(td_sampler_order_bytes(&config), TD_SAMPLER_MAX_SAMPLES * 8);
    assert_ok(td_sampler_create(&config, &s));
    assert_int_equal(td_sampler_batches(s, 0, 1), TD_SAMPLER_MAX_SAMPLES / 2);
    assert_ok(td_sampler_set_epoch(s, 1));
    td_sampler_destroy(s);
}

static td_status create_once(void *arg) {
    struct td_sampler *s = NULL;
    TD_TRY(td_sampler_create(arg, &s));
    td_sampler_destroy(s);
    return TD_OK;
}
static void test_create_fails_cleanly_when_any_allocation_fails(void **state) {
    (void)state;
    struct td_sampler_config config = {.n_samples = 10, .world_size = 2, .shuffle = true};
    td_test_failing_allocations(create_once, &config);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_indices_equal_torch_when_shuffled_padded_or_cut),
        cmocka_unit_test(test_batches_follow_each_other_when_taken_by_offset),
        cmocka_unit_test(test_counts_differ_by_one_at_most_when_unpadded),
        cmocka_unit_test(test_rest_of_epoch_comes_once_when_world_changes),
        cmocka_unit_test(test_epoch_is_empty_when_there_are_no_samples),
        cmocka_unit_test(test_keyed_order_has_each_sample_once_and_is_another_in_each_epoch),
        cmocka_unit_test(test_keyed_order_of_all_that_there_may_be_takes_no_time),
        cmocka_unit_test(test_sampler_of_a_plan_knows_its_batches_and_stores_no_order),
        cmocka_unit_test(test_create_fails_when_the_configuration_makes_no_sense),
        cmocka_unit_test(test_create_fails_cleanly_when_any_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
