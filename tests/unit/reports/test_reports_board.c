// What event files become in messages to the launcher: names of series, and the rule of what was
// there before. Where a child that takes another's place goes on, and what is said at the end.

#include "daemon/worker/reports/board.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "daemon/worker/reports/sink.h"
#include "lib/attempt/report_message.h"
#include "lib/base/files/path_rules.h"
#include "tests/unit/reports/board_rig.h"
#include "tests/unit/scratch_rig.h"

#define SINCE 1000 // seconds

struct rig {
    int fds[2];
    struct td_loop *loop;
    struct td_report_sink *sink;
    struct td_board *board;
};

static void begin(struct rig *r, void **state, const char *kept) {
    char settings[2048];
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *v;
    snprintf(settings, sizeof settings, "{\"dir\":\"%s\",\"rules\":\"\",\"since\":%d000000000}",
             (char *)*state, SINCE);
    assert_ok(td_arena_create(1 << 16, &arena));
    assert_ok(td_json_parse(arena, settings, strlen(settings), &v));
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, r->fds), 0);
    assert_ok(td_loop_create(&r->loop));
    assert_ok(td_report_sink_create(r->fds[0], &r->sink));
    assert_ok(td_board_create(v, r->loop, r->sink, &r->board));
    td_board_begin(r->board, kept, strlen(kept));
}

static void end(struct rig *r) {
    td_board_destroy(r->board);
    td_report_sink_destroy(r->sink);
    td_loop_destroy(r->loop);
    close(r->fds[0]);
    close(r->fds[1]);
}

// Everything that is said when all is over.
static const char *say_all(struct rig *r) {
    static char text[1 << 20];
    size_t n = 0;
    td_board_end(r->board);
    td_report_sink_flush(r->sink);
    for (ssize_t got; (got = recv(r->fds[1], text + n, sizeof text - n - 1, MSG_DONTWAIT)) > 0;) {
        assert_true(got <= TD_REPORT_MAX);
        n += (size_t)got;
    }
    text[n] = '\0';
    return text;
}

static int count(const char *text, const char *words) {
    int n = 0;
    for (; (text = strstr(text, words)); text++) {
        n++;
    }
    return n;
}

static void write_file(void **state, const char *name, const struct td_buf *bytes) {
    assert_ok(td_fs_write(in(state, name), bytes->data, bytes->len, 0600, 0));
}

static void test_series_is_named_by_directory_and_tag(void **state) {
    struct rig r;
    TD_AUTO_BUF b;
    td_buf_init(&b, 1 << 16);
    assert_int_equal(mkdir(in(state, "run"), 0700), 0);
    assert_int_equal(mkdir(in(state, "run/val"), 0700), 0);
    put_scalar(&b, SINCE + 1, 3, "loss", 0.5f);
    write_file(state, "tfevents.1", &b);
    write_file(state, "run/val/tfevents.1", &b);
    begin(&r, state, "");
    const char *text = say_all(&r);
    assert_int_equal(count(text, "{\"rank\":0,\"step\":3,\"metrics\":{\"loss\":0.5},\"aside\":true,"
                                 "\"kept\":[\""),
                     1);
    assert_int_equal(count(text, "\"metrics\":{\"run/val/loss\":0.5}"), 1);
    assert_int_equal(count(text, "\"note\""), 0);
    end(&r);
}

static void test_record_of_before_the_attempt_does_not_count(void **state) {
    struct rig r;
    TD_AUTO_BUF b;
    td_buf_init(&b, 1 << 16);
    put_scalar(&b, SINCE - 0.001, 1, "loss", 1);
    write_file(state, "tfevents.1", &b);
    begin(&r, state, "");
    const char *text = say_all(&r);
    assert_int_equal(count(text, "\"step\""), 0);
    assert_int_equal(count(text, "each of the 1 with scalars is before this attempt"), 1);
    end(&r);
    put_scalar(&b, SINCE, 2, "loss", 2);
    write_file(state, "tfevents.1", &b);
    begin(&r, state, "");
    text = say_all(&r);
    assert_int_equal(count(text, "\"step\":2"), 1);
    assert_int_equal(count(text, "\"step\"") + count(text, "\"note\""), 1);
    end(&r);
}

static void test_names_and_steps_that_no_metric_has_are_noted(void **state) {
    struct rig r;
    TD_AUTO_BUF b;
    char tag[300];
    td_buf_init(&b, 1 << 16);
    memset(tag, 't', sizeof tag - 1);
    tag[sizeof tag - 1] = '\0';
    put_scalar(&b, SINCE, 1, tag, 1);
    tag[64] = '\0';
    put_scalar(&b, SINCE, 1, tag, 1);
    put_scalar(&b, SINCE, 1, "", 1);
    put_scalar(&b, SINCE, -1, "loss", 1);
    put_scalar(&b, SINCE, (int64_t)1 << 31, "loss", 1);
    put_scalar(&b, SINCE, INT32_MAX, "loss", 7);
    write_file(state, "tfevents.1", &b);
    begin(&r, state, "");
    const char *text = say_all(&r);
    assert_int_equal(count(text, "\"loss\":"), 1);
    assert_int_equal(count(text, "\"step\":2147483647,\"metrics\":{\"loss\":7"), 1);
    assert_int_equal(count(text, "has step -1"), 1);
    assert_int_equal(count(text, "1 to 63 bytes"), 1);
    assert_int_equal(count(text, "in all 2 records that are no events"), 1);
    end(&r);
}

