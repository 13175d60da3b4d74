// What wraps another collective: `trace`, whose files are read back here, and
// examples/plugins/fault.c, which breaks one call of one rank. That calls still give what they gave
// is in tests/conform.

#include "tests/collective_ranks.h"

#include <sys/resource.h>

#include "tests/unit/test.h"

#include "lib/base/arena.h"
#include "lib/base/buf.h"
#include "lib/base/clock.h"
#include "lib/base/files/files.h"
#include "lib/base/json.h"

#include "examples/plugins/fault.c"

struct rig {
    struct td_arena *arena;
    char *folder;
    struct ranks ranks;
};

static struct td_json *parse(struct rig *g, const char *text) {
    struct td_json *v;
    assert_ok(td_json_parse(g->arena, text, strlen(text), &v));
    return v;
}

static void begin(struct rig *g, void **state, const struct td_plugin_desc *decorator,
                  const char *knobs_text) {
    *g = (struct rig){.folder = *state};
    assert_ok(td_arena_create(1 << 20, &g->arena));
    ranks_init_wrapped(&g->ranks, decorator, &td_collective_shm, parse(g, knobs_text), 2, 0);
}

static void end(struct rig *g) {
    ranks_free_statuses(&g->ranks);
    ranks_finish(&g->ranks);
    td_arena_destroy(g->arena);
}

// ---- trace --------------------------------------------------------------------------------------
static const struct td_json *read_trace(struct rig *g, int attempt, int rank) {
    TD_AUTO_BUF text;
    char path[512];
    td_buf_init(&text, 1 << 20);
    snprintf(path, sizeof path, "%s/trace-a%d-rank%d.json", g->folder, attempt, rank);
    assert_ok(td_fs_read(path, 1 << 20, &text));
    return parse(g, td_buf_cstr(&text))->first;
}

static void expect_event(const struct td_json *e, const char *name, int rank, int64_t bytes,
                         const char *dtype, const char *op) {
    const struct td_json *args = td_json_get(e, "args");
    assert_string_equal(td_json_string(td_json_get(e, "name"), ""), name);
    assert_string_equal(td_json_string(td_json_get(e, "ph"), ""), "X");
    assert_int_equal(td_json_int(td_json_get(e, "pid"), -1), rank);
    assert_int_equal(td_json_int(td_json_get(args, "bytes"), -1), bytes);
    assert_string_equal(td_json_string(td_json_get(args, "dtype"), ""), dtype);
    assert_string_equal(td_json_string(td_json_get(args, "op"), ""), op);
    assert_true(td_json_real(td_json_get(e, "dur"), -1) >= 0);
}

static void trace_knobs(char *out, size_t out_bytes, const char *folder, int max_events) {
    snprintf(out, out_bytes, "{\"dir\":\"%s\",\"max_events\":%d}", folder, max_events);
}

static td_status rank_few_calls(struct rank_ctx *r, void *arg) {
    (void)arg;
    float x[2] = {1, 2};
    const int32_t list[] = {0, 1};
    struct td_collective *g;
    TD_TRY(r->ops->all_reduce(r->c, x, 2, TD_F32, TD_REDUCE_PRODUCT));
    TD_TRY(r->ops->broadcast(r->c, x, 3, 0));
    TD_TRY(r->ops->group_create(r->c, list, 2, &g));
    return r->ops->barrier(g, "of the group");
}
static void test_trace_has_each_call_with_bytes_and_rank(void **state) {
    struct rig g;
    char knobs_text[512];
    trace_knobs(knobs_text, sizeof knobs_text, *state, 100);
    begin(&g, state, &td_collective_trace, knobs_text);
    g.ranks.attempt = 3;
    ranks_run(&g.ranks, rank_few_calls, NULL);
    ranks_ok(&g.ranks);
    for (int r = 0; r < 2; r++) {
        const struct td_json *e = read_trace(&g, 3, r);
        const double began = td_json_real(td_json_get(e, "ts"), 0);
        expect_event(e, "all_reduce", r, 8, "f32", "product");
        expect_event(e = e->next, "broadcast", r, 3, "", "");
        assert_true(td_json_real(td_json_get(e, "ts"), 0) > began);
        expect_event(e = e->next, "group_create", r, 0, "", "");
        expect_event(e = e->next, "barrier", r, 0, "", "");
        assert_int_equal(td_json_int(td_json_get(e, "tid"), 0), 1);
        assert_null(e->next);
    }
    end(&g);
}

