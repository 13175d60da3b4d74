// Comm hooks over ranks as threads. What they give is near the mean, and the same bits on every
// rank. A step that is skipped leaves their state alone, and it goes on where it was saved. Tags:
// tsan

#include "tests/unit/test.h"

#include <math.h>

#include "comm_hooks/comm_hooks.h"
#include "lib/base/floats/half.h"
#include "lib/base/json.h"
#include "lib/base/rng.h"
#include "tests/collective_ranks.h"
#include "traind/comm_hook.h"

// A bucket of a matrix, a bias, and another matrix.
enum { ROWS = 24, COLS = 37, BIAS = 24, ROWS2 = 16, COLS2 = 20, WORLD = 3, STEPS = 6 };
enum { BIAS_AT = 896, SECOND_AT = 928, N = SECOND_AT + ROWS2 * COLS2 };

static const struct td_bucket_tensor f32_tensors[] = {
    {"a:grad", 0, {2, {ROWS, COLS}}},
    {"b:grad", BIAS_AT * 4, {1, {BIAS}}},
    {"c:grad", SECOND_AT * 4, {2, {ROWS2, COLS2}}},
};

static struct td_bucket bucket_of(void *data, enum td_dtype dtype) {
    struct td_bucket b = ranks_bucket(data, N, dtype, false);
    b.tensors = f32_tensors;
    b.n_tensors = TD_COUNTOF(f32_tensors);
    return b;
}

static void fill(float *x, int32_t rank, int step) {
    const struct td_philox_key key = td_philox_key_of((uint64_t)(rank * 1000 + step), "gradients");
    td_philox_uniforms(key, 0, N, x);
    for (int i = 0; i < N; i++) {
        const bool is_padding =
            (i >= ROWS * COLS && i < BIAS_AT) || (i >= BIAS_AT + BIAS && i < SECOND_AT);
        x[i] = is_padding ? 0 : x[i] - 0.5f;
    }
}

static float mean_of(int step, int i) {
    double sum = 0;
    for (int32_t r = 0; r < WORLD; r++) {
        float x[N];
        fill(x, r, step);
        sum += (double)x[i];
    }
    return (float)(sum / (double)WORLD);
}

// ---- opening ------------------------------------------------------------------------------------
#define POWER(rank, start, rate, feedback, warm)                                                   \
    "{\"matrix_approximation_rank\":" #rank ",\"start_powerSGD_iter\":" #start                     \
    ",\"min_compression_rate\":" #rate ",\"use_error_feedback\":" feedback ",\"warm_start\":" warm \
    ",\"orthogonalization_epsilon\":0,\"random_seed\":7}"

struct hook {
    const struct td_comm_hook_ops *ops;
    struct td_comm_hook *h;
    struct td_arena *arena;
};

static td_status open_hook(struct rank_ctx *r, const struct td_plugin_desc *desc, const char *knobs,
                           const struct hook *inner, struct hook *out) {
    struct td_json *tree = NULL;
    *out = (struct hook){.ops = desc->ops};
    TD_TRY(td_arena_create(1 << 20, &out->arena));
    if (knobs) TD_TRY(td_json_parse(out->arena, knobs, strlen(knobs), &tree));
    const struct td_comm_hook_config config = {
        .struct_bytes = sizeof config,
        .rank = r ? r->rank : 0,
        .world_size = r ? r->world : 2,
        .collective_ops = r ? r->ops : NULL,
        .collective = r ? r->c : NULL,
        .inner_ops = inner ? inner->ops : NULL,
        .inner = inner ? inner->h : NULL,
        .knobs = tree,
    };
    return out->ops->open(&config, &out->h);
}

static void close_hook(struct hook *k) {
    k->ops->close(k->h);
    td_arena_destroy(k->arena);
}

static void run(rank_fn *fn, void *arg) {
    struct ranks rs;
    ranks_init(&rs, &td_collective_shm, WORLD, 0);
    ranks_run(&rs, fn, arg);
    ranks_ok(&rs);
    ranks_free_statuses(&rs);
    ranks_finish(&rs);
}

