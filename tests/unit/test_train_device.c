// Training where state is not host memory. The far device gives the bits of the reference, with one
// rank and with two. So it does where a precision gates steps, and over a resume. A collective may
// reduce buckets when it is waited for, or where the device has them: the bits are the same.
// Tags: tsan

#include "tests/unit/test.h"

#include <math.h>
#include <pthread.h>

#include "lib/base/fsio.h"
#include "tests/unit/train_rig.h"

enum { WORLD = 2, GROUP_BYTES = 4 << 20, FILE_MAX = 1 << 20 };

struct job {
    const char *accelerator, *strategy, *precision;
    int32_t world;
    int32_t accumulate, max_epochs;
    const char *resume_from;          // NULL: a fresh start
    const struct td_plugin_desc *own; // NULL: only plugins of the tree
    const char *refused;              // what ranks say instead of training; NULL: they train
    bool by_tensor;                   // of far
};

// ---- ranks as threads --------------------------------------------------------------------------
struct rank {
    const struct job *job;
    const char *dir;
    int32_t rank;
    void *group;
    td_status failed;
    int64_t steps;
};

static void *run_rank(void *arg) {
    struct rank *k = arg;
    const struct job *j = k->job;
    struct run r;
    struct td_train_result result;
    static const char small[] = "{\"bucket_first_bytes\":8,\"bucket_cap_bytes\":8}";
    struct td_json *frozen = NULL;
    prepare_run(&r, j->own, j->strategy, k->dir);
    assert_ok(td_json_parse(r.arena, small, sizeof small - 1, &frozen));
    r.config.frozen = frozen;
    r.config.accelerator = j->accelerator;
    if (j->by_tensor) {
        r.config.accelerator_knobs =
            knobs(&r, &td_accelerator_far, "{\"delay_us\":0,\"fail_at\":0,\"by_tensor\":true}");
    }
    r.config.precision = j->precision;
    r.config.world_size = j->world;
    if (j->world > 1) r.config.collective = "shm";
    r.config.rank = k->rank;
    r.config.limits.max_epochs = j->max_epochs;
    r.config.limits.accumulate[0].batches = j->accumulate;
    r.config.optimizer.kind = TD_OPTIMIZER_ADAMW;
    if (j->resume_from) {
        r.config.resume_from = &j->resume_from;
        r.config.n_resume_from = 1;
    }
    r.io.group = k->group;
    r.io.group_bytes = k->group ? (size_t)GROUP_BYTES : 0;
    k->failed = td_train(&r.config, &r.io, &r.events, &result);
    k->steps = result.step;
    dispose(&r);
    return NULL;
}

// Steps done; the checkpoint of the last is in dir.
static int64_t run_job(const struct job *j, const char *dir) {
    struct rank rank[WORLD];
    pthread_t thread[WORLD];
    void *group = j->world > 1 ? aligned_alloc(4096, GROUP_BYTES) : NULL;
    if (group) memset(group, 0, GROUP_BYTES);
    for (int32_t i = 0; i < j->world; i++) {
        rank[i] = (struct rank){.job = j, .dir = dir, .rank = i, .group = group};
        assert_int_equal(pthread_create(&thread[i], NULL, run_rank, &rank[i]), 0);
    }
    for (int32_t i = 0; i < j->world; i++) {
        pthread_join(thread[i], NULL);
    }
    for (int32_t i = 0; i < j->world; i++) {
        if (j->refused) {
            assert_fails(rank[i].failed, TD_FAILED_PRECONDITION, j->refused);
        } else {
            assert_ok(rank[i].failed);
        }
        assert_int_equal(rank[i].steps, rank[0].steps);
    }
    free(group);
    return rank[0].steps;
}

static void read_file(struct td_buf *out, const char *dir, int64_t step, const char *name) {
    char path[TD_FS_PATH_BYTES];
    assert_ok(td_fs_path(path, "%s/step-%lld/%s", dir, (long long)step, name));
    assert_ok(td_fs_read(path, FILE_MAX, out));
}

static void expect_same(const char *a, const char *b, int64_t step) {
    static const char *const names[] = {"model.safetensors", "optimizer.safetensors"};
    for (size_t i = 0; i < TD_COUNTOF(names); i++) {
        TD_AUTO_BUF left;
        TD_AUTO_BUF right;
        td_buf_init(&left, FILE_MAX);
        td_buf_init(&right, FILE_MAX);
        read_file(&left, a, step, names[i]);
        read_file(&right, b, step, names[i]);
        assert_int_equal(left.len, right.len);
        assert_memory_equal(left.data, right.data, left.len);
    }
}

