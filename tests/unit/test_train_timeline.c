// The timeline of a rank: what it did, on which thread, without changing a bit.
// Tags: tsan

#include "tests/unit/test.h"

#include "tests/unit/ranks_rig.h"

static char *trace_dir;
static void set_trace_dir(struct run *r, const char *dir) {
    (void)dir;
    r->config.trace_dir = trace_dir;
    r->config.attempt = 1;
}

static struct job job_of(const char *accelerator, const char *precision) {
    return (struct job){.accelerator = accelerator,
                        .strategy = "ddp",
                        .precision = precision,
                        .world = RANKS,
                        .accumulate = 2,
                        .max_epochs = 2};
}

static const struct td_json *read_timeline(struct td_arena *arena, int rank) {
    char path[TD_FS_PATH_BYTES];
    struct td_json *events;
    TD_AUTO_BUF text;
    td_buf_init(&text, FILE_MAX);
    assert_ok(td_fs_path(path, "%s/timeline-a1-rank%d.json", trace_dir, rank));
    assert_ok(td_fs_read(path, FILE_MAX, &text));
    assert_ok(td_json_parse(arena, (const char *)text.data, text.len, &events));
    return events;
}

static const char *name_of(const struct td_json *e) {
    return td_json_string(td_json_get(e, "name"), "");
}

static int count(const struct td_json *events, const char *begins) {
    int n = 0;
    for (const struct td_json *e = events->first; e; e = e->next) {
        n += strncmp(name_of(e), begins, strlen(begins)) == 0;
    }
    return n;
}

// The thread of the first event of that name.
static int64_t thread_of(const struct td_json *events, const char *name) {
    const struct td_json *e = events->first;
    while (e && strcmp(name_of(e), name) != 0) {
        e = e->next;
    }
    return e ? td_json_int(td_json_get(e, "tid"), -1) : -1;
}

static void test_timeline_has_each_segment_and_no_bit_changes_when_ranks_write_one(void **state) {
    static const char *const accelerators[] = {"reference", "far"};
    static const char *const precisions[] = {"32-true", "16-mixed"};
    char plain[TD_FS_PATH_BYTES], traced[TD_FS_PATH_BYTES];
    trace_dir = *state;
    for (size_t i = 0; i < TD_COUNTOF(accelerators) * TD_COUNTOF(precisions); i++) {
        struct job j = job_of(accelerators[i % 2], precisions[i / 2]);
        snprintf(plain, sizeof plain, "%s/plain-%zu", (char *)*state, i);
        snprintf(traced, sizeof traced, "%s/traced-%zu", (char *)*state, i);
        const int64_t steps = run_job(&j, plain).step;
        j.change = set_trace_dir;
        assert_int_equal(run_job(&j, traced).step, steps);
        expect_same(plain, traced, steps);
        for (int rank = 0; rank < RANKS; rank++) {
            TD_AUTO(td_arena) *arena = NULL;
            assert_ok(td_arena_create(8 << 20, &arena));
            const struct td_json *events = read_timeline(arena, rank);
            assert_true(count(events, "batch") >=
                        2 * steps); // a window has two, the last perhaps one
            assert_int_equal(count(events, "forward"), count(events, "batch"));
            assert_int_equal(count(events, "backward"), count(events, "batch"));
            assert_true(count(events, "apply") >= steps);
            assert_true(count(events, "bucket ") > steps);
            assert_true(count(events, "save") > 0);
        }
    }
}

static td_status facts_of_nodes(struct td_collective_facts *out_facts) {
    const struct td_collective_ops *shm = td_collective_shm.ops;
    TD_TRY(shm->facts(out_facts));
    out_facts->joins_nodes = true;
    return TD_OK;
}

static void test_timeline_shows_buckets_beside_backward_when_a_thread_reduces_them(void **state) {
    struct td_collective_ops ops = *(const struct td_collective_ops *)td_collective_shm.ops;
    const struct td_plugin_desc nodes = TD_PLUGIN_DESC(COLLECTIVE, "shm", "of nodes", &ops);
    struct job j = job_of("reference", "32-true");
    TD_AUTO(td_arena) *arena = NULL;
    assert_ok(td_arena_create(8 << 20, &arena));
    ops.facts = facts_of_nodes;
    j.own = &nodes;
    j.change = set_trace_dir;
    trace_dir = *state;
    run_job(&j, *state);
    const struct td_json *events = read_timeline(arena, 0);
    assert_true(thread_of(events, "bucket 0") > 0);
    assert_true(thread_of(events, "bucket 0") != thread_of(events, "backward"));
    assert_int_equal(thread_of(events, "wait for buckets"), thread_of(events, "backward"));
    assert_int_equal(count(events, "thread_name"), 2);
}

static void test_rank_fails_when_its_timeline_has_no_directory(void **state) {
    char gone[TD_FS_PATH_BYTES];
    struct job j = job_of("reference", "32-true");
    struct ranks all;
    snprintf(gone, sizeof gone, "%s/gone", (char *)*state);
    j.change = set_trace_dir;
    trace_dir = gone;
    start_ranks(&all, &j, *state);
    join_ranks(&all);
    for (int32_t r = 0; r < j.world; r++) {
        assert_fails(all.rank[r].failed, TD_NOT_FOUND, "trainer.trace_dir: create '");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_timeline_has_each_segment_and_no_bit_changes_when_ranks_write_one),
        test_in_scratch(test_timeline_shows_buckets_beside_backward_when_a_thread_reduces_them),
        test_in_scratch(test_rank_fails_when_its_timeline_has_no_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
