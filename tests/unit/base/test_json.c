// JSON: what is refused, what is printed, round trips of numbers, and the builders with an arena
// that fills up.

#include <float.h>
#include <math.h>

#include "lib/base/json.h"
#include "tests/unit/test.h"

static int arena_make(void **state) {
    struct td_arena *a = NULL;
    td_status s = td_arena_create(1 << 20, &a);
    td_status_free(s);
    *state = a;
    return a ? 0 : -1;
}
static int arena_drop(void **state) {
    td_arena_destroy(*state);
    return 0;
}
#define test_in_arena(f) cmocka_unit_test_setup_teardown(f, arena_make, arena_drop)

static td_status parse(struct td_arena *a, const char *text, struct td_json **out) {
    return td_json_parse(a, text, strlen(text), out);
}

static void test_tree_prints_the_same_when_canonical(void **state) {
    static const char *const texts[] = {
        "{}",
        "[]",
        "null",
        "true",
        "-1",
        "\"x\"",
        "{\"z\":1,\"a\":[1,2.5,\"\\\"\\\\\\n\\u0001\",null,false,{\"k\":{}}],\"\":0.1}",
    };
    for (size_t i = 0; i < TD_COUNTOF(texts); i++) {
        struct td_json *v;
        TD_AUTO_BUF out;
        td_buf_init(&out, 1000);
        assert_ok(parse(*state, texts[i], &v));
        assert_ok(td_json_print(v, false, &out));
        assert_string_equal(td_buf_cstr(&out), texts[i]);
    }
}

static void test_text_is_refused_when_not_strict(void **state) {
    static const char *const texts[] = {
        "",
        "{",
        "[1,]",
        "{\"a\":1,}",
        "[1] x",
        "NaN",
        "[Infinity]",
        "{\"a\":1,\"a\":2}",
        "{a:1}",
        "01",
        "\"\\u0000\"",
        "9223372036854775808",
        "1e999",
        "'x'",
        "\"\xff\"",
        "{\"a\":{\"b\":1,\"b\":1}}",
        "\"\t\"",
        "[1 2]",
        "nul",
        "-9223372036854775809",
        "\"\\ud800\"",
    };
    for (size_t i = 0; i < TD_COUNTOF(texts); i++) {
        struct td_json *v = NULL;
        assert_fails(parse(*state, texts[i], &v), TD_INVALID_ARGUMENT, "JSON line");
        assert_null(v);
    }
}

static void test_depth_is_refused_when_past_64(void **state) {
    char text[4001];
    struct td_json *v;
    for (int depth = 60; depth <= 2000; depth += depth < 70 ? 1 : 965) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        td_status s = td_json_parse(*state, text, (size_t)depth * 2, &v);
        assert_int_equal(td_status_code(s), depth <= 64 ? TD_CODE_OK : TD_INVALID_ARGUMENT);
        td_status_free(s);
    }
}

static void test_number_reads_back_equal_when_printed(void **state) {
    (void)state;
    static const struct {
        double v;
        const char *text;
    } rows[] = {
        {0.0, "0.0"},
        {-0.0, "-0.0"},
        {0.1, "0.1"},
        {1.0 / 3, "0.3333333333333333"},
        {5e-324, "5e-324"},
        {DBL_MAX, "1.7976931348623157e+308"},
        {1e22, "1e+22"},
        {3.0, "3.0"},
        {123456789012.0, "123456789012.0"},
        {NAN, "null"},
        {-INFINITY, "null"},
        {0.30000000000000004, "0.30000000000000004"},
    };
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        TD_AUTO_BUF out;
        td_buf_init(&out, 100);
        assert_ok(td_json_print_double(rows[i].v, &out));
        assert_string_equal(td_buf_cstr(&out), rows[i].text);
    }
    uint64_t x = 88172645463325252u;
    for (int i = 0; i < 20000; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        double v;
        memcpy(&v, &x, sizeof v);
        if (!isfinite(v)) continue;
        TD_AUTO_BUF out;
        td_buf_init(&out, 100);
        assert_ok(td_json_print_double(v, &out));
        double back = strtod(td_buf_cstr(&out), NULL);
        assert_memory_equal(&back, &v, sizeof v);
    }
}