// What each rank got in the step that is checked.
static float got[WORLD][STEPS + 1][N];

static void expect_equal_ranks(int steps) {
    for (int32_t r = 1; r < WORLD; r++) {
        assert_memory_equal(got[r], got[0], (size_t)steps * sizeof got[0][0]);
    }
}

// ---- fp16, bf16 ---------------------------------------------------------------------------------
static td_status reduce_half(struct rank_ctx *r, void *arg) {
    struct hook k;
    float x[N];
    const struct td_bucket b = bucket_of(x, TD_F32);
    TD_TRY(open_hook(r, arg, NULL, NULL, &k));
    TD_TRY(k.ops->place(k.h, &b, 1));
    fill(x, r->rank, 0);
    TD_TRY(k.ops->reduce(k.h, &b));
    memcpy(got[r->rank][0], x, sizeof x);
    RANK_CHECK(k.ops->sent_bytes(k.h) == 2 * N);
    close_hook(&k);
    return TD_OK;
}

// Contract 11: hooks that halve what is sent give the mean of what was sent
static void test_gradients_are_rounded_once_before_and_once_after_the_mean(void **state) {
    (void)state;
    const struct td_plugin_desc *const hooks[] = {&td_comm_hook_fp16, &td_comm_hook_bf16};
    for (int h = 0; h < 2; h++) {
        run(reduce_half, td_unconst(hooks[h]));
        expect_equal_ranks(1);
        for (int i = 0; i < N; i++) {
            float sum = 0;
            for (int32_t r = 0; r < WORLD; r++) {
                float x[N];
                fill(x, r, 0);
                sum +=
                    h ? td_f32_of_bf16(td_bf16_of_f32(x[i])) : td_f32_of_f16(td_f16_of_f32(x[i]));
            }
            sum /= (float)WORLD;
            float is = h ? td_f32_of_bf16(td_bf16_of_f32(sum)) : td_f32_of_f16(td_f16_of_f32(sum));
            assert_true(got[0][0][i] == is);
        }
        td_test_over("comm_hook", hooks[h]->name);
    }
}

static td_status reduce_narrow(struct rank_ctx *r, void *arg) {
    struct hook k;
    uint16_t x[N];
    float wide[N];
    struct td_bucket b = ranks_bucket(x, N, TD_BF16, false);
    TD_TRY(open_hook(r, arg, NULL, NULL, &k));
    TD_TRY(k.ops->place(k.h, &b, 1));
    fill(wide, r->rank, 0);
    for (int i = 0; i < N; i++) {
        x[i] = td_bf16_of_f32(wide[i]);
    }
    uint16_t whole[N];
    memcpy(whole, x, sizeof x);
    TD_TRY(k.ops->reduce(k.h, &b));
    TD_TRY(r->ops->all_reduce(r->c, whole, N, TD_BF16, TD_REDUCE_MEAN));
    RANK_CHECK(memcmp(x, whole, sizeof x) == 0);
    close_hook(&k);
    return TD_OK;
}

static void test_gradients_of_16_bits_are_left_as_they_are(void **state) {
    (void)state;
    run(reduce_narrow, td_unconst(&td_comm_hook_fp16));
}

// ---- power_sgd ----------------------------------------------------------------------------------
struct power_case {
    const char *knobs;
    const struct td_plugin_desc *wrapper;
    int steps;
    int save_at; // state of this step goes to a hook that goes on; 0: none
    int skip_at; // this step is reduced twice, and skipped the first time; 0: none
    int zero_at; // the gradients of this step are 0; 0: none are
    int sends;   // values in each step that is compressed; 0: not looked at
};

