// What the callback of transformers posts: which values are new, of which step they are, what is
// no report.

#include "daemon/worker/reports/hf_report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/test.h"

struct rig {
    struct td_arena *arena;
    struct td_hf_said said;
};

static void begin(struct rig *r) {
    *r = (struct rig){0};
    assert_ok(td_arena_create(TD_HF_ARENA_BYTES, &r->arena));
}

static void end(struct rig *r) {
    td_hf_said_finish(&r->said);
    td_arena_destroy(r->arena);
}

// "step/total@epoch: name@step=value ..." of a report with this percentage and these metrics, which
// are written "name=text".
static const char *told(struct rig *r, int percent, const char *const *metrics) {
    static char body[8192], text[1024];
    struct td_hf_report report;
    int n = snprintf(body, sizeof body,
                     "{\"trainerStatus\":{\"lastUpdatedTime\":\"2026-01-01T00:00:00+00:00\","
                     "\"progressPercentage\":%d,\"estimatedRemainingSeconds\":3,\"metrics\":[",
                     percent);
    for (size_t i = 0; metrics[i]; i++) {
        const int name = (int)strcspn(metrics[i], "=");
        n += snprintf(body + n, sizeof body - (size_t)n, "%s{\"name\":\"%.*s\",\"value\":\"%s\"}",
                      i ? ", " : "", name, metrics[i], metrics[i] + name + 1);
    }
    n += snprintf(body + n, sizeof body - (size_t)n, "]}}");
    td_arena_reset(r->arena);
    assert_ok(td_hf_report_read(&r->said, r->arena, body, (size_t)n, &report));
    n = snprintf(text, sizeof text, "%d/%d@%g:", (int)report.step, (int)report.total_steps,
                 report.epoch);
    for (size_t i = 0; i < report.n_values; i++) {
        n += snprintf(text + n, sizeof text - (size_t)n, " %s@%d=%g", report.value[i].name,
                      (int)report.value_step, report.value[i].value);
    }
    if (report.n_odd) {
        (void)snprintf(text + n, sizeof text - (size_t)n, " odd %zu %s=%s", report.n_odd,
                       report.odd_name, report.odd_text);
    }
    return text;
}
#define tell(r, percent, ...) told(r, percent, (const char *const[]){__VA_ARGS__, NULL})

static void test_a_training_is_told_as_the_callback_does(void **state) {
    (void)state;
    struct rig r;
    begin(&r);
    assert_string_equal(tell(&r, 0, "total_steps=100"), "-1/100@-1:");
    assert_string_equal(tell(&r, 1, "current_step=1", "total_steps=100", "current_epoch=0.03"),
                        "1/100@0.03:");
    assert_string_equal(tell(&r, 11, "loss=2.5", "lr=1e-05", "epoch=0.3", "current_step=11",
                             "total_steps=100", "current_epoch=0.33"),
                        "11/100@0.33: loss@10=2.5 lr@10=1e-05 epoch@10=0.3");
    // The texts that did not change give no point.
    assert_string_equal(tell(&r, 15, "loss=2.5", "lr=1e-05", "epoch=0.3", "current_step=15",
                             "total_steps=100", "current_epoch=0.45"),
                        "15/100@0.45:");
    assert_string_equal(tell(&r, 21, "loss=2.25", "lr=1e-05", "epoch=0.6", "current_step=21",
                             "total_steps=100", "current_epoch=0.63"),
                        "21/100@0.63: loss@20=2.25 epoch@20=0.6");
    // The last one names no step.
    assert_string_equal(tell(&r, 100, "loss=1.5", "lr=1e-05", "epoch=3.0", "train_loss=2.0"),
                        "100/-1@-1: loss@100=1.5 epoch@100=3 train_loss@100=2");
    end(&r);
}

static void test_a_short_training_tells_all_at_its_end(void **state) {
    (void)state;
    struct rig r;
    begin(&r);
    assert_string_equal(tell(&r, 0, "total_steps=8"), "-1/8@-1:");
    assert_string_equal(tell(&r, 100, "loss=1.5"), "8/-1@-1: loss@8=1.5");
    end(&r);
}

static void test_end_without_a_known_total_stays_at_the_last_step(void **state) {
    (void)state;
    struct rig r;
    begin(&r);
    assert_string_equal(tell(&r, 100, "loss=1.5"), "-1/-1@-1: loss@0=1.5");
    assert_string_equal(tell(&r, 99, "current_step=7", "loss=1.25"), "7/-1@-1: loss@6=1.25");
    assert_string_equal(tell(&r, 100, "loss=1"), "-1/-1@-1: loss@7=1");
    end(&r);
}

static void test_numbers_of_python_are_read_and_other_texts_are_odd(void **state) {
    (void)state;
    struct rig r;
    begin(&r);
    assert_string_equal(tell(&r, 1, "current_step=1", "a=nan", "b=inf", "c=-inf", "d=True",
                             "e=False", "f=-1.5e-07", "g=12"),
                        "1/-1@-1: a@0=nan b@0=inf c@0=-inf d@0=1 e@0=0 f@0=-1.5e-07 g@0=12");
    assert_string_equal(tell(&r, 1, "a=", "b=1e999", "c=0x10", "d= 1", "e=1 ", "f=1.5.2", "g=None",
                             "h=infinity", "i=nan(1)", "j=1,5", "k=--1"),
                        "-1/-1@-1: odd 11 a=");
    assert_string_equal(
        tell(&r, 1, "current_step=-1", "total_steps=2147483648", "current_epoch=nan"),
        "-1/-1@-1: odd 3 current_step=-1");
    end(&r);
}

