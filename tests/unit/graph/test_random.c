// Random numbers inside a step: a mask belongs to the global sample, whoever computes it.

#include "traind/random.h"

#include <math.h>

#include "tests/unit/test.h"

enum { N = 1000 };

static void keep_of(uint64_t seed, int64_t step, int64_t sample, int32_t stride, int64_t row,
                    const char *op, uint8_t out[N]) {
    uint32_t words[TD_RANDOM_WORDS] = {0};
    td_random_set(words, seed, step, sample, stride);
    td_random_keep(words, td_stream_of(op), 0.25, row, N, out);
}

static void test_mask_follows_the_global_sample_when_the_world_changes(void **state) {
    (void)state;
    uint8_t alone[N], shared[N];
    for (int64_t sample = 0; sample < 8; sample++) {
        keep_of(1, 2, 0, 1, sample, "drop", alone);
        for (int32_t world = 2; world <= 4; world++) { // as the sampler deals them
            keep_of(1, 2, sample % world, world, sample / world, "drop", shared);
            assert_memory_equal(alone, shared, N);
        }
        keep_of(1, 2, sample, 7, 0, "drop", shared); // a later micro-batch
        assert_memory_equal(alone, shared, N);
    }
}

static void test_mask_differs_when_any_part_of_its_key_does(void **state) {
    (void)state;
    uint8_t mask[6][N];
    keep_of(1, 2, 3, 1, 0, "drop", mask[0]);
    keep_of(9, 2, 3, 1, 0, "drop", mask[1]);
    keep_of(1, 9, 3, 1, 0, "drop", mask[2]);
    keep_of(1, 2, 9, 1, 0, "drop", mask[3]);
    keep_of(1, 2, 3, 1, 0, "other", mask[4]);
    keep_of(1, 2, 3 + (INT64_C(1) << 32), 1, 0, "drop", mask[5]);
    for (int a = 0; a < 6; a++) {
        for (int b = 0; b < a; b++) {
            int same = 0;
            for (int i = 0; i < N; i++) {
                same += mask[a][i] == mask[b][i];
            }
            assert_in_range(same, 525, 725); // 62.5 % of unrelated masks
        }
    }
}

static void test_mask_of_a_part_is_that_of_the_whole_when_it_begins_inside(void **state) {
    (void)state;
    uint8_t whole[N], part[N];
    uint32_t words[TD_RANDOM_WORDS] = {0};
    td_random_set(words, 1, 2, 3, 4);
    td_random_keep(words, 5, 0.4, 6, N, whole);
    for (int64_t first = 0; first < N; first += 4) {
        td_random_keep_from(words, 5, 0.4, 6, first, N - first, part);
        assert_memory_equal(whole + first, part, (size_t)(N - first));
    }
}

static void test_share_of_dropped_is_what_was_asked_when_counted(void **state) {
    (void)state;
    static uint8_t keep[1 << 16];
    uint32_t words[TD_RANDOM_WORDS] = {0};
    const double drops[] = {0, 0.1, 0.5, 0.9};
    td_random_set(words, 5, 6, 7, 1);
    for (size_t d = 0; d < TD_COUNTOF(drops); d++) {
        int dropped = 0;
        td_random_keep(words, 1, drops[d], 0, sizeof keep, keep);
        for (size_t i = 0; i < sizeof keep; i++) {
            dropped += !keep[i];
        }
        double off = (double)dropped / (double)sizeof keep - drops[d];
        assert_true(off * off < 1e-4 && (drops[d] > 0 || !dropped));
    }
}

static void bits_of(uint64_t seed, int64_t step, const char *parameter, int64_t first, int64_t n,
                    uint16_t *out) {
    uint32_t words[TD_RANDOM_WORDS] = {0};
    td_random_set(words, seed, step, 17, 3); // no sample's: every rank rounds alike
    td_random_bits16(words, td_stream_of(parameter), first, n, out);
}

// What rounds bf16 weights by chance: each step draws again, or small updates would always be lost.
static void test_rounding_bits_differ_when_any_part_of_their_key_does(void **state) {
    (void)state;
    uint16_t bits[4][N], part[N];
    bits_of(1, 2, "fc1.weight", 0, N, bits[0]);
    bits_of(9, 2, "fc1.weight", 0, N, bits[1]);
    bits_of(1, 3, "fc1.weight", 0, N, bits[2]);
    bits_of(1, 2, "fc2.weight", 0, N, bits[3]);
    for (int a = 0; a < 4; a++) {
        double sum = 0;
        for (int i = 0; i < N; i++) {
            sum += bits[a][i];
        }
        assert_true(fabs(sum / (int)N - 32768) < 3000); // five deviations of the mean
        for (int b = 0; b < a; b++) {
            int same = 0;
            for (int i = 0; i < N; i++) {
                same += bits[a][i] == bits[b][i];
            }
            assert_in_range(same, 0, 4);
        }
    }
    for (int64_t first = 0; first < N; first += 37) { // as threads share a tensor
        bits_of(1, 2, "fc1.weight", first, N - first, part);
        assert_memory_equal(bits[0] + first, part, (size_t)(N - first) * sizeof *part);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounding_bits_differ_when_any_part_of_their_key_does),
        cmocka_unit_test(test_mask_follows_the_global_sample_when_the_world_changes),
        cmocka_unit_test(test_mask_differs_when_any_part_of_its_key_does),
        cmocka_unit_test(test_mask_of_a_part_is_that_of_the_whole_when_it_begins_inside),
        cmocka_unit_test(test_share_of_dropped_is_what_was_asked_when_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