// The lines that the launcher would give to the next child.
static void keep(const char *text, char out[256]) {
    const char *pair = NULL;
    for (const char *at = text; (at = strstr(at, "\"kept\":[\"")); at++) {
        pair = at + strlen("\"kept\":[\""); // the last counts
    }
    assert_non_null(pair);
    const int name = (int)strcspn(pair, "\"");
    const char *second = pair + name + 3;
    snprintf(out, 256, "%.*s %.*s\n", name, pair, (int)strcspn(second, "\""), second);
}

static void test_next_child_takes_what_came_since(void **state) {
    struct rig r;
    char kept[256];
    TD_AUTO_BUF b;
    td_buf_init(&b, 1 << 16);
    put_scalar(&b, SINCE, 1, "loss", 1);
    put_scalar(&b, SINCE, 2, "loss", 2);
    int fd = open(in(state, "tfevents.1"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, b.data, b.len), b.len);
    begin(&r, state, "");
    const char *text = say_all(&r);
    assert_int_equal(count(text, "\"step\""), 2);
    keep(text, kept);
    end(&r);
    td_buf_clear(&b);
    put_scalar(&b, SINCE, 3, "loss", 3);
    assert_int_equal(write(fd, b.data, b.len), b.len);
    close(fd);
    begin(&r, state, kept);
    text = say_all(&r);
    assert_int_equal(count(text, "\"step\""), 1);
    assert_int_equal(count(text, "\"step\":3"), 1);
    assert_int_equal(count(text, "\"note\""), 0);
    end(&r);
}

static void test_records_come_while_they_are_written(void **state) {
    struct rig r;
    TD_AUTO_BUF b;
    char text[4096];
    ssize_t n = -1;
    td_buf_init(&b, 1 << 16);
    begin(&r, state, "");
    assert_ok(td_loop_run_for(r.loop, NULL, TD_NS_PER_MS));
    put_scalar(&b, SINCE, 1, "loss", 1);
    assert_int_equal(mkdir(in(state, "run"), 0700), 0);
    write_file(state, "run/tfevents.1", &b);
    for (int i = 0; i < 6000 && n < 0; i++) {
        assert_ok(td_loop_run_for(r.loop, NULL, 10 * TD_NS_PER_MS));
        td_report_sink_flush(r.sink);
        n = recv(r.fds[1], text, sizeof text - 1, MSG_DONTWAIT);
    }
    assert_true(n > 0);
    text[n] = '\0';
    assert_int_equal(count(text, "\"metrics\":{\"run/loss\":1"), 1);
    end(&r);
}

static void test_state_of_the_daemon_is_not_read(void **state) {
    char settings[4096], rules[2048];
    struct rig r = {.board = NULL};
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *v;
    TD_AUTO_BUF b;
    td_buf_init(&b, 1 << 16);
    put_scalar(&b, SINCE, 1, "loss", 1);
    write_file(state, "tfevents.1", &b);
    snprintf(rules, sizeof rules, "{\\\"owner\\\":true,\\\"state_dir\\\":\\\"%s\\\"}",
             (char *)*state);
    snprintf(settings, sizeof settings, "{\"dir\":\"%s\",\"rules\":\"%s\",\"since\":0}",
             (char *)*state, rules);
    assert_ok(td_arena_create(1 << 16, &arena));
    assert_ok(td_json_parse(arena, settings, strlen(settings), &v));
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, r.fds), 0);
    assert_ok(td_loop_create(&r.loop));
    assert_ok(td_report_sink_create(r.fds[0], &r.sink));
    assert_ok(td_board_create(v, r.loop, r.sink, &r.board));
    td_board_begin(r.board, "", 0);
    const char *text = say_all(&r);
    assert_int_equal(count(text, "may not read"), 1);
    assert_int_equal(count(text, "\"step\""), 0);
    end(&r);
    td_path_rules_forget();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_series_is_named_by_directory_and_tag),
        test_in_scratch(test_record_of_before_the_attempt_does_not_count),
        test_in_scratch(test_names_and_steps_that_no_metric_has_are_noted),
        test_in_scratch(test_next_child_takes_what_came_since),
        test_in_scratch(test_records_come_while_they_are_written),
        test_in_scratch(test_state_of_the_daemon_is_not_read),
    };
    return cmocka_run_group_tests_name("reports_board", tests, NULL, NULL);
}
