// Loops that are compiled once per CPU level give the same bits at every one. Each table is
// compared with the generic one. What is made of them (initial weights, masks, rounding bits, sums
// of gradients, conversions) is compared with digests that hold for every machine, in a process of
// each level.

#include <errno.h>
#include <math.h>
#include <sys/wait.h>

#include "collectives/reduce.h"
#include "collectives/reduce_loops.h"
#include "engine/train/rank/state/init.h"
#include "engine/train/rank/state/init_loops.h"
#include "lib/base/digest.h"
#include "lib/base/floats/floats.h"
#include "lib/base/floats/half.h"
#include "lib/base/floats/half_loops.h"
#include "lib/base/machine/proc.h"
#include "lib/base/rng.h"
#include "lib/base/rng_loops.h"
#include "tests/unit/test.h"
#include "traind/random.h"
#include "workloads/datasets/scan_loops.h"

// ---- tables -------------------------------------------------------------------------------------
struct tables {
    const struct td_rng_loops *rng;
    const struct td_half_loops *half;
    const struct td_init_loops *init;
    const struct td_reduce_loops *reduce;
    const struct td_scan_loops *scan;
};
#define TABLES(level)                                                                              \
    {                                                                                              \
        &td_rng_loops_##level, &td_half_loops_##level, &td_init_loops_##level,                     \
            &td_reduce_loops_##level, &td_scan_loops_##level                                       \
    }
static const struct tables tables[] = {
    TABLES(generic),
#if defined(__x86_64__)
    TABLES(v3),
    TABLES(v4),
#endif
};

// Tables that this machine can run.
static size_t n_tables(void) {
    return TD_MIN(TD_COUNTOF(tables), (size_t)td_cpu_code_of(td_cpu_level_of_machine(NULL)) + 1);
}

enum { N = 4096 + 37 };
static uint32_t words[N];    // any bits
static float numbers[3 * N]; // of [0, 1)

static int make_inputs(void **state) {
    (void)state;
    const struct td_philox_key key = {{1, 2}};
    for (uint32_t i = 0; i < N; i++) {
        const uint32_t counter[4] = {i, 9};
        uint32_t block[4];
        td_philox4x32(key, counter, block);
        words[i] = block[0];
        for (int j = 0; j < 3; j++) {
            numbers[3 * i + (uint32_t)j] = (float)(block[1 + j] >> 8) * 0x1p-24f;
        }
    }
    return 0;
}

static void test_random_numbers_are_the_same_bits_at_every_level(void **state) {
    (void)state;
    const struct td_philox_key key = {{0x89abcdefu, 77}};
    static uint32_t want_w[4 * TD_PHILOX_BLOCKS], w[4 * TD_PHILOX_BLOCKS];
    static float want_f[N], f[N];
    static uint16_t want_h[2 * N], h[2 * N];
    static uint8_t want_b[N], b[N];
    const uint64_t first = (UINT64_C(5) << 32) - TD_PHILOX_BLOCKS;
    for (size_t t = 0; t < n_tables(); t++) {
        const struct td_rng_loops *l = tables[t].rng;
        l->blocks(key.k, UINT64_C(1) << 40 | 3, first, w);
        l->uniforms(words, N, f);
        l->halves(words, N, h);
        l->at_least(words, N, 5000000, b);
        if (t == 0) {
            memcpy(want_w, w, sizeof w);
            memcpy(want_f, f, sizeof f);
            memcpy(want_h, h, sizeof h);
            memcpy(want_b, b, sizeof b);
        }
        assert_memory_equal(w, want_w, sizeof w);
        assert_memory_equal(f, want_f, sizeof f);
        assert_memory_equal(h, want_h, sizeof h);
        assert_memory_equal(b, want_b, sizeof b);
    }
    for (uint32_t j = 0; j < TD_PHILOX_BLOCKS; j++) { // and those of the plain generator
        const uint32_t counter[4] = {(uint32_t)first + j, (uint32_t)(first >> 32), 3, 256};
        uint32_t block[4];
        td_philox4x32(key, counter, block);
        assert_memory_equal(want_w + 4 * j, block, sizeof block);
    }
    for (int i = 0; i < N; i++) {
        assert_true(want_f[i] == (float)(words[i] >> 8) * 0x1p-24f);
        assert_int_equal(want_h[2 * i] | (uint32_t)want_h[2 * i + 1] << 16, words[i]);
        assert_int_equal(want_b[i], words[i] >> 8 >= 5000000);
    }
}

