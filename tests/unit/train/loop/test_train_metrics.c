// Points: what goes into the ring comes out, and a full ring counts what it drops.

#include "tests/unit/test.h"

#include "engine/train/events/metrics.h"

enum { RECORDS = 4 };

static void *make_ring(struct td_ring *ring) {
    size_t bytes = td_ring_bytes(sizeof(struct td_metric_record), RECORDS);
    void *memory = aligned_alloc(TD_LINE_BYTES, td_align_up(bytes, TD_LINE_BYTES));
    assert_non_null(memory);
    assert_ok(td_ring_format(memory, bytes, sizeof(struct td_metric_record), RECORDS, ring));
    return memory;
}

static void test_points_come_out_as_they_went_in(void **state) {
    (void)state;
    struct td_metrics m = {0};
    struct td_metric_record r;
    void *memory = make_ring(&m.ring);
    td_metrics_mean(&m, "train_loss", 7, 1, 12.5, 5);
    td_metrics_value(&m, "a_name_of_23_bytes_fits", 8, 2, 0.5);
    assert_true(td_ring_pop(&m.ring, &r));
    assert_string_equal(r.name, "train_loss");
    assert_true(r.step == 7 && r.epoch == 1 && r.sum == 12.5 && r.count == 5);
    assert_int_equal(r.flags, TD_METRIC_SUM_COUNT);
    assert_true(r.real_ns > 0);
    assert_true(td_ring_pop(&m.ring, &r));
    assert_string_equal(r.name, "a_name_of_23_bytes_fits");
    assert_int_equal(r.flags, 0);
    assert_false(td_ring_pop(&m.ring, &r));
    free(memory);
}

static void test_drops_are_counted_when_the_ring_is_full(void **state) {
    (void)state;
    struct td_metrics m = {0};
    void *memory = make_ring(&m.ring);
    for (int i = 0; i < RECORDS + 3; i++) {
        td_metrics_value(&m, "x", i, 0, i);
    }
    assert_true(td_metrics_drops(&m) == 3);
    struct td_metric_record r;
    for (int i = 0; i < RECORDS; i++) {
        assert_true(td_ring_pop(&m.ring, &r));
        assert_int_equal(r.step, i); // the oldest stay
    }
    free(memory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_points_come_out_as_they_went_in),
        cmocka_unit_test(test_drops_are_counted_when_the_ring_is_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
