// The communication thread (engine/train/rank/group/comm_thread.h): order, the last bucket, and
// errors, which come out at the next post and not after the whole backward pass. Tags: tsan

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/train/rank/group/comm_thread.h"

enum { BUCKETS = 10000, NONE = -1 };

static struct td_sum sums[BUCKETS];

static const struct td_sum *sum_of(uint32_t index) {
    sums[index] = (struct td_sum){.struct_bytes = sizeof sums[0], .index = index};
    return &sums[index];
}

struct made {
    int fails_at; // this bucket
    _Atomic uint32_t n;
    uint32_t index[BUCKETS];
    pthread_t by[BUCKETS];
};

static td_status make_bucket(void *arg, const struct td_sum *sum) {
    struct made *m = arg;
    const uint32_t index = sum->index;
    const uint32_t at = atomic_load(&m->n);
    m->index[at] = index;
    m->by[at] = pthread_self();
    atomic_store(&m->n, at + 1);
    if ((int)index != m->fails_at) return TD_OK;
    return td_fail(TD_ABORTED, "bucket %u: node 1 is gone", index);
}

static void test_buckets_are_made_in_their_order_and_the_last_by_who_waits(void **state) {
    static struct made m = {.fails_at = NONE};
    struct td_comm_thread *t;
    (void)state;
    assert_null(td_comm_thread_create(BUCKETS, make_bucket, &m, &t));
    for (uint32_t pass = 0; pass < 3; pass++) {
        atomic_store(&m.n, 0);
        for (uint32_t i = 0; i < 50; i++) {
            assert_null(td_comm_thread_post(t, sum_of(i), i == 49));
            assert_false(td_comm_thread_is_idle(t));
        }
        for (uint32_t i = 0; i < 50; i++) { // each by itself, also one that is done: out of order
            assert_false(td_comm_thread_is_idle(t));
            assert_null(td_comm_thread_wait(t, &sums[i ^ 1]));
            assert_true(atomic_load(&m.n) > (i ^ 1));
        }
        assert_true(td_comm_thread_is_idle(t));
        assert_int_equal(atomic_load(&m.n), 50);
        for (uint32_t i = 0; i < 50; i++) {
            assert_int_equal(m.index[i], i);
            assert_int_equal(pthread_equal(m.by[i], pthread_self()) != 0, i == 49);
        }
    }
    td_comm_thread_destroy(t);
}

// A user's schedule may begin sums after the last bucket: that one is the thread's then.
static void test_sum_after_the_last_makes_that_one_like_any_other(void **state) {
    static struct made m = {.fails_at = NONE};
    struct td_comm_thread *t;
    (void)state;
    assert_null(td_comm_thread_create(3, make_bucket, &m, &t));
    assert_null(td_comm_thread_post(t, sum_of(0), true));
    assert_null(td_comm_thread_post(t, sum_of(1), true));
    assert_null(td_comm_thread_wait(t, &sums[0]));
    assert_int_equal(atomic_load(&m.n), 1);
    assert_false(pthread_equal(m.by[0], pthread_self()));
    assert_null(td_comm_thread_wait(t, &sums[1]));
    assert_true(pthread_equal(m.by[1], pthread_self()));
    assert_true(td_comm_thread_is_idle(t));
    td_comm_thread_destroy(t);
}

static void test_error_comes_out_at_the_next_post(void **state) {
    static struct made m = {.fails_at = 0};
    struct td_comm_thread *t;
    td_status s = TD_OK;
    (void)state;
    assert_null(td_comm_thread_create(BUCKETS, make_bucket, &m, &t));
    for (uint32_t i = 0; !s && i < BUCKETS; i++) { // of a pass that would take long
        s = td_comm_thread_post(t, sum_of(i), false);
        if (!s) (void)poll(NULL, 0, 1);
    }
    assert_int_equal(td_status_code(s), TD_ABORTED);
    assert_non_null(strstr(td_status_message(s), "bucket 0: node 1 is gone"));
    td_status_free(s);
    assert_null(td_comm_thread_drain(t)); // it was handed out once
    assert_int_equal(atomic_load(&m.n), 1);
    m.fails_at = NONE; // and the next pass is like any other
    assert_null(td_comm_thread_post(t, sum_of(7), false));
    assert_null(td_comm_thread_drain(t));
    assert_null(td_comm_thread_wait(t, &sums[7])); // which is still to be waited for
    assert_true(td_comm_thread_is_idle(t));
    assert_int_equal(atomic_load(&m.n), 2);
    td_comm_thread_destroy(t);
}

static void test_error_of_the_last_bucket_comes_out_at_the_wait(void **state) {
    static struct made m = {.fails_at = 2};
    struct td_comm_thread *t;
    (void)state;
    assert_null(td_comm_thread_create(BUCKETS, make_bucket, &m, &t));
    for (uint32_t i = 0; i < 3; i++) {
        assert_null(td_comm_thread_post(t, sum_of(i), i == 2));
    }
    assert_null(td_comm_thread_wait(t, &sums[0]));
    assert_int_not_equal(atomic_load(&m.n), 3); // the last is for who waits for it
    td_status s = td_comm_thread_wait(t, &sums[2]);
    assert_int_equal(td_status_code(s), TD_ABORTED);
    td_status_free(s);
    assert_int_equal(atomic_load(&m.n), 3);
    assert_true(td_comm_thread_is_idle(t)); // and nothing more is to be waited for
    td_comm_thread_destroy(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buckets_are_made_in_their_order_and_the_last_by_who_waits),
        cmocka_unit_test(test_sum_after_the_last_makes_that_one_like_any_other),
        cmocka_unit_test(test_error_comes_out_at_the_next_post),
        cmocka_unit_test(test_error_of_the_last_bucket_comes_out_at_the_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