static td_status move(struct rank_ctx *r, const struct power_case *c, const struct td_bucket *b,
                      struct hook *k, struct hook *inner) {
    struct td_span kept;
    struct hook old = *k, old_inner = *inner;
    TD_TRY(inner->ops->state_save(inner->h, &kept));
    TD_TRY(open_hook(r, &td_comm_hook_power_sgd, c->knobs, NULL, inner));
    *k = *inner;
    if (c->wrapper) TD_TRY(open_hook(r, c->wrapper, NULL, inner, k));
    TD_TRY(k->ops->place(k->h, b, 1));
    TD_TRY(inner->ops->state_load(inner->h, kept.data, kept.bytes));
    if (c->wrapper) close_hook(&old);
    close_hook(&old_inner);
    return TD_OK;
}

static td_status reduce_power(struct rank_ctx *r, void *arg) {
    const struct power_case *c = arg;
    struct hook inner, k;
    float x[N];
    const struct td_bucket b = bucket_of(x, TD_F32);
    TD_TRY(open_hook(r, &td_comm_hook_power_sgd, c->knobs, NULL, &inner));
    k = inner;
    if (c->wrapper) TD_TRY(open_hook(r, c->wrapper, NULL, &inner, &k));
    TD_TRY(k.ops->place(k.h, &b, 1));
    for (int step = 0; step < c->steps; step++) {
        if (c->skip_at && step == c->skip_at) {
            struct td_span before, after;
            TD_TRY(inner.ops->state_save(inner.h, &before));
            TD_AUTO_FREE char *was = malloc(before.bytes);
            memcpy(was, before.data, before.bytes);
            for (int i = 0; i < N; i++) {
                x[i] = NAN;
            }
            TD_TRY(k.ops->reduce(k.h, &b));
            inner.ops->end_step(inner.h, false);
            TD_TRY(inner.ops->state_save(inner.h, &after));
            RANK_CHECK(after.bytes == before.bytes && memcmp(was, after.data, after.bytes) == 0);
        }
        fill(x, r->rank, step);
        if (c->zero_at && step == c->zero_at) memset(x, 0, sizeof x);
        const uint64_t before = inner.ops->sent_bytes(inner.h);
        TD_TRY(k.ops->reduce(k.h, &b));
        const uint64_t sent = inner.ops->sent_bytes(inner.h) - before;
        RANK_CHECK(!c->sends || step < 2 || sent == (uint64_t)c->sends * sizeof *x);
        memcpy(got[r->rank][step], x, sizeof x);
        if (c->save_at && step + 1 == c->save_at) TD_TRY(move(r, c, &b, &k, &inner));
    }
    if (c->wrapper) close_hook(&k);
    close_hook(&inner);
    return TD_OK;
}

// The same in fp64, by the formulas of the paper, of one matrix of the bucket.
static void orthogonalize(double *v, int rank, int n) {
    for (int k = 0; k < rank; k++) {
        double norm = 0;
        for (int j = 0; j < k; j++) {
            double along = 0;
            for (int i = 0; i < n; i++) {
                along += v[j * n + i] * v[k * n + i];
            }
            for (int i = 0; i < n; i++) {
                v[k * n + i] -= along * v[j * n + i];
            }
        }
        for (int i = 0; i < n; i++) {
            norm += v[k * n + i] * v[k * n + i];
        }
        for (int i = 0; i < n; i++) {
            v[k * n + i] /= sqrt(norm);
        }
    }
}

enum { RANK = 2 };
static double error[WORLD][ROWS * COLS], q[RANK * COLS], p[RANK * ROWS], m[WORLD][ROWS * COLS];

