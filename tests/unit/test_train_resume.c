// What a run says when it goes on from a checkpoint: all of it.

#include "engine/train/rank/resume.h"

#include <string.h>

#include "tests/unit/test.h"

static void test_no_reason_is_left_out_when_all_are_long(void **state) {
    (void)state;
    static struct td_resume_reasons reasons;
    char all[TD_RESUME_BYTES];
    for (; reasons.n < TD_RESUME_REASONS; reasons.n++) {
        memset(reasons.text[reasons.n], 'a' + (int)reasons.n, TD_RESUME_REASON_BYTES - 1);
    }
    td_resume_join(&reasons, all);
    for (size_t i = 0; i < reasons.n; i++) {
        assert_non_null(strstr(all, reasons.text[i]));
    }
    assert_int_equal(strlen(all), TD_RESUME_REASONS * (TD_RESUME_REASON_BYTES + 1) - 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_reason_is_left_out_when_all_are_long),
    };
    return cmocka_run_group_tests_name("train_resume", tests, NULL, NULL);
}
