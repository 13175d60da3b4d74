// Lines of rank 0 on their way to the reports child: whole, in their order, however they came. They
// are cut where they are too long, and dropped and counted where they are not taken.

#include "tests/unit/test.h"

#include <sys/socket.h>
#include <unistd.h>

#include "daemon/launcher/reports/lines.h"

static int theirs;

static void begin(struct td_launch_lines *l) {
    int s[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s), 0);
    *l = (struct td_launch_lines){.fd = s[0]};
    theirs = s[1];
}

static void end(struct td_launch_lines *l) {
    close(l->fd);
    close(theirs);
}

// All that has been sent, messages after each other; each is a byte of its kind and whole lines.
static const char *received(void) {
    static char text[1 << 20], message[TD_REPORT_BLOCK];
    size_t n = 0;
    for (ssize_t got; (got = recv(theirs, message, sizeof message, MSG_DONTWAIT)) > 0;) {
        assert_int_equal(message[0], TD_REPORT_LINES);
        assert_true(got == 1 || message[got - 1] == '\n' || message[got - 1] == '\r');
        assert_true(n + (size_t)got < sizeof text);
        memcpy(text + n, message + 1, (size_t)got - 1);
        n += (size_t)got - 1;
    }
    text[n] = '\0';
    return text;
}

static void test_lines_are_whole_however_they_are_cut(void **state) {
    (void)state;
    static const char text[] = "one\ntwo\r\nthree\rfour\n\nfive\r\r\nsix\n";
    for (size_t piece = 1; piece <= sizeof text; piece++) {
        struct td_launch_lines l;
        begin(&l);
        for (size_t at = 0; at < sizeof text - 1; at += piece) {
            td_launch_lines_take(&l, text + at, TD_MIN(piece, sizeof text - 1 - at));
        }
        assert_string_equal(received(), text);
        assert_true(l.dropped_bytes == 0);
        end(&l);
    }
}

static void test_last_line_counts_when_it_has_no_end(void **state) {
    (void)state;
    struct td_launch_lines l;
    begin(&l);
    td_launch_lines_take(&l, "a\nb", 3);
    assert_string_equal(received(), "a\n");
    td_launch_lines_end(&l);
    assert_string_equal(received(), "b\n");
    td_launch_lines_end(&l);
    assert_string_equal(received(), "");
    end(&l);
}

static void test_long_line_is_cut_and_still_too_long(void **state) {
    (void)state;
    static char text[3 * TD_REPORT_LINE];
    struct td_launch_lines l;
    begin(&l);
    memset(text, 'x', sizeof text);
    for (int i = 0; i < 100; i++) {
        td_launch_lines_take(&l, text, sizeof text);
    }
    td_launch_lines_take(&l, "x\nnext\n", 7);
    const char *got = received();
    assert_int_equal(strcspn(got, "\n"), TD_REPORT_LINE + 1);
    assert_string_equal(got + TD_REPORT_LINE + 1, "\nnext\n");
    end(&l);
}

static void test_lines_are_dropped_and_counted_when_nobody_takes_them(void **state) {
    (void)state;
    static char block[64 << 10];
    struct td_launch_lines l;
    size_t sent = 0;
    begin(&l);
    for (size_t i = 0; i < sizeof block; i++) {
        block[i] = i % 64 == 63 ? '\n' : 'y';
    }
    for (int i = 0; i < 100; i++, sent += sizeof block) {
        td_launch_lines_take(&l, block, sizeof block);
    }
    const size_t got = strlen(received());
    assert_true(got > 0 && got % sizeof block == 0);
    assert_true(got + l.dropped_bytes == sent);
    td_launch_lines_take(&l, "after\n", 6); // there is room again
    assert_string_equal(received(), "after\n");
    close(l.fd);
    l.fd = -1;
    td_launch_lines_take(&l, "nobody\n", 7);
    assert_true(got + l.dropped_bytes == sent + 7);
    end(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_are_whole_however_they_are_cut),
        cmocka_unit_test(test_last_line_counts_when_it_has_no_end),
        cmocka_unit_test(test_long_line_is_cut_and_still_too_long),
        cmocka_unit_test(test_lines_are_dropped_and_counted_when_nobody_takes_them),
    };
    return cmocka_run_group_tests_name("launcher_lines", tests, NULL, NULL);
}
