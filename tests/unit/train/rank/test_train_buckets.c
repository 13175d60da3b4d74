// Buckets of gradients, and where a collective takes them: it may sum them later than it was asked
// to, or where the device has them. The bits of the checkpoints are the same.
// Tags: tsan

#include "tests/unit/test.h"

#include <math.h>

#include "tests/unit/train/rank/ranks_rig.h"

// ---- a collective that sums late ----------------------------------------------------------------
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
    return shm()->wait_buckets(c);
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
                        .world = RANKS,
                        .accumulate = 2,
                        .max_epochs = 3};
        snprintf(in_time, sizeof in_time, "%s/in-time-%zu", (char *)*state, i);
        snprintf(later, sizeof later, "%s/later-%zu", (char *)*state, i);
        const int64_t steps = run_job(&j, in_time).step;
        j.own = &late_shm;
        assert_int_equal(run_job(&j, later).step, steps);
        expect_same(in_time, later, steps);
    }
    assert_true(most_late > 1);
}

// ---- a thread that reduces buckets -------------------------------------------------------------
// A group that says it joins nodes, whose ranks are in one process all the same.
static td_status facts_of_nodes(struct td_collective_facts *out_facts) {
    TD_TRY(shm()->facts(out_facts));
    out_facts->joins_nodes = true;
    return TD_OK;
}

static _Thread_local bool runs_programs; // this thread, which made the ranks' places
static _Atomic int beside, last_beside, n_last, fails_at;

static td_status note_thread(struct td_collective *c, void **out_data, size_t *out_bytes) {
    runs_programs = true;
    return shm()->gradients(c, out_data, out_bytes);
}

static td_status reduce_and_count(struct td_collective *c, const struct td_bucket *b) {
    beside += !runs_programs && !b->has_control;
    last_beside += !runs_programs && b->has_control;
    n_last += b->has_control;
    if (fails_at && b->index + 1 == (uint32_t)fails_at) {
        return td_fail(TD_ABORTED, "bucket %u cannot be sent", b->index);
    }
    return shm()->all_reduce_bucket(c, b);
}

static struct td_collective_ops ops_of_nodes(void) {
    struct td_collective_ops ops = *shm();
    ops.facts = facts_of_nodes;
    ops.gradients = note_thread;
    ops.all_reduce_bucket = reduce_and_count;
    beside = last_beside = n_last = fails_at = 0;
    return ops;
}

static void test_bits_are_the_same_when_a_thread_reduces_buckets(void **state) {
    static const char *const precisions[] = {"32-true", "16-mixed"};
    const struct td_collective_ops ops = ops_of_nodes();
    const struct td_plugin_desc nodes = TD_PLUGIN_DESC(COLLECTIVE, "shm", "of nodes", &ops);
    for (size_t i = 0; i < TD_COUNTOF(precisions); i++) {
        char plain[TD_FS_PATH_BYTES], thread[TD_FS_PATH_BYTES];
        struct job j = {.accelerator = "reference",
                        .strategy = "ddp",
                        .precision = precisions[i],
                        .world = RANKS,
                        .accumulate = 2,
                        .max_epochs = 3};
        snprintf(plain, sizeof plain, "%s/plain-%zu", (char *)*state, i);
        snprintf(thread, sizeof thread, "%s/thread-%zu", (char *)*state, i);
        const int64_t steps = run_job(&j, plain).step;
        const int before = beside;
        j.own = &nodes;
        assert_int_equal(run_job(&j, thread).step, steps);
        expect_same(plain, thread, steps);
        assert_true(beside - before >= RANKS * steps);
    }
    assert_true(n_last > 0);
    assert_int_equal(last_beside, 0); // whoever waits makes it
}