static void test_initial_values_are_the_same_bits_at_every_level(void **state) {
    (void)state;
    enum { M = N / TD_INIT_NORMALS * TD_INIT_NORMALS };
    static float want[M], v[M], want_r[N], r[N];
    for (size_t t = 0; t < n_tables(); t++) {
        const struct td_init_loops *l = tables[t].init;
        for (int i = 0; i < M; i += TD_INIT_NORMALS) {
            l->normals(numbers + 2 * i, 0.125f, 0.02f, v + i);
        }
        memcpy(r, numbers, sizeof r);
        l->to_range(-0.1, 0.3, 0.29f, N, r);
        if (t == 0) memcpy(want, v, sizeof v);
        if (t == 0) memcpy(want_r, r, sizeof r);
        assert_memory_equal(v, want, sizeof v);
        assert_memory_equal(r, want_r, sizeof r);
    }
}

// A block of accumulators after everything that is done with blocks, and a pair of rows.
struct sums {
    float acc[TD_REDUCE_BLOCK], a[N], b[N];
    uint16_t bf16[TD_REDUCE_BLOCK], f16[TD_REDUCE_BLOCK];
};

static void sums_of(const struct td_reduce_loops *l, const uint16_t *half, struct sums *s) {
    memcpy(s->acc, numbers, sizeof s->acc);
    l->add_f32(s->acc, numbers + 999);
    l->multiply(s->acc, 0.3f);
    l->add_bf16(s->acc, half + 1);
    l->divide(s->acc, 3);
    l->add_f16(s->acc, half + 77);
    l->narrow_bf16(s->acc, s->bf16);
    l->narrow_f16(s->acc, s->f16);
    memcpy(s->a, numbers, sizeof s->a);
    memcpy(s->b, numbers + N, sizeof s->b);
    l->pair_f32(s->a, s->b, N, 0.7f);
}

static void test_sums_are_the_same_bits_at_every_level(void **state) {
    (void)state;
    static struct sums want, s;
    static uint16_t half[N];
    for (int i = 0; i < N; i++) {
        half[i] = (uint16_t)(words[i] & ~0x6000u); // small, subnormals among them, finite
    }
    for (size_t t = 0; t < n_tables(); t++) {
        sums_of(tables[t].reduce, half, &s);
        if (t == 0) want = s;
        assert_memory_equal(&s, &want, sizeof s);
    }
    assert_true(want.a[N - 1] == (numbers[N - 1] + numbers[2 * N - 1]) * 0.7f);
    for (int i = 0; i < TD_REDUCE_BLOCK; i++) {
        assert_int_equal(want.bf16[i], td_bf16_of_f32(want.acc[i]));
        assert_int_equal(want.f16[i], td_f16_of_f32(want.acc[i]));
    }
}

// All 16-bit patterns, and fp32 of every kind, from an odd address.
static void test_conversions_are_the_same_bits_at_every_level(void **state) {
    (void)state;
    enum { ALL = 1 << 16 };
    static char x16[2 * ALL + 1], x32[4 * N + 1], y[4 * ALL], want[4][4 * ALL];
    for (uint32_t i = 0; i < ALL; i++) {
        memcpy(x16 + 1 + 2 * i, &(uint16_t){(uint16_t)i}, 2);
    }
    memcpy(x32 + 1, words, sizeof words);
    for (size_t t = 0; t < n_tables(); t++) {
        const struct td_half_loops *l = tables[t].half;
        void (*const convert[])(const void *, int64_t, void *) = {l->bf16_of_f32, l->f16_of_f32,
                                                                  l->f32_of_bf16, l->f32_of_f16};
        for (size_t c = 0; c < TD_COUNTOF(convert); c++) {
            memset(y, 0, sizeof y);
            convert[c](c < 2 ? x32 + 1 : x16 + 1, c < 2 ? N : ALL, y);
            if (t == 0) memcpy(want[c], y, sizeof y);
            assert_memory_equal(y, want[c], sizeof y);
        }
    }
    for (uint32_t i = 0; i < ALL; i++) {
        float f = td_f32_of_f16((uint16_t)i);
        assert_memory_equal(want[3] + 4 * i, &f, sizeof f);
    }
}

