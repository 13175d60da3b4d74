// Files of loggers: rows out of the points of several ranks, metrics.csv, records of TensorBoard's
// files; what is cut, kept and put again when a file is opened again. Nothing runs.

#include "daemon/launcher/loggers/logger_sink.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/base/files/files.h"
#include "lib/base/files/tfevents.h"
#include "tests/unit/test.h"

// ---- rows ---------------------------------------------------------------------------------------
static void say(struct td_log_rows *t, int rank, const char *name, int step, double sum,
                double count) {
    struct td_metric_point r = {
        .step = step, .epoch = step / 10, .sum = sum, .count = count, .real_ns = step};
    r.flags = count > 0 ? TD_METRIC_SUM_COUNT : 0;
    if (count == 0) r.count = 1;
    snprintf(r.name, sizeof r.name, "%s", name);
    assert_ok(td_log_rows_add(t, rank, &r));
}

// The rows that can be taken: "1: loss=2 lr=0.5, ".
static const char *taken(struct td_log_rows *t, int flags) {
    static char text[512];
    struct td_log_row row;
    size_t len = 0;
    text[0] = '\0';
    while (td_log_rows_take(t, flags, &row)) {
        len += (size_t)snprintf(text + len, sizeof text - len, "%d:", (int)row.step);
        for (size_t i = 0; i < row.n; i++) {
            len += (size_t)snprintf(text + len, sizeof text - len, " %s=%g", row.value[i].name,
                                    row.value[i].value);
        }
        len += (size_t)snprintf(text + len, sizeof text - len, ", ");
        assert_true(len < sizeof text);
    }
    return text;
}

static void test_value_is_shown_when_all_ranks_have_said_it(void **state) {
    (void)state;
    struct td_log_rows t;
    assert_ok(td_log_rows_init(&t, 2));
    say(&t, 0, "loss", 1, 2, 1);
    say(&t, 0, "lr", 1, 0.5, 0);
    assert_string_equal(taken(&t, 0), ""); // rank 1 may say both
    say(&t, 1, "loss", 1, 12, 3);
    assert_string_equal(taken(&t, 0), "1: loss=3.5, "); // 14 / 4
    assert_string_equal(taken(&t, 0), "");              // nothing is new
    say(&t, 1, "loss", 1, 6, 1);                        // once more: the coordinator adds it, too
    say(&t, 1, "lr", 1, 0.25, 0);
    assert_string_equal(taken(&t, 0), "1: loss=4 lr=0.25, "); // the last of what does not merge
    td_log_rows_finish(&t);
}

static void test_row_is_closed_when_every_rank_has_gone_on(void **state) {
    (void)state;
    struct td_log_rows t;
    assert_ok(td_log_rows_init(&t, 2));
    say(&t, 0, "loss", 1, 2, 1);
    say(&t, 0, "loss", 2, 3, 1);
    assert_string_equal(taken(&t, 0), ""); // rank 1 may still say it
    assert_string_equal(taken(&t, TD_LOG_TAKE_PRESENT), "1: loss=2, ");
    say(&t, 1, "loss", 2, 5, 1);
    say(&t, 1, "loss", 3, 5, 1);
    say(&t, 0, "loss", 3, 5, 1);
    assert_string_equal(taken(&t, 0), "2: loss=4, 3: loss=5, ");
    say(&t, 0, "val", 3, 7, 1);
    assert_string_equal(taken(&t, TD_LOG_TAKE_ALL), "3: loss=5 val=7, ");
    assert_int_equal(t.n, 0);
    td_log_rows_finish(&t);
}

static void test_late_row_waits_for_the_ranks_that_may_report_it(void **state) {
    (void)state;
    struct td_log_rows t;
    assert_ok(td_log_rows_init(&t, 2));
    for (int step = 1; step <= 3; step++) {
        say(&t, 0, "loss", step, 1, 1);
        say(&t, 1, "loss", step, 1, 1);
    }
    assert_string_equal(taken(&t, 0), "1: loss=1, 2: loss=1, 3: loss=1, ");
    say(&t, 0, "val", 1, 2, 1);
    assert_string_equal(taken(&t, 0), ""); // rank 1 has not said it
    say(&t, 1, "val", 1, 4, 1);
    assert_string_equal(taken(&t, 0), "1: val=3, ");
    say(&t, 0, "val", 2, 2, 1); // rank 1 never will
    struct td_metric_point later = {.name = "loss", .step = 4, .count = 1};
    later.real_ns = 2 + 2 * TD_NS_PER_S + 1;
    assert_ok(td_log_rows_add(&t, 1, &later));
    assert_string_equal(taken(&t, 0), "2: val=2, ");
    td_log_rows_finish(&t);
}

