// The reports child's source of lines, and its sink: what a line becomes in a message to the
// launcher, and what is said of those that are left out.

#include "tests/unit/test.h"

#include <sys/socket.h>
#include <unistd.h>

#include "daemon/worker/reports/lines.h"
#include "daemon/worker/reports/sink.h"
#include "lib/attempt/report_message.h"

struct rig {
    int fds[2];
    struct td_report_sink *sink;
    struct td_report_lines *lines;
};

static void begin(struct rig *r, const char *pattern) {
    struct td_json text = {.kind = TD_JSON_STRING, .key = "pattern"};
    struct td_json settings = {
        .kind = TD_JSON_OBJECT, .first = &text, .last = &text, .n_children = 1};
    text.u.string.data = pattern;
    text.u.string.len = strlen(pattern);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, r->fds), 0);
    assert_ok(td_report_sink_create(r->fds[0], &r->sink));
    assert_ok(td_report_lines_create(&settings, r->sink, &r->lines));
}

// Everything that was said since.
static const char *said(struct rig *r) {
    static char text[1 << 20];
    size_t n = 0;
    td_report_sink_flush(r->sink);
    for (ssize_t got; (got = recv(r->fds[1], text + n, sizeof text - n - 1, MSG_DONTWAIT)) > 0;) {
        assert_true(got <= TD_REPORT_MAX);
        n += (size_t)got;
    }
    text[n] = '\0';
    return text;
}

static void finish(struct rig *r) {
    td_report_lines_destroy(r->lines);
    td_report_sink_destroy(r->sink);
    close(r->fds[0]);
    close(r->fds[1]);
}

static void take(struct rig *r, const char *text) {
    td_report_lines_take(r->lines, text, strlen(text));
}

static void test_line_is_a_report_when_it_matches(void **state) {
    (void)state;
    struct rig r;
    begin(&r, "s=(?P<step>\\d+)(/(?P<total>\\d+))?( e=(?P<epoch>\\S+))? l=(?P<l>\\S+)");
    take(&r, "hello\ns=1/9 e=2.5 l=0.5\nbar s=2 l=nan\rs=3 l=1e-3\r\ns=4 l=inf");
    assert_string_equal(
        said(&r), "{\"rank\":0,\"step\":1,\"total_steps\":9,\"epoch\":2,\"metrics\":{\"l\":0.5}}\n"
                  "{\"rank\":0,\"step\":2,\"metrics\":{\"l\":\"nan\"}}\n"
                  "{\"rank\":0,\"step\":3,\"metrics\":{\"l\":0.001}}\n"
                  "{\"rank\":0,\"step\":4,\"metrics\":{\"l\":\"inf\"}}\n");
    finish(&r);
}

static int count(const char *text, const char *words) {
    int n = 0;
    for (; (text = strstr(text, words)); text++) {
        n++;
    }
    return n;
}

static void test_what_is_left_out_is_noted_once_and_counted(void **state) {
    (void)state;
    static char wide[TD_REPORT_LINE + 2];
    struct rig r;
    begin(&r, "s=(?P<step>\\S+) l=(?P<l>\\S+)");
    memset(wide, 'w', sizeof wide - 1);
    take(&r, "s=1 l=0.3,\ns=2 l=0.2,\ns=x l=1\n");
    take(&r, wide);
    take(&r, wide);
    wide[TD_REPORT_LINE] = '\0'; // it fits
    take(&r, wide);
    char first[4096];
    snprintf(first, sizeof first, "%s", said(&r));
    assert_int_equal(count(first, "has '0.3,' where metrics_from.stdout has group 'l'"), 1);
    assert_int_equal(count(first, "longer than 4096 bytes"), 1);
    assert_int_equal(count(first, "\"note\""), 2);
    assert_int_equal(count(first, "\"step\":1"), 1); // the step is progress all the same
    td_report_lines_destroy(r.lines);
    r.lines = NULL;
    const char *last = said(&r);
    assert_int_equal(count(last, "3 values that are no number were left out"), 1);
    assert_int_equal(count(last, "2 lines over 4096 bytes were left out"), 1);
    finish(&r);
}

static void test_large_report_is_several_lines_of_one_step(void **state) {
    (void)state;
    enum { NAMES = 2000 };
    struct rig r;
    begin(&r, "(?P<step>\\d+)");
    const struct td_report report = {.rank = 3, .step = 5, .total_steps = -1, .epoch = -1};
    td_report_begin(r.sink, &report);
    td_report_value(r.sink, "", 1);
    td_report_value(r.sink, "", 1);
    for (int i = 0; i < NAMES; i++) {
        char name[64];
        snprintf(name, sizeof name, "a_name_that_is_rather_long_for_a_metric_%d", i);
        td_report_value(r.sink, name, i);
    }
    td_report_end(r.sink);
    const char *text = said(&r);
    assert_int_equal(count(text, "a_name_that"), NAMES);
    assert_int_equal(count(text, "\"note\""), 1);
    assert_int_equal(count(text, "\"step\":5"), count(text, "\n") - 1);
    assert_int_equal(count(text, "{\"rank\":3,"), count(text, "}}\n"));
    finish(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_line_is_a_report_when_it_matches),
        cmocka_unit_test(test_what_is_left_out_is_noted_once_and_counted),
        cmocka_unit_test(test_large_report_is_several_lines_of_one_step),
    };
    return cmocka_run_group_tests_name("report_lines", tests, NULL, NULL);
}
