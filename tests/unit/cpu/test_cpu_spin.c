// When a rank's threads stop spinning for each other: the verdict over windows of preemptions.

#include "accelerators/cpu/spin.h"
#include "tests/unit/test.h"

#define MS TD_NS_PER_MS

static void test_verdict_waits_for_a_whole_window(void **state) {
    (void)state;
    struct td_spin_state s = {0};
    assert_true(td_spin_due(&s, 1000 * MS));
    td_spin_judge(&s, 1000 * MS, 5000); // before anything was watched: no verdict
    assert_false(s.shares);
    assert_false(td_spin_due(&s, 1049 * MS));
    assert_true(td_spin_due(&s, 1050 * MS));
}

static void test_cores_are_shared_when_threads_are_preempted_often(void **state) {
    (void)state;
    struct td_spin_state s = {0};
    td_spin_judge(&s, 1000 * MS, 0);
    td_spin_judge(&s, 1050 * MS, 20); // 400 a second
    assert_false(s.shares);
    td_spin_judge(&s, 1100 * MS, 90); // 1400 a second
    assert_true(s.shares);
    assert_false(td_spin_due(&s, 1599 * MS));
    assert_true(td_spin_due(&s, 1600 * MS));
}

static void test_patience_grows_to_its_limit_when_the_neighbour_stays(void **state) {
    (void)state;
    struct td_spin_state s = {0};
    int64_t now = 1000 * MS, preempted = 0, before = 0;
    td_spin_judge(&s, now, preempted);
    for (int i = 0; i < 8; i++) {
        td_spin_judge(&s, now += 50 * MS, preempted += 100);
        assert_true(s.shares);
        int64_t holds = s.until_ns - now;
        assert_true(holds >= before && holds <= 8000 * MS);
        before = holds;
        td_spin_judge(&s, now = s.until_ns, preempted += 1000); // tries without
        assert_false(s.shares);
    }
    assert_int_equal(before, 8000 * MS);
    td_spin_judge(&s, now += 50 * MS, preempted); // gone
    td_spin_judge(&s, now += 50 * MS, preempted += 100);
    assert_int_equal(s.until_ns - now, 500 * MS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verdict_waits_for_a_whole_window),
        cmocka_unit_test(test_cores_are_shared_when_threads_are_preempted_often),
        cmocka_unit_test(test_patience_grows_to_its_limit_when_the_neighbour_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
