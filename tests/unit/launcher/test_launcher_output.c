// What a rank prints, and what of it is in its files: the cap with its shares and tails, and lines
// that are written over.

#include "tests/unit/test.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/launcher/output.h"
#include "lib/attempt/segments.h"

enum { MIB = 1 << 20 };

struct printer {
    struct td_launch_stream out, err;
};

static int open_nameless(void) {
    char path[] = "/tmp/td-output-XXXXXX";
    int fd = mkostemp(path, O_APPEND | O_CLOEXEC);
    assert_true(fd >= 0 && unlink(path) == 0);
    return fd;
}

static void begin(struct printer *p) {
    *p = (struct printer){.out.file_fd = open_nameless(), .err.file_fd = open_nameless()};
    td_clock_fake(1000 * TD_NS_PER_S, 0);
}

static void end(struct printer *p) {
    td_output_finish(&p->out);
    td_output_finish(&p->err);
    close(p->out.file_fd);
    close(p->err.file_fd);
    td_clock_fake(-1, -1);
}

static void say(struct printer *p, const char *text) {
    td_output_take(&p->out, &p->err, text, strlen(text));
}

// What is in the file of stdout, all of it or its end.
static const char *text_of(const struct td_launch_stream *s, size_t at_most) {
    static char text[MIB];
    const size_t n = TD_MIN((size_t)s->file_bytes, at_most);
    assert_true(n < sizeof text);
    assert_true(pread(s->file_fd, text, n, (off_t)(s->file_bytes - n)) == (ssize_t)n);
    text[n] = '\0';
    return text;
}

// ---- lines that are written over ----------------------------------------------------------------
static void test_what_is_no_bar_is_written_as_it_is(void **state) {
    (void)state;
    static const char *const rows[] = {"one\ntwo", "a\r\nb\r\n", "no end", "", "\r\n", "\n\n\r\n"};
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        for (int by_byte = 0; by_byte < 2; by_byte++) {
            struct printer p;
            begin(&p);
            for (const char *c = rows[i]; by_byte && *c; c++) {
                td_output_take(&p.out, &p.err, c, 1);
            }
            if (!by_byte) say(&p, rows[i]);
            if (rows[i][0] && rows[i][strlen(rows[i]) - 1] != '\r') {
                assert_string_equal(text_of(&p.out, MIB), rows[i]); // at once
            }
            td_output_end(&p.out, &p.err);
            assert_string_equal(text_of(&p.out, MIB), rows[i]);
            end(&p);
        }
    }
}

// A bar of 100000 versions in 1000 s: one each ten seconds, and the last.
static void test_bar_is_a_line_each_ten_seconds_and_its_last(void **state) {
    (void)state;
    struct printer p;
    char text[64];
    begin(&p);
    for (int i = 0; i < 100000; i++) {
        td_clock_fake(1000 * TD_NS_PER_S + i * (TD_NS_PER_S / 100), 0);
        snprintf(text, sizeof text, "\r%3d%%|###   | %d/100000", i / 1000, i);
        say(&p, text);
    }
    say(&p, "\r100%|######| done\nafter it\n");
    const char *file = text_of(&p.out, MIB);
    size_t n_lines = 0;
    for (const char *c = file; (c = strchr(c, '\n')); c++) {
        n_lines++;
    }
    assert_in_range(n_lines, 100, 103);
    assert_true(strncmp(file, "  0%|###   | 0/100000\n", 22) == 0 && !strchr(file, '\r'));
    assert_non_null(strstr(file, "\n100%|######| done\nafter it\n"));
    assert_int_equal(p.out.dropped_bytes, 0);
    end(&p);
}

static void expect(const char *const *pieces, size_t n, const char *want) {
    struct printer p;
    begin(&p);
    for (size_t i = 0; i < n; i++) {
        say(&p, pieces[i]);
    }
    td_output_end(&p.out, &p.err);
    assert_string_equal(text_of(&p.out, MIB), want);
    end(&p);
}
#define EXPECT(want, ...)                                                                          \
    expect((const char *const[]){__VA_ARGS__},                                                     \
           sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *), want)

