// Labels: the rule, a set as one text and the changes of it, and what a spec says of them. Each
// refusal names the place and the rule.

#include "tests/unit/test.h"

#include "lib/job/labels.h"
#include "lib/spec/spec.h"

#define SIXTY "a23456789b123456789c123456789d123456789e123456789f123456789g"

// ---- the rule -----------------------------------------------------------------------------------
static void test_label_is_taken_when_it_keeps_the_rule(void **state) {
    (void)state;
    static const char *const good[] = {"a", "7", "run-1", "a_b.c", "A.9", SIXTY "123"};
    static const char *const bad[] = {"-a",  "a-",  ".a",       "a_",         "a b", "a/b",
                                      "a,b", "a=b", "\xc3\xa9", SIXTY "1234", "a\n", "a\x7f"};
    for (size_t i = 0; i < TD_COUNTOF(good); i++) {
        assert_true(td_label_key_ok(good[i], strlen(good[i])));
        assert_true(td_label_value_ok(good[i], strlen(good[i])));
    }
    for (size_t i = 0; i < TD_COUNTOF(bad); i++) {
        assert_false(td_label_key_ok(bad[i], strlen(bad[i])));
        assert_false(td_label_value_ok(bad[i], strlen(bad[i])));
    }
    assert_false(td_label_key_ok("", 0));
    assert_true(td_label_value_ok("", 0));
    assert_false(td_label_value_ok("a\0b", 3));
}

static void test_wish_is_fulfilled_by_key_or_by_value(void **state) {
    (void)state;
    static const char labels[] = "empty=,run=a7,team=vision";
    static const char *const has[] = {"empty", "empty=", "run", "run=a7", "team=vision"};
    static const char *const lacks[] = {"run=", "run=a",  "run=a77",    "ru",      "runs",
                                        "a7",   "vision", "team=visio", "empty=1", "tea"};
    for (size_t i = 0; i < TD_COUNTOF(has); i++) {
        assert_true(td_labels_has(labels, has[i]));
        assert_false(td_labels_has(NULL, has[i]));
    }
    for (size_t i = 0; i < TD_COUNTOF(lacks); i++) {
        assert_false(td_labels_has(labels, lacks[i]));
    }
    assert_true(td_labels_have(labels, "empty=,team=vision"));
    assert_true(td_labels_have(labels, "") && td_labels_have(NULL, NULL));
    assert_false(td_labels_have(labels, "run=a7,team=text"));
    assert_ok(td_label_check_wish("--label", "run=a7"));
    assert_ok(td_label_check_wish("--label", "run="));
    assert_ok(td_label_check_wish("--label", "run"));
    static const char *const wrong[] = {"", "=a", "a=b=c", "a b", "a,b=c", "-a=b"};
    for (size_t i = 0; i < TD_COUNTOF(wrong); i++) {
        td_status s = td_label_check_wish("--label", wrong[i]);
        assert_string_equal(td_status_reason(s), "LABEL_INVALID");
        assert_non_null(strstr(td_status_message(s), TD_LABEL_RULE));
        td_status_free(s);
    }
}

// ---- changes ------------------------------------------------------------------------------------
// The set after the changes; the caller frees.
static char *changed(const char *labels, const char *const *changes, size_t n) {
    char *now = labels ? td_strdup(labels) : NULL;
    for (size_t i = 0; i < n; i++) {
        char *next = NULL;
        assert_ok(td_labels_change(now, changes[i], &next));
        free(now);
        now = next;
    }
    return now;
}

static void test_set_is_one_text_in_whatever_order_it_was_made(void **state) {
    (void)state;
    static const char *const one[] = {"b=2", "a=1", "c=3", "b=4", "d=", "c-", "x-"};
    static const char *const other[] = {"d=", "b=4", "a=1"};
    TD_AUTO_FREE char *a = changed(NULL, one, TD_COUNTOF(one));
    TD_AUTO_FREE char *b = changed("", other, TD_COUNTOF(other));
    assert_string_equal(a, "a=1,b=4,d=");
    assert_string_equal(b, a);
    static const char *const none[] = {"a-", "b-", "d-"};
    assert_null(changed(a, none, TD_COUNTOF(none)));
    static const char *const prefixes[] = {"ab=1", "a=1", "a.b=1", "abc=1"};
    TD_AUTO_FREE char *c = changed(NULL, prefixes, TD_COUNTOF(prefixes));
    assert_string_equal(c, "a=1,a.b=1,ab=1,abc=1");
}

static void test_change_is_refused_when_it_is_none_or_one_too_many(void **state) {
    (void)state;
    static const char *const wrong[] = {"a", "", "-", "=a", "a=b c", "a--", "a/b=c", "a=b="};
    char *out = NULL, one[16];
    for (size_t i = 0; i < TD_COUNTOF(wrong); i++) {
        td_status s = td_labels_change("a=1", wrong[i], &out);
        assert_string_equal(td_status_reason(s), "LABEL_INVALID");
        td_status_free(s);
        assert_null(out);
    }
    TD_AUTO_FREE char *labels = NULL;
    for (int i = 0; i < TD_LABELS_MAX; i++) {
        const char *change = one;
        snprintf(one, sizeof one, "k%02d=%d", i, i);
        char *more = changed(labels, &change, 1);
        free(labels);
        labels = more;
    }
    td_status s = td_labels_change(labels, "z=1", &out);
    assert_string_equal(td_status_reason(s), "LIMIT_LABELS");
    td_status_free(s);
    assert_ok(td_labels_change(labels, "k07=x", &out)); // in place of another is no more
    free(out);
}

