// Patterns over lines: what their groups mean, which are refused and by which sentence, and how
// much work and memory one can be.

#include "tests/unit/test.h"

#include <math.h>

#include "lib/base/clock.h"
#include "lib/pattern/line_pattern.h"
#include "lib/pattern/line_pattern_check.h"

static struct td_line_pattern_said line;

// Does a line match? What it says is in `line`.
static bool reads(const char *pattern, const char *text) {
    struct td_line_pattern *s = NULL;
    assert_ok(td_line_pattern_create(pattern, &s));
    bool found = td_line_pattern_read(s, text, strlen(text), &line);
    td_line_pattern_destroy(s); // names are gone with it
    for (int i = 0; i < line.n_values; i++) {
        line.values[i].name = NULL;
    }
    return found;
}

#define BOTH "step=(?P<step>\\S+) loss=(?P<loss>\\S+)"

static td_status make(void *arg) {
    struct td_line_pattern *s = NULL;
    TD_TRY(td_line_pattern_create(arg, &s));
    td_line_pattern_destroy(s);
    return TD_OK;
}

static void test_line_pattern_is_whole_or_not_there_when_memory_is_out(void **state) {
    (void)state;
    char pattern[] = BOTH;
    td_test_failing_allocations(make, pattern);
}

static void test_line_is_read_when_it_matches_anywhere(void **state) {
    (void)state;
    assert_true(reads(BOTH, "[12:01] step=10 loss=0.25 (fast)"));
    assert_int_equal(line.step, 10);
    assert_int_equal(line.n_values, 1);
    assert_float_equal(line.values[0].value, 0.25, 0);
    assert_true(line.epoch < 0 && line.total_steps == -1);
    assert_false(reads(BOTH, "loss=0.25 step=10"));
    assert_int_equal(line.n_bad, 0);
}

static void test_value_is_named_by_its_group(void **state) {
    (void)state;
    struct td_line_pattern *s = NULL;
    assert_ok(td_line_pattern_create(
        "(?P<step>\\d+)/(?P<total>\\d+) e(?P<epoch>\\S+) (x=(?P<x_1>\\S+))?", &s));
    assert_true(td_line_pattern_read(s, "3/70 e1.75 x=-2e3", 17, &line));
    assert_int_equal(line.step, 3);
    assert_int_equal(line.total_steps, 70);
    assert_float_equal(line.epoch, 1.75, 0);
    assert_int_equal(line.n_values, 1);
    assert_string_equal(line.values[0].name, "x_1");
    assert_float_equal(line.values[0].value, -2000, 0);
    assert_true(td_line_pattern_read(s, "4/70 e2 ", 8, &line)); // x took no part
    assert_int_equal(line.n_values, 0);
    assert_int_equal(line.n_bad, 0);
    td_line_pattern_destroy(s);
}

static void test_nan_and_inf_are_values_when_a_line_has_them(void **state) {
    (void)state;
    assert_true(reads(BOTH, "step=1 loss=nan"));
    assert_true(isnan(line.values[0].value));
    assert_true(reads(BOTH, "step=1 loss=-inf"));
    assert_true(isinf(line.values[0].value) && line.values[0].value < 0);
}

static void test_text_is_left_out_when_it_is_no_number(void **state) {
    (void)state;
    static const char *const values[] = {"0.3,", "", "1_000", "0.3x", "--1", "1e", "nano"};
    for (size_t i = 0; i < TD_COUNTOF(values); i++) {
        char text[64];
        snprintf(text, sizeof text, "step=1 loss=%s", values[i]);
        assert_true(reads("step=(?P<step>\\S+) loss=(?P<loss>.*)", text));
        assert_int_equal(line.n_values, 0);
        assert_int_equal(line.n_bad, 1);
    }
    char huge[70];
    memset(huge, '1', sizeof huge);
    huge[sizeof huge - 1] = '\0';
    const char *const steps[] = {"1.5", "-1", "2147483648", "nan", "x", huge};
    for (size_t i = 0; i < TD_COUNTOF(steps); i++) {
        char text[128];
        snprintf(text, sizeof text, "step=%s loss=1", steps[i]);
        assert_false(reads(BOTH, text));
        assert_int_equal(line.n_bad, 1);
        assert_string_equal(line.bad_name, "step");
    }
    assert_true(reads(BOTH, "step=2147483647 loss=1"));
}

