// Relative paths of a spec: where they begin, how far `..` leads, what is listed, and what a text
// of init_from means where somebody knows checkpoints of jobs.

#include "tests/unit/test.h"

#include <stdio.h>
#include <string.h>

#include "lib/spec/spec.h"

static const char text[] =
    "model: {name: mlp, layers: [2, 2]}\n"
    "data: {name: synthetic, samples: 8, features: 2, classes: 2, batch_size: 4}\n"
    "optimizer: {name: sgd, lr: 0.1}\n";

static td_status parse(struct td_arena *a, const char *override, struct td_spec_place *place,
                       struct td_json **out_tree) {
    return td_spec_parse_at(a, text, sizeof text - 1, &override, 1, place, out_tree);
}

static void test_path_begins_at_the_place_when_it_is_relative(void **state) {
    (void)state;
    static const struct {
        const char *directory, *given, *path;
    } rows[] = {
        {"/a/b", "x", "/a/b/x"},
        {"/a/b", "./x/y", "/a/b/x/y"},
        {"/a/b", "../x", "/a/x"},
        {"/a/b", "../../x", "/x"},
        {"/a/b", "../../../x", "/x"},
        {"/", "x", "/x"},
        {"/", "..", "/"},
        {"/a/b", ".", "/a/b"},
        {"/a/b", "..", "/a"},
        {"/a/b", "./.././c", "/a/c"},
        {"/a/b", "/x", "/x"},
        {"/a/b", "~/x", "/home/me/x"},
        {"/a/b", "'~'", "/home/me"},
        {"/a/b", "~/../x", "/home/x"},
        {"/a/b", "..x", "/a/b/..x"},
        {"/a/b", ".hidden/x", "/a/b/.hidden/x"},
    };
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        TD_AUTO(td_arena) *a = NULL;
        assert_ok(td_arena_create(TD_SPEC_ARENA_BYTES, &a));
        struct td_spec_place place = {.directory = rows[i].directory, .home = "/home/me"};
        struct td_json *tree;
        char override[64];
        snprintf(override, sizeof override, "init_from=%s", rows[i].given);
        assert_ok(parse(a, override, &place, &tree));
        assert_string_equal(td_json_string(td_json_get(tree, "init_from"), ""), rows[i].path);
        assert_int_equal(place.n, rows[i].given[0] != '/');
        if (!place.n) continue;
        assert_string_equal(place.first->key, "init_from");
        assert_string_equal(place.first->path, rows[i].path);
        assert_false(place.first->is_output);
    }
}

static void test_output_is_marked_when_the_job_writes_it(void **state) {
    (void)state;
    TD_AUTO(td_arena) *a = NULL;
    assert_ok(td_arena_create(TD_SPEC_ARENA_BYTES, &a));
    struct td_spec_place place = {.directory = "/a"};
    struct td_json *tree;
    assert_ok(parse(a, "checkpoint={dir: out}", &place, &tree));
    assert_true(place.n == 1 && place.first->is_output);
}

static void test_path_is_refused_when_it_has_no_place(void **state) {
    (void)state;
    static const struct {
        struct td_spec_place place;
        const char *given, *words;
    } rows[] = {
        {{.directory = "/a"}, "init_from=~/x", "'~/x' is relative to a home"},
        {{.home = "/h"}, "init_from=x", "did not say where it is"},
        {{.directory = "/a", .home = "/h", .refusal = "because"}, "init_from=x", "because"},
        {{.directory = "/a", .home = "/h"}, "init_from=~bob/x", "another user"},
        {{.directory = "/a", .home = "/h"}, "init_from=x/../y", "without '..'"},
        {{.directory = "/a", .home = "/h"}, "init_from=''", "found text ''"},
    };
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        TD_AUTO(td_arena) *a = NULL;
        assert_ok(td_arena_create(TD_SPEC_ARENA_BYTES, &a));
        struct td_spec_place place = rows[i].place;
        struct td_json *tree;
        assert_fails(parse(a, rows[i].given, &place, &tree), TD_INVALID_ARGUMENT, rows[i].words);
    }
}

