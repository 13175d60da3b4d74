// Ring: order, drops, wrap-around, two threads, and what a broken peer can do.
//
// Tags: tsan

#include <pthread.h>

#include "lib/base/ring.h"
#include "tests/unit/test.h"

enum { RECORDS = 8 };
static _Alignas(
    TD_LINE_BYTES) char memory[sizeof(struct td_ring_header) + RECORDS * sizeof(uint64_t)];

static struct td_ring make_ring(void) {
    struct td_ring r;
    assert_ok(td_ring_format(memory, sizeof memory, sizeof(uint64_t), RECORDS, &r));
    return r;
}

static void test_records_come_in_order_when_wrapped(void **state) {
    (void)state;
    struct td_ring r = make_ring();
    uint64_t next = 0, v;
    for (uint64_t i = 0; i < 100; i++) {
        assert_true(td_ring_push(&r, &i));
        if (i % 3 != 2) continue;
        while (td_ring_pop(&r, &v)) {
            assert_int_equal(v, next);
            next++;
        }
    }
    assert_int_equal(next, 99);
    assert_int_equal(td_ring_drops(&r), 0);
}

static void test_new_records_are_dropped_and_counted_when_full(void **state) {
    (void)state;
    struct td_ring r = make_ring();
    uint64_t v;
    for (uint64_t i = 0; i < 20; i++) {
        assert_int_equal(td_ring_room(&r), i < RECORDS ? RECORDS - i : 0);
        assert_int_equal(td_ring_push(&r, &i), i < RECORDS);
    }
    assert_int_equal(td_ring_drops(&r), 20 - RECORDS);
    for (uint64_t i = 0; i < RECORDS; i++) {
        assert_true(td_ring_pop(&r, &v));
        assert_int_equal(v, i);
    }
    assert_false(td_ring_pop(&r, &v));
}

static void test_geometry_is_checked_when_formatted_or_attached(void **state) {
    (void)state;
    struct td_ring r = make_ring(), other;
    assert_ok(td_ring_attach(memory, sizeof memory, sizeof(uint64_t), &other));
    assert_int_equal(other.n_records, RECORDS);
    assert_fails(td_ring_attach(memory, sizeof memory, 16, &other), TD_DATA_LOSS, "expected");
    assert_fails(td_ring_attach(memory, sizeof memory - 1, 8, &other), TD_DATA_LOSS, "");
    assert_fails(td_ring_attach(memory, 10, 8, &other), TD_DATA_LOSS, "header");
    r.header->n_records = 7;
    assert_fails(td_ring_attach(memory, sizeof memory, 8, &other), TD_DATA_LOSS, "");
    r.header->n_records = 1u << 31;
    assert_fails(td_ring_attach(memory, sizeof memory, 8, &other), TD_DATA_LOSS, "");
    r.header->n_records = RECORDS;
    r.header->magic = 0;
    assert_fails(td_ring_attach(memory, sizeof memory, 8, &other), TD_DATA_LOSS, "magic");
    assert_fails(td_ring_format(memory, sizeof memory, 8, 3, &other), TD_INVALID_ARGUMENT, "");
    assert_fails(td_ring_format(memory, sizeof memory, 8, 16, &other), TD_INVALID_ARGUMENT, "");
    assert_int_equal(td_ring_bytes(0, 8), 0);
    assert_int_equal(td_ring_bytes(8, 0), 0);
}

static void test_own_side_stays_sane_when_the_peer_is_broken(void **state) {
    (void)state;
    struct td_ring r = make_ring();
    uint64_t v = 1;
    atomic_store(&r.header->tail, 5); // a consumer that claims what was never written
    assert_false(td_ring_push(&r, &v));
    atomic_store(&r.header->tail, 0);
    atomic_store(&r.header->head, UINT64_MAX / 2); // a producer that runs away
    assert_false(td_ring_pop(&r, &v));
    assert_int_equal(atomic_load(&r.header->tail), UINT64_MAX / 2);
    r.header->n_records = 1u << 30; // geometry is not read again
    v = 7;
    assert_true(td_ring_push(&r, &v));
    assert_true(td_ring_pop(&r, &v));
    assert_int_equal(v, 7);
}

enum { STRESS = 200000 };

static void *produce(void *arg) {
    struct td_ring *r = arg;
    for (uint64_t i = 1; i <= STRESS; i++) {
        td_ring_push(r, &i);
    }
    return NULL;
}

static void test_records_stay_whole_when_two_threads_race(void **state) {
    (void)state;
    struct td_ring r = make_ring(), mine;
    assert_ok(td_ring_attach(memory, sizeof memory, sizeof(uint64_t), &mine));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, produce, &r), 0);
    uint64_t last = 0, n = 0, v;
    while (n + td_ring_drops(&mine) < STRESS) {
        if (!td_ring_pop(&mine, &v)) continue;
        assert_true(v > last);
        last = v;
        n++;
    }
    pthread_join(thread, NULL);
    assert_int_equal(n + td_ring_drops(&mine), STRESS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_records_come_in_order_when_wrapped),
        cmocka_unit_test(test_new_records_are_dropped_and_counted_when_full),
        cmocka_unit_test(test_geometry_is_checked_when_formatted_or_attached),
        cmocka_unit_test(test_own_side_stays_sane_when_the_peer_is_broken),
        cmocka_unit_test(test_records_stay_whole_when_two_threads_race),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