static td_status read_body(struct rig *r, const char *body) {
    struct td_hf_report report;
    td_arena_reset(r->arena);
    return td_hf_report_read(&r->said, r->arena, body, strlen(body), &report);
}

static void test_what_is_no_report_is_refused(void **state) {
    (void)state;
    static const char *const bodies[] = {
        "",
        "{",
        "nonsense",
        "[]",
        "7",
        "{}",
        "{\"trainerStatus\":7}",
        "{\"trainerStatus\":{\"metrics\":{}}}",
        "{\"trainerStatus\":{}} {}",
        "{\"trainerStatus\":{\"metrics\":[{\"name\":\"a\",\"value\":NaN}]}}",
        "{\"trainerStatus\":{\"metrics\":[{\"name\":\"a\xff\",\"value\":\"1\"}]}}",
    };
    struct rig r;
    begin(&r);
    for (size_t i = 0; i < TD_COUNTOF(bodies); i++) {
        assert_fails(read_body(&r, bodies[i]), TD_INVALID_ARGUMENT, "");
    }
    assert_int_equal(r.said.n, 0);
    end(&r);
}

static void test_entries_that_are_none_are_odd_and_the_others_count(void **state) {
    (void)state;
    static const char body[] =
        "{\"trainerStatus\":{\"metrics\":[7, [], {}, {\"name\":\"x\"}, {\"value\":\"1\"}, "
        "{\"name\":7,\"value\":\"1\"}, {\"name\":\"y\",\"value\":1}, "
        "{\"name\":\"a\",\"value\":\"2\"}]}}";
    struct td_hf_report report;
    struct rig r;
    begin(&r);
    assert_ok(td_hf_report_read(&r.said, r.arena, body, sizeof body - 1, &report));
    assert_int_equal(report.n_odd, 7);
    assert_int_equal(report.n_values, 1);
    assert_string_equal(report.value[0].name, "a");
    end(&r);
}

// More names than are remembered are new each time, and those that are remembered are not.
static void test_names_past_the_bound_go_on_each_time(void **state) {
    (void)state;
    static char body[400 << 10];
    struct rig r;
    begin(&r);
    for (int round = 0; round < 2; round++) {
        size_t n_new = 0;
        for (int part = 0; part < 10; part++) {
            int n = snprintf(body, sizeof body, "{\"trainerStatus\":{\"metrics\":[");
            for (int i = 0; i < 1000; i++) {
                n +=
                    snprintf(body + n, sizeof body - (size_t)n,
                             "%s{\"name\":\"m%d\",\"value\":\"1\"}", i ? "," : "", part * 1000 + i);
            }
            n += snprintf(body + n, sizeof body - (size_t)n, "]}}");
            struct td_hf_report report;
            td_arena_reset(r.arena);
            assert_ok(td_hf_report_read(&r.said, r.arena, body, (size_t)n, &report));
            n_new += report.n_values;
        }
        assert_int_equal(n_new, round == 0 ? 10000 : 10000 - TD_HF_NAMES);
        assert_int_equal(r.said.n, TD_HF_NAMES);
    }
    end(&r);
}

static void test_body_of_nothing_but_values_fits_the_arena(void **state) {
    (void)state;
    static char body[TD_HF_BODY_MAX + 1];
    struct rig r;
    struct td_hf_report report;
    begin(&r);
    size_t n = (size_t)snprintf(body, sizeof body, "{\"trainerStatus\":{\"metrics\":[0");
    while (n < TD_HF_BODY_MAX - 8) {
        body[n++] = ',';
        body[n++] = '0';
    }
    n += (size_t)snprintf(body + n, sizeof body - n, "]}}");
    assert_ok(td_hf_report_read(&r.said, r.arena, body, n, &report));
    assert_true(report.n_odd > 30000);
    end(&r);
}

static void test_value_that_is_no_longer_new_is_new_when_it_changes_back(void **state) {
    (void)state;
    struct rig r;
    begin(&r);
    assert_string_equal(tell(&r, 1, "current_step=2", "a=1"), "2/-1@-1: a@1=1");
    assert_string_equal(tell(&r, 1, "current_step=3", "a=2"), "3/-1@-1: a@2=2");
    assert_string_equal(tell(&r, 1, "current_step=4", "a=1"), "4/-1@-1: a@3=1");
    assert_string_equal(tell(&r, 1, "current_step=5", "a=1"), "5/-1@-1:");
    end(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_training_is_told_as_the_callback_does),
        cmocka_unit_test(test_a_short_training_tells_all_at_its_end),
        cmocka_unit_test(test_end_without_a_known_total_stays_at_the_last_step),
        cmocka_unit_test(test_numbers_of_python_are_read_and_other_texts_are_odd),
        cmocka_unit_test(test_what_is_no_report_is_refused),
        cmocka_unit_test(test_entries_that_are_none_are_odd_and_the_others_count),
        cmocka_unit_test(test_names_past_the_bound_go_on_each_time),
        cmocka_unit_test(test_body_of_nothing_but_values_fits_the_arena),
        cmocka_unit_test(test_value_that_is_no_longer_new_is_new_when_it_changes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
