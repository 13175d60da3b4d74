// Points in the store: names that came with a cursor, sums that do not show the order of the ranks,
// and a database of the first schema.

#include <math.h>
#include <stdlib.h>

#include <sqlite3.h>

#include "daemon/coordinator/shell/databases/metrics_db.h"
#include "tests/unit/coordinator/shell/store_rig.h"

static struct td_points *points(uint32_t attempt, uint32_t rank, int step, double sum) {
    struct td_points *p = calloc(1, sizeof *p);
    snprintf(p->job, sizeof p->job, "j-1");
    p->attempt = attempt;
    p->rank = rank;
    p->offset = (uint64_t)step * 64;
    p->n_points = 1;
    p->points = calloc(1, sizeof *p->points);
    p->points[0] = (struct td_metric_point){
        .name = "train_loss", .step = step, .sum = sum, .count = 2, .flags = TD_METRIC_SUM_COUNT};
    return p;
}

static void see_offset(const char *job, uint32_t attempt, uint32_t rank, uint64_t offset,
                       void *arg) {
    (void)attempt;
    (void)rank;
    (void)offset;
    assert_string_equal(job, "j-1");
    ((struct rig *)arg)->n_points++;
}

static void see_no_name(const char *job, uint32_t attempt, uint32_t rank, uint32_t number,
                        const char *name, void *arg) {
    (void)arg;
    fail_msg("%s/%u/%u has a name: %u '%s'", job, attempt, rank, number, name);
}

static void see_name(const char *job, uint32_t attempt, uint32_t rank, uint32_t number,
                     const char *name, void *arg) {
    static const char *const names[] = {"a_name_of_more_than_23_bytes",
                                        "and_another_one_of_them_too"};
    struct rig *r = arg;
    assert_string_equal(job, "j-1");
    assert_true(attempt == 1 && rank == 1 && number == r->committed && number < 2);
    assert_string_equal(name, names[r->committed++]);
}

static void test_names_are_kept_with_the_cursor_that_they_came_with(void **state) {
    struct rig r = {.points_wanted = 2};
    open_rig(&r, *state);
    for (uint32_t i = 0; i < 2; i++) {
        struct td_points *p = points(1, 1, (int)i + 1, 2);
        p->first_name = i;
        p->n_names = 1;
        p->names = calloc(1, sizeof *p->names);
        snprintf(p->names[0], sizeof p->names[0], "%s",
                 i ? "and_another_one_of_them_too" : "a_name_of_more_than_23_bytes");
        snprintf(p->points[0].name, sizeof p->points[0].name, "%s", p->names[0]);
        td_databases_points(r.store, p);
    }
    assert_ok(td_loop_run_until(r.loop, &r.points_done, TD_TEST_WAIT_NS));
    close_rig(&r);
    memset(&r, 0, sizeof r);
    open_rig(&r, *state);
    const struct td_cursor_loader cursors = {see_offset, see_name, &r};
    assert_ok(td_databases_load_cursors(r.store, &cursors));
    assert_int_equal(r.committed, 2);
    td_databases_forget(r.store, "j-1");
    close_rig(&r);
    memset(&r, 0, sizeof r);
    open_rig(&r, *state);
    const struct td_cursor_loader none = {see_offset, see_no_name, &r};
    assert_ok(td_databases_load_cursors(r.store, &none));
    assert_int_equal(r.n_points, 0);
    close_rig(&r);
}

struct value_seen {
    double value, last;
    bool done;
};

static void on_value(struct td_databases_query *q, void *arg) {
    struct value_seen *s = arg;
    assert_null(q->failure);
    s->value = q->series[0].points[0].value;
    s->done = true;
    td_databases_query_destroy(q);
}

static void see_value(struct td_metric_last *m, void *arg) {
    ((struct value_seen *)arg)->last = m->shown;
}

// The mean over four ranks that come in this order; opened again after two of them.
static struct value_seen merged(const char *dir, const int *order) {
    static const double sum[] = {0.1, 1e16, 0.7, -1e16};
    struct value_seen s = {0};
    for (int half = 0; half < 2; half++) {
        struct rig r = {.points_wanted = 2};
        open_rig(&r, dir);
        for (int i = 2 * half; i < 2 * half + 2; i++) {
            td_databases_points(r.store, points(1, (uint32_t)order[i], 1, sum[order[i]]));
        }
        assert_ok(td_loop_run_until(r.loop, &r.points_done, TD_TEST_WAIT_NS));
        if (half) {
            struct td_databases_query *q = calloc(1, sizeof *q);
            snprintf(q->job, sizeof q->job, "j-1");
            q->done = on_value;
            q->arg = &s;
            td_databases_query(r.store, q);
            assert_ok(td_loop_run_until(r.loop, &s.done, TD_TEST_WAIT_NS));
            td_databases_forget(r.store, "j-1");
        } else {
            assert_ok(td_databases_load_last(r.store, "j-1", see_value, &s));
        }
        close_rig(&r);
    }
    return s;
}

static void test_order_of_the_ranks_does_not_show_in_a_mean(void **state) {
    static const int orders[][4] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 0, 3, 2}, {0, 2, 1, 3}};
    for (size_t i = 0; i < TD_COUNTOF(orders); i++) {
        assert_true(merged(*state, orders[i]).value == (0.1 + 0.7) / 8);
    }
}

static void on_series(struct td_databases_query *q, void *arg) {
    assert_null(q->failure);
    assert_int_equal(q->n_series, 2);
    assert_string_equal(q->series[0].name, "train_loss"); // before what is of devices
    assert_string_equal(q->series[1].name, "gpu0.power");
    const struct td_databases_point *p = &q->series[1].points[0];
    assert_true(q->series[1].n_points == 1 && p->value == 250 && p->n_ranks == 1);
    ((struct value_seen *)arg)->done = true;
    td_databases_query_destroy(q);
}