static void expect_step(const struct td_bucket_tensor *t, int step, bool feeds_back) {
    const int rows = (int)t->shape.dim[0], cols = (int)t->shape.dim[1], at = (int)t->offset / 4;
    double next[RANK * COLS] = {0};
    memset(p, 0, sizeof p);
    orthogonalize(q, RANK, cols);
    for (int32_t r = 0; r < WORLD; r++) {
        float x[N];
        fill(x, r, step);
        for (int i = 0; i < rows * cols; i++) {
            m[r][i] = (double)x[at + i] + (feeds_back ? error[r][i] : 0);
        }
        for (int k = 0; k < RANK; k++) {
            for (int i = 0; i < rows * cols; i++) {
                p[k * rows + i / cols] += m[r][i] * q[k * cols + i % cols] / (double)WORLD;
            }
        }
    }
    orthogonalize(p, RANK, rows);
    for (int32_t r = 0; r < WORLD; r++) {
        for (int k = 0; k < RANK; k++) {
            for (int i = 0; i < rows * cols; i++) {
                next[k * cols + i % cols] += m[r][i] * p[k * rows + i / cols] / (double)WORLD;
            }
        }
    }
    memcpy(q, next, sizeof(double) * (size_t)(RANK * cols));
    for (int i = 0; i < rows * cols; i++) {
        double is = 0;
        for (int k = 0; k < RANK; k++) {
            is += p[k * rows + i / cols] * q[k * cols + i % cols];
        }
        for (int32_t r = 0; r < WORLD; r++) {
            error[r][i] = m[r][i] - is;
        }
        if (fabs(is - (double)got[0][step][at + i]) > 2e-5) {
            fail_msg("step %d, %s[%d]: %g instead of %g", step, t->name, i,
                     (double)got[0][step][at + i], is);
        }
    }
}

static void begin_reference(const struct td_bucket_tensor *t) {
    float first[RANK * COLS];
    const int n = RANK * (int)t->shape.dim[1];
    td_philox_uniforms(td_philox_key_of(7, t->name), 0, (size_t)n, first);
    for (int i = 0; i < n; i++) {
        q[i] = (double)first[i] - 0.5;
    }
    memset(error, 0, sizeof error);
}

static void test_factors_are_those_of_the_paper_when_it_is_computed_in_fp64(void **state) {
    (void)state;
    for (int feedback = 0; feedback < 2; feedback++) {
        struct power_case c = {.knobs = feedback ? POWER(2, 2, 1, "true", "true")
                                                 : POWER(2, 2, 1, "false", "true"),
                               .steps = STEPS,
                               .sends = 2 * (ROWS + COLS) + BIAS + 2 * (ROWS2 + COLS2)};
        run(reduce_power, &c);
        expect_equal_ranks(STEPS);
        for (int step = 0; step < 2; step++) { // whole until then
            for (int i = 0; i < N; i++) {
                assert_float_equal(got[0][step][i], mean_of(step, i), 1e-6);
            }
        }
        for (int t = 0; t < 3; t += 2) {
            begin_reference(&f32_tensors[t]);
            for (int step = 2; step < STEPS; step++) {
                expect_step(&f32_tensors[t], step, feedback);
            }
        }
        for (int i = BIAS_AT; i < BIAS_AT + BIAS; i++) {
            assert_float_equal(got[0][STEPS - 1][i], mean_of(STEPS - 1, i), 1e-6);
        }
    }
}

static void test_mean_is_whole_when_the_rank_is_that_of_the_matrix(void **state) {
    (void)state;
    struct power_case c = {.knobs = POWER(64, 0, 0, "false", "false"), .steps = 2};
    run(reduce_power, &c);
    expect_equal_ranks(2);
    for (int t = 0; t < 3; t += 2) {
        const int at = (int)f32_tensors[t].offset / 4;
        for (int i = at; i < at + (int)td_shape_elems(&f32_tensors[t].shape); i++) {
            assert_float_equal(got[0][1][i], mean_of(1, i), 1e-5);
        }
    }
}

// Contract 11: a comm hook reduces, and keeps its state
static void test_steps_go_on_as_they_were_when_state_is_saved_or_a_step_is_skipped(void **state) {
    (void)state;
    static const struct td_plugin_desc *const wrappers[] = {NULL, &td_comm_hook_bf16};
    for (int w = 0; w < 2; w++) {
        static float whole[STEPS][N];
        struct power_case c = {
            .knobs = POWER(1, 2, 2, "true", "true"), .wrapper = wrappers[w], .steps = STEPS};
        run(reduce_power, &c);
        expect_equal_ranks(STEPS);
        memcpy(whole, got[0], sizeof whole);
        c.save_at = 4;
        run(reduce_power, &c);
        assert_memory_equal(got[0], whole, sizeof whole);
        c.save_at = 0;
        c.skip_at = 3;
        run(reduce_power, &c);
        assert_memory_equal(got[0], whole, sizeof whole);
        if (wrappers[w]) td_test_over("comm_hook", wrappers[w]->name);
    }
    td_test_over("comm_hook", td_comm_hook_power_sgd.name);
}

