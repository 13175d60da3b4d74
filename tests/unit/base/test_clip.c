// Text in a bounded buffer: what did not fit is said.

#include "lib/base/clip.h"
#include "lib/base/utf8.h"

#include <string.h>

#include "tests/unit/test.h"

static void test_text_is_whole_when_it_fits(void **state) {
    (void)state;
    char out[8];
    assert_true(td_clip(out, sizeof out, "%s", "1234567"));
    assert_string_equal(out, "1234567");
    assert_true(td_clip(out, sizeof out, "%s", ""));
    assert_string_equal(out, "");
}

static void test_text_ends_in_dots_after_a_whole_character_when_it_is_cut(void **state) {
    (void)state;
    char out[8];
    assert_false(td_clip(out, sizeof out, "%s", "12345678"));
    assert_string_equal(out, "1234...");
    assert_false(td_clip(out, sizeof out, "%s", "123\xc3\xa4xyz"));
    assert_string_equal(out, "123...");
    assert_true(td_utf8_valid(out, strlen(out)));
    assert_false(td_clip(out, sizeof out, "%s", "\xff\xff\xff\xff\xff\xff\xff\xff\xff"));
    assert_string_equal(out, "\xff\xff\xff\xff...");
    assert_false(td_clip(out, 3, "%s", "12345678"));
    assert_string_equal(out, "..");
}

static void test_list_says_how_many_more_there_are_when_it_is_full(void **state) {
    (void)state;
    char out[64];
    struct td_clip_list l;
    td_clip_list_init(&l, out, sizeof out, ", ");
    assert_string_equal(out, "");
    for (int i = 0; i < 3; i++) {
        td_clip_list_add(&l, "item %d", i);
    }
    assert_string_equal(out, "item 0, item 1, item 2");
    for (int i = 3; i < 1000; i++) {
        td_clip_list_add(&l, "item %d", i);
    }
    assert_string_equal(out, "item 0, item 1, item 2, item 3 and 996 more");
    td_clip_list_add(&l, "x"); // for which there would be room
    assert_string_equal(out, "item 0, item 1, item 2, item 3 and 997 more");
}

static void test_first_item_is_shown_in_part_when_it_is_longer_than_the_list(void **state) {
    (void)state;
    char out[64];
    struct td_clip_list l;
    td_clip_list_init(&l, out, sizeof out, "; ");
    td_clip_list_add(&l, "%s", "0123456789012345678901234567890123456789");
    assert_string_equal(out, "0123456789012345678901234567...");
    td_clip_list_add(&l, "second");
    assert_string_equal(out, "0123456789012345678901234567... and 1 more");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_is_whole_when_it_fits),
        cmocka_unit_test(test_text_ends_in_dots_after_a_whole_character_when_it_is_cut),
        cmocka_unit_test(test_list_says_how_many_more_there_are_when_it_is_full),
        cmocka_unit_test(test_first_item_is_shown_in_part_when_it_is_longer_than_the_list),
    };
    return cmocka_run_group_tests_name("fit", tests, NULL, NULL);
}
