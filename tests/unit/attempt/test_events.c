// Events: every row is written and read back, what does not fit is refused by name, and the bytes
// of a line are those that older builds wrote and read.

#include <math.h>
#include <string.h>
#include <sys/socket.h>

#include "engine/train/events/events.h"
#include "tests/event_lines.h"
#include "tests/unit/test.h"

enum { ARENA_MAX = 1 << 20 };

struct rig {
    struct td_arena *arena;
    struct td_buf line;
};

static int make(void **state) {
    static struct rig r;
    td_buf_init(&r.line, ARENA_MAX);
    td_status s = td_arena_create(ARENA_MAX, &r.arena);
    *state = &r;
    return s ? -1 : 0;
}

static int unmake(void **state) {
    struct rig *r = *state;
    td_buf_finish(&r->line);
    td_arena_destroy(r->arena);
    return 0;
}

static td_status parse(struct rig *r, const char *line, struct td_event *out_event) {
    return td_event_parse(r->arena, line, strlen(line), out_event);
}

// ---- rows ---------------------------------------------------------------------------------------
// A value of its own for each field, so that none is taken for another.
static void fill(struct rig *r, struct td_event *e) {
    const struct td_event_row *row = &td_event_rows[e->kind];
    for (size_t at = row->first; at < (size_t)row->past; at++) {
        const struct td_event_field *f = &td_event_fields[at];
        void *to = td_unconst(event_member(e, f));
        struct td_json *tree = NULL;
        const char *text = f->type == TD_EVENT_FILES
                               ? "[{\"name\":\"m\",\"bytes\":3,\"digest\":\"d\"},{}]"
                               : "{\"a\":1.5,\"b\":2.5}";
        switch (f->type) {
        case TD_EVENT_INT:
            *(int64_t *)to = -1000 - (int64_t)at;
            break;
        case TD_EVENT_BOOL:
            *(bool *)to = true;
            break;
        case TD_EVENT_TEXT:
            *(const char **)to = td_arena_printf(r->arena, "%s \"%zu\"", f->name, at);
            break;
        case TD_EVENT_OBJECT:
        case TD_EVENT_FILES:
        case TD_EVENT_METRICS:
            assert_ok(td_json_parse(r->arena, text, strlen(text), &tree));
            *(const struct td_json **)to = tree;
            break;
        }
        e->has |= UINT64_C(1) << (at - row->first);
    }
}

static void test_each_row_comes_back_as_it_was_written(void **state) {
    struct rig *r = *state;
    for (int k = TD_EVENT_UNKNOWN + 1; k < TD_EVENT_COUNT; k++) {
        struct td_event e = {.kind = (enum td_event_kind)k, .rank = k, .real_ns = 100 + k}, again;
        td_buf_clear(&r->line);
        td_arena_reset(r->arena);
        fill(r, &e);
        assert_ok(event_write(&e, &r->line));
        assert_ok(td_event_parse(r->arena, r->line.data, r->line.len, &again));
        assert_true(event_same(&e, &again));
        assert_true(e.has == again.has);
        for (int other = TD_EVENT_UNKNOWN + 1; other < TD_EVENT_COUNT; other++) {
            assert_int_equal(td_event_line_is(r->line.data, r->line.len, (enum td_event_kind)other),
                             k == other);
        }
    }
}

static void test_each_row_has_a_writer_and_a_reader(void **state) {
    (void)state;
    for (int k = TD_EVENT_UNKNOWN + 1; k < TD_EVENT_COUNT; k++) {
        const struct td_event_row *row = &td_event_rows[k];
        assert_true(row->writers && row->readers && row->prose[0]);
        assert_int_equal(row->writers >> TD_PARTY_COUNT, 0);
        assert_false(td_event_is_written_by((enum td_event_kind)k, TD_PARTY_PEOPLE));
        assert_int_equal(td_event_kind_parse(row->name, strlen(row->name)), k);
        assert_int_equal(td_event_kind_parse(row->name, strlen(row->name) - 1), 0);
    }
}