static void test_gradients_come_back_when_those_of_a_step_were_zero(void **state) {
    (void)state;
    struct power_case c = {.knobs = POWER(2, 2, 1, "true", "true"), .steps = STEPS, .zero_at = 2};
    run(reduce_power, &c);
    expect_equal_ranks(STEPS);
    for (int t = 0; t < 3; t += 2) {
        const int at = (int)f32_tensors[t].offset / 4;
        double sum = 0;
        for (int i = at; i < at + (int)td_shape_elems(&f32_tensors[t].shape); i++) {
            assert_true(got[0][2][i] == 0);
            sum += fabs((double)got[0][3][i]);
        }
        assert_true(sum > 1);
    }
}

// ---- what is refused ----------------------------------------------------------------------------
static void expect_bad(td_status s, const char *text) {
    assert_non_null(s);
    assert_int_equal(td_status_class(s), TD_CLASS_BAD_SPEC);
    if (!strstr(td_status_message(s), text)) fail_msg("%s", td_status_message(s));
    td_status_free(s);
}

static void test_knobs_and_types_that_cannot_be_are_refused(void **state) {
    (void)state;
    struct hook k;
    double x[N];
    const struct td_bucket b = ranks_bucket(x, N, TD_F64, false);
    size_t bytes, kept;
    expect_bad(open_hook(NULL, &td_comm_hook_power_sgd, POWER(1, 1, 2, "true", "false"), NULL, &k),
               "start_powerSGD_iter is 1, but has to be at least 2");
    td_arena_destroy(k.arena);
    assert_null(open_hook(NULL, &td_comm_hook_power_sgd, POWER(1, 2, 2, "true", "true"), NULL, &k));
    expect_bad(k.ops->memory(k.h, &b, 1, &bytes, &kept), "gradients of this precision are f64");
    close_hook(&k);
}

static void test_state_of_other_knobs_is_refused_by_name(void **state) {
    (void)state;
    struct hook one, two;
    float x[N];
    const struct td_bucket b = bucket_of(x, TD_F32);
    struct td_span kept;
    assert_null(
        open_hook(NULL, &td_comm_hook_power_sgd, POWER(1, 2, 1, "true", "true"), NULL, &one));
    assert_null(
        open_hook(NULL, &td_comm_hook_power_sgd, POWER(2, 2, 1, "true", "true"), NULL, &two));
    assert_null(one.ops->place(one.h, &b, 1));
    assert_null(two.ops->place(two.h, &b, 1));
    assert_null(one.ops->state_save(one.h, &kept));
    expect_bad(two.ops->state_load(two.h, kept.data, kept.bytes),
               "has power_sgd of rank 1, use_error_feedback, warm_start, this job of rank 2");
    td_status s = two.ops->state_load(two.h, kept.data, 3);
    assert_int_equal(td_status_code(s), TD_DATA_LOSS);
    td_status_free(s);
    close_hook(&one);
    close_hook(&two);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients_are_rounded_once_before_and_once_after_the_mean),
        cmocka_unit_test(test_gradients_of_16_bits_are_left_as_they_are),
        cmocka_unit_test(test_factors_are_those_of_the_paper_when_it_is_computed_in_fp64),
        cmocka_unit_test(test_mean_is_whole_when_the_rank_is_that_of_the_matrix),
        cmocka_unit_test(test_steps_go_on_as_they_were_when_state_is_saved_or_a_step_is_skipped),
        cmocka_unit_test(test_gradients_come_back_when_those_of_a_step_were_zero),
        cmocka_unit_test(test_knobs_and_types_that_cannot_be_are_refused),
        cmocka_unit_test(test_state_of_other_knobs_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
