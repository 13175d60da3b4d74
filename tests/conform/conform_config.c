// What every accelerator makes of its configuration. Kernels are timed when a profile is asked for,
// with the same bits. One that was opened for plans knows the same sizes as one that runs.

#include "tests/conform/op_bench.h"

enum { BATCH = 6, STEPS = 3 };
static struct rig_mlp net = {.dtype = TD_F32, .n_widths = 4, .width = {7, 9, 5, 4}};

static int open_training(struct rig *r, const struct td_accelerator_ops *ops, bool profile,
                         bool plans) {
    static const struct td_optimizer_options opt = {
        .op = TD_OP_ADAMW, .attrs = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}};
    const struct td_compile_options o = {.key = rig_key(TD_MODE_TRAIN, BATCH, true),
                                         .record = rig_record_mlp,
                                         .record_arg = &net,
                                         .optimizer = &opt};
    const struct td_accel_config config = {.struct_bytes = sizeof config,
                                           .n_threads = bench_threads,
                                           .profile = profile,
                                           .plans = plans};
    rig_open_with(r, ops, &config);
    return rig_add(r, &o);
}

struct trained {
    double loss[STEPS];
    float weights[256];
    size_t n_weights;
    uint64_t runs; // of all kernels
    int64_t ns;    // that they took
    uint32_t n;    // kernels that were timed
};

static void train(const struct td_accelerator_ops *ops, bool profile, struct trained *out) {
    struct rig r;
    *out = (struct trained){0};
    const int p = open_training(&r, ops, profile, false);
    rig_place(&r);
    for (int i = 0; i < STEPS; i++) {
        float x[BATCH * 7];
        int32_t y[BATCH];
        rig_batch(&net, i * BATCH, BATCH, x, y);
        rig_run(&r, p, TD_SEGS_ALL, (const void *const[]){x, y});
        out->loss[i] = r.program[p].outputs[0];
    }
    out->n_weights = r.region[TD_ROLE_PARAM].bytes;
    assert_true(out->n_weights <= sizeof out->weights);
    memcpy(out->weights, r.host[TD_ROLE_PARAM], out->n_weights);
    struct td_kernel_info k = {.struct_bytes = sizeof k};
    for (uint32_t i = 0; ops->kernel_at && ops->kernel_at(r.program[p].exe, i, &k); i++) {
        out->runs += k.runs;
        out->ns += k.ns;
        out->n += k.ns > 0;
    }
    rig_close(&r);
}

static void test_kernels_are_timed_when_a_profile_is_asked_for(void **state) {
    const struct subject *s = *state;
    struct trained plain, timed;
    train(s->ops, false, &plain);
    train(s->ops, true, &timed);
    assert_int_equal(plain.n_weights, timed.n_weights);
    assert_memory_equal(plain.weights, timed.weights, plain.n_weights);
    assert_memory_equal(plain.loss, timed.loss, sizeof plain.loss);
    assert_int_equal(plain.runs, timed.runs);
    assert_int_equal(plain.ns, 0);
    assert_true(!s->ops->kernel_at || (timed.runs >= 3 && timed.n >= 3));
}

// A caller of an older minor version has less room than the plugin knows fields.
static void test_no_more_is_written_than_its_caller_has_room_for(void **state) {
    const struct subject *s = *state;
    struct rig r;
    struct td_kernel_info k = {.struct_bytes = offsetof(struct td_kernel_info, ns), .ns = -1};
    struct td_device_info d = {.struct_bytes = offsetof(struct td_device_info, memory_bytes),
                               .memory_bytes = 77};
    const int p = open_training(&r, s->ops, false, false);
    rig_place(&r);
    if (s->ops->kernel_at) assert_true(s->ops->kernel_at(r.program[p].exe, 0, &k));
    if (s->ops->device_at) assert_ok(s->ops->device_at(0, &d));
    assert_int_equal(k.ns, -1);
    assert_int_equal(d.memory_bytes, 77);
    rig_close(&r);
}

static size_t measured(const struct td_accelerator_ops *ops, bool plans) {
    struct rig r;
    size_t bytes = 0;
    const int p = open_training(&r, ops, false, plans);
    assert_ok(td_state_layout(r.state));
    const struct td_program *program = &r.program[p].compiled->program;
    if (ops->program_bytes) assert_ok(ops->program_bytes(r.accel, &program, 1, &bytes));
    rig_close(&r);
    return bytes;
}

static void test_sizes_are_the_same_when_it_is_opened_for_plans(void **state) {
    const struct subject *s = *state;
    assert_int_equal(measured(s->ops, true), measured(s->ops, false));
}

int main(int argc, char **argv) {
    (void)argc;
    static struct subject subjects[ACCELERATORS];
    static struct CMUnitTest tests[3 * TD_COUNTOF(subjects)];
    struct accelerators here;
    if (!read_environment()) return 1;
    size_t n = 0, n_subjects = 0;
    if (open_accelerators(argv[0], &here)) n_subjects = find_subjects(&here, subjects);
    for (size_t i = 0; i < n_subjects; i++) {
        tests[n++] = (struct CMUnitTest){"test_kernels_are_timed_when_a_profile_is_asked_for",
                                         test_kernels_are_timed_when_a_profile_is_asked_for, NULL,
                                         NULL, &subjects[i]};
        tests[n++] = (struct CMUnitTest){"test_sizes_are_the_same_when_it_is_opened_for_plans",
                                         test_sizes_are_the_same_when_it_is_opened_for_plans, NULL,
                                         NULL, &subjects[i]};
        tests[n++] = (struct CMUnitTest){"test_no_more_is_written_than_its_caller_has_room_for",
                                         test_no_more_is_written_than_its_caller_has_room_for, NULL,
                                         NULL, &subjects[i]};
    }
    int failed = n ? _cmocka_run_group_tests("conform_config", tests, n, NULL, NULL) : 1;
    close_accelerators(&here);
    return failed;
}
