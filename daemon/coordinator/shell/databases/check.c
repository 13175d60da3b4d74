// The thread waits on a condition with a deadline, so that a stop ends it at once; a check is
// broken off by SQLite's progress handler. Reading holds back the reuse of the write-ahead log
// meanwhile: it grows by what is committed in those seconds. Rejected: the check on a writer's
// connection, for which commits would wait.

#include "daemon/coordinator/shell/databases/check.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "daemon/coordinator/shell/databases/db.h"
#include "daemon/coordinator/shell/databases/schema.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/loop/loop.h"

enum { DAY_MS = 24 * 3600 * 1000, STEPS_BETWEEN_LOOKS = 10000, N_DBS = 2 };
static const char *const names[N_DBS] = {"state.db", "metrics.db"};

struct td_checker {
    char dir[TD_FS_PATH_BYTES];
    int64_t wait_ms;
    void (*on_damage)(const char *text, void *arg);
    void *arg;
    pthread_t thread;
    bool running;
    pthread_mutex_t mutex; // guards stop, found
    pthread_cond_t cond;
    bool stop;
    char found[N_DBS][512]; // "": nothing
    bool said[N_DBS];       // loop's
    _Atomic bool break_off;
    struct td_loop_wakeup *wakeup;
};

static int look_up(void *arg) {
    struct td_checker *c = arg;
    return atomic_load(&c->break_off);
}

// whole: indexes against their tables, too.
static td_status check_pages(sqlite3 *db, const char *name, bool whole) {
    sqlite3_stmt *q = NULL;
    TD_TRY(
        td_db_prepare(db, name, whole ? "PRAGMA integrity_check(1)" : "PRAGMA quick_check(1)", &q));
    int rc = sqlite3_step(q);
    const char *answer = rc == SQLITE_ROW ? (const char *)sqlite3_column_text(q, 0) : NULL;
    td_status s = TD_OK;
    if (answer && strcmp(answer, "ok") != 0) s = td_fail(TD_DATA_LOSS, "%s: %s", name, answer);
    return td_db_end(db, name, q, rc, "check", s);
}

static td_status check_rows(sqlite3 *db, const char *name) {
    for (int kind = 0; kind < TD_RECORD_KIND_COUNT; kind++) {
        const char *table = td_schema_tables[kind];
        char text[96];
        snprintf(text, sizeof text, "SELECT key, body, digest FROM %s", table);
        sqlite3_stmt *q = NULL;
        TD_TRY(td_db_prepare(db, name, text, &q));
        td_status s = TD_OK;
        int rc = SQLITE_DONE;
        while (!s && (rc = sqlite3_step(q)) == SQLITE_ROW) {
            s = td_db_row_check(q, name, table);
        }
        TD_TRY(td_db_end(db, name, q, rc, table, s));
    }
    return TD_OK;
}

static td_status check(struct td_checker *c, const char *name) {
    sqlite3 *db = NULL;
    const bool is_state = strcmp(name, names[0]) == 0;
    td_status s = td_db_open_reader(c->dir, name, &db);
    if (!s) { // else there may be no connection at all
        sqlite3_progress_handler(db, STEPS_BETWEEN_LOOKS, look_up, c);
        s = check_pages(db, name, is_state);
    }
    if (!s && is_state) s = check_rows(db, name);
    sqlite3_close(db);
    return s;
}

static void check_both(struct td_checker *c) {
    for (size_t i = 0; i < N_DBS && !atomic_load(&c->break_off); i++) {
        td_status s = check(c, names[i]);
        if (td_status_code(s) != TD_DATA_LOSS) {
            if (s && !atomic_load(&c->break_off)) {
                td_log_warn("%s was not checked: %s, continuing", names[i], td_status_message(s));
            }
            td_status_free(s);
            continue;
        }
        if (i == 1) {
            td_status_log(TD_LOG_WARN, td_db_mark(c->dir, names[i], td_status_message(s)),
                          "mark of damage, continuing");
        }
        pthread_mutex_lock(&c->mutex);
        snprintf(c->found[i], sizeof c->found[i], "%s; %s", td_status_message(s),
                 i == 0 ? "stop traind and start it once with --salvage: it keeps this file and "
                          "lists what it cannot read"
                        : "it is moved aside at the next start of traind");
        pthread_mutex_unlock(&c->mutex);
        td_status_free(s);
        td_loop_wakeup_send(c->wakeup);
    }
}

// True: stopped.
static bool wait(struct td_checker *c, int64_t ms) {
    struct timespec until = td_clock_cond_after(ms);
    pthread_mutex_lock(&c->mutex);
    while (!c->stop && pthread_cond_timedwait(&c->cond, &c->mutex, &until) != ETIMEDOUT) {}
    bool stop = c->stop;
    pthread_mutex_unlock(&c->mutex);
    return stop;
}

static void *run(void *arg) {
    struct td_checker *c = arg;
    td_log_context("thread", "check");
    for (int64_t ms = c->wait_ms; !wait(c, ms); ms = DAY_MS) {
        check_both(c);
    }
    return NULL;
}

static void on_wakeup(void *arg) {
    struct td_checker *c = arg;
    for (size_t i = 0; i < N_DBS; i++) {
        char text[sizeof c->found[i]];
        pthread_mutex_lock(&c->mutex);
        memcpy(text, c->found[i], sizeof text);
        pthread_mutex_unlock(&c->mutex);
        if (!text[0] || c->said[i]) continue;
        c->said[i] = true;
        c->on_damage(text, c->arg);
    }
}

td_status td_checker_create(struct td_loop *loop, const char *dir, int64_t after_ms,
                            void (*on_damage)(const char *text, void *arg), void *arg,
                            struct td_checker **out_checker) {
    struct td_checker *c = td_calloc(1, sizeof *c);
    if (!c) return td_fail_oom();
    td_clock_cond_init(&c->cond);
    pthread_mutex_init(&c->mutex, NULL);
    c->wait_ms = after_ms;
    c->on_damage = on_damage;
    c->arg = arg;
    td_status s = td_fs_path(c->dir, "%s", dir);
    if (!s) s = td_loop_wakeup_create(loop, on_wakeup, c, &c->wakeup);
    int rc = 0;
    if (!s && after_ms) rc = pthread_create(&c->thread, NULL, run, c);
    if (rc != 0) s = td_fail(TD_RESOURCE_EXHAUSTED, "thread of checks: %s", strerror(rc));
    c->running = !s && after_ms;
    if (s) {
        td_checker_destroy(c);
        return s;
    }
    *out_checker = c;
    return TD_OK;
}

void td_checker_destroy(struct td_checker *c) {
    if (!c) return;
    atomic_store(&c->break_off, true);
    pthread_mutex_lock(&c->mutex);
    c->stop = true;
    pthread_cond_signal(&c->cond);
    pthread_mutex_unlock(&c->mutex);
    if (c->running) pthread_join(c->thread, NULL);
    td_loop_wakeup_destroy(c->wakeup);
    pthread_mutex_destroy(&c->mutex);
    pthread_cond_destroy(&c->cond);
    free(c);
}