static void test_measured_value_may_be_a_text(void **state) {
    (void)state;
    static const char text[] = "[\"nan\", \"inf\", \"-inf\", null, 2, 0.5]";
    static const char bad[] = "[\"NaN\", \"Infinity\", \"\", \"1\", true, [], {}]";
    const double values[] = {NAN, INFINITY, -INFINITY, NAN, 2, 0.5};
    TD_AUTO(td_arena) *a = NULL;
    TD_AUTO_BUF out;
    struct td_json *root;
    double v = 0;
    size_t i = 0;
    td_buf_init(&out, 1000);
    assert_ok(td_arena_create(1 << 16, &a));
    assert_ok(td_json_parse(a, text, sizeof text - 1, &root));
    for (const struct td_json *x = root->first; x; x = x->next, i++) {
        assert_true(td_json_value(x, &v));
        assert_true(v == values[i] || (isnan(v) && isnan(values[i])));
        assert_ok(td_json_print_value(v, &out));
        assert_ok(td_json_print(td_json_new_value(a, v), false, &out));
        assert_ok(td_buf_str(&out, " "));
    }
    assert_string_equal(td_buf_cstr(&out), "\"nan\"\"nan\" \"inf\"\"inf\" \"-inf\"\"-inf\" "
                                           "\"nan\"\"nan\" 2.02.0 0.50.5 ");
    assert_ok(td_json_parse(a, bad, sizeof bad - 1, &root));
    for (const struct td_json *x = root->first; x; x = x->next) {
        assert_false(td_json_value(x, &v));
    }
    assert_false(td_json_value(NULL, &v));
    assert_true(v == 0.5); // unchanged
}

static void test_string_is_made_valid_when_bytes_are_not(void **state) {
    (void)state;
    TD_AUTO_BUF out;
    td_buf_init(&out, 100);
    assert_ok(td_json_print_string("a\xff\xc3\xa9\0b", 6, &out));
    assert_string_equal(td_buf_cstr(&out), "\"a\xef\xbf\xbd\xc3\xa9\\u0000b\"");
}

// A terminal obeys C0, DEL and C1; U+00A0 and what follows is text.
static void test_control_characters_are_escaped_when_a_string_is_printed(void **state) {
    static const char text[] = "\x01\x1b\x1f \x7f\xc2\x80\xc2\x9b\xc2\x9f\xc2\xa0\xe0\xa2\x80";
    static const char printed[] =
        "\"\\u0001\\u001b\\u001f \\u007f\\u0080\\u009b\\u009f\xc2\xa0\xe0\xa2\x80\"";
    struct td_json *v;
    TD_AUTO_BUF out;
    td_buf_init(&out, 100);
    assert_ok(td_json_print_string(text, sizeof text - 1, &out));
    assert_string_equal(td_buf_cstr(&out), printed);
    assert_ok(parse(*state, printed, &v));
    assert_string_equal(v->u.string.data, text);
}

static void test_readers_give_the_fallback_when_absent_or_other(void **state) {
    struct td_json *v;
    assert_ok(
        parse(*state, "{\"trainer\":{\"devices\":2,\"lr\":0.5,\"on\":true,\"s\":\"x\"}}", &v));
    assert_int_equal(td_json_int(td_json_path(v, "trainer.devices"), 9), 2);
    assert_true(td_json_real(td_json_path(v, "trainer.devices"), 9) == 2.0);
    assert_true(td_json_real(td_json_path(v, "trainer.lr"), 9) == 0.5);
    assert_int_equal(td_json_int(td_json_path(v, "trainer.lr"), 9), 9);
    assert_true(td_json_bool(td_json_path(v, "trainer.on"), false));
    assert_string_equal(td_json_string(td_json_path(v, "trainer.s"), "?"), "x");
    assert_string_equal(td_json_string(td_json_path(v, "trainer.on"), "?"), "?");
    assert_null(td_json_path(v, "trainer.device"));
    assert_null(td_json_path(v, "trainer.devices.x"));
    assert_null(td_json_path(v, ""));
    assert_null(td_json_get(NULL, "x"));
    assert_int_equal(td_json_int(NULL, 7), 7);
}

static void test_trees_are_equal_when_they_print_the_same(void **state) {
    static const char *const texts[] = {
        "null",      "false",     "true",        "1",
        "1.0",       "0.0",       "-0.0",        "9007199254740993",
        "\"1\"",     "\"\"",      "[]",          "[1]",
        "[1,2]",     "[2,1]",     "[[1],2]",     "{}",
        "{\"a\":1}", "{\"b\":1}", "{\"a\":[1]}", "9007199254740992"};
    struct td_json *tree[2][TD_COUNTOF(texts)];
    for (size_t i = 0; i < 2 * TD_COUNTOF(texts); i++) {
        assert_ok(parse(*state, texts[i / 2], &tree[i % 2][i / 2]));
    }
    for (size_t i = 0; i < TD_COUNTOF(texts); i++) {
        for (size_t k = 0; k < TD_COUNTOF(texts); k++) {
            assert_int_equal(td_json_equal(tree[0][i], tree[1][k]), i == k);
        }
    }
}