static void test_scans_answer_alike_at_every_level(void **state) {
    (void)state;
    static float x[N];
    static uint16_t tokens[N];
    uint32_t most = 0, most16 = 0;
    for (int i = 0; i < N; i++) {
        tokens[i] = (uint16_t)words[i];
        most = TD_MAX(most, words[i]);
        most16 = TD_MAX(most16, (uint32_t)tokens[i]);
    }
    for (size_t t = 0; t < n_tables(); t++) {
        const struct td_scan_loops *l = tables[t].scan;
        assert_int_equal(l->most_u32(words, N), most);
        assert_int_equal(l->most_u16(tokens, N), most16);
        const float odd[] = {-0.25f, 1.5f, NAN, INFINITY, -INFINITY};
        for (int at = 0; at < N; at += 411) {
            for (size_t o = 0; o < TD_COUNTOF(odd); o++) {
                memcpy(x, numbers, sizeof x);
                assert_true(l->all_within(x, N, 0, 1));
                x[at] = odd[o];
                assert_false(l->all_within(x, N, 0, 1));
                bool finite = tables[t].half->finite_32(x, N, 0x7f800000u);
                assert_int_equal(finite, o < 2);
            }
        }
        const uint16_t inf = 0xff80;
        assert_true(tables[t].half->finite_16(tokens, 1, 0x7f80) ==
                    ((tokens[0] & 0x7f80) != 0x7f80));
        assert_false(tables[t].half->finite_16(&inf, 1, 0x7f80));
    }
}

// ---- what is made of them -----------------------------------------------------------------------
enum product { NORMAL, UNIFORM, MASK, ROUNDING, SUMS, HALVES, N_PRODUCTS };

static void digest_init(struct td_digest *d, enum td_init_kind kind, double a, double b) {
    static float v[20011];
    static const int64_t lengths[] = {1, 63, 64, 65, 20011};
    for (size_t i = 0; i < TD_COUNTOF(lengths); i++) {
        const struct td_state_info info = {.name = "h.0.attn.c_attn.weight",
                                           .shape = {.n_dims = 1, .dim = {lengths[i]}},
                                           .init = {kind, a, b}};
        assert_ok(td_init_fill(7 + i, &info, v));
        td_digest_update(d, v, (size_t)lengths[i] * sizeof *v);
    }
}

static void digest_step(struct td_digest *d, enum product p) {
    static uint8_t keep[5001];
    static uint16_t bits[5001];
    uint32_t key[TD_RANDOM_WORDS] = {0};
    td_random_set(key, 3, 1000, 11, 2);
    for (int64_t i = 0; i < 9; i++) {
        td_random_keep(key, 4, 0.1 * (double)i, i, sizeof keep, keep);
        td_random_bits16(key, 4, 333 * i, (int64_t)TD_COUNTOF(bits), bits);
        if (p == MASK) td_digest_update(d, keep, sizeof keep);
        if (p == ROUNDING) td_digest_update(d, bits, sizeof bits);
    }
}

static void digest_sums(struct td_digest *d) {
    enum { WORLD = 5, M = 3 * TD_REDUCE_BLOCK + 5 };
    static const enum td_dtype types[] = {TD_F32, TD_BF16, TD_F16};
    static float rows[WORLD][M];
    void *parts[WORLD];
    for (int32_t world = 2; world <= WORLD; world++) {
        for (size_t t = 0; t < TD_COUNTOF(types); t++) {
            for (int32_t r = 0; r < world; r++) {
                parts[r] = rows[r];
                td_float_convert(TD_F32, numbers + 1000 * r, M, types[t], parts[r]);
            }
            td_reduce(parts, world, 3, M, types[t], world % 2 ? TD_REDUCE_MEAN : TD_REDUCE_SUM);
            td_digest_update(d, parts[1], M * td_dtype_bytes(types[t]));
        }
    }
}