static void test_mean_does_not_show_the_order_of_the_ranks(void **state) {
    (void)state;
    static const int orders[][3] = {{0, 1, 2}, {2, 1, 0}, {1, 2, 0}};
    static const double sum[] = {0.1, 0.2, 0.3};
    for (size_t i = 0; i < TD_COUNTOF(orders); i++) {
        struct td_log_rows t;
        struct td_log_row row;
        assert_ok(td_log_rows_init(&t, 3));
        for (int k = 0; k < 3; k++) {
            say(&t, orders[i][k], "loss", 1, sum[orders[i][k]], 1);
        }
        assert_true(td_log_rows_take(&t, 0, &row));
        assert_true(row.value[0].value == 0.6 / 3);
        td_log_rows_finish(&t);
    }
}

static void test_rows_and_cells_have_a_bound(void **state) {
    (void)state;
    struct td_log_rows t;
    struct td_log_row row;
    char name[TD_METRIC_NAME_BYTES];
    assert_ok(td_log_rows_init(&t, 2));
    for (int i = 0; i <= TD_LOG_CELLS; i++) {
        snprintf(name, sizeof name, "m%d", i);
        say(&t, 0, name, 0, 1, 1);
    }
    assert_int_equal(t.dropped, 1);
    for (int i = 1; i <= TD_LOG_ROWS; i++) {
        say(&t, 0, "loss", i, 1, 1);
    }
    assert_true(td_log_rows_take(&t, 0, &row)); // the oldest, though rank 1 said nothing
    assert_int_equal(row.step, 0);
    assert_int_equal(row.n, TD_LOG_CELLS);
    assert_false(td_log_rows_take(&t, 0, &row));
    td_log_rows_finish(&t);
}

// Of a device, made long after what ranks say.
static void say_device(struct td_log_rows *t, int rank, const char *name, int step, double value) {
    struct td_metric_point p = {.step = step,
                                .epoch = 77,
                                .sum = 2 * value,
                                .count = 2,
                                .real_ns = 3600 * TD_NS_PER_S,
                                .flags = TD_METRIC_DEVICE};
    snprintf(p.name, sizeof p.name, "%s", name);
    assert_ok(td_log_rows_add(t, rank, &p));
}

static void test_device_is_shown_with_its_row_and_holds_up_none(void **state) {
    (void)state;
    struct td_log_rows t;
    assert_ok(td_log_rows_init(&t, 2));
    say_device(&t, 1, "gpu1.power", 1, 200);
    say_device(&t, 1, "gpu1.power", 1, 300); // its mean so far
    assert_string_equal(taken(&t, 0), "");
    say(&t, 0, "loss", 1, 2, 1);
    say(&t, 1, "loss", 1, 4, 1);
    assert_string_equal(taken(&t, 0), "1: loss=3, "); // as without it
    say_device(&t, 0, "gpu0.power", 2, 100);          // rank 0 itself is at 1
    say(&t, 1, "loss", 2, 5, 1);
    assert_string_equal(taken(&t, 0), "");
    struct td_log_row row;
    say(&t, 0, "loss", 2, 5, 1);
    assert_true(td_log_rows_take(&t, 0, &row));
    assert_true(row.n == 2 && row.step == 1 && row.epoch == 0);
    assert_string_equal(row.value[0].name, "gpu1.power");
    assert_true(row.value[0].value == 300);
    assert_string_equal(taken(&t, 0), "2: loss=5, ");
    say_device(&t, 0, "gpu0.power", 1, 7); // its row is closed: no rank is waited for
    assert_string_equal(taken(&t, 0), "1: gpu0.power=7, ");
    assert_string_equal(taken(&t, TD_LOG_TAKE_ALL), "2: gpu0.power=100 loss=5, ");
    td_log_rows_finish(&t);
}