static td_status know_one_job(void *arg, struct td_arena *a, const char *given,
                              const char **out_path) {
    (void)arg, (void)a;
    if (strcmp(given, "sick") == 0) return td_fail(TD_NOT_FOUND, "it is sick");
    *out_path = strcmp(given, "known/best") == 0 ? "/c/known/a1/step-1" : NULL;
    return TD_OK;
}

static void test_checkpoint_comes_first_when_a_job_has_the_name(void **state) {
    (void)state;
    static const struct {
        const char *given, *key, *path; // path NULL: refused
    } rows[] = {
        {"init_from=known/best", "init_from", "/c/known/a1/step-1"},
        {"ckpt_path=known/best", "ckpt_path", "/c/known/a1/step-1"},
        {"init_from=./known/best", "init_from", "/a/known/best"},
        {"init_from=other", "init_from", "/a/other"},
        {"evaluate_from=known/best", "evaluate_from", "/a/known/best"},
        {"init_from=sick", "init_from", NULL},
    };
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        TD_AUTO(td_arena) *a = NULL;
        assert_ok(td_arena_create(TD_SPEC_ARENA_BYTES, &a));
        struct td_spec_place place = {.directory = "/a", .checkpoint = know_one_job};
        struct td_json *tree;
        td_status s = parse(a, rows[i].given, &place, &tree);
        if (!rows[i].path) {
            assert_fails(s, TD_INVALID_ARGUMENT, "it is sick");
            continue;
        }
        assert_ok(s);
        assert_string_equal(td_json_string(td_json_get(tree, rows[i].key), ""), rows[i].path);
    }
}

static void expect_kept(const char *extra, const char *refusal, const char *wanted) {
    TD_AUTO(td_arena) *a = NULL;
    assert_ok(td_arena_create(TD_SPEC_ARENA_BYTES, &a));
    struct td_spec_place place = {.directory = "/a/b", .home = "/h", .refusal = refusal};
    struct td_json *tree, *again;
    char spec[512];
    snprintf(spec, sizeof spec, "%s%s\n", text, extra);
    assert_ok(td_spec_parse_at(a, spec, strlen(spec), NULL, 0, &place, &tree));
    TD_AUTO_BUF out;
    td_buf_init(&out, 256);
    assert_ok(td_json_print(td_json_get(tree, "paths_from"), false, &out));
    assert_string_equal(td_buf_cstr(&out), wanted);
    place.directory = "/elsewhere"; // who hands the canonical spec in again
    place.n = 0;
    assert_ok(td_spec_validate(a, tree, 0, &again));
    td_buf_clear(&out);
    assert_ok(td_json_print(td_json_get(again, "paths_from"), false, &out));
    assert_string_equal(td_buf_cstr(&out), wanted);
}

// Which knobs of a plugin are paths is known where the plugin is.
static void test_place_is_kept_when_a_plugin_may_need_it(void **state) {
    (void)state;
    expect_kept("", NULL, "[]");
    expect_kept("comm_hook: {name: plugin, comm_hook: x, knobs: {a: 3, b: /c}}", NULL, "[]");
    expect_kept("comm_hook: {name: plugin, comm_hook: x, knobs: {a: b/c}}", NULL,
                "[\"/a/b\",\"/h\"]");
    expect_kept("comm_hook: {name: plugin, comm_hook: x, knobs: {a: ~/c}}\npaths_from: [/x]", NULL,
                "[\"/x\"]");
    expect_kept(
        "trainer: {strategy: {name: plugin, strategy: x, knobs: {a: b}}}\npaths_from: [.., ~/e]",
        NULL, "[\"/a\",\"/h/e\"]");
    expect_kept("comm_hook: {name: plugin, comm_hook: x, knobs: {a: b/c}}", "elsewhere", "[]");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_path_begins_at_the_place_when_it_is_relative),
        cmocka_unit_test(test_output_is_marked_when_the_job_writes_it),
        cmocka_unit_test(test_path_is_refused_when_it_has_no_place),
        cmocka_unit_test(test_checkpoint_comes_first_when_a_job_has_the_name),
        cmocka_unit_test(test_place_is_kept_when_a_plugin_may_need_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
