// A plugin's own knobs from end to end: the table that it declares, what a person writes checked
// against it and completed, and the readers that the plugin calls.

#include "tests/unit/test.h"

#include "lib/spec/plugin_knobs.h"
#include "lib/spec/rows.h"

static const struct td_plugin_knob knobs[] = {
    {"width", TD_PLUGIN_KNOB_INT, 1, 1024, "features", NULL, NULL, "required"},
    {"scale", TD_PLUGIN_KNOB_REAL, 0, 1, NULL, "0.5", NULL, "a share"},
    {"bias", TD_PLUGIN_KNOB_BOOL, 0, 0, NULL, "true", NULL, "a switch"},
    {"activation", TD_PLUGIN_KNOB_ENUM, 0, 0, NULL, "relu", "relu|gelu", "a name"},
    {"title", TD_PLUGIN_KNOB_TEXT, 0, 8, NULL, "null", NULL, "may be left out"},
    {"blocks", TD_PLUGIN_KNOB_INTS, 1, 9, NULL, "[1, 2]", "1..4", "a list"},
    {"betas", TD_PLUGIN_KNOB_REALS, 0, 0, NULL, "[]", NULL, "any numbers"},
    {"file", TD_PLUGIN_KNOB_PATH, 0, 0, NULL, "/dev/null", NULL, "a file"},
    {"offset", TD_PLUGIN_KNOB_INT, 0, 0, NULL, "-3", NULL, "any number"},
};

static td_status check(struct td_arena *a, const char *given, struct td_json **out_knobs) {
    struct td_json *tree;
    TD_TRY(td_json_parse(a, given, strlen(given), &tree));
    return td_spec_plugin_knobs(a, "model.knobs", knobs, TD_COUNTOF(knobs), tree, NULL, out_knobs);
}

static struct td_arena *arena(void) {
    struct td_arena *a;
    assert_ok(td_arena_create(1 << 20, &a));
    return a;
}

static void assert_text(const struct td_json *tree, const char *wanted) {
    TD_AUTO_BUF text;
    td_buf_init(&text, 1 << 16);
    assert_ok(td_json_print(tree, false, &text));
    assert_string_equal(td_buf_cstr(&text), wanted);
}

static void test_knobs_are_completed_when_only_the_required_are_given(void **state) {
    (void)state;
    TD_AUTO(td_arena) *a = arena();
    struct td_json *k, *again;
    const char *whole = "{\"width\":7,\"scale\":0.5,\"bias\":true,\"activation\":\"relu\","
                        "\"title\":null,\"blocks\":[1,2],\"betas\":[],\"file\":\"/dev/null\","
                        "\"offset\":-3}";
    assert_ok(check(a, "{\"width\": 7}", &k));
    assert_text(k, whole);
    assert_ok(td_spec_plugin_knobs(a, "model.knobs", knobs, TD_COUNTOF(knobs), k, NULL, &again));
    assert_text(again, whole);
}

static void expect(const char *given, const char *field, const char *text) {
    TD_AUTO(td_arena) *a = arena();
    struct td_json *k;
    td_status s = check(a, given, &k);
    assert_int_equal(td_status_class(s), TD_CLASS_BAD_SPEC);
    assert_int_equal(td_status_n_fields(s), 1);
    const char *path, *found;
    td_status_field(s, 0, &path, &found);
    assert_string_equal(path, field);
    if (!strstr(found, text)) fail_msg("'%s' lacks '%s'", found, text);
    assert_fails(s, TD_INVALID_ARGUMENT, text);
}

static void test_knob_is_refused_when_it_does_not_fit_its_row(void **state) {
    (void)state;
    expect("{}", "model.knobs.width", "required: an integer from 1 to 1024");
    expect("null", "model.knobs.width", "required");
    expect("[]", "model.knobs", "expected a map of keys, found a list of 0");
    expect("{\"width\": 1, \"widht\": 2}", "model.knobs.widht", "did you mean width?");
    expect("{\"width\": 1, \"momentum\": 2}", "model.knobs.momentum",
           "unknown key; known here: width, scale, bias, activation");
    expect("{\"width\": 0}", "model.knobs.width", "from 1 to 1024, found 0");
    expect("{\"width\": 1.5}", "model.knobs.width", "found 1.5");
    expect("{\"width\": 1, \"scale\": 2}", "model.knobs.scale", "a number from 0 to 1, found 2");
    expect("{\"width\": 1, \"bias\": 1}", "model.knobs.bias", "true or false");
    expect("{\"width\": 1, \"activation\": \"rleu\"}", "model.knobs.activation",
           "did you mean relu?");
    expect("{\"width\": 1, \"title\": \"123456789\"}", "model.knobs.title", "1 to 8 bytes");
    expect("{\"width\": 1, \"blocks\": []}", "model.knobs.blocks", "a list of 1 to 4 integers");
    expect("{\"width\": 1, \"blocks\": [1, 10]}", "model.knobs.blocks[1]", "from 1 to 9, found 10");
    expect("{\"width\": 1, \"file\": \"x\"}", "model.knobs.file", "an absolute path");
    expect("{\"width\": 1, \"offset\": null}", "model.knobs.offset", "found nothing (null)");
}