// ---- cases -------------------------------------------------------------------------------------
static void compare_on_both(const char *scratch, struct job j) {
    char far[TD_FS_PATH_BYTES], reference[TD_FS_PATH_BYTES];
    snprintf(reference, sizeof reference, "%s/reference", scratch);
    j.accelerator = "reference";
    const int64_t steps = run_job(&j, reference);
    assert_true(steps > 0);
    j.accelerator = "far";
    for (int by_tensor = 0; by_tensor < 2; by_tensor++) {
        j.by_tensor = by_tensor;
        snprintf(far, sizeof far, "%s/far-%d", scratch, by_tensor);
        assert_int_equal(run_job(&j, far), steps);
        expect_same(far, reference, steps);
    }
}

static void test_bits_are_the_references_with_one_rank(void **state) {
    compare_on_both(*state, (struct job){.strategy = "single_device",
                                         .precision = "32-true",
                                         .world = 1,
                                         .accumulate = 1,
                                         .max_epochs = 3});
}

static void test_bits_are_the_references_when_two_ranks_average(void **state) {
    compare_on_both(*state, (struct job){.strategy = "ddp",
                                         .precision = "32-true",
                                         .world = WORLD,
                                         .accumulate = 2,
                                         .max_epochs = 3});
}

static void test_bits_are_the_references_when_steps_are_gated(void **state) {
    compare_on_both(*state, (struct job){.strategy = "ddp",
                                         .precision = "16-mixed",
                                         .world = WORLD,
                                         .accumulate = 1,
                                         .max_epochs = 3});
}

static void resume(void **state, bool by_tensor) {
    char whole[TD_FS_PATH_BYTES], part[TD_FS_PATH_BYTES], from[TD_FS_PATH_BYTES];
    char rest[TD_FS_PATH_BYTES];
    struct job j = {.accelerator = "far",
                    .strategy = "ddp",
                    .precision = "32-true",
                    .world = WORLD,
                    .accumulate = 1,
                    .max_epochs = 4,
                    .by_tensor = by_tensor};
    snprintf(whole, sizeof whole, "%s/whole", (char *)*state);
    snprintf(part, sizeof part, "%s/part", (char *)*state);
    snprintf(rest, sizeof rest, "%s/rest", (char *)*state);
    const int64_t steps = run_job(&j, whole);
    j.max_epochs = 2;
    const int64_t half = run_job(&j, part);
    assert_int_equal(half * 2, steps);
    assert_ok(td_fs_path(from, "%s/step-%lld", part, (long long)half));
    j.max_epochs = 4;
    j.resume_from = from;
    assert_int_equal(run_job(&j, rest), steps);
    expect_same(whole, rest, steps);
}

static void test_bits_are_those_of_one_run_when_resumed(void **state) {
    resume(state, false);
}

static void test_bits_are_those_of_one_run_when_resumed_by_tensor(void **state) {
    resume(state, true);
}

// ---- collectives that sum late, or on the device ------------------------------------------------
enum { MOST_BUCKETS = 16, MOST_BYTES = 4096 };

static const struct td_collective_ops *shm(void) {
    return td_collective_shm.ops;
}

// A bucket that was handed over is nobody's until wait_buckets: it holds NaN.
static _Thread_local struct {
    struct td_bucket bucket[MOST_BUCKETS];
    char bytes[MOST_BUCKETS][MOST_BYTES];
    int n;
} late;
static _Atomic int most_late;

static td_status reduce_later(struct td_collective *c, const struct td_bucket *b) {
    const size_t bytes = td_bucket_bytes(b);
    float *data = td_bucket_host(b);
    (void)c;
    if (late.n == MOST_BUCKETS || bytes > MOST_BYTES) return td_fail(TD_INTERNAL, "too much");
    memcpy(late.bytes[late.n], data, bytes);
    late.bucket[late.n++] = *b;
    for (size_t i = 0; i < bytes / sizeof *data; i++) {
        data[i] = NAN;
    }
    return TD_OK;
}

static td_status reduce_what_is_late(struct td_collective *c) {
    if (late.n > most_late) most_late = late.n;
    for (int i = 0; i < late.n; i++) {
        const struct td_bucket *b = &late.bucket[i];
        memcpy(td_bucket_host(b), late.bytes[i], td_bucket_bytes(b));
        TD_TRY(shm()->all_reduce_bucket(c, b));
    }
    late.n = 0;
    return TD_OK;
}

static void test_bits_are_the_same_when_sums_come_late(void **state) {
    static const char *const accelerators[] = {"reference", "far"};
    static const char *const precisions[] = {"32-true", "16-mixed"};
    struct td_collective_ops ops = *shm();
    ops.all_reduce_bucket = reduce_later;
    ops.wait_buckets = reduce_what_is_late;
    const struct td_plugin_desc late_shm = TD_PLUGIN_DESC(COLLECTIVE, "shm", "sums late", &ops);
    for (size_t i = 0; i < TD_COUNTOF(accelerators) * TD_COUNTOF(precisions); i++) {
        char in_time[TD_FS_PATH_BYTES], later[TD_FS_PATH_BYTES];
        struct job j = {.accelerator = accelerators[i % 2],
                        .strategy = "ddp",
                        .precision = precisions[i / 2],
                        .world = WORLD,
                        .accumulate = 2,
                        .max_epochs = 3};
        snprintf(in_time, sizeof in_time, "%s/in-time-%zu", (char *)*state, i);
        snprintf(later, sizeof later, "%s/later-%zu", (char *)*state, i);
        const int64_t steps = run_job(&j, in_time);
        j.own = &late_shm;
        assert_int_equal(run_job(&j, later), steps);
        expect_same(in_time, later, steps);
    }
    assert_true(most_late > 1);
}