// ---- what does not fit --------------------------------------------------------------------------
static void test_line_that_does_not_fit_its_row_is_refused_by_name(void **state) {
    static const struct {
        const char *line, *why;
    } rows[] = {
        {"{\"event\":\"checkpoint\",\"step\":7}", "event 'checkpoint' has no 'path'"},
        {"{\"event\":\"checkpoint\",\"step\":7.5,\"path\":\"a1/step-7\"}",
         "event 'checkpoint': 'step' is a real where an integer belongs"},
        {"{\"event\":\"note\",\"text\":null}", "event 'note': 'text' is null where a text belongs"},
        {"{\"event\":\"frozen\",\"plan\":[]}", "'plan' is an array where an object belongs"},
        {"{\"event\":\"resumed\",\"exact\":1}", "'exact' is an integer where a boolean belongs"},
        {"{\"event\":\"beats\",\"rank\":\"0\"}", "'rank' is a text where an integer belongs"},
        {"{\"event\":\"launcher_end\",\"outcome\":{}}", "'outcome' is an object where a text"},
        {"{\"event\":7}", "not an object with \"event\""},
        {"[\"event\"]", "not an object with \"event\""},
        {"{\"event\":\"end\"", "JSON line 1"},
    };
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        struct td_event e = {.rank = 42};
        assert_fails(parse(*state, rows[i].line, &e), TD_INVALID_ARGUMENT, rows[i].why);
        assert_int_equal(e.rank, 42); // untouched
    }
}

static void test_line_over_the_bound_is_refused(void **state) {
    struct rig *r = *state;
    struct td_event e;
    static char line[TD_SEGMENT_LINE_MAX + 1];
    memset(line, ' ', sizeof line);
    memcpy(line, "{\"event\":\"beats\"}", 17);
    assert_ok(td_event_parse(r->arena, line, sizeof line - 1, &e));
    assert_fails(td_event_parse(r->arena, line, sizeof line, &e), TD_INVALID_ARGUMENT, "at most");
}

static void test_what_no_row_has_is_passed_over(void **state) {
    struct td_event e;
    assert_ok(parse(*state, "{\"event\":\"tomorrow\",\"step\":\"x\",\"rank\":[]}", &e));
    assert_int_equal(e.kind, TD_EVENT_UNKNOWN);
    assert_ok(parse(*state, "{\"new\":[1],\"step\":3,\"event\":\"step1\",\"more\":null}", &e));
    assert_int_equal(e.kind, TD_EVENT_STEP1);
    assert_int_equal(e.step1.step, 3);
    assert_int_equal(e.rank, -1);
}

// A launcher of an older build wrote no lengths; readers then have defaults and can tell.
static void test_field_that_is_absent_reads_as_empty(void **state) {
    struct td_event e;
    assert_ok(parse(*state, "{\"event\":\"rank_exit\",\"rank\":1,\"code\":3}", &e));
    assert_int_equal(e.rank_exit.code, 3);
    assert_int_equal(e.rank_exit.metrics_bytes, 0);
    assert_string_equal(e.rank_exit.message, "");
    assert_true(TD_EVENT_HAS(&e.rank_exit, rank_exit, code));
    assert_false(TD_EVENT_HAS(&e.rank_exit, rank_exit, message));
}

static void test_prefix_of_a_line_is_no_event_when_it_is_cut(void **state) {
    (void)state;
    static const char line[] = "{\"event\":\"launcher_end\",\"outcome\":\"done\"}";
    assert_true(td_event_line_is(line, sizeof line - 1, TD_EVENT_LAUNCHER_END));
    assert_true(td_event_line_is(line, 23, TD_EVENT_LAUNCHER_END));
    assert_false(td_event_line_is(line, 22, TD_EVENT_LAUNCHER_END));
    assert_false(td_event_line_is(line, sizeof line - 1, TD_EVENT_END));
}

static void test_line_that_finds_no_room_is_an_error(void **state) {
    struct rig *r = *state;
    static char text[64];
    memset(text, 'x', sizeof text - 1);
    for (size_t room = 1; room < 80; room++) {
        TD_AUTO_BUF out;
        struct td_event_writer w;
        td_buf_init(&out, room);
        td_event_open(&w, TD_EVENT_NOTE, &out);
        td_event_note_text(&w, text);
        assert_fails(td_event_close(&w), TD_RESOURCE_EXHAUSTED, "");
    }
    assert_int_equal(r->line.len, 0);
}

