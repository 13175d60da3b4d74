// Log lines as they arrive on descriptor 2: one line each, escaped, cut so that the context stays.
// Each test puts a pipe in the place of stderr for as long as it writes.

#include <fcntl.h>

#include "lib/base/clock.h"
#include "lib/base/cpu_level.h"
#include "lib/base/log.h"
#include "tests/unit/test.h"

static int saved_fd, read_fd;

static void begin(void) {
    int fds[2];
    assert_int_equal(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
    saved_fd = dup(STDERR_FILENO);
    dup2(fds[1], STDERR_FILENO);
    close(fds[1]);
    read_fd = fds[0];
    td_clock_fake(-1, 0);
}

static const char *end(void) {
    static char text[8192];
    dup2(saved_fd, STDERR_FILENO);
    close(saved_fd);
    ssize_t n = read(read_fd, text, sizeof text - 1);
    text[TD_MAX(n, 0)] = '\0';
    close(read_fd);
    td_clock_fake(-1, -1);
    return text;
}

static void test_line_has_time_level_and_context_when_written(void **state) {
    (void)state;
    begin();
    td_log_context("job", "j1");
    td_log_context("node", "a \"b\"");
    td_log_warn("worker lost rank=%d", 3);
    td_log_context("job", NULL);
    td_log_info("next");
    td_log_context("node", NULL);
    td_log_context("absent", NULL);
    assert_string_equal(end(), "1970-01-01T00:00:00.000Z warn worker lost rank=3 job=j1 "
                               "node=\"a \\\"b\\\"\"\n"
                               "1970-01-01T00:00:00.000Z info next node=\"a \\\"b\\\"\"\n");
}

// What a daemon and a rank log of a processor that is made up.
static const char *logged_of(const struct td_cpu_words *w) {
    char gap[TD_CPU_GAP_BYTES];
    (void)td_cpu_level_of(w, gap);
    begin();
    td_log_cpu_gap(gap);
    return end();
}

static void test_level_that_is_left_is_a_warning_when_a_flag_is_hidden(void **state) {
    (void)state;
    struct td_cpu_words w = {~0u, ~0u, ~0u, ~0u, ~0u, ~UINT64_C(0)};
    assert_string_equal(logged_of(&w), "");
    w.leaf1_ecx &= ~(1u << 12);
    assert_string_equal(logged_of(&w), "1970-01-01T00:00:00.000Z warn avx2 without fma: CPU level "
                                       "generic, continuing\n");
    w.leaf1_ecx = ~0u;
    w.leaf7_ebx &= ~(1u << 30);
    assert_string_equal(logged_of(&w), "1970-01-01T00:00:00.000Z warn avx512f without avx512bw: "
                                       "CPU level avx2, continuing\n");
}

static void test_controls_are_escaped_when_in_a_message(void **state) {
    (void)state;
    begin();
    td_log_error("a\nb\x1b[31m\x7f");
    assert_string_equal(end(), "1970-01-01T00:00:00.000Z error a\\nb\\x1b[31m\\x7f\n");
}

static void test_line_is_silent_when_below_the_level(void **state) {
    (void)state;
    enum td_log_level level;
    begin();
    td_log_debug("no");
    assert_ok(td_log_level_parse("debug", &level));
    td_log_set_level(level);
    td_log_debug("yes");
    td_log_set_level(TD_LOG_INFO);
    assert_string_equal(end(), "1970-01-01T00:00:00.000Z debug yes\n");
    assert_fails(td_log_level_parse("loud", &level), TD_INVALID_ARGUMENT, "'loud'");
}

static void test_message_is_cut_and_context_kept_when_line_is_long(void **state) {
    (void)state;
    char big[5000];
    memset(big, '\n', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    begin();
    td_log_context("job", "j1");
    td_log_info("%s", big);
    td_log_context("job", NULL);
    const char *text = end();
    size_t len = strlen(text);
    assert_in_range(len, 2040, 2048);
    assert_string_equal(text + len - 10, "\\n job=j1\n");
}

static void test_context_is_bounded_when_many_pairs(void **state) {
    (void)state;
    char big[300];
    memset(big, 'v', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    begin();
    for (int i = 0; i < 20; i++) {
        char key[8];
        snprintf(key, sizeof key, "k%d", i);
        td_log_context(key, big);
    }
    td_log_info("x");
    for (int i = 0; i < 20; i++) {
        char key[8];
        snprintf(key, sizeof key, "k%d", i);
        td_log_context(key, NULL);
    }
    const char *text = end();
    assert_non_null(strstr(text, " k7=v"));
    assert_null(strstr(text, " k8="));
    assert_int_equal(strlen(text), 32 + 8 * (4 + 63));
}

static void test_lines_begin_with_their_priority_when_the_journal_reads_them(void **state) {
    (void)state;
    begin();
    td_log_for_journal(true);
    td_log_error("one");
    td_log_info("two");
    td_log_for_journal(false);
    td_log_warn("three");
    assert_string_equal(end(), "<3>1970-01-01T00:00:00.000Z error one\n"
                               "<6>1970-01-01T00:00:00.000Z info two\n"
                               "1970-01-01T00:00:00.000Z warn three\n");
}

static void test_status_is_consumed_when_logged(void **state) {
    (void)state;
    begin();
    td_status_log(TD_LOG_ERROR, TD_OK, "nothing");
    td_status s = td_status_with_reason(td_fail(TD_NOT_FOUND, "no shard"), "SHARD_MISSING");
    td_status_log(TD_LOG_ERROR, td_status_with_class(s, TD_CLASS_DATA), "restore");
    assert_string_equal(end(), "1970-01-01T00:00:00.000Z error restore: no shard code=NOT_FOUND "
                               "reason=SHARD_MISSING class=data\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_line_has_time_level_and_context_when_written),
        cmocka_unit_test(test_level_that_is_left_is_a_warning_when_a_flag_is_hidden),
        cmocka_unit_test(test_controls_are_escaped_when_in_a_message),
        cmocka_unit_test(test_line_is_silent_when_below_the_level),
        cmocka_unit_test(test_message_is_cut_and_context_kept_when_line_is_long),
        cmocka_unit_test(test_context_is_bounded_when_many_pairs),
        cmocka_unit_test(test_lines_begin_with_their_priority_when_the_journal_reads_them),
        cmocka_unit_test(test_status_is_consumed_when_logged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