static void test_devices_take_no_room_of_what_ranks_say(void **state) {
    (void)state;
    struct td_log_rows t;
    struct td_log_row row;
    char name[TD_METRIC_NAME_BYTES];
    assert_ok(td_log_rows_init(&t, 1));
    for (int i = 0; i <= TD_LOG_DEVICE_CELLS; i++) {
        snprintf(name, sizeof name, "gpu%d.power", i);
        say_device(&t, 0, name, 0, 1);
    }
    assert_int_equal(t.dropped, 0); // left out
    for (int i = 0; i < TD_LOG_CELLS; i++) {
        snprintf(name, sizeof name, "m%d", i);
        say(&t, 0, name, 0, 1, 1);
    }
    assert_int_equal(t.dropped, 0);
    assert_true(td_log_rows_take(&t, TD_LOG_TAKE_ALL, &row));
    assert_int_equal(row.n, TD_LOG_VALUES);
    td_log_rows_finish(&t);
}

// ---- sinks --------------------------------------------------------------------------------------
static struct td_log_sink *open_sink(const struct td_log_sink_ops *ops, const char *dir,
                                     uint32_t attempt, int64_t last) {
    struct td_log_sink *s = NULL;
    struct td_log_open how = {.dir = dir, .attempt = attempt, .fresh = attempt == 1, .last = last};
    assert_ok(ops->open(&how, &s));
    return s;
}

static void put(const struct td_log_sink_ops *ops, struct td_log_sink *s, int step,
                const char *name, double value) {
    struct td_log_row row = {.step = step, .epoch = 1, .real_ns = 1, .n = 1};
    snprintf(row.value[0].name, sizeof row.value[0].name, "%s", name);
    row.value[0].value = value;
    assert_ok(ops->put(s, &row));
}

static const char *text_of(const char *dir) {
    static char text[1024];
    char path[TD_FS_PATH_BYTES];
    TD_AUTO_BUF b;
    td_buf_init(&b, sizeof text - 1);
    assert_ok(td_fs_path(path, "%s/metrics.csv", dir));
    assert_ok(td_fs_read(path, sizeof text - 1, &b));
    snprintf(text, sizeof text, "%s", td_buf_cstr(&b));
    return text;
}

static void append(const char *dir, const char *more) {
    char path[TD_FS_PATH_BYTES];
    assert_ok(td_fs_path(path, "%s/metrics.csv", dir));
    FILE *f = fopen(path, "ae");
    assert_non_null(f);
    assert_true(fputs(more, f) >= 0);
    fclose(f);
}

static void test_columns_grow_and_the_open_row_is_written_over(void **state) {
    const struct td_log_sink_ops *ops = &td_log_csv;
    struct td_log_sink *s = open_sink(ops, *state, 1, 0);
    put(ops, s, 1, "loss", 2.5);
    assert_ok(ops->flush(s));
    assert_string_equal(text_of(*state), "epoch,loss,step\r\n1,2.5,1\r\n");
    put(ops, s, 1, "a,b", 1);
    put(ops, s, 2, "loss", 3);
    assert_ok(ops->flush(s));
    assert_string_equal(text_of(*state), "\"a,b\",epoch,loss,step\r\n1.0,1,2.5,1\r\n,1,3.0,2\r\n");
    put(ops, s, 2, "z", -0.125);
    put(ops, s, 2, "loss", 4);
    ops->close(s); // what was not flushed is gone
    assert_string_equal(text_of(*state), "\"a,b\",epoch,loss,step,z\r\n1.0,1,2.5,1,\r\n");
}

static void test_csv_goes_on_where_it_can_be_read_and_nothing_is_there_twice(void **state) {
    const struct td_log_sink_ops *ops = &td_log_csv;
    struct td_log_sink *s = open_sink(ops, *state, 1, 0);
    for (int step = 1; step <= 4; step++) {
        put(ops, s, step, "loss", step);
    }
    assert_ok(ops->flush(s));
    ops->close(s);
    append(*state, "1,5.0"); // torn
    s = open_sink(ops, *state, 2, 3);
    assert_string_equal(text_of(*state), "epoch,loss,step\r\n1,1.0,1\r\n1,2.0,2\r\n1,3.0,3\r\n");
    put(ops, s, 1, "loss", 7); // it is there
    put(ops, s, 3, "val", 9);  // this is not
    put(ops, s, 4, "loss", 8);
    assert_ok(ops->flush(s));
    ops->close(s);
    assert_string_equal(text_of(*state), "epoch,loss,step,val\r\n1,1.0,1,\r\n1,2.0,2,\r\n"
                                         "1,3.0,3,9.0\r\n1,8.0,4,\r\n");
    s = open_sink(ops, *state, 1, 0); // the job begins again
    ops->close(s);
    assert_string_equal(text_of(*state), "");
}

