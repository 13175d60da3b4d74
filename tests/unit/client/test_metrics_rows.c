// Points as CSV: what a program reads back is what there was.

#include "client/metrics/metrics_rows.h"

#include <math.h>
#include <string.h>

#include "tests/unit/test.h"

static void expect_text(const char *text, const char *wanted) {
    TD_AUTO_BUF out;
    td_buf_init(&out, 4096);
    assert_ok(td_csv_text(text, &out));
    assert_string_equal(td_buf_cstr(&out), wanted);
}

static void test_field_is_quoted_when_it_has_to_be(void **state) {
    (void)state;
    expect_text("val_loss", "val_loss");
    expect_text("a,b", "\"a,b\"");
    expect_text("say \"x\"", "\"say \"\"x\"\"\"");
    expect_text("two\nlines", "\"two\nlines\"");
    expect_text("", "");
}

static void test_row_has_all_digits_when_it_is_a_point_or_a_picture(void **state) {
    (void)state;
    static char time[] = "2026-01-01T00:00:00.000Z";
    Traind__V1__MetricPoint p = TRAIND__V1__METRIC_POINT__INIT;
    TD_AUTO_BUF out;
    td_buf_init(&out, 4096);
    p.step = 3;
    p.epoch = 1;
    p.attempt = 2;
    p.value = 0.1;
    p.min = -1;
    p.max = (double)NAN;
    p.n_points = 5;
    p.n_ranks = 4;
    p.time = time;
    assert_ok(td_csv_head(false, &out));
    assert_ok(td_csv_row("x", &p, false, &out));
    assert_string_equal(td_buf_cstr(&out),
                        "name,step,epoch,attempt,value,n_ranks,time\n"
                        "x,3,1,2,0.10000000000000001,4,2026-01-01T00:00:00.000Z\n");
    td_buf_clear(&out);
    assert_ok(td_csv_head(true, &out));
    assert_ok(td_csv_row("x", &p, true, &out));
    assert_string_equal(td_buf_cstr(&out),
                        "name,step,epoch,attempt,mean,min,max,n_points,n_ranks,time\n"
                        "x,3,1,2,0.10000000000000001,-1,nan,5,4,2026-01-01T00:00:00.000Z\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_field_is_quoted_when_it_has_to_be),
        cmocka_unit_test(test_row_has_all_digits_when_it_is_a_point_or_a_picture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
