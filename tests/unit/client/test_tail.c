// The last lines of streams whose bytes come in pieces.

#include "client/screen/tail.h"

#include <string.h>

#include "tests/unit/test.h"

static void expect(const struct td_tail *t, size_t stream, uint64_t offset, const char *text) {
    const struct td_tail_stream *s = &t->stream[stream];
    assert_int_equal(s->offset, offset);
    assert_int_equal(s->text.len, strlen(text));
    assert_memory_equal(s->text.data, text, strlen(text));
}

static void add(struct td_tail *t, size_t stream, uint64_t offset, const char *text) {
    assert_ok(td_tail_add(t, stream, offset, text, strlen(text)));
}

static void test_last_lines_are_kept_when_pieces_cut_them(void **state) {
    (void)state;
    struct td_tail t = {.n_lines = 2};
    add(&t, 1, 0, "one\ntw");
    add(&t, 0, 0, "alone\n");
    add(&t, 1, 6, "o\nthree");
    add(&t, 1, 13, "\n");
    assert_true(td_tail_cut(&t));
    expect(&t, 0, 0, "alone\n");
    expect(&t, 1, 4, "two\nthree\n");
    td_tail_clear(&t);
}

static void test_open_line_counts_when_it_is_the_last(void **state) {
    (void)state;
    struct td_tail t = {.n_lines = 1};
    add(&t, 0, 0, "a\n\nopen");
    assert_true(td_tail_cut(&t));
    expect(&t, 0, 3, "open");
    td_tail_clear(&t);
    add(&t, 0, 0, "a\n\n");
    assert_true(td_tail_cut(&t));
    expect(&t, 0, 2, "\n");
    td_tail_clear(&t);
}

static void test_more_is_asked_for_when_a_stream_begins_late_with_too_few_lines(void **state) {
    (void)state;
    struct td_tail t = {.n_lines = 3};
    add(&t, 0, 100, "half of a line\nand one\n");
    assert_false(td_tail_cut(&t));
    td_tail_clear(&t);
    add(&t, 0, 0, "all\nthere is\n");
    assert_true(td_tail_cut(&t));
    td_tail_clear(&t);
}

static void test_nothing_is_shown_but_the_end_is_known_when_no_line_is_asked_for(void **state) {
    (void)state;
    struct td_tail t = {.n_lines = 0};
    add(&t, 0, 7, "text\n");
    assert_true(td_tail_cut(&t));
    expect(&t, 0, 12, "");
    td_tail_clear(&t);
}

static void test_front_is_let_go_when_a_stream_is_larger_than_the_bound(void **state) {
    (void)state;
    static char piece[1 << 20];
    struct td_tail t = {.n_lines = 1};
    memset(piece, 'x', sizeof piece);
    uint64_t at = 0;
    for (; at < (uint64_t)TD_TAIL_BYTES_MAX + (3 << 20); at += sizeof piece) {
        assert_ok(td_tail_add(&t, 0, at, piece, sizeof piece));
    }
    assert_true(t.stream[0].text.len <= TD_TAIL_BYTES_MAX);
    assert_int_equal(t.stream[0].offset + t.stream[0].text.len, at);
    td_tail_clear(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_last_lines_are_kept_when_pieces_cut_them),
        cmocka_unit_test(test_open_line_counts_when_it_is_the_last),
        cmocka_unit_test(test_more_is_asked_for_when_a_stream_begins_late_with_too_few_lines),
        cmocka_unit_test(test_nothing_is_shown_but_the_end_is_known_when_no_line_is_asked_for),
        cmocka_unit_test(test_front_is_let_go_when_a_stream_is_larger_than_the_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