static void on_picture(struct td_databases_query *q, void *arg) {
    assert_null(q->failure);
    assert_int_equal(q->n_series, 1);
    assert_string_equal(q->series[0].name, q->n_names ? "gpu0.power" : "train_loss");
    ((struct value_seen *)arg)->done = true;
    td_databases_query_destroy(q);
}

// Of all series, or of the device's.
static void draw(struct rig *r, bool names_it) {
    struct value_seen s = {0};
    struct td_databases_query *q = calloc(1, sizeof *q);
    snprintf(q->job, sizeof q->job, "j-1");
    snprintf(q->names[0], sizeof q->names[0], "gpu0.power");
    q->n_names = names_it;
    q->picture_points = 10;
    q->done = on_picture;
    q->arg = &s;
    td_databases_query(r->store, q);
    assert_ok(td_loop_run_until(r->loop, &s.done, TD_TEST_WAIT_NS));
}

static void test_devices_are_apart_from_what_a_job_says_of_itself(void **state) {
    struct value_seen s = {.last = -1};
    struct rig r = {.points_wanted = 3};
    open_rig(&r, *state);
    for (int i = 0; i < 3; i++) { // twice at one step, with its mean so far
        struct td_points *p = points(1, 0, 1, i ? 250 * (i + 1) : 6);
        p->offset = (uint64_t)(i + 1) * 64;
        if (i) snprintf(p->points[0].name, sizeof p->points[0].name, "gpu0.power");
        if (i) p->points[0].flags = TD_METRIC_DEVICE;
        if (i) p->points[0].count = i + 1;
        td_databases_points(r.store, p);
    }
    assert_ok(td_loop_run_until(r.loop, &r.points_done, TD_TEST_WAIT_NS));
    struct td_databases_query *q = calloc(1, sizeof *q);
    snprintf(q->job, sizeof q->job, "j-1");
    q->done = on_series;
    q->arg = &s;
    td_databases_query(r.store, q);
    assert_ok(td_loop_run_until(r.loop, &s.done, TD_TEST_WAIT_NS));
    draw(&r, false);
    draw(&r, true);
    close_rig(&r);
    memset(&r, 0, sizeof r);
    open_rig(&r, *state);
    assert_ok(td_databases_load_last(r.store, "j-1", see_value, &s));
    assert_true(s.last == 3); // the loss alone
    td_databases_forget(r.store, "j-1");
    close_rig(&r);
}

static void see_full(const char *job, uint32_t attempt, uint32_t rank, uint32_t number,
                     const char *name, void *arg) {
    assert_string_equal(job, "j-1");
    assert_true(attempt == 1 && rank == 0); // not rank 3: nothing of it was taken
    assert_true(number == UINT32_MAX && name[0] == '\0');
    ((struct rig *)arg)->committed++;
}

// As the first schema was, with a point of two ranks that a third one adds to.
static void test_points_of_the_first_schema_are_read_and_added_to(void **state) {
    static const char first[] =
        "CREATE TABLE schema (version INTEGER PRIMARY KEY, time TEXT NOT NULL, build TEXT NOT "
        "NULL);"
        "INSERT INTO schema VALUES (1, 'then', '0');"
        "CREATE TABLE series (id INTEGER PRIMARY KEY, job TEXT NOT NULL, name TEXT NOT NULL,"
        " UNIQUE (job, name));"
        "CREATE TABLE points (series INTEGER, step INTEGER, attempt INTEGER, epoch INTEGER, sum "
        "REAL,"
        " count REAL, n_ranks INTEGER, real_ns INTEGER, PRIMARY KEY (series, step, attempt))"
        " WITHOUT ROWID;"
        "CREATE TABLE cursors (job TEXT, attempt INTEGER, rank INTEGER, offset INTEGER,"
        " PRIMARY KEY (job, attempt, rank)) WITHOUT ROWID;"
        "INSERT INTO series VALUES (1, 'j-1', 'train_loss');"
        "INSERT INTO points VALUES (1, 1, 1, 0, 6.0, 4.0, 2, 5);"
        "INSERT INTO cursors VALUES ('j-1', 1, 0, 64), ('j-1', 1, 3, 0);";
    struct rig r = {.points_wanted = 1};
    struct value_seen s = {0};
    sqlite3 *db = NULL;
    char path[512];
    snprintf(path, sizeof path, "%s/metrics.db", (const char *)*state);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, first, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    open_rig(&r, *state);
    assert_ok(td_databases_load_last(r.store, "j-1", see_value, &s));
    assert_true(s.last == 1.5);
    td_databases_points(r.store, points(1, 2, 1, 3));
    assert_ok(td_loop_run_until(r.loop, &r.points_done, TD_TEST_WAIT_NS));
    assert_ok(td_databases_load_last(r.store, "j-1", see_value, &s));
    assert_true(s.last == 1.5); // 9 / 6
    const struct td_cursor_loader cursors = {see_offset, see_full, &r};
    assert_ok(td_databases_load_cursors(r.store, &cursors));
    assert_int_equal(r.committed, 1); // its names have no known numbers
    close_rig(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_names_are_kept_with_the_cursor_that_they_came_with),
        test_in_scratch(test_devices_are_apart_from_what_a_job_says_of_itself),
        test_in_scratch(test_order_of_the_ranks_does_not_show_in_a_mean),
        test_in_scratch(test_points_of_the_first_schema_are_read_and_added_to),
    };
    return cmocka_run_group_tests_name("coord_store_points", tests, NULL, NULL);
}