static void digest_halves(struct td_digest *d) {
    static const enum td_dtype types[] = {TD_F32, TD_BF16, TD_F16, TD_F64};
    static char y[8 * N], back[8 * N];
    for (size_t t = 0; t < TD_COUNTOF(types); t++) {
        td_float_convert(TD_F32, numbers, N, types[t], y);
        td_float_convert(types[t], y, N, TD_F32, back);
        td_digest_update(d, y, N * td_dtype_bytes(types[t]));
        td_digest_update(d, back, N * sizeof(float));
    }
}

static void digest_of(enum product p, char hex[TD_DIGEST_HEX]) {
    TD_AUTO(td_digest) *d = NULL;
    assert_ok(td_digest_create(&d));
    if (p == NORMAL) digest_init(d, TD_INIT_NORMAL, 0, 0.02);
    if (p == UNIFORM) digest_init(d, TD_INIT_UNIFORM, -0.036, 0.036);
    if (p == MASK || p == ROUNDING) digest_step(d, p);
    if (p == SUMS) digest_sums(d);
    if (p == HALVES) digest_halves(d);
    td_digest_hex(d, hex);
}

// XXH3-128 of each, of little-endian numbers.
static const char *const published[N_PRODUCTS] = {
    [NORMAL] = "974089134676c00316fc82c726f06b7f", [UNIFORM] = "5dd9de67a29f300051363a17854fbb63",
    [MASK] = "93807b058dba934f3d36c0ce5cef9d31",   [ROUNDING] = "c43dab1098799be98df892067e65231f",
    [SUMS] = "cc6c5a7ce59ef4473b9f67b029bb8237",   [HALVES] = "e75183823a98f126c839bc1be468d12d",
};

static bool all_as_published(void) {
    bool all = true;
    for (int p = 0; p < N_PRODUCTS; p++) {
        char hex[TD_DIGEST_HEX];
        digest_of((enum product)p, hex);
        if (strcmp(hex, published[p]) == 0) continue;
        print_message("# product %d: %s\n", p, hex);
        all = false;
    }
    return all;
}

static void test_results_are_those_of_every_machine(void **state) {
    (void)state;
    assert_true(all_as_published());
}

static void test_results_are_the_same_bits_in_a_process_of_each_level(void **state) {
    (void)state;
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = '\0';
    for (int level = 0; level < (int)td_cpu_level_of_machine(NULL); level++) {
        const char *const argv[] = {self, td_cpu_level_name((enum td_cpu_level)level), NULL};
        const struct td_proc_fd fds[] = {{1, 1}, {2, 2}};
        const struct td_proc_options o = {.path = self, .argv = argv, .fds = fds, .n_fds = 2};
        struct td_proc child;
        int status = 0;
        assert_ok(td_proc_spawn(&o, &child));
        while (waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
            continue;
        }
        close(child.pidfd);
        if (status) print_message("# level %s: wait status %d\n", argv[1], status);
        assert_int_equal(status, 0);
    }
}

static int level_main(const char *name) {
    enum td_cpu_level level;
    if (!td_cpu_level_parse(name, &level)) return 2;
    td_status s = td_cpu_level_hold(level);
    bool failed = s != TD_OK;
    td_status_free(s);
    make_inputs(NULL);
    return failed || td_cpu_level() != level || !all_as_published();
}

int main(int argc, char **argv) {
    if (argc == 2) return level_main(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_numbers_are_the_same_bits_at_every_level),
        cmocka_unit_test(test_initial_values_are_the_same_bits_at_every_level),
        cmocka_unit_test(test_sums_are_the_same_bits_at_every_level),
        cmocka_unit_test(test_conversions_are_the_same_bits_at_every_level),
        cmocka_unit_test(test_scans_answer_alike_at_every_level),
        cmocka_unit_test(test_results_are_those_of_every_machine),
        cmocka_unit_test(test_results_are_the_same_bits_in_a_process_of_each_level),
    };
    return cmocka_run_group_tests(tests, make_inputs, NULL);
}
