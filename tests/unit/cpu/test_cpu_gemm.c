// Which library a product goes to: oneDNN's where it has loops of its own for it, ours where it has
// nothing but reference loops, whose names are known here. The libraries are made up, no product is
// computed.

#include "accelerators/cpu/gemm.c"
#include "accelerators/cpu/onednn/dnnl.h"
#include "tests/unit/test.h"

// ---- made-up libraries --------------------------------------------------------------------------
static const char *offered; // by oneDNN, for every product
static int n_created;       // oneDNN's products that are there

bool td_dnnl_takes(enum td_dtype operands) {
    return operands == TD_F32;
}

td_status td_dnnl_product_create(struct td_dnnl *e, const struct td_gemm_spec *spec,
                                 enum td_dnnl_way way, struct td_dnnl_product **out_product) {
    (void)e, (void)spec, (void)way;
    if (td_is_reference_name(offered)) return td_fail(TD_UNIMPLEMENTED, "reference loops alone");
    if (!*offered) return td_fail(TD_INTERNAL, "oneDNN fails");
    n_created++;
    *out_product = (struct td_dnnl_product *)&n_created;
    return TD_OK;
}

void td_dnnl_product_destroy(struct td_dnnl_product *p) {
    if (p) n_created--;
}

size_t td_dnnl_product_scratch_bytes(const struct td_dnnl_product *p) {
    (void)p;
    return 7;
}

bool td_dnnl_product_starts_slowly(const struct td_dnnl_product *p) {
    (void)p;
    return false;
}

td_status td_dnnl_product_run(struct td_dnnl_product *p, const void *a, const void *b,
                              const void *bias, void *y) {
    (void)p, (void)a, (void)b, (void)bias, (void)y;
    return TD_OK;
}

// The last way wins every race.
bool td_tune_measures(const struct td_tune *t, const char *key, const char *const *names, int n) {
    (void)t, (void)key, (void)names, (void)n;
    return true;
}

td_status td_tune_pick(struct td_tune *t, const char *key, const char *const *names, int n,
                       const bool *slow, td_tune_run *run, void *arg, int *out_way) {
    (void)t, (void)key, (void)names, (void)slow;
    for (int i = 0; i < n; i++) {
        TD_TRY(run(arg, i));
    }
    *out_way = n - 1;
    return TD_OK;
}

void td_packs_forget(struct td_packs *s, const void *param) {
    (void)s, (void)param;
}

td_status td_packs_own(struct td_packs *s, const void *param, const struct td_pack_shape *shape,
                       struct td_pack **out_pack) {
    (void)s, (void)param, (void)shape, (void)out_pack;
    return TD_OK;
}

td_status td_packs_read(struct td_packs *s, struct td_pack *p, const void *weights) {
    (void)s, (void)p, (void)weights;
    return TD_OK;
}

td_status td_cpu_memory_grow_scratch(struct td_cpu_memory *m, size_t bytes) {
    (void)m, (void)bytes;
    return TD_OK;
}

static size_t scratch_of_own(const struct td_matmul *p) {
    (void)p;
    return 3;
}

static void run_own(const struct td_matmul *p, const void *a, const void *b, const void *bias,
                    void *y, void *scratch) {
    (void)p, (void)a, (void)b, (void)bias, (void)y, (void)scratch;
}

#define TABLE                                                                                      \
    { .matmul_scratch_bytes = scratch_of_own, .matmul_run = run_own }
const struct td_kernel_table td_kernels_generic = TABLE;
#if defined(__x86_64__)
const struct td_kernel_table td_kernels_v3 = TABLE, td_kernels_v4 = TABLE;
#endif

// ---- cases --------------------------------------------------------------------------------------
static td_status create(struct td_gemm **out_gemm) {
    static struct td_accelerator accel = {.n_threads = 2};
    // A weight gradient: oneDNN has two ways for it at every level.
    const struct td_gemm_spec s = {
        .m = 8, .n = 8, .k = 8, .trans_a = true, .operands = TD_F32, .result = TD_F32};
    return td_gemm_create(&accel, &s, out_gemm);
}

static void test_reference_loops_are_known_by_name(void **state) {
    (void)state;
    assert_true(td_is_reference_name("ref:any"));
    assert_true(td_is_reference_name("ref"));
    assert_false(td_is_reference_name("jit:avx2"));
    assert_false(td_is_reference_name("gemm:jit"));
    assert_false(td_is_reference_name("brgemm:avx512_core"));
    assert_false(td_is_reference_name(""));
}

static void test_product_is_onednn_s_when_it_has_loops_for_it(void **state) {
    (void)state;
    struct td_gemm *g;
    offered = "gemm:jit";
    assert_ok(create(&g));
    assert_non_null(g->dnnl);
    assert_int_equal(td_gemm_scratch_bytes(g), 7);
    td_gemm_destroy(g);
    assert_int_equal(n_created, 0);
}

static void test_product_is_our_own_when_onednn_has_reference_loops_alone(void **state) {
    (void)state;
    struct td_gemm *g;
    offered = "ref:any";
    assert_ok(create(&g));
    assert_null(g->dnnl);
    assert_int_equal(g->own.m, 8);
    assert_int_equal(td_gemm_scratch_bytes(g), 3);
    td_gemm_destroy(g);
    assert_int_equal(n_created, 0);
}

static void test_other_failures_of_onednn_are_reported(void **state) {
    (void)state;
    struct td_gemm *g;
    offered = "";
    assert_fails(create(&g), TD_INTERNAL, "oneDNN fails");
    assert_int_equal(n_created, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_loops_are_known_by_name),
        cmocka_unit_test(test_product_is_onednn_s_when_it_has_loops_for_it),
        cmocka_unit_test(test_product_is_our_own_when_onednn_has_reference_loops_alone),
        cmocka_unit_test(test_other_failures_of_onednn_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