static void test_late_values_are_in_the_csv_once_also_when_they_are_put_again(void **state) {
    const struct td_log_sink_ops *ops = &td_log_csv;
    static const char rows[] = "epoch,loss,step,val\r\n1,1.0,1,\r\n1,2.0,2,\r\n1,,1,7.0\r\n";
    struct td_log_sink *s = open_sink(ops, *state, 1, 0);
    put(ops, s, 1, "loss", 1);
    put(ops, s, 2, "loss", 2);
    put(ops, s, 1, "val", 7); // late
    assert_ok(ops->flush(s));
    assert_string_equal(text_of(*state), rows);
    ops->close(s);
    s = open_sink(ops, *state, 2, 5);
    put(ops, s, 1, "loss", 1);
    put(ops, s, 2, "loss", 2); // after a late row
    put(ops, s, 1, "val", 7);
    put(ops, s, 2, "val", 8); // late, and was not flushed
    assert_ok(ops->flush(s));
    ops->close(s);
    const char *text = text_of(*state);
    assert_memory_equal(text, rows, sizeof rows - 1);
    assert_string_equal(text + sizeof rows - 1, "1,,2,8.0\r\n");
}

static void test_metrics_called_as_our_columns_are_told_apart(void **state) {
    const struct td_log_sink_ops *ops = &td_log_csv;
    struct td_log_sink *s = open_sink(ops, *state, 1, 0);
    put(ops, s, 3, "step", 0.5);
    put(ops, s, 3, "epoch", 0.25);
    put(ops, s, 3, "metric_step", 0.125);
    put(ops, s, 3, "metric_x", 2);
    assert_ok(ops->flush(s));
    ops->close(s);
    assert_string_equal(text_of(*state),
                        "epoch,metric_epoch,metric_metric_step,metric_step,metric_x,step\r\n"
                        "1,0.25,0.125,0.5,2.0,3\r\n");
    char longest[TD_LOG_COLUMN_BYTES];
    td_log_column("metric_metric_metric_metric_metric_metric_metric_metric_step", longest);
    assert_string_equal(longest,
                        "metric_metric_metric_metric_metric_metric_metric_metric_metric_step");
}

static void test_name_with_a_line_break_is_one_quoted_cell_and_is_read_again(void **state) {
    const struct td_log_sink_ops *ops = &td_log_csv;
    struct td_log_sink *s = open_sink(ops, *state, 1, 0);
    put(ops, s, 1, "a\nb\"c\r\nd", 1);
    put(ops, s, 2, "z", 2); // writes the file again
    assert_ok(ops->flush(s));
    ops->close(s);
    static const char rows[] = "\"a\nb\"\"c\r\nd\",epoch,step,z\r\n1.0,1,1,\r\n,1,2,2.0\r\n";
    assert_string_equal(text_of(*state), rows);
    s = open_sink(ops, *state, 2, 1); // row 2 goes
    put(ops, s, 2, "a\nb\"c\r\nd", 3);
    assert_ok(ops->flush(s));
    ops->close(s);
    assert_string_equal(text_of(*state),
                        "\"a\nb\"\"c\r\nd\",epoch,step,z\r\n1.0,1,1,\r\n3.0,1,2,\r\n");
}

static void test_csv_of_somebody_else_is_refused_by_its_path(void **state) {
    static const char *const theirs[] = {"a,b\r\n1,2\r\n", "loss,step\r\n1.5,1\r\n",
                                         "epoch,step\n0,1\n", "epoch,step,a\"b\r\n1,2,3\r\n"};
    struct td_log_sink *s = NULL;
    struct td_log_open how = {.dir = *state, .attempt = 2};
    char path[TD_FS_PATH_BYTES];
    assert_ok(td_fs_path(path, "%s/metrics.csv", (char *)*state));
    for (size_t i = 0; i < TD_COUNTOF(theirs); i++) {
        (void)unlink(path);
        append(*state, theirs[i]);
        assert_fails(td_log_csv.open(&how, &s), TD_FAILED_PRECONDITION,
                     "/metrics.csv' is not a file of metrics that traind wrote");
        assert_string_equal(text_of(*state), theirs[i]);
    }
}