static void test_pattern_is_refused_by_its_rule(void **state) {
    (void)state;
    char wide[TD_PATTERN_BYTES + 2], many[TD_PATTERN_BYTES] = "(?P<step>.)";
    memset(wide, 'a', sizeof wide - 1);
    wide[sizeof wide - 1] = '\0';
    for (int i = 0; i < TD_PATTERN_GROUPS; i++) {
        strncat(many, "(.)", sizeof many - strlen(many) - 1);
    }
    const struct {
        const char *pattern, *why;
    } rows[] = {
        {"loss=(?P<loss>\\S+)", "no group `step`"},
        {"step=(?P<step>\\d+", "missing )"},
        {"(?P<step>\\d+)(?P<step>\\d+)", "two groups 'step'"},
        {"(?P<step>\\d+)(?=x)", "invalid perl operator"},
        {"(?P<step>\\d+)\\q", "invalid escape sequence"},
        {"(?P<step>\\d{1001})", "invalid repetition size"},
        {"(?P<step>((((a{100}){100}){100}){100}))", "invalid repetition size"},
        {"(?P<step>\\pL{500})(\\pL{500}){2}", "pattern too large"},
        {"(?P<step>\\d+) (?P<total>\\d+) (?P<total_steps>\\d+)", "both `total` and `total_steps`"},
        {"(?P<step>.)(?P<"
         "a123456789b123456789c123456789d123456789e123456789f123456789g123456789>.)",
         "at most 63 bytes"},
        {wide, "has 257 bytes, at most 256"},
        {many, "has 33 groups, at most 32"},
    };
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        struct td_line_pattern *s = NULL;
        assert_fails(td_line_pattern_create(rows[i].pattern, &s), TD_INVALID_ARGUMENT, rows[i].why);
        assert_null(s);
    }
}

static void test_line_takes_linear_time_when_the_pattern_is_nested(void **state) {
    (void)state;
    static char text[4096];
    memset(text, 'a', sizeof text - 1);
    const struct td_mono before = td_mono_now();
    assert_false(reads("(?P<step>(a*)*)b", text));
    assert_false(reads("(?P<step>(a|aa)+)$b", text));
    assert_true(td_mono_now().ns - before.ns < TD_TEST_WAIT_NS); // another engine needs years
}

static void test_knob_is_refused_with_its_line(void **state) {
    (void)state;
    const char bad[] = "(";
    struct td_json v = {.kind = TD_JSON_STRING, .line = 7, .u.string = {bad, 1}};
    assert_fails(td_line_pattern_check(&v), TD_INVALID_ARGUMENT,
                 "metrics_from.stdout (line 7): missing )");
    v = (struct td_json){.kind = TD_JSON_NULL};
    assert_ok(td_line_pattern_check(&v));
    assert_ok(td_line_pattern_check(NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_line_pattern_is_whole_or_not_there_when_memory_is_out),
        cmocka_unit_test(test_line_is_read_when_it_matches_anywhere),
        cmocka_unit_test(test_value_is_named_by_its_group),
        cmocka_unit_test(test_nan_and_inf_are_values_when_a_line_has_them),
        cmocka_unit_test(test_text_is_left_out_when_it_is_no_number),
        cmocka_unit_test(test_pattern_is_refused_by_its_rule),
        cmocka_unit_test(test_line_takes_linear_time_when_the_pattern_is_nested),
        cmocka_unit_test(test_knob_is_refused_with_its_line),
    };
    return cmocka_run_group_tests_name("line_pattern", tests, NULL, NULL);
}
