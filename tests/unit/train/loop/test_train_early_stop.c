// The state machine of early stopping, check by check against Lightning's EarlyStopping
// (tests/golden/early_stopping.json, made by tests/tools/make_golden.py). Also what
// a checkpoint keeps of it, and what becomes of states that come from another job.

#include "tests/unit/test.h"
#include "tests/unit/train/loop/golden.h"

#include <math.h>

#include "engine/train/checkpoint/early_stop_state.h"

#define GOLDEN "tests/golden/early_stopping.json"

// Numbers that JSON does not have are texts there.
static double number(const struct td_json *v) {
    const char *text = td_json_string(v, NULL);
    return text ? strtod(text, NULL) : td_json_real(v, (double)NAN);
}

static struct td_early_stop_config config_of(const struct td_json *k) {
    const struct td_json *stopping = td_json_get(k, "stopping_threshold");
    const struct td_json *divergence = td_json_get(k, "divergence_threshold");
    return (struct td_early_stop_config){
        .monitor = "val_loss",
        .larger_is_better = strcmp(td_json_string(td_json_get(k, "mode"), "min"), "max") == 0,
        .check_finite = td_json_bool(td_json_get(k, "check_finite"), true),
        .has_stopping = stopping,
        .has_divergence = divergence,
        .stopping_threshold = td_json_real(stopping, 0),
        .divergence_threshold = td_json_real(divergence, 0),
        .patience = td_json_int(td_json_get(k, "patience"), 3),
        .min_delta = td_json_real(td_json_get(k, "min_delta"), 0),
    };
}

// The same, after a checkpoint.
static struct td_early_stop through_manifest(const struct td_early_stop *s) {
    struct td_arena *a;
    struct td_json *read;
    struct td_buf text;
    struct td_early_stop again;
    td_buf_init(&text, 1 << 16);
    assert_ok(td_arena_create(1 << 20, &a));
    struct td_json *root = td_json_new(a, TD_JSON_OBJECT);
    td_early_stop_put(a, root, s);
    assert_ok(td_json_print(root, false, &text));
    assert_ok(td_json_parse(a, text.data, text.len, &read));
    assert_true(td_early_stop_get(read, &again));
    td_buf_finish(&text);
    td_arena_destroy(a);
    return again;
}

// Returns how many checks asked for the end. The state goes through a manifest after each.
static int follow(const struct td_json *c, int row) {
    const struct td_early_stop_config config = config_of(td_json_get(c, "early_stopping"));
    const double worst = config.larger_is_better ? -INFINITY : INFINITY;
    struct td_early_stop s = {0};
    const struct td_json *value = td_json_get(c, "values")->first;
    int ends = 0;
    td_early_stop_begin(&s, &config);
    for (const struct td_json *a = td_json_get(c, "after")->first; a; a = a->next) {
        const bool asks = td_early_stop_receive(&s, &config, number(value)) != TD_EARLY_STOP_NOT;
        s = through_manifest(&s);
        const double best = s.has_best ? s.best : worst;
        if (asks != td_json_bool(a->first, !asks) || s.wait != td_json_int(a->first->next, -1) ||
            best != number(a->last)) {
            fail_msg("case %d: ends %d wait %lld best %g", row, asks, (long long)s.wait, best);
        }
        value = value->next;
        ends += asks;
    }
    assert_null(value);
    return ends;
}

// Contract 41: each check counts and ends as that of Lightning's EarlyStopping
static void test_early_stop_follows_lightning_when_golden(void **state) {
    (void)state;
    TD_AUTO(td_arena) *a = NULL;
    const struct td_json *root = td_golden_read(GOLDEN, &a);
    int rows = 0, ends = 0;
    for (const struct td_json *c = td_json_get(root, "checks")->first; c; c = c->next) {
        ends += follow(c, rows++);
    }
    assert_int_equal(rows, 33);
    assert_true(ends > rows);
}

static const struct td_early_stop_config quick = {
    .monitor = "val_loss",
    .check_finite = true,
    .patience = 2,
    .has_stopping = true,
    .stopping_threshold = 0.5,
    .has_divergence = true,
    .divergence_threshold = 9,
};