static void test_csv_is_cut_before_what_is_no_row_of_numbers(void **state) {
    static const char *const bad[] = {"0,\"1,2\",3\r\n", "0,1\r\n", "0,1,2,3\r\n",
                                      "0,1,x\r\n",       "0,1,2\n", "0,1,9\r\n"};
    char path[TD_FS_PATH_BYTES];
    assert_ok(td_fs_path(path, "%s/metrics.csv", (char *)*state));
    for (size_t i = 0; i < TD_COUNTOF(bad); i++) {
        (void)unlink(path);
        append(*state, "epoch,loss,step\r\n0,1.5,1\r\n");
        append(*state, bad[i]);
        append(*state, "0,2.5,2\r\n");
        td_log_csv.close(open_sink(&td_log_csv, *state, 2, 8));
        assert_string_equal(text_of(*state), "epoch,loss,step\r\n0,1.5,1\r\n");
    }
}

// ---- records ------------------------------------------------------------------------------------
static void test_checksum_is_that_of_rfc_3720(void **state) {
    (void)state;
    assert_int_equal(td_crc32c("123456789", 9), 0xe3069283);
    assert_int_equal(td_crc32c("", 0), 0);
}

static void test_record_is_read_back_unless_a_byte_of_it_differs(void **state) {
    (void)state;
    TD_AUTO_BUF b;
    static struct td_tfevent e;
    const struct td_tfscalar scalar[] = {{"loss", 0.5}, {"val_loss", 2}};
    td_buf_init(&b, 4096);
    assert_ok(td_tfevent_version(1, &b));
    const size_t first = b.len;
    assert_ok(td_tfevent_scalars(1, 300, scalar, 2, &b));
    assert_int_equal(td_tfevent_read(b.data, b.len, &e), first);
    assert_int_equal(e.n, 0);
    assert_int_equal(td_tfevent_read(b.data + first, b.len - first, &e), b.len - first);
    assert_int_equal(e.step, 300);
    assert_int_equal(e.n, 2);
    assert_string_equal(e.tag[1], "val_loss");
    for (size_t i = first; i < b.len; i++) {
        assert_int_equal(td_tfevent_read(b.data + first, i - first, &e), 0); // torn here
        b.data[i] = (char)(b.data[i] ^ 0x10);
        assert_int_equal(td_tfevent_read(b.data + first, b.len - first, &e), 0);
        b.data[i] = (char)(b.data[i] ^ 0x10);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_value_is_shown_when_all_ranks_have_said_it),
        cmocka_unit_test(test_row_is_closed_when_every_rank_has_gone_on),
        cmocka_unit_test(test_late_row_waits_for_the_ranks_that_may_report_it),
        cmocka_unit_test(test_mean_does_not_show_the_order_of_the_ranks),
        cmocka_unit_test(test_rows_and_cells_have_a_bound),
        cmocka_unit_test(test_device_is_shown_with_its_row_and_holds_up_none),
        cmocka_unit_test(test_devices_take_no_room_of_what_ranks_say),
        test_in_scratch(test_columns_grow_and_the_open_row_is_written_over),
        test_in_scratch(test_csv_goes_on_where_it_can_be_read_and_nothing_is_there_twice),
        test_in_scratch(test_late_values_are_in_the_csv_once_also_when_they_are_put_again),
        test_in_scratch(test_metrics_called_as_our_columns_are_told_apart),
        test_in_scratch(test_name_with_a_line_break_is_one_quoted_cell_and_is_read_again),
        test_in_scratch(test_csv_of_somebody_else_is_refused_by_its_path),
        test_in_scratch(test_csv_is_cut_before_what_is_no_row_of_numbers),
        cmocka_unit_test(test_checksum_is_that_of_rfc_3720),
        cmocka_unit_test(test_record_is_read_back_unless_a_byte_of_it_differs),
    };
    return cmocka_run_group_tests_name("launcher_logger", tests, NULL, NULL);
}
