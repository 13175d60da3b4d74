// What a spec's text says before any knob is asked. Texts that look like something else keep their
// letters. JSON is read as JSON, with lines, bounds and duplicates as of YAML.

#include "tests/unit/spec/spec_rig.h"

#include "lib/spec/check.h"
#include "lib/spec/plugin_knobs.h"

static struct td_json *parse(struct td_arena *a, const char *text, const char *override) {
    struct td_json *tree = NULL;
    assert_ok(td_spec_parse(a, text, strlen(text), &override, override != NULL, &tree));
    return tree;
}

static void assert_printed(const struct td_json *v, const char *wanted) {
    TD_AUTO_BUF text;
    td_buf_init(&text, 1 << 20);
    assert_non_null(v);
    assert_ok(td_json_print(v, false, &text));
    assert_string_equal(td_buf_cstr(&text), wanted);
}

// The only thing that is wrong is this.
static void refused(struct td_arena *a, const char *text, const char *override, const char *path,
                    const char *part) {
    struct td_json *tree;
    td_status s = td_spec_parse(a, text, strlen(text), &override, override != NULL, &tree);
    const char *field = "", *found = "";
    if (td_status_n_fields(s)) td_status_field(s, 0, &field, &found);
    if (strcmp(field, path) != 0 || !strstr(found, part)) {
        fail_msg("'%s' should get '%s: %s', got '%s: %s'", text, path, part, field, found);
    }
    assert_fails(s, TD_INVALID_ARGUMENT, part);
}

// ---- text ---------------------------------------------------------------------------------------
#define LETTERS "007, 0x1F, 0o17, +5, 00012, -0, 1.50, 1e3, .inf, true, False, null, ~, Null, 12"
#define TEXTS                                                                                      \
    "\"007\",\"0x1F\",\"0o17\",\"+5\",\"00012\",\"-0\",\"1.50\",\"1e3\",\".inf\",\"true\","        \
    "\"False\",\"null\",\"~\",\"Null\",\"12\""

static void test_plain_scalar_keeps_its_letters_when_text_is_wanted(void **state) {
    struct td_json *tree = parse(*state,
                                 "kind: command\nname: 007\ncommand: [printf, " LETTERS "]\n"
                                 "env: {A: 007, B: 0x1F, C: ~, D: yes, E: 1_0, F: True, G: 1.0}\n",
                                 NULL);
    assert_printed(td_json_get(tree, "command"), "[\"printf\"," TEXTS "]");
    assert_printed(td_json_get(tree, "name"), "\"007\"");
    assert_printed(td_json_path(tree, "env.A"), "\"007\"");
    assert_printed(td_json_path(tree, "env.B"), "\"0x1F\"");
    assert_printed(td_json_path(tree, "env.C"), "\"~\"");
    assert_printed(td_json_path(tree, "env.F"), "\"True\"");
    assert_printed(td_json_path(tree, "env.G"), "\"1.0\"");
}

static void test_override_keeps_its_letters_when_text_is_wanted(void **state) {
    const char *spec = "kind: command\ncommand: [a]\n";
    assert_printed(td_json_get(parse(*state, spec, "name=007"), "name"), "\"007\"");
    assert_printed(td_json_path(parse(*state, spec, "env.A=0x1F"), "env.A"), "\"0x1F\"");
    assert_printed(td_json_path(parse(*state, spec, "env.A=null"), "env.A"), "\"null\"");
    assert_printed(td_json_get(parse(*state, spec, "command=[printf, " LETTERS "]"), "command"),
                   "[\"printf\"," TEXTS "]");
    assert_printed(td_json_get(parse(*state, spec, "command=[\"a\", 007]"), "command"),
                   "[\"a\",\"007\"]");
}

static void test_path_keeps_its_letters_when_it_looks_like_a_number(void **state) {
    static const char text[] = "model: {name: mlp, layers: [2, 2]}\noptimizer: {name: sgd}\n"
                               "data: {name: text, path: 007, batch_size: 4}\nplugins: [1.50, ~]\n"
                               "ckpt_path: null\ninit_from: ~\n";
    struct td_spec_place place = {.directory = "/d", .home = "/h"};
    struct td_json *tree;
    assert_ok(td_spec_parse_at(*state, text, sizeof text - 1, NULL, 0, &place, &tree));
    assert_printed(td_json_path(tree, "data.path"), "\"/d/007\"");
    assert_printed(td_json_get(tree, "plugins"), "[\"/d/1.50\",\"/h\"]");
    assert_printed(td_json_get(tree, "ckpt_path"), "null"); // this knob takes null
    assert_printed(td_json_get(tree, "init_from"), "null");
}