static td_status rank_many_barriers(struct rank_ctx *r, void *arg) {
    for (int i = 0; i < *(const int *)arg; i++) {
        TD_TRY(r->ops->barrier(r->c, "again"));
    }
    return TD_OK;
}
static void test_trace_says_how_many_calls_it_left_out_when_it_is_full(void **state) {
    struct rig g;
    char knobs_text[512];
    int n = 1000, lines = 0;
    trace_knobs(knobs_text, sizeof knobs_text, *state, 700); // more than its buffer has room for
    begin(&g, state, &td_collective_trace, knobs_text);
    ranks_run(&g.ranks, rank_many_barriers, &n);
    ranks_ok(&g.ranks);
    const struct td_json *e = read_trace(&g, 1, 1);
    for (; e->next; e = e->next) {
        lines++;
    }
    assert_int_equal(lines, 700);
    assert_string_equal(td_json_string(td_json_get(e, "name"), ""), "the trace is full");
    const struct td_json *args = td_json_get(e, "args");
    assert_int_equal(td_json_int(td_json_get(args, "events_not_written"), 0), 300);
    n = 0;
    ranks_run(&g.ranks, rank_many_barriers, &n); // a file is not added to
    ranks_ok(&g.ranks);
    assert_null(read_trace(&g, 1, 0));
    end(&g);
}

static td_status rank_disagrees(struct rank_ctx *r, void *arg) {
    (void)arg;
    int32_t x = 0;
    if (r->rank) return r->ops->broadcast(r->c, &x, 4, 0);
    return r->ops->all_reduce(r->c, &x, 1, TD_I32, TD_REDUCE_SUM);
}
static void test_trace_ends_with_the_error_when_a_call_fails(void **state) {
    struct rig g;
    char knobs_text[512];
    trace_knobs(knobs_text, sizeof knobs_text, *state, 10);
    begin(&g, state, &td_collective_trace, knobs_text);
    ranks_run(&g.ranks, rank_disagrees, NULL);
    for (int r = 0; r < 2; r++) {
        const struct td_json *args = td_json_get(read_trace(&g, 1, r), "args");
        assert_non_null(g.ranks.status[r]);
        assert_string_equal(td_json_string(td_json_get(args, "error"), ""),
                            td_code_name(td_status_code(g.ranks.status[r])));
    }
    end(&g);
}

static td_status rank_barrier(struct rank_ctx *r, void *arg) {
    (void)arg;
    return r->ops->barrier(r->c, "one");
}
static void test_trace_is_refused_when_there_is_no_directory(void **state) {
    struct rig g;
    begin(&g, state, &td_collective_trace, "{\"dir\":\"/nowhere/at/all\",\"max_events\":5}");
    ranks_run(&g.ranks, rank_barrier, NULL);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(td_status_class(g.ranks.status[r]), TD_CLASS_BAD_SPEC);
        assert_non_null(strstr(td_status_message(g.ranks.status[r]), "trainer.collective.dir"));
    }
    end(&g);
}

static void test_attempt_ends_when_its_trace_cannot_be_written(void **state) {
    struct rig g;
    char knobs_text[512];
    struct rlimit before, none;
    trace_knobs(knobs_text, sizeof knobs_text, *state, 10);
    begin(&g, state, &td_collective_trace, knobs_text);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    none = before;
    none.rlim_cur = 16; // files may have so few bytes, as on a full disk
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    ranks_run(&g.ranks, rank_barrier, NULL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(td_status_class(g.ranks.status[r]), TD_CLASS_BAD_SPEC);
        assert_non_null(strstr(td_status_message(g.ranks.status[r]), "write the trace"));
    }
    end(&g);
}