static void test_versions_come_in_any_pieces_and_end_in_any_way(void **state) {
    (void)state;
    EXPECT("a\nc\n", "a\rb\rc\n");
    EXPECT("a\nc\n", "a", "\r", "b\r", "c", "\n");
    EXPECT("a\nc\n", "a\rb\rc"); // the process ended with it
    EXPECT("a\nb\n", "a\rb\r");
    EXPECT("a\nb\nnext\n", "a\rb\r\nnext\n");
    EXPECT("a\ndone\n", "\ra\rb\r     \rdone\n"); // leave=False: what a terminal shows at last
    EXPECT("a\nb\n", "\ra\rb\r");
    EXPECT("Traceback\n", "\rTraceback\n");
    EXPECT("a\nb: Traceback\n  x\n", "\ra\rb: Traceback\n  x\n");
}

// Random text of the bytes that mean something, as one piece and in pieces.
static void test_pieces_do_not_matter(void **state) {
    (void)state;
    static const char *const words[] = {"a", "bc", " ", "\r", "\n", "\r\n", "\x1b[A"};
    uint32_t x = 1;
    for (int round = 0; round < 3000; round++) {
        char text[256] = "";
        for (int i = 0; i < 30; i++) {
            x = x * 1664525 + 1013904223;
            strncat(text, words[(x >> 16) % TD_COUNTOF(words)], sizeof text - strlen(text) - 1);
        }
        char *want = NULL;
        for (int by = 0; by < 3; by++) {
            struct printer p;
            const size_t len = strlen(text), step = by == 0 ? len : by == 1 ? 1 : 3;
            begin(&p);
            for (size_t at = 0; at < len; at += step) {
                td_output_take(&p.out, &p.err, text + at, TD_MIN(step, len - at));
            }
            td_output_end(&p.out, &p.err);
            const char *file = text_of(&p.out, MIB);
            if (!want) want = strdup(file);
            assert_string_equal(file, want);
            end(&p);
        }
        free(want);
    }
}

// tqdm's, one below the other.
static void test_bars_below_each_other_are_taken_for_one(void **state) {
    (void)state;
    struct printer p;
    begin(&p);
    say(&p, "\repochs 0\n\rsteps 0\x1b[A");
    for (int i = 0; i < 1000; i++) {
        say(&p, "\n\rsteps n\x1b[A\repochs n");
    }
    say(&p, "\n\rsteps last\x1b[A\repochs last\ndone\nmore\n");
    td_output_end(&p.out, &p.err);
    const char *file = text_of(&p.out, MIB);
    assert_true(strlen(file) < 100 && strncmp(file, "epochs 0\n", 9) == 0);
    assert_non_null(strstr(file, "epochs last\ndone\nmore\n"));
    assert_null(strchr(file, '\x1b'));
    end(&p);
}

static void test_version_that_stands_still_is_shown(void **state) {
    (void)state;
    struct printer p;
    begin(&p);
    say(&p, "\r1%\r2%\r3%");
    assert_string_equal(text_of(&p.out, MIB), "1%\n");
    td_clock_fake(1009 * TD_NS_PER_S, 0);
    td_output_look(&p.out, &p.err, td_mono_now());
    assert_string_equal(text_of(&p.out, MIB), "1%\n");
    td_clock_fake(1010 * TD_NS_PER_S, 0);
    td_output_look(&p.out, &p.err, td_mono_now());
    assert_string_equal(text_of(&p.out, MIB), "1%\n3%\n");
    say(&p, "\n"); // that line is there
    say(&p, "end\n");
    assert_string_equal(text_of(&p.out, MIB), "1%\n3%\nend\n");
    end(&p);
}

static void test_long_line_is_no_version(void **state) {
    (void)state;
    struct printer p;
    char line[3001];
    memset(line, 'x', 3000);
    line[3000] = '\0';
    begin(&p);
    say(&p, "\r1%\r");
    say(&p, line);
    say(&p, "\n");
    const char *file = text_of(&p.out, MIB);
    assert_true(strncmp(file, "1%\nxxx", 6) == 0 && strlen(file) == 3 + 3001);
    end(&p);
}