static void test_bits_are_the_same_when_a_queue_hands_buckets_to_a_thread(void **state) {
    char plain[TD_FS_PATH_BYTES], thread[TD_FS_PATH_BYTES];
    const struct td_collective_ops ops = ops_of_nodes();
    const struct td_plugin_desc nodes = TD_PLUGIN_DESC(COLLECTIVE, "shm", "of nodes", &ops);
    struct job j = {.accelerator = "far",
                    .strategy = "ddp",
                    .precision = "32-true",
                    .world = RANKS,
                    .accumulate = 1,
                    .max_epochs = 2};
    snprintf(plain, sizeof plain, "%s/plain", (char *)*state);
    snprintf(thread, sizeof thread, "%s/thread", (char *)*state);
    const int64_t steps = run_job(&j, plain).step;
    j.own = &nodes;
    assert_int_equal(run_job(&j, thread).step, steps);
    expect_same(plain, thread, steps);
}

static void set_no_overlap(struct run *r, const char *dir) {
    (void)dir;
    r->config.strategy_knobs =
        knobs(r, &td_strategy_ddp, "{\"bucket_cap_mb\":25,\"overlap\":false}");
}

static void test_no_thread_reduces_buckets_when_overlap_is_off(void **state) {
    const struct td_collective_ops ops = ops_of_nodes();
    const struct td_plugin_desc nodes = TD_PLUGIN_DESC(COLLECTIVE, "shm", "of nodes", &ops);
    const struct job j = {.accelerator = "reference",
                          .strategy = "ddp",
                          .precision = "32-true",
                          .world = RANKS,
                          .accumulate = 1,
                          .max_epochs = 1,
                          .own = &nodes,
                          .change = set_no_overlap};
    assert_true(run_job(&j, *state).step > 0);
    assert_true(n_last > 0);
    assert_int_equal(beside, 0);
}

static void test_rank_fails_with_the_error_when_its_thread_cannot_reduce(void **state) {
    const struct td_collective_ops ops = ops_of_nodes();
    const struct td_plugin_desc nodes = TD_PLUGIN_DESC(COLLECTIVE, "shm", "of nodes", &ops);
    const struct job j = {.accelerator = "reference",
                          .strategy = "ddp",
                          .precision = "32-true",
                          .world = RANKS,
                          .accumulate = 1,
                          .max_epochs = 1,
                          .own = &nodes};
    struct ranks all;
    fails_at = 1;
    start_ranks(&all, &j, *state);
    join_ranks(&all);
    for (int i = 0; i < RANKS; i++) {
        assert_fails(all.rank[i].failed, TD_ABORTED, "bucket 0 cannot be sent");
    }
    assert_int_equal(n_last, 0); // after an error nothing more is begun
}

// ---- a collective of a device -------------------------------------------------------------------
// One rank: what it is handed is checked, and stays as it is.
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
    const int64_t steps = run_job(&j, plain).step;
    for (size_t i = 0; i < TD_COUNTOF(facts); i++) {
        struct td_collective_ops ops = *(const struct td_collective_ops *)td_collective_local.ops;
        ops.facts = facts[i];
        ops.all_reduce_bucket = reduce_on_device;
        const struct td_plugin_desc own = TD_PLUGIN_DESC(COLLECTIVE, "local", "on a device", &ops);
        j.own = &own;
        reduced = 0;
        snprintf(device, sizeof device, "%s/device-%zu", (char *)*state, i);
        assert_int_equal(run_job(&j, device).step, steps);
        assert_true(reduced > steps);
        expect_same(plain, device, steps);
    }
}

static td_status facts_of_cuda(struct td_collective_facts *out_facts) {
    out_facts->on_device = true;
    snprintf(out_facts->device_memory, sizeof out_facts->device_memory, "cuda");
    return TD_OK;
}
static td_status facts_of_cuda_and_host(struct td_collective_facts *out_facts) {
    out_facts->on_host = true;
    return facts_of_cuda(out_facts);
}
static td_status facts_of_two_groups(struct td_collective_facts *out_facts) {
    out_facts->needs_host = true;
    return facts_of_cuda_and_host(out_facts);
}

static td_status reduce_on_host(struct td_collective *c, const struct td_bucket *b) {
    (void)c;
    if (!td_bucket_host(b)) return td_fail(TD_INTERNAL, "bucket %u is on a device", b->index);
    reduced++;
    return TD_OK;
}

