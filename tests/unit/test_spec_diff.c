// Where two specs differ: keys that one lacks, lists, values of another type.

#include "client/spec_diff.h"

#include <string.h>

#include "tests/unit/test.h"

// "key=left|right;" of each difference.
static void expect(const char *left, const char *right, const char *wanted) {
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *a, *b;
    struct td_spec_difference *d;
    TD_AUTO_BUF text;
    td_buf_init(&text, 4096);
    assert_ok(td_arena_create(1 << 20, &arena));
    assert_ok(td_json_parse(arena, left, strlen(left), &a));
    assert_ok(td_json_parse(arena, right, strlen(right), &b));
    assert_ok(td_spec_diff(arena, a, b, &d));
    for (; d; d = d->next) {
        assert_ok(td_buf_printf(&text, "%s=", d->key));
        assert_ok(d->left ? td_json_print(d->left, false, &text) : td_buf_str(&text, "-"));
        assert_ok(td_buf_str(&text, "|"));
        assert_ok(d->right ? td_json_print(d->right, false, &text) : td_buf_str(&text, "-"));
        assert_ok(td_buf_str(&text, ";"));
    }
    assert_string_equal(td_buf_cstr(&text), wanted);
}

static void test_nothing_is_found_when_only_the_order_differs(void **state) {
    (void)state;
    expect("{\"a\":{\"b\":1,\"c\":2}}", "{\"a\":{\"c\":2,\"b\":1}}", "");
    expect("{}", "{}", "");
}

static void test_keys_are_named_by_their_path_when_values_differ(void **state) {
    (void)state;
    expect("{\"a\":{\"b\":1},\"d\":\"x\"}", "{\"a\":{\"b\":2},\"d\":\"y\"}",
           "a.b=1|2;d=\"x\"|\"y\";");
    expect("{\"a\":null}", "{\"a\":{\"b\":1}}", "a=null|{\"b\":1};");
    expect("{\"a\":1}", "{\"a\":\"1\"}", "a=1|\"1\";");
}

static void test_key_of_one_side_is_found_when_the_other_lacks_it(void **state) {
    (void)state;
    expect("{\"a\":1,\"m\":{\"x\":1}}", "{\"b\":2,\"m\":{\"y\":3}}",
           "a=1|-;m.x=1|-;m.y=-|3;b=-|2;");
}

static void test_lists_are_one_value_when_they_have_no_maps(void **state) {
    (void)state;
    expect("{\"l\":[1,2,3]}", "{\"l\":[1,3]}", "l=[1,2,3]|[1,3];");
    expect("{\"l\":[{\"a\":1},{\"a\":2}]}", "{\"l\":[{\"a\":1},{\"a\":3},{\"a\":4}]}",
           "l[1].a=2|3;l[2]=-|{\"a\":4};");
    expect("{\"l\":[]}", "{\"l\":[{\"a\":1}]}", "l[0]=-|{\"a\":1};");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_found_when_only_the_order_differs),
        cmocka_unit_test(test_keys_are_named_by_their_path_when_values_differ),
        cmocka_unit_test(test_key_of_one_side_is_found_when_the_other_lacks_it),
        cmocka_unit_test(test_lists_are_one_value_when_they_have_no_maps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