// ---- the cap ------------------------------------------------------------------------------------
static void flood(struct td_launch_stream *s, const struct td_launch_stream *other, size_t bytes) {
    static char block[MIB];
    memset(block, 'x', sizeof block);
    for (size_t i = 63; i < sizeof block; i += 64) {
        block[i] = '\n';
    }
    for (; bytes; bytes -= TD_MIN(bytes, sizeof block)) {
        td_output_take(s, other, block, TD_MIN(bytes, sizeof block));
    }
}

static void test_stderr_has_room_when_stdout_filled_the_log(void **state) {
    (void)state;
    struct printer p;
    begin(&p);
    flood(&p.out, &p.err, (size_t)100 * MIB);
    td_output_take(&p.err, &p.out, "Traceback: why\n", 15);
    assert_string_equal(text_of(&p.err, MIB), "Traceback: why\n");
    flood(&p.err, &p.out, (size_t)100 * MIB);
    td_output_end(&p.out, &p.err);
    td_output_end(&p.err, &p.out);
    assert_in_range(p.err.file_bytes, TD_OUTPUT_OWN - MIB, TD_OUTPUT_OWN + MIB);
    assert_in_range(p.out.file_bytes + p.err.file_bytes, TD_SEGMENT_LOG_MAX - MIB,
                    TD_SEGMENT_LOG_MAX);
    end(&p);
}

static void test_last_words_are_kept_past_the_cap(void **state) {
    (void)state;
    struct printer p;
    begin(&p);
    flood(&p.err, &p.out, (size_t)100 * MIB);
    const uint64_t before = p.err.file_bytes;
    td_output_take(&p.err, &p.out, "Traceback: why\n", 15);
    assert_true(p.err.file_bytes == before);
    td_output_end(&p.err, &p.out);
    const char *last = text_of(&p.err, TD_OUTPUT_TAIL + 200);
    char mark[128];
    snprintf(mark, sizeof mark, "[traind: %llu bytes past the log cap are left out here]\n",
             (unsigned long long)p.err.dropped_bytes);
    const char *at = strstr(last, mark);
    assert_non_null(at);
    assert_true(at[strlen(mark)] == 'x' && strstr(at, "x\nTraceback: why\n"));
    assert_true(p.err.file_bytes - strlen(mark) + p.err.dropped_bytes == 100ULL * MIB + 15);
    end(&p);
}

static void test_nothing_is_left_out_when_the_rest_fits_the_tail(void **state) {
    (void)state;
    struct printer p;
    begin(&p);
    flood(&p.out, &p.err, TD_SEGMENT_LOG_MAX - TD_OUTPUT_OWN - 2 * TD_OUTPUT_TAIL);
    td_output_end(&p.out, &p.err);
    assert_true(p.out.file_bytes == TD_SEGMENT_LOG_MAX - TD_OUTPUT_OWN - 2 * TD_OUTPUT_TAIL);
    assert_int_equal(p.out.dropped_bytes, 0);
    end(&p);
}

static void test_disk_that_takes_nothing_is_counted(void **state) {
    (void)state;
    struct printer p;
    begin(&p);
    close(p.out.file_fd);
    p.out.file_fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    say(&p, "lost\n");
    assert_true(p.out.file_bytes == 0 && p.out.dropped_bytes == 5);
    end(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_no_bar_is_written_as_it_is),
        cmocka_unit_test(test_bar_is_a_line_each_ten_seconds_and_its_last),
        cmocka_unit_test(test_versions_come_in_any_pieces_and_end_in_any_way),
        cmocka_unit_test(test_pieces_do_not_matter),
        cmocka_unit_test(test_bars_below_each_other_are_taken_for_one),
        cmocka_unit_test(test_version_that_stands_still_is_shown),
        cmocka_unit_test(test_long_line_is_no_version),
        cmocka_unit_test(test_stderr_has_room_when_stdout_filled_the_log),
        cmocka_unit_test(test_last_words_are_kept_past_the_cap),
        cmocka_unit_test(test_nothing_is_left_out_when_the_rest_fits_the_tail),
        cmocka_unit_test(test_disk_that_takes_nothing_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
