// Names of metrics in a stream of records: long ones are defined once, nobody loses a definition,
// records of before are read, and damaged ones are nobody's name.

#include "lib/attempt/metric_names.h"

#include <stdio.h>
#include <string.h>

#include "tests/unit/test.h"

enum { RECORDS = 4 };

static const char long_a[] = "train/transformer.h.0.attn.c_attn.weight/grad_norm_of_all_rows_";
static const char long_b[] = "eval_samples_per_second_";
_Static_assert(sizeof long_a == TD_METRIC_NAME_BYTES, "the longest");
_Static_assert(sizeof long_b == TD_METRIC_SHORT_BYTES + 1, "the shortest of the long ones");

struct stream {
    void *memory;
    struct td_ring ring;
    struct td_metric_names writer, reader;
};

static void open_stream(struct stream *s) {
    size_t bytes = td_ring_bytes(sizeof(struct td_metric_record), RECORDS);
    *s = (struct stream){
        .memory = aligned_alloc(TD_LINE_BYTES, td_align_up(bytes, (size_t)TD_LINE_BYTES))};
    assert_non_null(s->memory);
    assert_ok(td_ring_format(s->memory, bytes, sizeof(struct td_metric_record), RECORDS, &s->ring));
}

static void close_stream(struct stream *s) {
    td_metric_names_finish(&s->writer);
    td_metric_names_finish(&s->reader);
    free(s->memory);
}

static bool push(struct stream *s, const char *name, int step) {
    struct td_metric_point p = {.step = step, .sum = step, .count = 1};
    snprintf(p.name, sizeof p.name, "%s", name);
    return td_metric_names_push(&s->writer, &s->ring, &p);
}

// The points that are there: "loss@1 x@2 ".
static const char *popped(struct stream *s, int *out_records) {
    static char text[1024];
    struct td_metric_record r;
    struct td_metric_point p;
    size_t len = 0;
    text[0] = '\0';
    *out_records = 0;
    for (; td_ring_pop(&s->ring, &r); ++*out_records) {
        if (td_metric_names_take(&s->reader, &r, &p) != TD_METRIC_IS_POINT) continue;
        len += (size_t)snprintf(text + len, sizeof text - len, "%s@%d ", p.name, p.step);
    }
    return text;
}

static const char *points(const char *format, ...) {
    static char text[1024];
    va_list ap;
    va_start(ap, format);
    (void)vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    return text;
}

static void test_long_name_is_defined_once_and_short_ones_never(void **state) {
    struct stream s;
    int n;
    (void)state;
    open_stream(&s);
    assert_true(push(&s, "loss", 1) && push(&s, long_a, 1));
    assert_string_equal(popped(&s, &n), points("loss@1 %s@1 ", long_a));
    assert_int_equal(n, 3);
    assert_true(push(&s, long_b, 2) && push(&s, long_a, 2) && push(&s, "loss", 2));
    assert_string_equal(popped(&s, &n), points("%s@2 %s@2 loss@2 ", long_b, long_a));
    assert_int_equal(n, 4);
    assert_int_equal(s.reader.n, 2);
    close_stream(&s);
}

static void test_definition_that_a_full_ring_dropped_comes_with_the_next_point(void **state) {
    struct stream s;
    int n;
    (void)state;
    open_stream(&s);
    for (int i = 0; i < RECORDS - 1; i++) {
        assert_true(push(&s, "loss", i));
    }
    assert_false(push(&s, long_a, 7));           // the definition has room, its point has none
    assert_false(push(&s, long_b, 7));           // neither has
    assert_int_equal(td_ring_drops(&s.ring), 2); // points
    assert_string_equal(popped(&s, &n), "loss@0 loss@1 loss@2 ");
    assert_true(push(&s, long_b, 8) && push(&s, long_a, 8));
    assert_string_equal(popped(&s, &n), points("%s@8 %s@8 ", long_b, long_a));
    assert_int_equal(n, 3); // long_a was defined
    close_stream(&s);
}

static void test_names_past_the_bound_are_dropped_and_no_number_is_another_s(void **state) {
    struct stream s;
    int n;
    (void)state;
    open_stream(&s);
    for (int i = 0; i < TD_METRIC_LONG_NAMES; i++) {
        assert_true(push(&s, points("%s%d", long_b, i), i));
        (void)popped(&s, &n);
    }
    assert_false(push(&s, long_a, 1));
    assert_false(push(&s, long_a, 2));
    assert_int_equal(td_ring_drops(&s.ring), 2);
    assert_true(push(&s, points("%s%d", long_b, 5), 9));
    assert_string_equal(popped(&s, &n), points("%s5@9 ", long_b));
    assert_int_equal(n, 1);
    close_stream(&s);
}

static void test_record_of_an_older_build_is_a_point(void **state) {
    (void)state;
    static const char old[64] = "train_loss_step";
    struct td_metric_names t = {0};
    struct td_metric_record r;
    struct td_metric_point p;
    memcpy(&r, old, sizeof r);
    r.step = 3;
    r.flags = TD_METRIC_SUM_COUNT;
    assert_false(td_metric_is_name(&r));
    assert_int_equal(td_metric_names_take(&t, &r, &p), TD_METRIC_IS_POINT);
    assert_string_equal(p.name, "train_loss_step");
    assert_true(p.step == 3 && p.flags == TD_METRIC_SUM_COUNT);
}

static void test_damaged_records_are_bad_and_a_damaged_definition_takes_its_number(void **state) {
    (void)state;
    struct td_metric_names t = {0};
    struct td_metric_point p;
    struct td_metric_record bad[] = {
        {.name = "", .step = 1},
        {.name = "a\xff", .step = 1},
        {.name = "a", .step = -1},
        {.name = "a", .epoch = -1},
        {.flags = TD_METRIC_NUMBERED, .number = 0},
        {.step = 1},
    };
    memset(bad[5].name, 'a', sizeof bad[5].name); // it does not end
    for (size_t i = 0; i < TD_COUNTOF(bad); i++) {
        assert_int_equal(td_metric_names_take(&t, &bad[i], &p), TD_METRIC_IS_BAD);
    }
    struct td_metric_record define;
    td_metric_names_define("\xff\xff\xff of no use at all, as it is no UTF-8", &define);
    assert_int_equal(td_metric_names_take(&t, &define, &p), TD_METRIC_IS_NAME);
    td_metric_names_define(long_a, &define);
    assert_true(td_metric_is_name(&define));
    assert_int_equal(td_metric_names_take(&t, &define, &p), TD_METRIC_IS_NAME);
    struct td_metric_record numbered = {.flags = TD_METRIC_NUMBERED, .number = 0};
    assert_int_equal(td_metric_names_take(&t, &numbered, &p), TD_METRIC_IS_BAD);
    numbered.number = 1;
    assert_int_equal(td_metric_names_take(&t, &numbered, &p), TD_METRIC_IS_POINT);
    assert_string_equal(p.name, long_a);
    td_metric_names_finish(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_long_name_is_defined_once_and_short_ones_never),
        cmocka_unit_test(test_definition_that_a_full_ring_dropped_comes_with_the_next_point),
        cmocka_unit_test(test_names_past_the_bound_are_dropped_and_no_number_is_another_s),
        cmocka_unit_test(test_record_of_an_older_build_is_a_point),
        cmocka_unit_test(test_damaged_records_are_bad_and_a_damaged_definition_takes_its_number),
    };
    return cmocka_run_group_tests_name("metric_names", tests, NULL, NULL);
}