static void test_number_is_a_number_when_one_is_wanted(void **state) {
    const char *spec = "kind: command\ncommand: [a]\ntrainer: {devices: 007}\n"
                       "restart: {max: 0x1F, backoff: [+5, 010]}\nworkdir: ~\n";
    struct td_json *tree = parse(*state, spec, NULL);
    assert_printed(td_json_path(tree, "trainer.devices"), "7");
    assert_printed(td_json_path(tree, "restart.max"), "31");
    assert_printed(td_json_path(tree, "restart.backoff"), "[5,10]");
    assert_printed(td_json_get(tree, "workdir"), "null");
}

static void test_value_is_refused_when_it_has_no_text(void **state) {
    refused(*state, "kind: command\ncommand: [a]\nname: +5\n", NULL, "name (line 3)",
            "found text '+5'");
    refused(*state, "kind: command\ncommand: [a]\nenv:\n  A:\n", NULL, "env.A (line 4)",
            "found nothing (null); \"\" is an empty one");
    refused(*state, "kind: command\ncommand:\n- a\n-\n", NULL, "command[1] (line 4)",
            "found nothing");
}

// ---- JSON ---------------------------------------------------------------------------------------
static void test_json_is_read_as_json_when_a_text_begins_so(void **state) {
    static const char text[] = " {\"command\"\n:[\"\\ud83d\\ude00\", \"a\xc2\x85z\", \"\\u0085\",\n"
                               " 12, -3, \"\xf0\x9f\x98\x80\", \"a: b #c\", \"a\\/b\\t\"],\n"
                               "\t\"kind\":\"command\",\"env\":{\"N\":7}}";
    TD_AUTO(td_arena) *a = NULL;
    assert_ok(td_arena_create(TD_SPEC_ARENA_BYTES, &a));
    struct td_json *tree;
    td_status s = td_spec_parse(a, text, sizeof text - 1, NULL, 0, &tree);
    // A tab is no text of a command; it is there to be read.
    assert_fails(s, TD_INVALID_ARGUMENT, "command[7] (line 3)");
    char plain[sizeof text];
    memcpy(plain, text, sizeof text);
    memcpy(strstr(plain, "\\t"), "__", 2);
    tree = parse(*state, plain, NULL);
    assert_printed(td_json_get(tree, "command"),
                   "[\"\xf0\x9f\x98\x80\",\"a\\u0085z\",\"\\u0085\",\"12\",\"-3\","
                   "\"\xf0\x9f\x98\x80\",\"a: b #c\",\"a/b__\"]");
    assert_printed(td_json_path(tree, "env.N"), "\"7\"");
}

static void test_json_number_is_refused_when_text_is_wanted_and_it_is_no_integer(void **state) {
    refused(*state, "{\"kind\": \"command\", \"command\": [\"a\", 1.50]}", NULL,
            "command[1] (line 1)", "found 1.5: put it in quotes");
    refused(*state, "{\"kind\": \"command\", \"command\": [\"a\"], \"env\": {\"A\": 1e3}}", NULL,
            "env.A (line 1)", "found 1000.0; put it in quotes");
    refused(*state, "{\"kind\": \"command\", \"command\": [\"a\", true]}", NULL,
            "command[1] (line 1)", "put it in quotes");
    refused(*state, "{\"kind\": \"command\", \"command\": [\"a\", null]}", NULL,
            "command[1] (line 1)", "found nothing");
}

static void test_json_error_names_its_line_when_a_key_is_wrong(void **state) {
    static const char head[] = "\xef\xbb\xbf{\n  \"model\": {\"name\": \"mlp\",\r\n\"layers\": [2, "
                               "2]},\n  \"a\\\"\\\\\": {\"}\": [{}, [], \"]\\n\"]},\n";
    char text[512];
    snprintf(text, sizeof text,
             "%s\n \"optimizer\":\n  \"sgd\", \"data\": {\"name\": \"synthetic\",\n"
             "\"batch_size\"\n:\n 0}}",
             head);
    struct td_json *tree;
    td_status s = td_spec_parse(*state, text, strlen(text), NULL, 0, &tree);
    const char *field, *found;
    assert_int_equal(td_status_n_fields(s), 2);
    td_status_field(s, 0, &field, &found);
    assert_string_equal(field, "a\"\\ (line 4)");
    td_status_field(s, 1, &field, &found);
    assert_string_equal(field, "data.batch_size (line 8)");
    td_status_free(s);
}

static void test_json_is_refused_with_its_line_when_it_is_broken(void **state) {
    refused(*state, "{\"name\": \"x\",\n}", NULL, "line 2", "column 1: string or '}' expected");
    refused(*state, "{\"name\": \"x\"}\n{}", NULL, "line 2", "end of file expected");
    refused(*state, "{\"name\": \"x\",\n\"kind\": \"a\",\n\"name\": 1}", NULL, "line 3",
            "duplicate object key near '\"name\"'");
    refused(*state, "{\"name\": \"x\", kind: command}", NULL, "line 1", "string or '}' expected");
    refused(*state, "{\"name\": 'x'}", NULL, "line 1", "invalid token");
    refused(*state, "{\"name\": \"\\u0000\"}", NULL, "line 1", "\\u0000 is not allowed");
    refused(*state, "{\"a\xff\": 1}", NULL, "line 1", "unable to decode byte 0xff");
    refused(*state, "{}", NULL, "model", "required");
}

