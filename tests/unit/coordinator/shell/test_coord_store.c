// The store: rows and points read back after a reopen, tickets in order, every acknowledged batch
// is there after SIGKILL, points merge over ranks, a damaged file is named.
// Tags: tsan

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sqlite3.h>

#include "daemon/coordinator/shell/databases/db.h"
#include "daemon/coordinator/shell/databases/metrics_db.h"
#include "daemon/coordinator/shell/databases/schema.h"
#include "lib/attempt/rank_page.h"
#include "tests/unit/coordinator/shell/store_rig.h"

static struct td_record *record(enum td_record_kind kind, const char *key, const char *body) {
    struct td_record *r = calloc(1, sizeof *r);
    r->kind = kind;
    r->key = strdup(key);
    r->body = body ? strdup(body) : NULL;
    return r;
}

static void wait_ticket(struct rig *r, uint64_t ticket) {
    r->wanted = ticket;
    r->done = r->committed >= ticket;
    assert_ok(td_loop_run_until(r->loop, &r->done, TD_TEST_WAIT_NS));
}

struct seen {
    char text[1024];
};
static td_status see(enum td_record_kind kind, const char *key, const char *body, void *arg) {
    struct seen *s = arg;
    size_t n = strlen(s->text);
    if (strcmp(key, "incarnation") == 0) return TD_OK;
    snprintf(s->text + n, sizeof s->text - n, "%d:%s=%s ", (int)kind, key, body);
    return TD_OK;
}

static void test_rows_read_back_when_the_store_is_opened_again(void **state) {
    struct rig r = {0};
    struct seen seen = {""};
    open_rig(&r, *state);
    uint64_t first = td_databases_incarnation(r.store);
    td_databases_commit(r.store, record(TD_RECORD_JOB, "j-1", "{\"a\":1}"), 1);
    td_databases_commit(r.store, record(TD_RECORD_JOB, "j-2", "{}"), 2);
    td_databases_commit(r.store, record(TD_RECORD_JOB, "j-1", "{\"a\":2}"), 3);
    td_databases_commit(r.store, record(TD_RECORD_JOB, "j-2", NULL), 4);
    td_databases_commit(r.store, record(TD_RECORD_ATTEMPT, "j-1/a10", "{}"), 5);
    td_databases_commit(r.store, record(TD_RECORD_ATTEMPT, "j-1/a2", "{}"), 6);
    wait_ticket(&r, 6);
    close_rig(&r);
    memset(&r, 0, sizeof r);
    open_rig(&r, *state);
    assert_int_equal(td_databases_incarnation(r.store), first + 1);
    assert_ok(td_databases_load(r.store, see, &seen));
    assert_string_equal(seen.text, "4:j-1={\"a\":2} 5:j-1/a2={} 5:j-1/a10={} ");
    close_rig(&r);
}