static void test_path_begins_at_the_place_of_the_spec_when_it_is_relative(void **state) {
    (void)state;
    static const struct td_plugin_knob row = {
        "file", TD_PLUGIN_KNOB_PATH, 0, 0, NULL, "null", NULL, "a file"};
    static const struct {
        const char *given, *from, *path, *refusal;
    } rows[] = {
        {"d/x", "[\"/a/b\",\"/h\"]", "/a/b/d/x", NULL},
        {"../x", "[\"/a/b\",\"/h\"]", "/a/x", NULL},
        {"~/x", "[\"/a/b\",\"/h\"]", "/h/x", NULL},
        {"/x", "[]", "/x", NULL},
        {"d/x", "[]", NULL, "'d/x' is relative: the client did not say where it is"},
        {"~/x", "[\"/a/b\"]", NULL, "'~/x' is relative to a home"},
        {"a/../x", "[\"/a/b\"]", NULL, "without '..'"},
    };
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        TD_AUTO(td_arena) *a = arena();
        struct td_json *from, *given = td_json_new(a, TD_JSON_OBJECT), *k;
        assert_true(td_json_set(a, given, "file", td_json_new_string(a, rows[i].given)));
        assert_ok(td_json_parse(a, rows[i].from, strlen(rows[i].from), &from));
        td_status s = td_spec_plugin_knobs(a, "data.knobs", &row, 1, given, from, &k);
        if (rows[i].path) {
            assert_ok(s);
            assert_string_equal(td_json_string(td_json_get(k, "file"), ""), rows[i].path);
        } else {
            assert_fails(s, TD_INVALID_ARGUMENT, rows[i].refusal);
        }
    }
}

static void test_default_is_named_as_the_plugins_mistake_when_it_does_not_fit(void **state) {
    (void)state;
    TD_AUTO(td_arena) *a = arena();
    const struct td_plugin_knob row = {"n", TD_PLUGIN_KNOB_INT, 1, 2, NULL, "3", NULL, "x"};
    struct td_json *k;
    assert_fails(td_spec_plugin_knobs(a, "data.knobs", &row, 1, NULL, NULL, &k),
                 TD_INVALID_ARGUMENT,
                 "data.knobs.n: the plugin's own default, 3, does not fit: expected an integer "
                 "from 1 to 2, found 3");
}

static void test_knobs_are_read_when_they_were_checked(void **state) {
    (void)state;
    TD_AUTO(td_arena) *a = arena();
    struct td_json *k;
    int64_t width, blocks[4];
    double scale, betas[2];
    bool bias;
    const char *text;
    size_t n;
    assert_ok(check(a, "{\"width\": 7, \"scale\": 1, \"betas\": [0.5, 2]}", &k));
    assert_ok(td_knob_int(k, "width", &width));
    assert_ok(td_knob_real(k, "scale", &scale));
    assert_ok(td_knob_bool(k, "bias", &bias));
    assert_ok(td_knob_text(k, "activation", &text));
    assert_true(width == 7 && scale == 1 && bias);
    assert_string_equal(text, "relu");
    assert_ok(td_knob_text(k, "file", &text));
    assert_string_equal(text, "/dev/null");
    assert_false(td_knob_is_set(k, "title"));
    assert_false(td_knob_is_set(k, "no_such"));
    assert_true(td_knob_is_set(k, "offset"));
    assert_ok(td_knob_text_or(k, "title", "none", &text));
    assert_string_equal(text, "none");
    assert_ok(td_knob_text_or(k, "activation", "none", &text));
    assert_string_equal(text, "relu");
    assert_ok(td_knob_int_or(k, "title", 9, &width));
    assert_int_equal(width, 9);
    assert_ok(td_knob_int_or(k, "width", 9, &width));
    assert_int_equal(width, 7);
    assert_ok(td_knob_real_or(k, "title", 0.25, &scale));
    assert_ok(td_knob_bool_or(k, "title", false, &bias));
    assert_true(scale == 0.25 && !bias);
    assert_ok(td_knob_real_or(k, "scale", 0.25, &scale));
    assert_ok(td_knob_bool_or(k, "bias", false, &bias));
    assert_true(scale == 1 && bias);
    assert_ok(td_knob_ints(k, "blocks", 4, blocks, &n));
    assert_true(n == 2 && blocks[0] == 1 && blocks[1] == 2);
    assert_ok(td_knob_reals(k, "betas", 2, betas, &n));
    assert_true(n == 2 && betas[0] == 0.5 && betas[1] == 2);
}

