// Random numbers against published vectors: Random123's known answers for Philox 4x32-10, the
// reference MT19937, and torch.randperm (tests/golden/randperm.txt).

#include <inttypes.h>

#include "lib/base/rng.h"
#include "tests/unit/test.h"

static void test_philox_equals_random123_when_known_input(void **state) {
    (void)state;
    static const struct {
        uint32_t counter[4];
        struct td_philox_key key;
        uint32_t answer[4];
    } rows[] = {
        {{0, 0, 0, 0}, {{0, 0}}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {{0xffffffff, 0xffffffff}},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {{0xa4093822, 0x299f31d0}},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        uint32_t out[4];
        td_philox4x32(rows[i].key, rows[i].counter, out);
        assert_memory_equal(out, rows[i].answer, sizeof out);
    }
}

static void test_uniform_fills_the_unit_interval_when_streams_differ(void **state) {
    (void)state;
    struct td_philox_key a = td_philox_key_of(1, "w"), b = td_philox_key_of(2, "w");
    struct td_philox_key c = td_philox_key_of(1, "v");
    assert_memory_not_equal(&a, &b, sizeof a);
    assert_memory_not_equal(&a, &c, sizeof a);
    double sum = 0;
    int below = 0, n = 100000;
    for (int i = 0; i < n; i++) {
        float u = td_philox_uniform(a, (uint64_t)i);
        assert_true(u >= 0.0f && u < 1.0f);
        sum += u;
        below += u < 0.25f;
    }
    assert_true(sum / n > 0.495 && sum / n < 0.505);
    assert_in_range(below, 24500, 25500);
    assert_true(td_philox_uniform(a, 5) != td_philox_uniform(a, 5 + (UINT64_C(1) << 40)));
}

static void test_philox_fill_equals_single_elements_when_it_starts_anywhere(void **state) {
    (void)state;
    struct td_philox_key key = td_philox_key_of(3, "fill");
    for (uint64_t first = 0; first < 6; first++) {
        for (size_t n = 0; n < 11; n++) {
            float v[12] = {0};
            td_philox_uniforms(key, first, n, v);
            for (size_t i = 0; i < n; i++) {
                assert_true(v[i] == td_philox_uniform(key, first + i));
            }
            assert_true(v[n] == 0);
        }
    }
}

// Long enough for blocks side by side, from borders and from between them.
static void test_philox_words_are_the_blocks_of_each_counter_when_many(void **state) {
    (void)state;
    enum { N = 150 };
    const uint64_t high = 0x123456789abcdef0u;
    const struct td_philox_key key = {{7, 11}};
    static const uint64_t firsts[] = {0, 5, 31, 32, 0xfffffff0u};
    for (size_t f = 0; f < TD_COUNTOF(firsts); f++) {
        uint32_t words[4 * N];
        td_philox_words(key, high, firsts[f], N, words);
        for (uint64_t i = 0; i < N; i++) {
            uint64_t b = firsts[f] + i;
            const uint32_t counter[4] = {(uint32_t)b, (uint32_t)(b >> 32), (uint32_t)high,
                                         (uint32_t)(high >> 32)};
            uint32_t want[4];
            td_philox4x32(key, counter, want);
            assert_memory_equal(words + 4 * i, want, sizeof want);
        }
        float uniforms[4 * N];
        td_philox_uniforms(key, 4 * firsts[f] + 3, 4 * N, uniforms);
        for (uint64_t i = 0; i < 4 * N; i++) {
            assert_true(uniforms[i] == td_philox_uniform(key, 4 * firsts[f] + 3 + i));
        }
    }
}

static void test_mt19937_equals_the_reference_when_seed_5489(void **state) {
    (void)state;
    static const uint32_t first[] = {3499211612u, 581869302u, 3890346734u, 3586334585u, 545404204u};
    struct td_mt19937 g;
    td_mt19937_init(&g, 5489);
    uint32_t v = 0;
    for (int i = 0; i < 10000; i++) {
        v = td_mt19937_u32(&g);
        if (i < 5) assert_int_equal(v, first[i]);
    }
    assert_int_equal(v, 4123659995u);
}

static uint64_t fnv1a(const int64_t *values, int64_t n) {
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (int64_t i = 0; i < n; i++) {
        for (int b = 0; b < 8; b++) {
            h = (h ^ ((uint64_t)values[i] >> (8 * b) & 0xff)) * UINT64_C(0x100000001b3);
        }
    }
    return h;
}

static void test_randperm_equals_torch_when_golden(void **state) {
    (void)state;
    static int64_t out[60000];
    FILE *f = fopen("tests/golden/randperm.txt", "r");
    char line[512];
    int cases = 0;
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        uint64_t seed, digest;
        int64_t n;
        int used;
        if (sscanf(line, "%" SCNu64 " %" SCNd64 " %" SCNx64 "%n", &seed, &n, &digest, &used) != 3) {
            continue;
        }
        struct td_randperm p;
        td_randperm_begin(&p, seed, n, out);
        for (int64_t i = 1; i < n; i += i) { // in pieces, of which one is asked for again
            td_randperm_extend(&p, i);
        }
        td_randperm_extend(&p, n / 3);
        td_randperm_extend(&p, n);
        char *rest = line + used;
        for (int64_t i = 0; i < TD_MIN(n, 16); i++) {
            assert_int_equal(strtoll(rest, &rest, 10), out[i]);
        }
        assert_true(fnv1a(out, n) == digest);
        cases++;
    }
    fclose(f);
    assert_int_equal(cases, 72);
}

static void test_uuid_has_its_form_when_made(void **state) {
    (void)state;
    char a[37], b[37];
    td_uuid4(a);
    td_uuid4(b);
    assert_string_not_equal(a, b);
    assert_int_equal(strlen(a), 36);
    for (int i = 0; i < 36; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        assert_true(dash ? a[i] == '-' : strchr("0123456789abcdef", a[i]) != NULL);
    }
    assert_int_equal(a[14], '4');
    assert_non_null(strchr("89ab", a[19]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox_equals_random123_when_known_input),
        cmocka_unit_test(test_uniform_fills_the_unit_interval_when_streams_differ),
        cmocka_unit_test(test_philox_fill_equals_single_elements_when_it_starts_anywhere),
        cmocka_unit_test(test_philox_words_are_the_blocks_of_each_counter_when_many),
        cmocka_unit_test(test_mt19937_equals_the_reference_when_seed_5489),
        cmocka_unit_test(test_randperm_equals_torch_when_golden),
        cmocka_unit_test(test_uuid_has_its_form_when_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
