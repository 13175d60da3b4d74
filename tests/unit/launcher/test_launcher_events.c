// What a launcher keeps of a rank's events.

#include <string.h>
#include <sys/socket.h>

#include "daemon/launcher/rank.h"
#include "lib/base/buf.h"
#include "tests/unit/test.h"

// The message of an "end" event of so many bytes, as the launcher has it afterwards.
static void end_with(const char *dir, size_t bytes, struct td_launch_rank *r) {
    TD_AUTO_BUF line;
    TD_AUTO_FREE char *message = calloc(1, bytes + 1);
    struct td_journal journal;
    int fds[2];
    memset(message, 'x', bytes);
    td_buf_init(&line, TD_EVENT_MAX);
    assert_ok(td_buf_printf(&line, "{\"event\":\"end\",\"outcome\":\"failed\",\"message\":\"%s\"}",
                            message));
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, fds), 0);
    assert_int_equal(write(fds[1], line.data, line.len), (ssize_t)line.len);
    assert_ok(td_journal_init(&journal, dir));
    *r = (struct td_launch_rank){.events_fd = fds[0], .proc = {.pidfd = -1}};
    td_launch_rank_drain_events(r, &journal);
    td_journal_finish(&journal);
    close(fds[0]);
    close(fds[1]);
}

static void test_reason_of_a_failure_is_kept_whole_or_says_that_it_is_cut(void **state) {
    static struct td_launch_rank r;
    end_with(*state, 2000, &r);
    assert_true(r.said_failed);
    assert_int_equal(strlen(r.end_message), 2000);
    end_with(*state, 10000, &r);
    assert_int_equal(strlen(r.end_message), TD_EVENT_TEXT_BYTES - 1);
    assert_string_equal(r.end_message + TD_EVENT_TEXT_BYTES - 5, "x...");
}

// What follows an empty message is read, also when its writer has closed the socket by then.
static void test_events_go_on_after_an_empty_message(void **state) {
    static const char note[] = "{\"event\":\"end\",\"outcome\":\"failed\",\"message\":\"m\"}";
    static struct td_launch_rank r;
    struct td_journal journal;
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, fds), 0);
    assert_ok(td_journal_init(&journal, *state));
    r = (struct td_launch_rank){.events_fd = fds[0], .proc = {.pidfd = -1}};
    assert_int_equal(send(fds[1], "", 0, 0), 0);
    td_launch_rank_drain_events(&r, &journal);
    assert_int_equal(r.events_fd, fds[0]);
    assert_int_equal(send(fds[1], "", 0, 0), 0);
    assert_int_equal(write(fds[1], note, sizeof note - 1), sizeof note - 1);
    assert_int_equal(send(fds[1], "", 0, 0), 0);
    close(fds[1]);
    td_launch_rank_drain_events(&r, &journal);
    assert_true(r.said_failed);
    assert_int_equal(r.events_fd, -1);
    td_journal_finish(&journal);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_events_go_on_after_an_empty_message),
        test_in_scratch(test_reason_of_a_failure_is_kept_whole_or_says_that_it_is_cut),
    };
    return cmocka_run_group_tests_name("launcher_events", tests, NULL, NULL);
}