// ---- in a spec ----------------------------------------------------------------------------------
static const char base[] = "model: {name: mlp, layers: [4, 2]}\n"
                           "data: {name: synthetic, features: 4, classes: 2, batch_size: 8}\n"
                           "optimizer: {name: sgd}\n";

static td_status parse(struct td_arena *a, const char *extra, const char *override,
                       struct td_json **out_tree) {
    TD_AUTO_BUF text;
    td_buf_init(&text, 1 << 20);
    assert_ok(td_buf_printf(&text, "%s%s\n", base, extra));
    return td_spec_parse(a, td_buf_cstr(&text), text.len, &override, override != NULL, out_tree);
}

static void expect_labels(const char *extra, const char *override, const char *wanted) {
    TD_AUTO(td_arena) *a = NULL;
    TD_AUTO_FREE char *labels = NULL;
    struct td_json *tree = NULL;
    struct td_spec spec;
    assert_ok(td_arena_create(TD_SPEC_ARENA_BYTES, &a));
    assert_ok(parse(a, extra, override, &tree));
    td_spec_read(tree, &spec);
    assert_ok(td_labels_of_map(spec.labels, &labels));
    assert_string_equal(labels ? labels : "", wanted);
}

static void test_spec_has_labels_by_key_when_canonical(void **state) {
    (void)state;
    expect_labels("", NULL, "");
    expect_labels("labels: {}", NULL, "");
    expect_labels("labels: {team: vision, run: a7, n: 007, e: '', on: yes}", NULL,
                  "e=,n=007,on=yes,run=a7,team=vision");
    expect_labels("labels: {team: vision}", "labels.run=a7", "run=a7,team=vision");
    expect_labels("", "labels.team=x", "team=x");
    expect_labels("", "labels={a.b: c}", "a.b=c");
    expect_labels("kind: train\nlabels: {team: vision}", "labels.team=text", "team=text");
}

static void expect_refused(const char *extra, const char *override, const char *path,
                           const char *part) {
    TD_AUTO(td_arena) *a = NULL;
    struct td_json *tree = NULL;
    bool found = false;
    assert_ok(td_arena_create(TD_SPEC_ARENA_BYTES, &a));
    td_status s = parse(a, extra, override, &tree);
    for (size_t i = 0; i < td_status_n_fields(s); i++) {
        const char *field, *text;
        td_status_field(s, i, &field, &text);
        found |= strcmp(field, path) == 0 && strstr(text, part);
    }
    if (!found) {
        fail_msg("'%s' should get '%s: %s', got: %s", extra, path, part, td_status_message(s));
    }
    td_status_free(s);
}

static void test_spec_is_refused_with_place_and_rule_when_a_label_is_none(void **state) {
    (void)state;
    static const char map[] = "a map of at most 32 labels, KEY: VALUE";
    expect_refused("labels: {Team!: a}", NULL, "labels.Team! (line 4)", TD_LABEL_RULE);
    expect_refused("labels:\n  a: 1\n  b: 'x y'", NULL, "labels.b (line 6)", TD_LABEL_RULE);
    expect_refused("labels: {a: -x}", NULL, "labels.a (line 4)", "found text '-x'");
    expect_refused("labels: {a: }", NULL, "labels.a (line 4)", "\"\" is an empty one");
    expect_refused("labels: {a: [b]}", NULL, "labels.a (line 4)", "found a list of 1");
    expect_refused("labels: {'': b}", NULL, "labels. (line 4)", TD_LABEL_RULE);
    expect_refused("labels: [a]", NULL, "labels (line 4)", map);
    expect_refused("labels: a", NULL, "labels (line 4)", map);
    expect_refused("", "labels.a.b=c", "labels.a (override 1)", "--set 'labels={a.b: c}'");
    expect_refused("label: {a: b}", NULL, "label (line 4)", "did you mean labels?");
}

static void test_spec_is_refused_when_it_has_too_many_labels(void **state) {
    (void)state;
    enum { MANY = 10000, ONE = 16 };
    TD_AUTO_BUF text;
    td_buf_init(&text, (size_t)MANY * ONE + ONE);
    assert_ok(td_buf_str(&text, "labels:\n"));
    for (int i = 0; i < MANY; i++) {
        if (i == TD_LABELS_MAX + 1) {
            expect_refused(td_buf_cstr(&text), NULL, "labels (line 4)",
                           "has 33 labels, at most 32 are taken");
        }
        assert_ok(td_buf_printf(&text, "  k%d: v\n", i));
    }
    expect_refused(td_buf_cstr(&text), NULL, "line 261", "a map of more than 256 keys");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_label_is_taken_when_it_keeps_the_rule),
        cmocka_unit_test(test_wish_is_fulfilled_by_key_or_by_value),
        cmocka_unit_test(test_set_is_one_text_in_whatever_order_it_was_made),
        cmocka_unit_test(test_change_is_refused_when_it_is_none_or_one_too_many),
        cmocka_unit_test(test_spec_has_labels_by_key_when_canonical),
        cmocka_unit_test(test_spec_is_refused_with_place_and_rule_when_a_label_is_none),
        cmocka_unit_test(test_spec_is_refused_when_it_has_too_many_labels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
