// Questions to metrics.db: pages until all is there, room shared fairly among series, the newest so
// many with what they leave out, pictures with mean, least and largest.

#include "daemon/coordinator/shell/databases/metrics_query.h"

#include <math.h>
#include <stdlib.h>

#include "lib/attempt/rank_page.h"
#include "tests/unit/coordinator/shell/store_rig.h"

static void on_answer(struct td_databases_query *q, void *arg) {
    struct rig *r = arg;
    r->answer = q;
    r->done = true;
}

// Points at steps first, first + stride, ...; the value is the step.
static void add(struct rig *r, const char *name, uint32_t attempt, size_t n, int first,
                int stride) {
    struct td_points *p = calloc(1, sizeof *p);
    snprintf(p->job, sizeof p->job, "j-1");
    p->attempt = attempt;
    p->n_points = n;
    p->points = calloc(n, sizeof *p->points);
    for (size_t i = 0; i < n; i++) {
        int step = first + (int)i * stride;
        p->points[i] = (struct td_metric_point){
            .step = step, .sum = step, .count = 1, .flags = TD_METRIC_SUM_COUNT};
        snprintf(p->points[i].name, sizeof p->points[i].name, "%s", name);
    }
    r->points_wanted += n;
    td_databases_points(r->store, p);
}

static struct td_databases_query *question(void) {
    struct td_databases_query *q = calloc(1, sizeof *q);
    snprintf(q->job, sizeof q->job, "j-1");
    return q;
}

// Of what is committed. The answer is the caller's to destroy.
static struct td_databases_query *ask(struct rig *r, struct td_databases_query *q) {
    r->points_done = r->n_points >= r->points_wanted;
    assert_ok(td_loop_run_until(r->loop, &r->points_done, TD_TEST_WAIT_NS));
    q->done = on_answer;
    q->arg = r;
    r->done = false;
    td_databases_query(r->store, q);
    assert_ok(td_loop_run_until(r->loop, &r->done, TD_TEST_WAIT_NS));
    return r->answer;
}

static const struct td_databases_series *series(const struct td_databases_query *q,
                                                const char *name) {
    for (size_t i = 0; i < q->n_series; i++) {
        if (strcmp(q->series[i].name, name) == 0) return &q->series[i];
    }
    fail_msg("no series %s", name);
    return NULL;
}

enum { LONG = 60000, SHORT = 60 };

static void
test_pages_hold_every_point_once_when_there_are_more_than_an_answer_holds(void **state) {
    struct rig r = {0};
    open_rig(&r, *state);
    add(&r, "a_long", 1, LONG, 1, 1);
    add(&r, "b_long", 1, LONG, 1, 1);
    add(&r, "c_short", 1, SHORT, 1000, 1000);
    uint32_t cursor = 0, next[3] = {1, 1, 1000}, last_end = 0;
    size_t n[3] = {0}, n_pages = 0;
    do {
        struct td_databases_query *q = question();
        q->cursor = cursor;
        q = ask(&r, q);
        assert_null(q->failure);
        assert_int_equal(q->n_series, 3);
        size_t total = 0;
        uint32_t end = 0;
        for (size_t k = 0; k < 3; k++) {
            const struct td_databases_series *s = &q->series[k];
            for (size_t i = 0; i < s->n_points; i++) {
                assert_int_equal(s->points[i].step, next[k]);
                next[k] += k == 2 ? 1000 : 1;
            }
            n[k] += s->n_points;
            total += s->n_points;
            if (s->n_points) end = TD_MAX(end, s->points[s->n_points - 1].step);
        }
        assert_true(total <= TD_DB_STORE_MAX_POINTS);
        assert_true(end > last_end);
        // Both long ones get as far, and as far as there is room.
        assert_int_equal(q->series[0].n_points, q->series[1].n_points);
        if (q->more) assert_true(total > TD_DB_STORE_MAX_POINTS - SHORT - 2);
        last_end = end;
        cursor = q->more ? q->next_cursor : 0;
        n_pages++;
        td_databases_query_destroy(q);
    } while (cursor);
    assert_int_equal(n[0], LONG);
    assert_int_equal(n[1], LONG);
    assert_int_equal(n[2], SHORT);
    assert_int_equal(n_pages, 6);
    close_rig(&r);
}

