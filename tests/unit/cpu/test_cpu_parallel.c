// Work split over the threads of a rank: every unit is done once, whatever the number of threads,
// and no thread is woken for less than its work pays for.

#include <stdatomic.h>

#include "accelerators/cpu/parallel.c"
#include "tests/unit/test.h"

enum { MOST = 300 };

struct marks {
    _Atomic int ranges;
    _Atomic int of[MOST];
};

static void mark(const void *arg, int64_t begin, int64_t end) {
    struct marks *const *m = arg;
    assert_true(begin < end);
    (*m)->ranges++;
    for (int64_t i = begin; i < end; i++) {
        (*m)->of[i]++;
    }
}

static void expect_once(const struct marks *m, int64_t n) {
    for (int64_t i = 0; i < MOST; i++) {
        assert_int_equal(m->of[i], i < n);
    }
}

static void test_units_run_once_each(void **state) {
    (void)state;
    static const int32_t threads[] = {1, 2, 3, 7, 16};
    for (size_t t = 0; t < TD_COUNTOF(threads); t++) {
        for (int64_t n = 1; n < MOST; n += 7) {
            struct marks m = {0}, *to = &m;
            td_parallel_units(threads[t], n, INT64_MAX, mark, &to);
            expect_once(&m, n);
            assert_int_equal(m.ranges, TD_MIN(n, threads[t]));
        }
    }
}

static void test_units_stay_on_one_thread_when_their_work_is_small(void **state) {
    (void)state;
    struct marks m = {0}, *to = &m;
    td_parallel_units(8, 100, WORK_OF_A_THREAD - 1, mark, &to);
    expect_once(&m, 100);
    assert_int_equal(m.ranges, 1);
}

static void test_units_take_as_many_threads_as_their_work_pays_for(void **state) {
    (void)state;
    struct marks m = {0}, *to = &m;
    td_parallel_units(8, 100, 3 * WORK_OF_A_THREAD, mark, &to);
    expect_once(&m, 100);
    assert_int_equal(m.ranges, 3);
}

static void test_ranges_keep_their_grain(void **state) {
    (void)state;
    struct marks m = {0}, *to = &m;
    td_parallel(8, MOST, MOST / 3, mark, &to);
    expect_once(&m, MOST);
    assert_int_equal(m.ranges, td_parallel_ranges(8, MOST, MOST / 3));
    assert_true(m.ranges <= 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_units_run_once_each),
        cmocka_unit_test(test_units_stay_on_one_thread_when_their_work_is_small),
        cmocka_unit_test(test_units_take_as_many_threads_as_their_work_pays_for),
        cmocka_unit_test(test_ranges_keep_their_grain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