// ---- fault --------------------------------------------------------------------------------------
static td_status rank_three_gathers(struct rank_ctx *r, void *arg) {
    uint32_t *out = arg; // (2, 3): what this rank got of itself, in each call
    for (int i = 0; i < 3; i++) {
        const uint32_t in = 7;
        uint32_t all[2] = {0};
        TD_TRY(r->ops->all_gather(r->c, &in, sizeof in, all));
        out[r->rank * 3 + i] = all[0];
    }
    return TD_OK;
}

static void test_one_call_of_one_rank_is_corrupt_when_a_fault_says_so(void **state) {
    struct rig g;
    uint32_t got[6];
    begin(&g, state, td_plugin_entry(),
          "{\"fault\":\"corrupt\",\"call\":2,\"rank\":1,\"delay_us\":0,\"attempts\":1}");
    ranks_run(&g.ranks, rank_three_gathers, got);
    ranks_ok(&g.ranks);
    const uint32_t want[6] = {7, 7, 7, 7, 0x80000007, 7};
    assert_memory_equal(got, want, sizeof want);
    g.ranks.attempt = 2; // is well
    ranks_run(&g.ranks, rank_three_gathers, got);
    ranks_ok(&g.ranks);
    assert_int_equal(got[4], 7);
    end(&g);
}

static td_status rank_two_kinds(struct rank_ctx *r, void *arg) {
    (void)arg;
    float x = 1;
    TD_TRY(r->ops->broadcast(r->c, &x, 4, 0));
    return r->ops->all_reduce(r->c, &x, 1, TD_F32, TD_REDUCE_SUM);
}
static void test_both_calls_are_named_when_one_was_dropped(void **state) {
    struct rig g;
    begin(&g, state, td_plugin_entry(),
          "{\"fault\":\"drop\",\"call\":1,\"rank\":0,\"delay_us\":0,\"attempts\":0}");
    ranks_run(&g.ranks, rank_two_kinds, NULL);
    int named = 0;
    for (int r = 0; r < 2; r++) {
        assert_int_equal(td_status_class(g.ranks.status[r]), TD_CLASS_USER_CODE);
        named += strstr(td_status_message(g.ranks.status[r]), "broadcast of 4 bytes") &&
                 strstr(td_status_message(g.ranks.status[r]), "all_reduce (sum) of 1 f32");
    }
    assert_true(named > 0);
    end(&g);
}

static void test_calls_take_longer_when_all_are_delayed(void **state) {
    struct rig g;
    uint32_t got[6];
    begin(&g, state, td_plugin_entry(),
          "{\"fault\":\"delay\",\"call\":0,\"rank\":0,\"delay_us\":5000,\"attempts\":0}");
    const struct td_mono start = td_mono_now();
    ranks_run(&g.ranks, rank_three_gathers, got);
    ranks_ok(&g.ranks);
    assert_true(td_mono_now().ns - start.ns >= 15 * TD_NS_PER_MS);
    end(&g);
}

static void test_fault_serves_no_groups_and_says_so(void **state) {
    (void)state;
    const struct td_collective_ops *o = td_plugin_entry()->ops;
    struct td_collective_facts f = {.struct_bytes = sizeof f};
    assert_ok(o->facts(&f));
    assert_true(f.wraps);
    assert_ok(td_collective_check_calls(&f, o, "fault"));
    assert_ok(td_collective_require(&f, "fault", TD_CALL_SEND_RECV));
    td_status s = td_collective_require(&f, "fault", TD_CALL_GROUPS);
    assert_int_equal(td_status_code(s), TD_UNIMPLEMENTED);
    td_status_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_trace_has_each_call_with_bytes_and_rank),
        test_in_scratch(test_trace_says_how_many_calls_it_left_out_when_it_is_full),
        test_in_scratch(test_trace_ends_with_the_error_when_a_call_fails),
        test_in_scratch(test_trace_is_refused_when_there_is_no_directory),
        test_in_scratch(test_attempt_ends_when_its_trace_cannot_be_written),
        test_in_scratch(test_one_call_of_one_rank_is_corrupt_when_a_fault_says_so),
        test_in_scratch(test_both_calls_are_named_when_one_was_dropped),
        test_in_scratch(test_calls_take_longer_when_all_are_delayed),
        test_in_scratch(test_fault_serves_no_groups_and_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