static void test_newest_points_say_how_many_older_ones_they_leave_out(void **state) {
    struct rig r = {0};
    open_rig(&r, *state);
    add(&r, "a", 1, 100, 1, 1);
    add(&r, "b", 1, 3, 10, 10);
    add(&r, "a", 2, 20, 91, 1); // steps 91 to 100 again, and 10 new ones
    struct td_databases_query *q = question();
    q->newest = 5;
    q->from_step = 11;
    q = ask(&r, q);
    assert_null(q->failure);
    const struct td_databases_series *a = series(q, "a"), *b = series(q, "b");
    assert_int_equal(a->n_points, 5);
    assert_int_equal(a->points[0].step, 106);
    assert_int_equal(a->left_out, 95); // 11 to 105
    assert_int_equal(b->n_points, 2);
    assert_int_equal(b->left_out, 0);
    assert_false(q->more);
    td_databases_query_destroy(q);
    close_rig(&r);
}

static void test_picture_has_mean_least_and_largest_of_each_range(void **state) {
    struct rig r = {0};
    open_rig(&r, *state);
    add(&r, "a", 1, 1000, 1, 1);
    add(&r, "few", 1, 3, 7, 100);
    struct td_databases_query *q = question();
    q->picture_points = 10;
    q = ask(&r, q);
    assert_null(q->failure);
    const struct td_databases_series *a = series(q, "a"), *few = series(q, "few");
    assert_int_equal(a->n_points, 10);
    uint32_t total = 0;
    for (uint32_t i = 0; i < 10; i++) {
        const struct td_databases_point *p = &a->points[i];
        assert_int_equal(p->step, 100 * (i + 1));
        assert_true(p->min == 100 * i + 1 && p->max == 100 * i + 100);
        assert_true(p->value == 100 * i + 50.5);
        total += p->n_points;
    }
    assert_int_equal(total, 1000);
    assert_int_equal(few->n_points, 3); // one range each: nothing is merged without need
    assert_true(few->points[2].min == 207 && few->points[2].max == 207);
    td_databases_query_destroy(q);
    close_rig(&r);
}

static void test_picture_of_a_range_with_nan_has_no_mean_but_a_least(void **state) {
    struct rig r = {0};
    open_rig(&r, *state);
    add(&r, "a", 1, 4, 1, 1);
    struct td_points *p = calloc(1, sizeof *p);
    *p = (struct td_points){.attempt = 2, .n_points = 1, .points = calloc(1, sizeof *p->points)};
    snprintf(p->job, sizeof p->job, "j-1");
    p->points[0] = (struct td_metric_point){.name = "a", .step = 2, .sum = (double)NAN, .count = 1};
    r.points_wanted++;
    td_databases_points(r.store, p);
    struct td_databases_query *q = question();
    q->picture_points = 2;
    q = ask(&r, q);
    const struct td_databases_series *a = series(q, "a");
    assert_int_equal(a->n_points, 2);
    assert_true(isnan(a->points[0].value));
    assert_true(a->points[0].min == 1 && a->points[0].max == 1);
    assert_int_equal(a->points[0].n_points, 2);
    assert_true(a->points[1].value == 3.5);
    td_databases_query_destroy(q);
    close_rig(&r);
}

static void test_series_without_room_are_named(void **state) {
    struct rig r = {0};
    open_rig(&r, *state);
    for (int i = 0; i < TD_DB_STORE_MAX_SERIES + 2; i++) {
        char name[TD_METRIC_NAME_BYTES];
        snprintf(name, sizeof name, "s%03d", i);
        add(&r, name, 1, 1, 1, 1);
    }
    struct td_databases_query *q = ask(&r, question());
    assert_int_equal(q->n_series, TD_DB_STORE_MAX_SERIES);
    assert_int_equal(q->n_more_names, 2);
    assert_string_equal(q->more_names[1], "s065");
    td_databases_query_destroy(q);
    q = question();
    q->picture_points = 1000;
    q = ask(&r, q);
    assert_fails(td_steal(q->failure), TD_INVALID_ARGUMENT, "64 series");
    td_databases_query_destroy(q);
    close_rig(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_pages_hold_every_point_once_when_there_are_more_than_an_answer_holds),
        test_in_scratch(test_newest_points_say_how_many_older_ones_they_leave_out),
        test_in_scratch(test_picture_has_mean_least_and_largest_of_each_range),
        test_in_scratch(test_picture_of_a_range_with_nan_has_no_mean_but_a_least),
        test_in_scratch(test_series_without_room_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