static void test_reader_fails_when_the_table_says_otherwise(void **state) {
    (void)state;
    TD_AUTO(td_arena) *a = arena();
    struct td_json *k;
    int64_t i = 5, list[1];
    double r, reals[4];
    bool b;
    const char *text;
    size_t n;
    assert_ok(check(a, "{\"width\": 7, \"betas\": [0.5]}", &k));
    td_status s = td_knob_int(k, "widht", &i);
    assert_int_equal(td_status_class(s), TD_CLASS_USER_CODE);
    assert_fails(s, TD_FAILED_PRECONDITION, "reads its knob 'widht' as an int");
    assert_int_equal(i, 5);
    assert_fails(td_knob_int(k, "scale", &i), TD_FAILED_PRECONDITION, "'scale' as an int");
    assert_fails(td_knob_real(k, "bias", &r), TD_FAILED_PRECONDITION, "'bias' as a real");
    assert_fails(td_knob_bool(k, "width", &b), TD_FAILED_PRECONDITION, "'width' as a bool");
    assert_fails(td_knob_text(k, "title", &text), TD_FAILED_PRECONDITION, "'title' as a text");
    assert_fails(td_knob_int_or(k, "widht", 9, &i), TD_FAILED_PRECONDITION, "'widht' as an int");
    assert_fails(td_knob_real_or(k, "no", 1, &r), TD_FAILED_PRECONDITION, "'no' as a real");
    assert_fails(td_knob_bool_or(k, "no", true, &b), TD_FAILED_PRECONDITION, "'no' as a bool");
    assert_fails(td_knob_text_or(k, "no", "", &text), TD_FAILED_PRECONDITION, "'no' as a text");
    assert_fails(td_knob_ints(k, "blocks", 1, list, &n), TD_FAILED_PRECONDITION,
                 "room for 1 numbers of its knob 'blocks', which has 2");
    assert_fails(td_knob_ints(k, "betas", 1, list, &n), TD_FAILED_PRECONDITION, "list of ints");
    assert_fails(td_knob_reals(k, "width", 4, reals, &n), TD_FAILED_PRECONDITION, "list of reals");
}

// A client reads one vocabulary, whichever table a row comes from.
static void test_rows_of_the_spec_have_the_words_of_plugins(void **state) {
    (void)state;
    static const struct {
        const char *choice, *name;
        size_t row;
        const char *key, *type, *values;
    } cases[] = {
        {"model", "mlp", 0, "layers", "ints", "2..64"},
        {"model", "mlp", 2, "bias", "bool", NULL},
        {"model", "mlp", 3, "loss", "choice", "cross_entropy|mse|bce"},
        {"model", "gpt", 0, "preset", "enum", "gpt2|gpt2-medium|gpt2-large|gpt2-xl"},
        {"model", "gpt", 1, "n_layer", "int", NULL},
        {"model", "gpt", 7, "layer_norm_epsilon", "real", NULL},
        {"model", "plugin", 0, "module", "text", NULL},
        {"model", "plugin", 1, "knobs", "map", NULL},
        {"data", "idx", 0, "path", "path", NULL},
        {"data", "tokens", 0, "train", "paths", "1..1024"},
        {"loss", "cross_entropy", 1, "class_weights", "reals", "0..4096"},
    };
    struct td_spec_row row;
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        assert_true(td_spec_row_at(cases[i].choice, cases[i].name, cases[i].row, &row));
        assert_string_equal(row.name, cases[i].key);
        assert_string_equal(row.type, cases[i].type);
        assert_string_equal(row.values ? row.values : "", cases[i].values ? cases[i].values : "");
    }
    for (int t = 0; t < TD_PLUGIN_KNOB_TYPE_COUNT; t++) { // each word is one of those above
        const char *word = td_plugin_knob_type_name((enum td_plugin_knob_type)t);
        bool found = false;
        for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
            found = found || strcmp(cases[i].type, word) == 0;
        }
        assert_true(found);
    }
    assert_false(td_spec_row_at("model", "mlp", 4, &row));
    assert_false(td_spec_row_at("model", "no_such", 0, &row));
    assert_false(td_spec_row_at("", "ddp", 0, &row));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_knobs_are_completed_when_only_the_required_are_given),
        cmocka_unit_test(test_knob_is_refused_when_it_does_not_fit_its_row),
        cmocka_unit_test(test_path_begins_at_the_place_of_the_spec_when_it_is_relative),
        cmocka_unit_test(test_default_is_named_as_the_plugins_mistake_when_it_does_not_fit),
        cmocka_unit_test(test_knobs_are_read_when_they_were_checked),
        cmocka_unit_test(test_reader_fails_when_the_table_says_otherwise),
        cmocka_unit_test(test_rows_of_the_spec_have_the_words_of_plugins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
