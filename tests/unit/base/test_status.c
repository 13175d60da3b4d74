// Status records: messages, context, what they carry, their caps, and what is left of them when
// memory is gone.

#include <errno.h>

#include "tests/unit/test.h"

static void test_code_name_matches_grpc_when_any_code(void **state) {
    (void)state;
    assert_string_equal(td_code_name(TD_CODE_OK), "OK");
    assert_string_equal(td_code_name(TD_RESOURCE_EXHAUSTED), "RESOURCE_EXHAUSTED");
    assert_string_equal(td_code_name((enum td_code)16), "UNAUTHENTICATED");
    assert_string_equal(td_code_name((enum td_code)17), "UNKNOWN");
    assert_string_equal(td_code_name((enum td_code) - 1), "UNKNOWN");
}

static void test_class_name_parses_back_when_any_class(void **state) {
    (void)state;
    for (int c = 0; c < TD_CLASS_COUNT; c++) {
        assert_int_equal(td_class_parse(td_class_name((enum td_class)c)), c);
    }
    assert_int_equal(td_class_parse("nonsense"), TD_CLASS_NONE);
    assert_int_equal(td_class_parse(NULL), TD_CLASS_NONE);
    assert_string_equal(td_class_name(TD_CLASS_COUNT), "none");
}

static void test_readers_are_neutral_when_ok(void **state) {
    (void)state;
    assert_int_equal(td_status_code(TD_OK), 0);
    assert_string_equal(td_status_message(TD_OK), "OK");
    assert_string_equal(td_status_reason(TD_OK), "");
    assert_int_equal(td_status_class(TD_OK), TD_CLASS_NONE);
    assert_int_equal(td_status_n_meta(TD_OK), 0);
    assert_int_equal(td_status_n_fields(TD_OK), 0);
    assert_null(td_status_context(TD_OK, "outer"));
    assert_null(td_status_with_reason(TD_OK, "R"));
    assert_null(td_status_with_meta(TD_OK, "k", "v"));
    assert_null(td_status_with_field(TD_OK, "p", "t"));
    td_status_free(TD_OK);
}

static void test_context_is_prepended_when_status_travels_up(void **state) {
    (void)state;
    td_status s = td_fail(TD_NOT_FOUND, "shard %d", 3);
    s = td_status_context(s, "restore rank %d", 1);
    s = td_status_context(s, "attempt 2");
    assert_string_equal(td_status_message(s), "attempt 2: restore rank 1: shard 3");
    assert_int_equal(td_status_code(s), TD_NOT_FOUND);
    td_status_free(s);
}

static void test_errno_text_is_appended_when_fail_errno(void **state) {
    (void)state;
    errno = ENOENT;
    td_status s = td_fail_errno(TD_UNAVAILABLE, "open '%s'", "x");
    assert_string_equal(td_status_message(s), "open 'x': No such file or directory");
    td_status_free(s);
}

static void test_texts_are_utf8_when_a_character_was_cut(void **state) {
    (void)state;
    td_status s = td_fail(TD_NOT_FOUND, "no job '%.3s'", "\xc3\xa9\xc3\xa9");
    s = td_status_with_field(s, "name", "%s", "\xff");
    s = td_status_with_meta(s, "file", "%s", "caf\xe9");
    const char *a, *b;
    assert_string_equal(td_status_message(s), "no job '\xc3\xa9?'");
    td_status_field(s, 0, &a, &b);
    assert_string_equal(b, "?");
    td_status_meta(s, 0, &a, &b);
    assert_string_equal(b, "caf?");
    td_status_free(s);
}

static void test_message_is_cut_when_over_the_cap(void **state) {
    (void)state;
    char big[9000];
    memset(big, 'a', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    td_status s = td_status_context(td_fail(TD_INTERNAL, "%s", big), "%s", big);
    assert_int_equal(strlen(td_status_message(s)), 4096);
    td_status_free(s);
}

static void test_reason_class_and_meta_are_kept_when_chained(void **state) {
    (void)state;
    td_status s = td_fail(TD_UNAVAILABLE, "gone");
    s = td_status_with_meta(
        td_status_with_class(td_status_with_reason(s, "NODE_LOST"), TD_CLASS_NODE_LOST), "node",
        "n%d", 7);
    const char *key, *value;
    td_status_meta(s, 0, &key, &value);
    assert_string_equal(td_status_reason(s), "NODE_LOST");
    assert_int_equal(td_status_class(s), TD_CLASS_NODE_LOST);
    assert_string_equal(key, "node");
    assert_string_equal(value, "n7");
    for (int i = 0; i < 40; i++) {
        s = td_status_with_meta(s, "k", "%d", i);
    }
    assert_int_equal(td_status_n_meta(s), 16);
    td_status_free(s);
}

static void test_fields_are_counted_in_the_last_when_over_the_cap(void **state) {
    (void)state;
    td_status s = td_fail(TD_INVALID_ARGUMENT, "bad spec");
    for (int i = 0; i < 100; i++) {
        s = td_status_with_field(s, "trainer.devices", "text %d", i);
    }
    const char *path, *text;
    assert_int_equal(td_status_n_fields(s), 64);
    td_status_field(s, 63, &path, &text);
    assert_string_equal(path, "trainer.devices");
    assert_string_equal(text, "text 63 (and 36 more)");
    td_status_free(s);
}

static void test_static_record_answers_when_memory_is_gone(void **state) {
    (void)state;
    td_alloc_fail_at(1);
    td_status s = td_fail(TD_NOT_FOUND, "x");
    assert_ptr_equal(s, td_fail_oom());
    s = td_status_with_class(td_status_context(s, "outer"), TD_CLASS_DATA);
    assert_int_equal(td_status_code(s), TD_RESOURCE_EXHAUSTED);
    assert_int_equal(td_status_class(s), TD_CLASS_OUT_OF_MEMORY);
    assert_string_equal(td_status_message(s), "out of memory");
    td_status_free(s);
    td_status_free(s);
}

static void test_record_stays_whole_when_an_addition_finds_no_memory(void **state) {
    (void)state;
    for (int n = 1; n <= 12; n++) {
        td_status s = td_fail(TD_NOT_FOUND, "inner");
        td_alloc_fail_at(n);
        s = td_status_context(s, "outer");
        s = td_status_with_meta(s, "k", "v");
        for (int i = 0; i < 66; i++) {
            s = td_status_with_field(s, "p", "t");
        }
        td_alloc_fail_at(0);
        assert_int_equal(td_status_code(s), TD_NOT_FOUND);
        assert_non_null(strstr(td_status_message(s), "inner"));
        td_status_free(s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_code_name_matches_grpc_when_any_code),
        cmocka_unit_test(test_class_name_parses_back_when_any_class),
        cmocka_unit_test(test_readers_are_neutral_when_ok),
        cmocka_unit_test(test_context_is_prepended_when_status_travels_up),
        cmocka_unit_test(test_errno_text_is_appended_when_fail_errno),
        cmocka_unit_test(test_texts_are_utf8_when_a_character_was_cut),
        cmocka_unit_test(test_message_is_cut_when_over_the_cap),
        cmocka_unit_test(test_reason_class_and_meta_are_kept_when_chained),
        cmocka_unit_test(test_fields_are_counted_in_the_last_when_over_the_cap),
        cmocka_unit_test(test_static_record_answers_when_memory_is_gone),
        cmocka_unit_test(test_record_stays_whole_when_an_addition_finds_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
