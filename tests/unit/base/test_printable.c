// What reaches a terminal as it is, byte by byte: UTF-8 without control characters.
#include "lib/base/printable.h"

#include <string.h>

#include "tests/unit/test.h"

static void test_control_characters_are_shown_and_text_stays(void **state) {
    (void)state;
    static const struct {
        const char *text, *want;
    } rows[] = {
        {"plain ~", "plain ~"},
        {"Größe 模型 🚀", "Größe 模型 🚀"},
        {"\033]0;owned\007", "\\x1b]0;owned\\x07"},
        {"a\x7f\r\b", "a\\x7f\\x0d\\x08"},
        {"a\tb\n", "a\tb\\x0a"},
        {"\xc2\x9b"
         "31m",
         "\\xc2\\x9b31m"}, // C1 as UTF-8: CSI
        {"\xc2\xa0", "\xc2\xa0"},
        {"\x9b"
         "31m",
         "\\x9b31m"},               // and as a byte
        {"\xc0\xaf", "\\xc0\\xaf"}, // overlong
        {"\xe0\x80\x9b", "\\xe0\\x80\\x9b"},
        {"\xed\xa0\x80", "\\xed\\xa0\\x80"}, // a surrogate
        {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},
        {"\xe2\x82", "\\xe2\\x82"}, // cut
    };
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        TD_AUTO_BUF out;
        td_buf_init(&out, 1000);
        assert_ok(td_printable_add(&out, rows[i].text, strlen(rows[i].text), "\t"));
        assert_string_equal(td_buf_cstr(&out), rows[i].want);
    }
    assert_int_equal(td_printable_bytes("\0", 1), 0);
}

static void test_character_is_begun_until_its_last_byte(void **state) {
    (void)state;
    assert_true(td_printable_is_begun("\xf0\x9f\x9a", 3));
    assert_false(td_printable_is_begun("\xf0\x9f\x9a\x80", 4));
    assert_true(td_printable_is_begun("\xc2", 1));
    assert_false(td_printable_is_begun("\xc2\x9b", 2));
    assert_false(td_printable_is_begun("\xff", 1));
    assert_false(td_printable_is_begun("a", 1));
    assert_false(td_printable_is_begun("", 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_control_characters_are_shown_and_text_stays),
        cmocka_unit_test(test_character_is_begun_until_its_last_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
