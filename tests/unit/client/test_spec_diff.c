// Where two specs differ: keys that one lacks, lists, values of another type.

#include "client/jobs/spec_diff.h"

#include <string.h>

#include "tests/unit/test.h"

// "key=one|other;" of each difference; third: NULL, or another spec.
static void expect_of(const char *const text_of[3], const char *wanted) {
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *spec[3];
    const size_t n = text_of[2] ? 3 : 2;
    struct td_spec_difference *d;
    TD_AUTO_BUF text;
    td_buf_init(&text, 4096);
    assert_ok(td_arena_create(1 << 20, &arena));
    for (size_t i = 0; i < n; i++) {
        assert_ok(td_json_parse(arena, text_of[i], strlen(text_of[i]), &spec[i]));
    }
    assert_ok(td_spec_diff(arena, (const struct td_json *const *)spec, n, &d));
    for (; d; d = d->next) {
        assert_ok(td_buf_printf(&text, "%s=", d->key));
        for (size_t i = 0; i < n; i++) {
            if (i) assert_ok(td_buf_str(&text, "|"));
            assert_ok(d->value[i] ? td_json_print(d->value[i], false, &text)
                                  : td_buf_str(&text, "-"));
        }
        assert_ok(td_buf_str(&text, ";"));
    }
    assert_string_equal(td_buf_cstr(&text), wanted);
}

static void expect(const char *left, const char *right, const char *wanted) {
    expect_of((const char *const[3]){left, right, NULL}, wanted);
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

static void test_row_has_a_value_of_each_when_one_of_three_differs(void **state) {
    (void)state;
    expect_of((const char *const[3]){"{\"a\":1,\"m\":{\"x\":1}}", "{\"a\":1,\"m\":{\"x\":2}}",
                                     "{\"a\":1,\"m\":{\"x\":1,\"y\":3}}"},
              "m.x=1|2|1;m.y=-|-|3;");
    expect_of((const char *const[3]){"{\"m\":{\"x\":1}}", "{\"m\":{\"x\":1}}", "{\"m\":null}"},
              "m={\"x\":1}|{\"x\":1}|null;");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_found_when_only_the_order_differs),
        cmocka_unit_test(test_row_has_a_value_of_each_when_one_of_three_differs),
        cmocka_unit_test(test_keys_are_named_by_their_path_when_values_differ),
        cmocka_unit_test(test_key_of_one_side_is_found_when_the_other_lacks_it),
        cmocka_unit_test(test_lists_are_one_value_when_they_have_no_maps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
