// Loops of the bench, one object a CPU level; contract in loops.h.
//
// Vectors are as wide as the level's registers. Twelve sums hide the latency of two multiply-adds a
// cycle on every processor of the last ten years, and with their two operands they fit sixteen
// registers. A level without fused multiply-adds does them as a product and a sum, which counts the
// same.

#include "tests/bench/loops.h"

#if defined(__AVX512F__)
#include <immintrin.h>
enum { VECTOR_BYTES = 64 };
#elif defined(__AVX2__)
enum { VECTOR_BYTES = 32 };
#else
enum { VECTOR_BYTES = 16 };
#endif
#if defined(__x86_64__)
#define IN_REGISTER(v) __asm__("" : "+v"(v))
#else
#define IN_REGISTER(v) __asm__("" : "+w"(v))
#endif
// Twelve sums, each a variable: elements of an array stay in memory.
#define EACH_SUM(do_to)                                                                            \
    do_to(s0) do_to(s1) do_to(s2) do_to(s3) do_to(s4) do_to(s5) do_to(s6) do_to(s7) do_to(s8)      \
        do_to(s9) do_to(s10) do_to(s11)
enum { SUMS = 12, LANES = VECTOR_BYTES / sizeof(float) };

typedef float lanes __attribute__((vector_size(VECTOR_BYTES)));

static lanes all(float v) {
    lanes x;
    for (int i = 0; i < LANES; i++) {
        x[i] = v;
    }
    return x;
}

#define START(s) lanes s = zero;
#define ADD(s)   total += s;
#define FMA(s)                                                                                     \
    s = s * by + plus;                                                                             \
    IN_REGISTER(s);

static float fma_rounds(int64_t n, float b, float c) {
    lanes zero = all(0), total = zero, by = all(b), plus = all(c);
    EACH_SUM(START)
    for (int64_t r = 0; r < n; r++) {
        EACH_SUM(FMA)
    }
    EACH_SUM(ADD)
    return total[0];
}

#if defined(__AVX512F__)
#define DOT(s)                                                                                     \
    s = (lanes)_mm512_dpbf16_ps((__m512)s, pair, pair);                                            \
    IN_REGISTER(s);

__attribute__((target("avx512bf16"))) static float dot_rounds(int64_t n) {
    lanes zero = all(0), total = zero;
    __m512bh pair = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5f), _mm512_set1_ps(0.5f));
    EACH_SUM(START)
    for (int64_t r = 0; r < n; r++) {
        EACH_SUM(DOT)
    }
    EACH_SUM(ADD)
    return total[0];
}
#endif

static void product(int64_t m, int64_t n, int64_t k, const float *restrict a,
                    const float *restrict b, float *restrict c) {
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            c[i * n + j] = 0;
        }
        for (int64_t l = 0; l < k; l++) {
            for (int64_t j = 0; j < n; j++) {
                c[i * n + j] += a[i * k + l] * b[l * n + j];
            }
        }
    }
}

const struct td_bench_loops TD_LEVELED(td_bench_loops) = {
    .fma = fma_rounds,
    .fma_flops = 2.0 * SUMS * LANES,
#if defined(__AVX512F__)
    .dot = dot_rounds,
    .dot_flops = 4.0 * SUMS * LANES,
#endif
    .product = product,
};