// ---- the bytes ----------------------------------------------------------------------------------
static struct td_events *rank_events(int fds[2]) {
    static struct td_events e;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds), 0);
    td_events_init(&e, fds[0]);
    return &e;
}

static void assert_sent(int fd, const char *line) {
    static char got[TD_EVENT_MAX];
    ssize_t n = recv(fd, got, sizeof got - 1, MSG_DONTWAIT);
    assert_true(n > 0);
    got[n] = '\0';
    assert_string_equal(got, line);
}

static void test_events_of_a_rank_are_those_of_older_builds(void **state) {
    struct rig *r = *state;
    static const char plan[] = "{\"a\":[1,2.5],\"b\":{\"c\":null}}";
    int fds[2];
    struct td_json *tree = NULL;
    struct td_events *e = rank_events(fds);
    assert_ok(td_json_parse(r->arena, plan, sizeof plan - 1, &tree));
    td_events_step1(e, 3);
    assert_sent(fds[1], "{\"event\":\"step1\",\"step\":3}");
    td_events_resumed(e, 7, "");
    assert_sent(fds[1], "{\"event\":\"resumed\",\"step\":7,\"exact\":true,\"reason\":\"\"}");
    td_events_resumed(e, 7, "threads");
    assert_sent(fds[1],
                "{\"event\":\"resumed\",\"step\":7,\"exact\":false,\"reason\":\"threads\"}");
    td_events_skipped(e, "/a \"b\"", "caf\xc3\xa9\n");
    assert_sent(fds[1], "{\"event\":\"skipped_checkpoint\",\"path\":\"/a \\\"b\\\"\","
                        "\"reason\":\"caf\xc3\xa9\\n\"}");
    td_events_removed(e, 5, "a1/step-5");
    assert_sent(fds[1], "{\"event\":\"removed\",\"step\":5,\"path\":\"a1/step-5\"}");
    td_events_stage_start(e, "fit");
    assert_sent(fds[1], "{\"event\":\"stage\",\"stage\":\"fit\",\"state\":\"start\"}");
    td_events_stage_end(e, "fit", TD_OUTCOME_DONE);
    assert_sent(fds[1], "{\"event\":\"stage\",\"stage\":\"fit\",\"state\":\"done\"}");
    td_events_weights(e, "last");
    assert_sent(fds[1], "{\"event\":\"weights\",\"text\":\"last\"}");
    td_events_memory(e, 1, 2, 3, "none");
    assert_sent(fds[1], "{\"event\":\"memory\",\"state_bytes\":1,\"arena_bytes\":2,"
                        "\"scratch_bytes\":3,\"recompute\":\"none\"}");
    td_events_frozen(e, tree);
    assert_sent(fds[1], "{\"event\":\"frozen\",\"plan\":{\"a\":[1,2.5],\"b\":{\"c\":null}}}");
    td_events_note(e, "%d is odd\xff", 7);
    assert_sent(fds[1], "{\"event\":\"note\",\"text\":\"7 is odd\xef\xbf\xbd\"}");
    td_status s = td_status_with_class(td_fail(TD_DATA_LOSS, "gone"), TD_CLASS_DATA);
    td_events_end(e, TD_OUTCOME_FAILED, s, 9);
    td_status_free(s);
    assert_sent(fds[1], "{\"event\":\"end\",\"outcome\":\"failed\",\"class\":\"data\","
                        "\"code\":\"DATA_LOSS\",\"message\":\"gone\",\"step\":9}");
    e->ended = false;
    td_events_end(e, TD_OUTCOME_DONE, TD_OK, 9);
    assert_sent(fds[1], "{\"event\":\"end\",\"outcome\":\"done\",\"step\":9}");
    assert_int_equal(e->drops, 0);
    td_events_finish(e);
    close(fds[0]);
    close(fds[1]);
}