// One rank, on a device: what it is handed is checked, and stays as it is.
static td_status facts_of_device(struct td_collective_facts *out_facts) {
    out_facts->on_device = true;
    return TD_OK;
}
static td_status facts_of_both(struct td_collective_facts *out_facts) {
    out_facts->on_host = out_facts->on_device = true;
    return TD_OK;
}
static td_status facts_of_nothing(struct td_collective_facts *out_facts) {
    (void)out_facts;
    return TD_OK;
}

static bool has_its_tensors(const struct td_bucket *b) {
    const size_t elem = td_dtype_bytes(b->dtype);
    size_t at = 0;
    for (size_t i = 0; i < b->n_tensors; i++) {
        const struct td_bucket_tensor *t = &b->tensors[i];
        if (t->offset < at || !strstr(t->name, ":grad")) return false;
        at = t->offset + (size_t)td_shape_elems(&t->shape) * elem;
    }
    return b->n_tensors && at <= (size_t)b->n * elem;
}

static _Atomic int reduced;
static td_status reduce_on_device(struct td_collective *c, const struct td_bucket *b) {
    const bool last = b->index + 1 == b->n_buckets;
    const bool is_right = b->buffer.space == TD_SPACE_DEVICE && b->has_control == last &&
                          has_its_tensors(b) && b->n_buckets > 1 &&
                          b->offset + td_bucket_bytes(b) <= b->buffer.bytes;
    (void)c;
    if (!is_right) return td_fail(TD_INTERNAL, "bucket %u is not as it should be", b->index);
    reduced++;
    return TD_OK;
}

static void test_buckets_stay_on_the_device_when_the_collective_takes_them(void **state) {
    char plain[TD_FS_PATH_BYTES], device[TD_FS_PATH_BYTES];
    td_status (*const facts[])(struct td_collective_facts *) = {facts_of_device, facts_of_both};
    struct job j = {.accelerator = "far",
                    .strategy = "ddp",
                    .precision = "32-true",
                    .world = 1,
                    .accumulate = 1,
                    .max_epochs = 2};
    snprintf(plain, sizeof plain, "%s/plain", (char *)*state);
    const int64_t steps = run_job(&j, plain);
    for (size_t i = 0; i < TD_COUNTOF(facts); i++) {
        struct td_collective_ops ops = *(const struct td_collective_ops *)td_collective_local.ops;
        ops.facts = facts[i];
        ops.all_reduce_bucket = reduce_on_device;
        const struct td_plugin_desc own = TD_PLUGIN_DESC(COLLECTIVE, "local", "on a device", &ops);
        j.own = &own;
        reduced = 0;
        snprintf(device, sizeof device, "%s/device-%zu", (char *)*state, i);
        assert_int_equal(run_job(&j, device), steps);
        assert_true(reduced > steps);
        expect_same(plain, device, steps);
    }
}

static void test_group_is_refused_when_it_takes_no_memory_that_is_here(void **state) {
    struct td_collective_ops ops = *(const struct td_collective_ops *)td_collective_local.ops;
    const struct td_plugin_desc own = TD_PLUGIN_DESC(COLLECTIVE, "local", "refused", &ops);
    struct job j = {.accelerator = "reference",
                    .strategy = "ddp",
                    .precision = "32-true",
                    .world = 1,
                    .accumulate = 1,
                    .max_epochs = 1,
                    .own = &own};
    ops.facts = facts_of_device;
    j.refused = "'local' reduces gradients on a device alone, but accelerator 'reference'";
    run_job(&j, *state);
    ops.facts = facts_of_nothing;
    j.refused = "'local' reduces gradients neither in host memory nor on a device";
    run_job(&j, *state);
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, td_test_scratch_make, td_test_scratch_remove)
    const struct CMUnitTest tests[] = {
        CASE(test_bits_are_the_references_with_one_rank),
        CASE(test_bits_are_the_references_when_two_ranks_average),
        CASE(test_bits_are_the_references_when_steps_are_gated),
        CASE(test_bits_are_those_of_one_run_when_resumed),
        CASE(test_bits_are_those_of_one_run_when_resumed_by_tensor),
        CASE(test_bits_are_the_same_when_sums_come_late),
        CASE(test_buckets_stay_on_the_device_when_the_collective_takes_them),
        CASE(test_group_is_refused_when_it_takes_no_memory_that_is_here),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
