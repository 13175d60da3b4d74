// Clocks: they advance, they can be faked, and real time prints as UTC.
// Dates at the edges: the epoch, before it, a leap day, the last millisecond of a year.

#include "lib/base/clock.h"

#include <semaphore.h>

#include "tests/unit/test.h"

static void test_clock_advances_when_real(void **state) {
    (void)state;
    struct td_mono a = td_mono_now(), b = td_mono_now();
    assert_true(a.ns > 0 && b.ns >= a.ns);
    assert_true(td_real_now().ns > 1600000000 * TD_NS_PER_S);
    assert_int_equal(td_mono_add(a, 5).ns, a.ns + 5);
}

static void test_clock_stands_when_faked(void **state) {
    (void)state;
    td_clock_fake(0, 42);
    assert_int_equal(td_mono_now().ns, 0);
    assert_int_equal(td_real_now().ns, 42);
    td_clock_fake(-1, -1);
    assert_true(td_mono_now().ns > 0);
}

static void expect(int64_t ns, const char *text) {
    char out[32];
    td_real_format((struct td_real){ns}, out, sizeof out);
    assert_string_equal(out, text);
}

static void test_date_prints_as_utc_when_at_the_edges(void **state) {
    (void)state;
    expect(0, "1970-01-01T00:00:00.000Z");
    expect(-1, "1969-12-31T23:59:59.999Z");
    expect(INT64_C(1709164799999000000), "2024-02-28T23:59:59.999Z");
    expect(INT64_C(1709164800000000000), "2024-02-29T00:00:00.000Z");
    expect(INT64_MAX, "2262-04-11T23:47:16.854Z");
}

static void *wait_for_it(void *arg) {
    sem_wait(arg);
    return NULL;
}

static void test_thread_is_joined_when_it_ends_in_time(void **state) {
    (void)state;
    sem_t may_end;
    pthread_t thread;
    assert_int_equal(sem_init(&may_end, 0, 0), 0);
    assert_int_equal(pthread_create(&thread, NULL, wait_for_it, &may_end), 0);
    struct td_mono began = td_mono_now();
    assert_false(td_clock_join(thread, 20));
    assert_true(td_mono_now().ns - began.ns >= 20 * TD_NS_PER_MS);
    assert_int_equal(sem_post(&may_end), 0);
    assert_true(td_clock_join(thread, TD_TEST_WAIT_NS / TD_NS_PER_MS));
    sem_destroy(&may_end);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clock_advances_when_real),
        cmocka_unit_test(test_clock_stands_when_faked),
        cmocka_unit_test(test_thread_is_joined_when_it_ends_in_time),
        cmocka_unit_test(test_date_prints_as_utc_when_at_the_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