static void test_reason_is_said_when_the_end_is_asked_for(void **state) {
    (void)state;
    static const struct {
        double value;
        enum td_early_stop_end end;
        const char *text;
    } rows[] = {
        {2, TD_EARLY_STOP_NOT, ""},
        {0.25, TD_EARLY_STOP_THRESHOLD, "val_loss is 0.25, which is below stopping_threshold 0.5"},
        {10, TD_EARLY_STOP_DIVERGENCE, "val_loss is 10, which is above divergence_threshold 9"},
        {(double)NAN, TD_EARLY_STOP_NOT_FINITE, "val_loss is nan (best 2)"},
        {-INFINITY, TD_EARLY_STOP_NOT_FINITE, "val_loss is infinite (best 2)"},
        {3, TD_EARLY_STOP_NOT, ""},
        {3, TD_EARLY_STOP_PATIENCE, "val_loss did not improve for 2 checks (best 2)"},
    };
    struct td_early_stop s = {0};
    char text[TD_EARLY_STOP_REASON_BYTES];
    td_early_stop_begin(&s, &quick);
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        const enum td_early_stop_end end = td_early_stop_receive(&s, &quick, rows[i].value);
        assert_int_equal(end, rows[i].end);
        td_early_stop_say(&s, &quick, end, rows[i].value, text);
        assert_string_equal(text, rows[i].text);
    }
}

static void test_state_is_forgotten_when_the_job_follows_something_else(void **state) {
    (void)state;
    const struct td_early_stop was = {
        .monitor = "val_loss", .best = 2, .has_best = true, .wait = 3, .decided = true};
    struct td_early_stop s = was;
    td_early_stop_begin(&s, &quick);
    assert_memory_equal(&s, &was, sizeof s);
    struct td_early_stop_config other = quick;
    other.larger_is_better = true;
    td_early_stop_begin(&s, &other);
    assert_true(s.larger_is_better && !s.has_best && s.wait == 0 && !s.decided);
    s = was;
    other = quick;
    other.monitor = "train_loss";
    td_early_stop_begin(&s, &other);
    assert_string_equal(s.monitor, "train_loss");
    assert_true(!s.has_best && s.wait == 0 && !s.decided);
    td_early_stop_begin(&s, &(struct td_early_stop_config){0});
    assert_string_equal(s.monitor, "");
}

static void test_manifest_is_refused_when_its_state_cannot_be(void **state) {
    (void)state;
    static const char *const texts[] = {
        "{\"early_stopping\": 1}",
        "{\"early_stopping\": {\"monitor\": \"\", \"mode\": \"min\", \"wait\": 0}}",
        "{\"early_stopping\": {\"monitor\": \"a\", \"mode\": \"mid\", \"wait\": 0}}",
        "{\"early_stopping\": {\"monitor\": \"a\", \"mode\": \"min\", \"wait\": -1}}",
        "{\"early_stopping\": {\"monitor\": \"a\", \"mode\": \"min\"}}",
        "{\"early_stopping\": {\"monitor\": \"a\", \"mode\": \"min\", \"wait\": 0, \"best\": "
        "\"x\"}}",
        "{\"early_stopping\": {\"monitor\": \"a\", \"mode\": \"min\", \"wait\": 0, \"best\": "
        "\"nan\"}}",
        "{\"early_stopping\": {\"monitor\": \"a\", \"mode\": \"min\", \"wait\": 0, \"value\": []}}",
        "{\"early_stopping\": {\"monitor\": "
        "\"a234567890123456789012345678901234567890123456789012345678901234\", "
        "\"mode\": \"min\", \"wait\": 0}}",
    };
    struct td_arena *a;
    assert_ok(td_arena_create(1 << 20, &a));
    for (size_t i = 0; i < TD_COUNTOF(texts); i++) {
        struct td_json *root;
        struct td_early_stop s;
        assert_ok(td_json_parse(a, texts[i], strlen(texts[i]), &root));
        if (td_early_stop_get(root, &s)) fail_msg("taken: %s", texts[i]);
    }
    td_arena_destroy(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_early_stop_follows_lightning_when_golden),
        cmocka_unit_test(test_reason_is_said_when_the_end_is_asked_for),
        cmocka_unit_test(test_state_is_forgotten_when_the_job_follows_something_else),
        cmocka_unit_test(test_manifest_is_refused_when_its_state_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
