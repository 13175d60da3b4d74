// Byte buffers: growth, the stated maximum, NUL after the contents; UTF-8 after the Unicode
// standard's table 3-7; edit distance.

#include "lib/base/buf.h"
#include "lib/base/utf8.h"
#include "tests/unit/test.h"

static void test_contents_grow_when_appended(void **state) {
    (void)state;
    TD_AUTO_BUF b;
    td_buf_init(&b, 1000);
    assert_string_equal(td_buf_cstr(&b), "");
    for (int i = 0; i < 100; i++) {
        assert_ok(td_buf_printf(&b, "%02d", i));
    }
    assert_int_equal(b.len, 200);
    assert_int_equal(strlen(td_buf_cstr(&b)), 200);
    td_buf_consume(&b, 190);
    assert_string_equal(td_buf_cstr(&b), "9596979899");
    assert_ok(td_buf_u32le(&b, 0x01020304));
    assert_ok(td_buf_u64le(&b, 0x05));
    assert_memory_equal(b.data + 10, "\x04\x03\x02\x01\x05\0\0\0\0\0\0\0\0", 13);
    td_buf_clear(&b);
    assert_string_equal(td_buf_cstr(&b), "");
}

static void test_append_changes_nothing_when_over_the_maximum(void **state) {
    (void)state;
    TD_AUTO_BUF b;
    td_buf_init(&b, 4);
    assert_ok(td_buf_str(&b, "abc"));
    assert_fails(td_buf_str(&b, "de"), TD_RESOURCE_EXHAUSTED, "at most 4 bytes");
    assert_fails(td_buf_printf(&b, "%d", 12), TD_RESOURCE_EXHAUSTED, "");
    assert_fails(td_buf_reserve(&b, SIZE_MAX), TD_RESOURCE_EXHAUSTED, "");
    assert_string_equal(td_buf_cstr(&b), "abc");
    assert_ok(td_buf_str(&b, "d"));
    assert_int_equal(b.len, 4);
    assert_fails(td_buf_str(&b, "e"), TD_RESOURCE_EXHAUSTED, "");
}

// There is room for a part of it: what was printed on trial is no contents.
static void test_print_is_whole_when_it_outgrows_its_memory(void **state) {
    (void)state;
    TD_AUTO_BUF b;
    td_buf_init(&b, 100);
    assert_ok(td_buf_str(&b, "0123456789012345678901234567890123456789"));
    assert_ok(td_buf_printf(&b, "%050d|", 7));
    assert_int_equal(b.len, 91);
    assert_string_equal(td_buf_cstr(&b) + 88, "07|");
    assert_fails(td_buf_printf(&b, "%d", 1234567890), TD_RESOURCE_EXHAUSTED, "");
    assert_int_equal(strlen(td_buf_cstr(&b)), 91);
    assert_ok(td_buf_printf(&b, "%d", 123456789)); // to the last byte
    assert_string_equal(td_buf_cstr(&b) + 88, "07|123456789");
}

static td_status fill(void *arg) {
    (void)arg;
    TD_AUTO_BUF b;
    td_buf_init(&b, 4096);
    for (int i = 0; i < 40; i++) {
        TD_TRY(td_buf_str(&b, "0123456789012345678901234567890123456789"));
    }
    TD_AUTO_FREE char *text = td_buf_take_cstr(&b);
    return text && strlen(text) == 1600 ? TD_OK : td_fail(TD_INTERNAL, "text is wrong");
}

static void test_buffer_survives_when_allocations_fail(void **state) {
    (void)state;
    td_test_failing_allocations(fill, NULL);
}

static void test_take_gives_a_string_when_empty(void **state) {
    (void)state;
    struct td_buf b;
    td_buf_init(&b, 10);
    TD_AUTO_FREE char *text = td_buf_take_cstr(&b);
    assert_string_equal(text, "");
    td_buf_finish(&b);
    td_buf_finish(&b);
}

static void test_scrub_leaves_utf8_when_characters_were_cut(void **state) {
    (void)state;
    static const char *const rows[][2] = {
        {"", ""},
        {"a\xc3\xa9", "a\xc3\xa9"},
        {"a\xc3", "a?"},
        {"\xe2\x82: b", "??: b"},
        {"\xed\xa0\x80\xf0\x9f\x98\x80", "???\xf0\x9f\x98\x80"},
    };
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        char text[16];
        snprintf(text, sizeof text, "%s", rows[i][0]);
        td_utf8_scrub(text);
        assert_string_equal(text, rows[i][1]);
    }
}

static void test_utf8_is_judged_when_at_the_edges(void **state) {
    (void)state;
    static const char *const good[] = {
        "",
        "plain",
        "\xc2\x80",
        "\xdf\xbf",
        "\xe0\xa0\x80",
        "\xed\x9f\xbf",
        "\xee\x80\x80",
        "\xef\xbf\xbf",
        "\xf0\x90\x80\x80",
        "\xf4\x8f\xbf\xbf",
        "a\xc3\xa9z",
    };
    static const char *const bad[] = {
        "\x80",             // continuation alone
        "\xc0\x80",         // overlong NUL
        "\xc1\xbf",         // overlong
        "\xc2",             // cut
        "\xc2\x41",         // no continuation
        "\xe0\x9f\xbf",     // overlong
        "\xe2\x82",         // cut
        "\xed\xa0\x80",     // surrogate
        "\xf0\x8f\xbf\xbf", // overlong
        "\xf4\x90\x80\x80", // past U+10FFFF
        "\xf5\x80\x80\x80",
        "\xff",
        "ok\xfe",
    };
    for (size_t i = 0; i < TD_COUNTOF(good); i++) {
        assert_true(td_utf8_valid(good[i], strlen(good[i])));
    }
    for (size_t i = 0; i < TD_COUNTOF(bad); i++) {
        assert_false(td_utf8_valid(bad[i], strlen(bad[i])));
    }
    assert_true(td_utf8_valid("a\0b", 3));
}

static void test_edit_distance_is_cut_when_far(void **state) {
    (void)state;
    assert_int_equal(td_edit_distance("devices", "devices", 3), 0);
    assert_int_equal(td_edit_distance("devcies", "devices", 3), 2);
    assert_int_equal(td_edit_distance("", "abc", 5), 3);
    assert_int_equal(td_edit_distance("kitten", "sitting", 9), 3);
    assert_int_equal(td_edit_distance("abcdef", "uvwxyz", 2), 3);
    char far[200];
    memset(far, 'a', sizeof far - 1);
    far[sizeof far - 1] = '\0';
    assert_int_equal(td_edit_distance(far, far, 2), 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contents_grow_when_appended),
        cmocka_unit_test(test_append_changes_nothing_when_over_the_maximum),
        cmocka_unit_test(test_print_is_whole_when_it_outgrows_its_memory),
        cmocka_unit_test(test_buffer_survives_when_allocations_fail),
        cmocka_unit_test(test_take_gives_a_string_when_empty),
        cmocka_unit_test(test_scrub_leaves_utf8_when_characters_were_cut),
        cmocka_unit_test(test_utf8_is_judged_when_at_the_edges),
        cmocka_unit_test(test_edit_distance_is_cut_when_far),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