static void test_list_is_written_item_by_item(void **state) {
    struct rig *r = *state;
    struct td_event_writer w;
    struct td_event e;
    td_event_open(&w, TD_EVENT_CHECKPOINT, &r->line);
    td_event_checkpoint_step(&w, 7);
    td_event_checkpoint_epoch(&w, 1);
    td_event_checkpoint_path(&w, "a1/step-7");
    td_event_checkpoint_directory(&w, "/d");
    td_event_checkpoint_bytes(&w, 30);
    td_event_checkpoint_manifest(&w, "00");
    td_event_checkpoint_files(&w);
    td_event_add_file(&w, "m", 20, "01");
    td_event_add_file(&w, "n", 10, "02");
    td_event_end_list(&w);
    td_event_checkpoint_metrics(&w);
    td_event_add_metric(&w, "a", 0.5);
    td_event_add_metric(&w, "b", (double)NAN);
    td_event_end_list(&w);
    td_event_checkpoint_final(&w, true);
    assert_ok(td_event_close(&w));
    assert_string_equal(
        td_buf_cstr(&r->line),
        "{\"event\":\"checkpoint\",\"step\":7,\"epoch\":1,\"path\":\"a1/step-7\","
        "\"directory\":\"/d\",\"bytes\":30,\"manifest\":\"00\",\"files\":[{\"name\":"
        "\"m\",\"bytes\":20,\"digest\":\"01\"},{\"name\":\"n\",\"bytes\":10,"
        "\"digest\":\"02\"}],\"metrics\":{\"a\":0.5,\"b\":\"nan\"},\"final\":true}");
    assert_ok(td_event_parse(r->arena, r->line.data, r->line.len, &e));
    struct td_event_file last = td_event_file_of(e.checkpoint.files->last);
    assert_string_equal(last.name, "n");
    assert_int_equal(last.bytes, 10);
}

static void test_numbers_come_back_at_their_ends(void **state) {
    struct rig *r = *state;
    static const int64_t numbers[] = {INT64_MIN, -10, -1, 0, 9, 10, INT64_MAX};
    for (size_t i = 0; i < TD_COUNTOF(numbers); i++) {
        struct td_event e = {.kind = TD_EVENT_STEP1, .rank = numbers[i]}, again;
        char text[128];
        e.step1.step = numbers[i];
        td_buf_clear(&r->line);
        assert_ok(event_write(&e, &r->line));
        snprintf(text, sizeof text, "{\"event\":\"step1\",\"step\":%lld,", (long long)numbers[i]);
        assert_memory_equal(r->line.data, text, strlen(text));
        assert_ok(td_event_parse(r->arena, r->line.data, r->line.len, &again));
        assert_true(event_same(&e, &again));
    }
}

#define test_in_rig(f) cmocka_unit_test_setup_teardown(f, make, unmake)

// The numbers are stored in job records, and the names are in logs of older builds.
static void test_outcome_parses_back_when_any(void **state) {
    static const char *const names[] = {"", "done", "stopped", "killed", "failed"};
    (void)state;
    assert_int_equal(TD_COUNTOF(names), TD_OUTCOME_COUNT);
    for (int i = 0; i < TD_OUTCOME_COUNT; i++) {
        assert_string_equal(td_outcome_name((enum td_outcome)i), names[i]);
        assert_int_equal(td_outcome_parse(names[i]), i);
    }
    assert_int_equal(td_outcome_parse("Done"), TD_OUTCOME_NONE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_rig(test_each_row_comes_back_as_it_was_written),
        test_in_rig(test_each_row_has_a_writer_and_a_reader),
        test_in_rig(test_line_that_does_not_fit_its_row_is_refused_by_name),
        test_in_rig(test_line_over_the_bound_is_refused),
        test_in_rig(test_what_no_row_has_is_passed_over),
        test_in_rig(test_field_that_is_absent_reads_as_empty),
        test_in_rig(test_prefix_of_a_line_is_no_event_when_it_is_cut),
        test_in_rig(test_line_that_finds_no_room_is_an_error),
        test_in_rig(test_events_of_a_rank_are_those_of_older_builds),
        test_in_rig(test_list_is_written_item_by_item),
        test_in_rig(test_numbers_come_back_at_their_ends),
        cmocka_unit_test(test_outcome_parses_back_when_any),
    };
    return cmocka_run_group_tests_name("events", tests, NULL, NULL);
}