static void test_member_is_replaced_in_place_when_set_again(void **state) {
    struct td_arena *a = *state;
    struct td_json *o = td_json_new(a, TD_JSON_OBJECT);
    assert_true(td_json_set(a, o, "a", td_json_new_int(a, 1)));
    assert_true(td_json_set(a, o, "b", td_json_new_real(a, 2)));
    assert_true(td_json_set(a, o, "c", td_json_new_bool(a, true)));
    assert_true(td_json_set(a, o, "b", td_json_new_string(a, "B")));
    assert_true(td_json_set(a, o, "c", td_json_new(a, TD_JSON_ARRAY)));
    assert_true(td_json_push(td_json_get(o, "c"), td_json_new(a, TD_JSON_NULL)));
    assert_true(td_json_set(a, o, "d", td_json_new(a, TD_JSON_STRING)));
    assert_int_equal(o->n_children, 4);
    struct td_json *copy = td_json_copy(a, o);
    TD_AUTO_BUF out;
    td_buf_init(&out, 1000);
    assert_ok(td_json_print(copy, true, &out));
    assert_string_equal(td_buf_cstr(&out),
                        "{\n  \"a\": 1,\n  \"b\": \"B\",\n  \"c\": [\n    null\n  "
                        "],\n  \"d\": \"\"\n}");
    td_buf_clear(&out);
    assert_ok(td_json_print(copy, false, &out));
    assert_string_equal(td_buf_cstr(&out), "{\"a\":1,\"b\":\"B\",\"c\":[null],\"d\":\"\"}");
    td_buf_clear(&out);
    assert_ok(td_json_print_at(td_json_get(copy, "c"), true, 2, &out));
    assert_string_equal(td_buf_cstr(&out), "[\n      null\n    ]");
}

static void test_builders_pass_null_through_when_the_arena_is_full(void **state) {
    (void)state;
    TD_AUTO(td_arena) *a = NULL;
    assert_ok(td_arena_create(400, &a));
    struct td_json *o = td_json_new(a, TD_JSON_OBJECT);
    bool ok = true;
    for (int i = 0; i < 10; i++) {
        char key[8];
        snprintf(key, sizeof key, "%d", i);
        ok = td_json_set(a, o, key, td_json_new_string(a, "text")) && ok;
    }
    assert_false(ok);
    assert_null(td_json_copy(a, o));
    assert_false(td_json_push(NULL, o));
    struct td_json *v = NULL;
    assert_fails(parse(a, "[1,2,3,4,5,6,7,8,9]", &v), TD_RESOURCE_EXHAUSTED, "");
    assert_null(v);
}

static td_status read_and_print(void *arg) {
    (void)arg;
    TD_AUTO(td_arena) *a = NULL;
    TD_AUTO_BUF out;
    td_buf_init(&out, 1000);
    struct td_json *v;
    TD_TRY(td_arena_create(1 << 20, &a));
    TD_TRY(parse(a, "{\"a\":[1,2.5,\"text\"]}", &v));
    return td_json_print(v, true, &out);
}

static void test_reading_survives_when_allocations_fail(void **state) {
    td_test_failing_allocations(read_and_print, state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_arena(test_tree_prints_the_same_when_canonical),
        test_in_arena(test_text_is_refused_when_not_strict),
        test_in_arena(test_depth_is_refused_when_past_64),
        cmocka_unit_test(test_number_reads_back_equal_when_printed),
        cmocka_unit_test(test_measured_value_may_be_a_text),
        cmocka_unit_test(test_string_is_made_valid_when_bytes_are_not),
        test_in_arena(test_control_characters_are_escaped_when_a_string_is_printed),
        test_in_arena(test_readers_give_the_fallback_when_absent_or_other),
        test_in_arena(test_trees_are_equal_when_they_print_the_same),
        test_in_arena(test_member_is_replaced_in_place_when_set_again),
        cmocka_unit_test(test_builders_pass_null_through_when_the_arena_is_full),
        cmocka_unit_test(test_reading_survives_when_allocations_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