static void repeated(struct td_arena *a, const char *head, const char *unit, int n,
                     const char *tail, const char *path, const char *part) {
    TD_AUTO_BUF text;
    td_buf_init(&text, TD_SPEC_MAX_BYTES);
    assert_ok(td_buf_str(&text, head));
    for (int i = 0; i < n; i++) {
        assert_ok(td_buf_printf(&text, unit, i));
    }
    assert_ok(td_buf_str(&text, tail));
    refused(a, td_buf_cstr(&text), NULL, path, part);
}

static void test_json_is_refused_when_it_is_past_the_bounds_of_a_spec(void **state) {
    char deep[] = "{\"a\":\n[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]}";
    refused(*state, deep, NULL, "line 2", "nested deeper than 16 levels");
    repeated(*state, "{\"a\": ", "[", 300000, "", "line 1", "maximum parsing depth");
    repeated(*state, "{\"a\":\n [0", ",%d", 10000, "]}", "line 2", "more than 10000 values");
    repeated(*state, "{\"a\":\n [0", ",[]", 200000, "]}", "line 2", "more than 10000 values");
    repeated(*state, "{\"a\": [0", ",%d", 9997, "]}", "a (line 1)", "unknown key");
    repeated(*state, "{\"a\": 1", ",\n\"%d\": 1", 256, "}", "line 1", "more than 256 keys");
    repeated(*state, "{\"a\":\n \"", "x", TD_SPEC_MAX_SCALAR + 1, "\"}", "line 2",
             "a value of 65537 bytes; at most 65536");
    repeated(*state, "{\"", "x", TD_SPEC_MAX_SCALAR + 1, "\": 1}", "line 1", "a key of 65537");
}

static void test_override_is_json_when_it_is_valid_json(void **state) {
    const char *spec = "kind: command\ncommand: [a]\n";
    assert_printed(td_json_get(parse(*state, spec, "env={\"A\":\"\\ud83d\\ude00\"}"), "env"),
                   "{\"A\":\"\xf0\x9f\x98\x80\"}");
    assert_printed(td_json_get(parse(*state, spec, "env={\"A\": b, c: 007}"), "env"),
                   "{\"A\":\"b\",\"c\":\"007\"}");
    assert_printed(td_json_path(parse(*state, spec, "env.A=\"\\x41\""), "env.A"), "\"A\"");
    refused(*state, spec, "env={\"A\": {}}", "env.A (override 1)", "expected text, found a map");
    refused(*state, spec, "trainer={\"devcies\": 2}", "trainer.devcies (override 1)", "devices?");
}

static void test_flow_yaml_stays_yaml_when_its_keys_are_plain(void **state) {
    struct td_json *tree = parse(*state, "{kind: command, command: [\"a\", 007], # c\n}", NULL);
    assert_printed(td_json_get(tree, "command"), "[\"a\",\"007\"]");
}

static void test_number_is_refused_when_a_plugin_wants_text(void **state) {
    static const struct td_plugin_knob knob = {
        "tag", TD_PLUGIN_KNOB_TEXT, 0, 0, NULL, "007", NULL, "a text"};
    struct td_json *given, *made;
    assert_ok(td_json_parse(*state, "{\"tag\":7}", 9, &given));
    assert_fails(td_spec_plugin_knobs(*state, "model.knobs", &knob, 1, given, NULL, &made),
                 TD_INVALID_ARGUMENT, "found 7: put it in quotes to make it text");
    assert_ok(td_spec_plugin_knobs(*state, "model.knobs", &knob, 1, NULL, NULL, &made));
    assert_printed(made, "{\"tag\":\"007\"}");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_arena(test_plain_scalar_keeps_its_letters_when_text_is_wanted),
        test_in_arena(test_override_keeps_its_letters_when_text_is_wanted),
        test_in_arena(test_path_keeps_its_letters_when_it_looks_like_a_number),
        test_in_arena(test_number_is_a_number_when_one_is_wanted),
        test_in_arena(test_value_is_refused_when_it_has_no_text),
        test_in_arena(test_json_is_read_as_json_when_a_text_begins_so),
        test_in_arena(test_json_number_is_refused_when_text_is_wanted_and_it_is_no_integer),
        test_in_arena(test_json_error_names_its_line_when_a_key_is_wrong),
        test_in_arena(test_json_is_refused_with_its_line_when_it_is_broken),
        test_in_arena(test_json_is_refused_when_it_is_past_the_bounds_of_a_spec),
        test_in_arena(test_override_is_json_when_it_is_valid_json),
        test_in_arena(test_flow_yaml_stays_yaml_when_its_keys_are_plain),
        test_in_arena(test_number_is_refused_when_a_plugin_wants_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