// A state.db as builds before rowids left it, with one job.
static void make_old_state(const char *dir) {
    char text[512];
    sqlite3 *db = NULL;
    assert_ok(td_db_open(dir, "state.db", &db));
    assert_ok(td_db_sql(db, "state.db",
                        "CREATE TABLE schema (version INTEGER PRIMARY KEY, time TEXT NOT NULL,"
                        " build TEXT NOT NULL); INSERT INTO schema VALUES (4, '', '')"));
    for (int kind = 0; kind < TD_RECORD_TOKEN; kind++) { // there were no tokens
        snprintf(text, sizeof text,
                 "CREATE TABLE %s (key TEXT PRIMARY KEY, body TEXT NOT NULL, digest INTEGER)"
                 " WITHOUT ROWID",
                 td_schema_tables[kind]);
        assert_ok(td_db_sql(db, "state.db", text));
    }
    snprintf(text, sizeof text, "INSERT INTO jobs VALUES ('j-1', '{}', %lld)",
             (long long)td_db_row_digest("j-1", "{}"));
    assert_ok(td_db_sql(db, "state.db", text));
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void test_state_of_an_older_build_is_read_and_goes_on(void **state) {
    struct rig r = {0};
    struct seen seen = {""};
    make_old_state(*state);
    open_rig(&r, *state);
    td_databases_commit(r.store, record(TD_RECORD_JOB, "j-2", "{}"), 1);
    td_databases_commit(r.store, record(TD_RECORD_JOB, "j-1", "{\"a\":1}"), 2);
    td_databases_commit(r.store, record(TD_RECORD_TOKEN, "0123456789ab", "{\"b\":2}"), 3);
    close_rig(&r);
    memset(&r, 0, sizeof r);
    open_rig(&r, *state);
    assert_ok(td_databases_load(r.store, see, &seen));
    assert_string_equal(seen.text, "4:j-1={\"a\":1} 4:j-2={} ");
    seen.text[0] = '\0';
    assert_ok(td_databases_load_table(r.store, TD_RECORD_TOKEN, see, &seen));
    assert_string_equal(seen.text, "11:0123456789ab={\"b\":2} ");
    close_rig(&r);
}

// What was handed over is committed by close, too.
static void test_close_commits_what_was_handed_over(void **state) {
    struct rig r = {0};
    struct seen seen = {""};
    open_rig(&r, *state);
    td_databases_commit(r.store, record(TD_RECORD_JOB, "j-1", "{}"), 1);
    close_rig(&r);
    memset(&r, 0, sizeof r);
    open_rig(&r, *state);
    assert_ok(td_databases_load(r.store, see, &seen));
    assert_string_equal(seen.text, "4:j-1={} ");
    close_rig(&r);
}

static _Noreturn void child(const char *dir, int fd) {
    struct rig r = {.tell_fd = fd, .wanted = UINT64_MAX};
    open_rig(&r, dir);
    for (uint64_t t = 1;; t++) {
        char key[32];
        snprintf(key, sizeof key, "j-%06llu", (unsigned long long)t);
        td_databases_commit(r.store, record(TD_RECORD_JOB, key, "{}"), t);
        bool turn = false;
        td_status_free(td_loop_run_until(r.loop, &turn, (int64_t)(t % 3) * TD_NS_PER_MS));
    }
}

struct count {
    uint64_t n;
};
static td_status count_jobs(enum td_record_kind kind, const char *key, const char *body,
                            void *arg) {
    struct count *c = arg;
    (void)key;
    (void)body;
    c->n += kind == TD_RECORD_JOB;
    return TD_OK;
}

static void test_every_acknowledged_row_is_there_after_a_kill(void **state) {
    int fds[2];
    uint64_t reported = 0, ticket = 0;
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork(); // a test may: nothing else runs in it
    assert_true(pid >= 0);
    if (pid == 0) child(*state, fds[1]);
    close(fds[1]);
    while (reported < 40 && read(fds[0], &ticket, sizeof ticket) == sizeof ticket) {
        reported = ticket;
    }
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    while (read(fds[0], &ticket, sizeof ticket) == sizeof ticket) {
        reported = ticket;
    }
    close(fds[0]);
    struct rig r = {0};
    struct count c = {0};
    open_rig(&r, *state);
    assert_ok(td_databases_load(r.store, count_jobs, &c));
    assert_true(reported >= 40);
    assert_true(c.n >= reported);
    close_rig(&r);
}

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

static void on_query(struct td_databases_query *q, void *arg) {
    struct rig *r = arg;
    assert_null(q->failure);
    assert_int_equal(q->n_series, 1);
    assert_int_equal(q->series[0].n_points, 2);
    assert_int_equal(q->series[0].points[0].step, 1);
    assert_int_equal(q->series[0].points[0].n_ranks, 2);
    assert_true(q->series[0].points[0].value == 1.5);    // (2 + 4) / (2 + 2)
    assert_int_equal(q->series[0].points[1].attempt, 2); // the newest attempt's step 2
    assert_true(q->series[0].points[1].value == 5.0);
    r->query_done = true;
    td_databases_query_destroy(q);
}

static void see_last(struct td_metric_last *m, void *arg) {
    struct rig *r = arg;
    assert_string_equal(m->name, "train_loss");
    assert_int_equal(m->step, 2);
    assert_int_equal(m->attempt, 2);
    assert_true(m->shown == 5.0);
    r->done = true;
}

static void see_offset(const char *job, uint32_t attempt, uint32_t rank, uint64_t offset,
                       void *arg) {
    struct rig *r = arg;
    assert_string_equal(job, "j-1");
    if (attempt == 1 && rank == 0) assert_int_equal(offset, 128);
    r->n_points++;
}

static void see_no_name(const char *job, uint32_t attempt, uint32_t rank, uint32_t number,
                        const char *name, void *arg) {
    (void)arg;
    fail_msg("%s/%u/%u has a name: %u '%s'", job, attempt, rank, number, name);
}

static void test_points_merge_over_ranks_and_read_back(void **state) {
    struct rig r = {.points_wanted = 4};
    open_rig(&r, *state);
    td_databases_points(r.store, points(1, 0, 1, 2));
    td_databases_points(r.store, points(1, 1, 1, 4));
    td_databases_points(r.store, points(1, 0, 2, 8));
    td_databases_points(r.store, points(2, 0, 2, 10));
    struct td_databases_query *q = calloc(1, sizeof *q);
    snprintf(q->job, sizeof q->job, "j-1");
    q->done = on_query;
    q->arg = &r;
    td_databases_query(r.store, q); // sees what was handed over before it
    assert_ok(td_loop_run_until(r.loop, &r.query_done, TD_TEST_WAIT_NS));
    assert_ok(td_loop_run_until(r.loop, &r.points_done, TD_TEST_WAIT_NS));
    close_rig(&r);
    memset(&r, 0, sizeof r);
    open_rig(&r, *state);
    assert_ok(td_databases_load_last(r.store, "j-1", see_last, &r));
    assert_true(r.done);
    const struct td_cursor_loader cursors = {see_offset, see_no_name, &r};
    assert_ok(td_databases_load_cursors(r.store, &cursors));
    assert_int_equal(r.n_points, 3);
    close_rig(&r);
}

static void see_order(struct td_metric_last *m, void *arg) {
    static const char *const names[] = {"train_loss", "lr", "accuracy"};
    struct rig *r = arg;
    assert_true(r->n_points < TD_COUNTOF(names));
    assert_string_equal(m->name, names[r->n_points++]);
}

static void test_metrics_keep_their_order_when_the_store_is_opened_again(void **state) {
    struct rig r = {.points_wanted = 3};
    open_rig(&r, *state);
    struct td_points *second = points(1, 0, 2, 2), *third = points(1, 0, 3, 2);
    snprintf(second->points[0].name, sizeof second->points[0].name, "lr");
    snprintf(third->points[0].name, sizeof third->points[0].name, "accuracy");
    td_databases_points(r.store, points(1, 0, 1, 2));
    td_databases_points(r.store, second);
    td_databases_points(r.store, third);
    assert_ok(td_loop_run_until(r.loop, &r.points_done, TD_TEST_WAIT_NS));
    close_rig(&r);
    memset(&r, 0, sizeof r);
    open_rig(&r, *state);
    assert_ok(td_databases_load_last(r.store, "j-1", see_order, &r));
    assert_int_equal(r.n_points, 3);
    close_rig(&r);
}

static void on_nan(struct td_databases_query *q, void *arg) {
    struct rig *r = arg;
    assert_null(q->failure);
    assert_int_equal(q->series[0].n_points, 2);
    assert_true(isnan(q->series[0].points[0].value)); // one rank's NaN is the mean's
    assert_true(q->series[0].points[1].value == 4);
    r->query_done = true;
    td_databases_query_destroy(q);
}

static void on_nothing(struct td_databases_query *q, void *arg) {
    struct rig *r = arg;
    assert_null(q->failure);
    assert_int_equal(q->series[0].n_points, 2);
    assert_true(q->series[0].points[0].value == 3); // of the rank that counted something
    assert_true(isnan(q->series[0].points[1].value));
    r->query_done = true;
    td_databases_query_destroy(q);
}

static void see_nothing(struct td_metric_last *m, void *arg) {
    struct rig *r = arg;
    r->done = isnan(m->shown) && m->mean.sum == 0;
}

static struct td_points *no_points(uint32_t rank, int step) {
    struct td_points *p = points(1, rank, step, 0);
    p->points[0].count = 0;
    return p;
}

static void test_point_is_no_number_when_it_is_over_nothing(void **state) {
    struct rig r = {.points_wanted = 4};
    open_rig(&r, *state);
    td_databases_points(r.store, no_points(0, 1));
    td_databases_points(r.store, points(1, 1, 1, 6));
    td_databases_points(r.store, no_points(0, 2));
    td_databases_points(r.store, no_points(1, 2));
    assert_ok(td_loop_run_until(r.loop, &r.points_done, TD_TEST_WAIT_NS));
    struct td_databases_query *q = calloc(1, sizeof *q);
    snprintf(q->job, sizeof q->job, "j-1");
    q->done = on_nothing;
    q->arg = &r;
    td_databases_query(r.store, q);
    assert_ok(td_loop_run_until(r.loop, &r.query_done, TD_TEST_WAIT_NS));
    close_rig(&r);
    memset(&r, 0, sizeof r);
    open_rig(&r, *state);
    assert_ok(td_databases_load_last(r.store, "j-1", see_nothing, &r));
    assert_true(r.done);
    close_rig(&r);
}

static void see_nan(struct td_metric_last *m, void *arg) {
    struct rig *r = arg;
    r->done = isnan(m->shown) && isnan(m->mean.sum);
}

static void test_point_is_no_number_when_it_was_none(void **state) {
    struct rig r = {.points_wanted = 3};
    open_rig(&r, *state);
    td_databases_points(r.store, points(1, 0, 1, 2));
    td_databases_points(r.store, points(1, 1, 1, (double)NAN));
    td_databases_points(r.store, points(1, 0, 2, 8));
    assert_ok(td_loop_run_until(r.loop, &r.points_done, TD_TEST_WAIT_NS));
    struct td_databases_query *q = calloc(1, sizeof *q);
    snprintf(q->job, sizeof q->job, "j-1");
    q->done = on_nan;
    q->arg = &r;
    td_databases_query(r.store, q);
    assert_ok(td_loop_run_until(r.loop, &r.query_done, TD_TEST_WAIT_NS));
    td_databases_points(r.store, points(1, 0, 3, (double)NAN));
    close_rig(&r);
    memset(&r, 0, sizeof r);
    open_rig(&r, *state);
    assert_ok(td_databases_load_last(r.store, "j-1", see_nan, &r));
    assert_true(r.done);
    close_rig(&r);
}

static void test_failing_of_one_database_is_reported_until_that_one_is_written(void **state) {
    struct rig r = {.points_wanted = 1};
    struct sqlite3 *other = NULL;
    char path[512];
    open_rig(&r, *state);
    snprintf(path, sizeof path, "%s/state.db", (const char *)*state);
    assert_int_equal(sqlite3_open(path, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    td_databases_commit(r.store, record(TD_RECORD_JOB, "j-1", "{}"), 1);
    assert_ok(td_loop_run_until(r.loop, &r.failing, TD_TEST_WAIT_NS));
    td_databases_points(r.store, points(1, 0, 1, 2)); // the other one goes on
    assert_ok(td_loop_run_until(r.loop, &r.points_done, TD_TEST_WAIT_NS));
    assert_true(td_databases_failing(r.store));
    assert_int_equal(r.committed, 0);
    assert_int_equal(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    wait_ticket(&r, 1);
    assert_false(td_databases_failing(r.store));
    sqlite3_close(other);
    close_rig(&r);
}

// What a query must say, and whether it did.
struct answer {
    enum td_code code;
    size_t n_points;
    bool done;
};
static void on_answer(struct td_databases_query *q, void *arg) {
    struct answer *a = arg;
    a->code = td_status_code(q->failure);
    a->n_points = q->n_series ? q->series[0].n_points : 0;
    a->done = true;
    td_databases_query_destroy(q);
}
static void ask(struct td_databases *s, struct answer *a) {
    struct td_databases_query *q = calloc(1, sizeof *q);
    snprintf(q->job, sizeof q->job, "j-1");
    q->done = on_answer;
    q->arg = a;
    td_databases_query(s, q);
}

static void test_query_is_answered_when_the_store_closes(void **state) {
    struct rig r = {0};
    struct answer a = {0};
    open_rig(&r, *state);
    ask(r.store, &a);
    td_databases_close(r.store);
    assert_true(a.done);
    td_loop_destroy(r.loop);
}

// ---- a disk that takes its time -----------------------------------------------------------------
// The file system's calls of SQLite, with a gate before each sync of the log of metrics.db.
static struct {
    sqlite3_vfs vfs, *real;
    sqlite3_io_methods methods;
    const sqlite3_io_methods *real_methods;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool shut, waits; // a sync does
} slow = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static int slow_sync(sqlite3_file *f, int flags) {
    pthread_mutex_lock(&slow.mutex);
    if (slow.shut && !slow.waits) {
        slow.waits = true;
        pthread_cond_broadcast(&slow.cond);
    }
    struct timespec until = td_clock_cond_after(TD_TEST_WAIT_NS / TD_NS_PER_MS);
    while (slow.shut && pthread_cond_timedwait(&slow.cond, &slow.mutex, &until) == 0) {}
    pthread_mutex_unlock(&slow.mutex);
    return slow.real_methods->xSync(f, flags);
}

static int slow_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *f, int flags,
                     int *out_flags) {
    (void)vfs;
    int rc = slow.real->xOpen(slow.real, name, f, flags, out_flags);
    if (rc != SQLITE_OK || !name || !strstr(name, "metrics.db-wal")) return rc;
    slow.real_methods = f->pMethods;
    slow.methods = *f->pMethods;
    slow.methods.xSync = slow_sync;
    f->pMethods = &slow.methods;
    return rc;
}

static int set_slow(void **state) {
    td_clock_cond_init(&slow.cond);
    slow.real = sqlite3_vfs_find(NULL);
    slow.vfs = *slow.real;
    slow.vfs.zName = "slow";
    slow.vfs.xOpen = slow_open;
    sqlite3_vfs_register(&slow.vfs, true);
    return td_test_scratch_make(state);
}

static int unset_slow(void **state) {
    sqlite3_vfs_unregister(&slow.vfs);
    return td_test_scratch_remove(state);
}

static void set_gate(bool shut) {
    pthread_mutex_lock(&slow.mutex);
    slow.shut = shut;
    slow.waits = false;
    pthread_cond_broadcast(&slow.cond);
    pthread_mutex_unlock(&slow.mutex);
}

static void wait_for_sync(void) {
    struct timespec until = td_clock_cond_after(TD_TEST_WAIT_NS / TD_NS_PER_MS);
    pthread_mutex_lock(&slow.mutex);
    int rc = 0;
    while (!slow.waits && rc == 0) {
        rc = pthread_cond_timedwait(&slow.cond, &slow.mutex, &until);
    }
    pthread_mutex_unlock(&slow.mutex);
    assert_int_equal(rc, 0);
}

// Queries waited on the writer's thread for as long as a sync took.
static void test_query_shows_what_is_committed_while_the_disk_takes_long(void **state) {
    struct rig r = {.points_wanted = 1};
    struct answer during[2] = {{0}}, then = {0};
    open_rig(&r, *state);
    td_databases_points(r.store, points(1, 0, 1, 2));
    assert_ok(td_loop_run_until(r.loop, &r.points_done, TD_TEST_WAIT_NS));
    set_gate(true);
    td_databases_points(r.store, points(1, 0, 2, 4));
    wait_for_sync();
    for (int i = 0; i < 2; i++) {
        ask(r.store, &during[i]);
        assert_ok(td_loop_run_until(r.loop, &during[i].done, TD_TEST_WAIT_NS));
        assert_int_equal(during[i].code, TD_CODE_OK);
        assert_int_equal(during[i].n_points, 1);
    }
    assert_int_equal(r.n_points, 1); // not acknowledged either
    r.points_wanted = 2;
    r.points_done = false;
    set_gate(false);
    assert_ok(td_loop_run_until(r.loop, &r.points_done, TD_TEST_WAIT_NS));
    ask(r.store, &then);
    assert_ok(td_loop_run_until(r.loop, &then.done, TD_TEST_WAIT_NS));
    assert_int_equal(then.n_points, 2);
    close_rig(&r);
}

static void test_query_shows_no_points_of_a_job_that_was_forgotten(void **state) {
    struct rig r = {.points_wanted = 1};
    struct answer a = {0};
    open_rig(&r, *state);
    td_databases_points(r.store, points(1, 0, 1, 2));
    td_databases_forget(r.store, "j-1");
    ask(r.store, &a);
    assert_ok(td_loop_run_until(r.loop, &a.done, TD_TEST_WAIT_NS));
    assert_int_equal(a.code, TD_CODE_OK);
    assert_int_equal(a.n_points, 0);
    close_rig(&r);
}

static void ignore_last(struct td_metric_last *m, void *arg) {
    (void)m;
    (void)arg;
}

static void test_part_of_an_answer_is_none_when_the_database_is_damaged(void **state) {
    enum { N = 4000, PAGE = 4096 };
    struct rig r = {0};
    struct answer a = {0};
    char path[512], noise[PAGE];
    open_rig(&r, *state);
    for (int step = 1; step <= N; step++) {
        td_databases_points(r.store, points(1, 0, step, 2));
    }
    close_rig(&r);
    snprintf(path, sizeof path, "%s/metrics.db", (const char *)*state);
    memset(noise, 0xee, sizeof noise);
    TD_AUTO_CLOSE int fd = open(path, O_RDWR);
    assert_int_equal(pwrite(fd, noise, PAGE, lseek(fd, -PAGE, SEEK_END)), PAGE);
    memset(&r, 0, sizeof r);
    open_rig(&r, *state);
    assert_fails(td_databases_load_last(r.store, "j-1", ignore_last, NULL), TD_DATA_LOSS,
                 "metrics.db");
    ask(r.store, &a);
    assert_ok(td_loop_run_until(r.loop, &a.done, TD_TEST_WAIT_NS));
    assert_int_equal(a.code, TD_DATA_LOSS);
    close_rig(&r);
}

static void test_damaged_database_is_named(void **state) {
    struct rig r = {0};
    char path[512];
    static const char noise[] = "this is not a database, whatever its name says; it is long enough";
    snprintf(path, sizeof path, "%s/state.db", (const char *)*state);
    assert_ok(td_fs_write(path, noise, sizeof noise, 0600, 0));
    const struct td_databases_options o = {
        .dir = *state, .on_committed = on_committed, .on_points = on_points, .arg = &r};
    assert_ok(td_loop_create(&r.loop));
    assert_fails(td_databases_open(r.loop, &o, &r.store), TD_DATA_LOSS, "state.db");
    td_loop_destroy(r.loop);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_rows_read_back_when_the_store_is_opened_again),
        test_in_scratch(test_state_of_an_older_build_is_read_and_goes_on),
        test_in_scratch(test_close_commits_what_was_handed_over),
        test_in_scratch(test_every_acknowledged_row_is_there_after_a_kill),
        test_in_scratch(test_points_merge_over_ranks_and_read_back),
        test_in_scratch(test_metrics_keep_their_order_when_the_store_is_opened_again),
        test_in_scratch(test_point_is_no_number_when_it_was_none),
        test_in_scratch(test_point_is_no_number_when_it_is_over_nothing),
        test_in_scratch(test_failing_of_one_database_is_reported_until_that_one_is_written),
        test_in_scratch(test_query_is_answered_when_the_store_closes),
        cmocka_unit_test_setup_teardown(
            test_query_shows_what_is_committed_while_the_disk_takes_long, set_slow, unset_slow),
        test_in_scratch(test_query_shows_no_points_of_a_job_that_was_forgotten),
        test_in_scratch(test_part_of_an_answer_is_none_when_the_database_is_damaged),
        test_in_scratch(test_damaged_database_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