static struct job job_of_far(const struct td_plugin_desc *collective) {
    return (struct job){.accelerator = "far",
                        .strategy = "ddp",
                        .precision = "32-true",
                        .world = 1,
                        .accumulate = 1,
                        .max_epochs = 1,
                        .own = collective};
}

// far's handles are no addresses of that device.
static void test_buckets_are_staged_when_the_collective_takes_another_device(void **state) {
    struct td_collective_ops ops = *(const struct td_collective_ops *)td_collective_local.ops;
    const struct td_plugin_desc own = TD_PLUGIN_DESC(COLLECTIVE, "local", "of cuda", &ops);
    const struct job j = job_of_far(&own);
    ops.facts = facts_of_cuda_and_host;
    ops.all_reduce_bucket = reduce_on_host;
    reduced = 0;
    assert_true(run_job(&j, *state).step > 0);
    assert_true(reduced > 0);
}

static td_status check_of_stream(struct td_collective *c) {
    (void)c;
    return td_status_with_class(td_fail(TD_ABORTED, "the stream of rank 3 has failed"),
                                TD_CLASS_COLLECTIVE);
}

static void be_late(struct run *r, const char *dir) {
    (void)dir;
    r->config.accelerator_knobs =
        knobs(r, &td_accelerator_far,
              "{\"delay_us\":200000,\"fail_at\":0,\"copy_delay_us\":0,\"by_tensor\":false}");
}

static void expect_refused(const struct job *j, const char *dir, enum td_code code,
                           const char *words) {
    struct ranks all;
    start_ranks(&all, j, dir);
    join_ranks(&all);
    assert_fails(all.rank[0].failed, code, words);
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
    expect_refused(&j, *state, TD_INVALID_ARGUMENT,
                   "'local' reduces gradients on a device alone, but accelerator 'reference'");
    ops.facts = facts_of_nothing;
    expect_refused(&j, *state, TD_FAILED_PRECONDITION,
                   "'local' reduces gradients neither in host memory nor on a device");
}

static void test_group_of_another_device_alone_is_refused_by_name(void **state) {
    struct td_collective_ops ops = *(const struct td_collective_ops *)td_collective_local.ops;
    const struct td_plugin_desc own = TD_PLUGIN_DESC(COLLECTIVE, "local", "of cuda", &ops);
    struct job j = job_of_far(&own);
    ops.facts = facts_of_cuda;
    expect_refused(&j, *state, TD_INVALID_ARGUMENT,
                   "gradients in memory of a 'cuda' device alone, but accelerator 'far'");
    ops.facts = facts_of_two_groups;
    expect_refused(&j, *state, TD_UNIMPLEMENTED, "needs a group of the host beside it");
}

// A run of 200 ms, during which the rank looks.
static void test_failure_on_a_stream_is_found_while_a_run_is_waited_for(void **state) {
    struct td_collective_ops ops = *(const struct td_collective_ops *)td_collective_local.ops;
    const struct td_plugin_desc own = TD_PLUGIN_DESC(COLLECTIVE, "local", "of a stream", &ops);
    struct job j = job_of_far(&own);
    j.change = be_late;
    ops.check = check_of_stream;
    expect_refused(&j, *state, TD_ABORTED, "the stream of rank 3 has failed");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_bits_are_the_same_when_sums_come_late),
        test_in_scratch(test_bits_are_the_same_when_a_thread_reduces_buckets),
        test_in_scratch(test_bits_are_the_same_when_a_queue_hands_buckets_to_a_thread),
        test_in_scratch(test_no_thread_reduces_buckets_when_overlap_is_off),
        test_in_scratch(test_rank_fails_with_the_error_when_its_thread_cannot_reduce),
        test_in_scratch(test_buckets_stay_on_the_device_when_the_collective_takes_them),
        test_in_scratch(test_group_is_refused_when_it_takes_no_memory_that_is_here),
        test_in_scratch(test_buckets_are_staged_when_the_collective_takes_another_device),
        test_in_scratch(test_group_of_another_device_alone_is_refused_by_name),
        test_in_scratch(test_failure_on_a_stream_is_found_while_a_run_is_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
