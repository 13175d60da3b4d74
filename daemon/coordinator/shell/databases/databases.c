// SQLite, one writer thread per database. A writer owns its connection from the moment that its
// thread runs. Before that (open, load) the loop's thread uses it, after the join (close) too, so
// no connection is ever used by two threads at once. Between loop and writer is one list under a
// mutex (held for a few pointer writes), and a wake-up of the loop when something was committed.
// The connection for queries is the loop's thread's, too, until the first query and after the last.
// Rejected: SQLite calls on the loop (an fsync of 4 ms there delays every heartbeat). Rejected: one
// thread for both databases (many points would delay acknowledgements). Rejected: queries on the
// writer's thread (they time out where a disk takes long).

#include "daemon/coordinator/shell/databases/databases.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "daemon/coordinator/shell/databases/db.h"
#include "daemon/coordinator/shell/databases/metrics_db.h"
#include "daemon/coordinator/shell/databases/salvage_copy.h"
#include "daemon/coordinator/shell/databases/schema.h"
#include "daemon/coordinator/shell/disk/disk.h"
#include "lib/attempt/rank_page.h"
#include "lib/base/clip.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/loop/loop.h"

enum { GATHER_MS = 1000, RETRY_MS = 1000, FRESH_MS = 2000, LOOK_MS = 400 };

// What the loop hands over: one of the three.
struct item {
    struct item *next;
    uint64_t ticket;
    struct td_record *records;
    struct td_points *points;
    char forget[TD_JOB_ID_MAX];
};

struct writer {
    const char *name; // "state.db"
    struct td_databases *store;
    sqlite3 *db;
    sqlite3_stmt *begin, *commit;
    struct td_db_held held;
    bool written; // the batch is committed, but perhaps not to where the paths lead
    pthread_t thread;
    bool running;
    pthread_mutex_t mutex; // guards what follows, up to done_tail
    pthread_cond_t cond;
    struct item *head, **tail;
    bool stop, urgent;
    uint64_t n_given, n_taken, n_committed; // items
    bool late;                              // the commit under way took longer than FRESH_MS
    pthread_cond_t settled;                 // for queries: it ended, or the disk refuses
    struct item *done;                      // for the loop: points that were carried out
    struct item **done_tail;
    struct td_loop_wakeup *wakeup;
    _Atomic bool failing;
    char why[TD_DB_STORE_WHY]; // while it fails; under the mutex
    int64_t gather_ms;
    int (*carry_out)(struct writer *w, struct item *i);
};

struct td_databases {
    struct td_loop *loop;
    struct td_databases_options options;
    uint64_t incarnation;
    struct writer state, metrics;
    _Atomic uint64_t committed;
    _Atomic int64_t commit_ns;
    sqlite3_stmt *put[TD_RECORD_KIND_COUNT], *drop[TD_RECORD_KIND_COUNT];
    struct td_metrics_db points; // of the writer `metrics`, whose connection it is
    sqlite3 *asked;              // metrics.db, read only: of the thread `queries`
    struct td_disk *queries;
};

// What the core loads. It wants jobs before their specs, and nodes before what was decided about
// them.
static const enum td_record_kind load_order[] = {
    TD_RECORD_META,  TD_RECORD_NODE,    TD_RECORD_NODE_ADMIN, TD_RECORD_PLAN,
    TD_RECORD_JOB,   TD_RECORD_SPEC,    TD_RECORD_ATTEMPT,    TD_RECORD_CHECKPOINT,
    TD_RECORD_SHARD, TD_RECORD_REQUEST, TD_RECORD_LEAVING,    TD_RECORD_REMOVAL};
_Static_assert(TD_COUNTOF(load_order) + 3 == TD_RECORD_KIND_COUNT,
               "all kinds but tokens, members and lines of the audit log");

static td_status prepare(struct writer *w, const char *text, sqlite3_stmt **out) {
    return td_db_prepare(w->db, w->name, text, out);
}

// ---- opening ------------------------------------------------------------------------------------
static td_status prepare_batches(struct writer *w) {
    TD_TRY(td_db_held_take(w->store->options.dir, w->name, &w->held));
    TD_TRY(prepare(w, "BEGIN IMMEDIATE", &w->begin));
    return prepare(w, "COMMIT", &w->commit);
}

static void close_writer(struct writer *w) {
    sqlite3_finalize(td_steal(w->begin));
    sqlite3_finalize(td_steal(w->commit));
    sqlite3_close(td_steal(w->db));
}

static td_status open_state(struct td_databases *s) {
    struct writer *w = &s->state;
    char source[TD_FS_PATH_BYTES] = "";
    if (s->options.salvage) TD_TRY(td_db_move_aside(s->options.dir, w->name, source));
    TD_TRY(td_db_open(s->options.dir, w->name, &w->db));
    TD_TRY(td_schema_apply(w->db, w->name));
    if (source[0]) TD_TRY(td_salvage_copy(source, td_schema_tables, TD_RECORD_KIND_COUNT, w->db));
    for (int k = 0; k < TD_RECORD_KIND_COUNT; k++) {
        char text[192];
        snprintf(text, sizeof text,
                 "INSERT INTO %s (key, body, digest) VALUES (?1, ?2, ?3) ON CONFLICT (key)"
                 " DO UPDATE SET body = excluded.body, digest = excluded.digest",
                 td_schema_tables[k]);
        TD_TRY(prepare(w, text, &s->put[k]));
        snprintf(text, sizeof text, "DELETE FROM %s WHERE key = ?1", td_schema_tables[k]);
        TD_TRY(prepare(w, text, &s->drop[k]));
    }
    // No digest: SQL has no such function, and the number is worth nothing on its own.
    TD_TRY(td_db_sql(w->db, w->name,
                     "INSERT INTO meta (key, body) VALUES ('incarnation', '1') ON CONFLICT (key)"
                     " DO UPDATE SET body = CAST(body AS INTEGER) + 1, digest = NULL"));
    int64_t n;
    TD_TRY(td_db_number(w->db, w->name,
                        "SELECT CAST(body AS INTEGER) FROM meta WHERE key = 'incarnation'", &n));
    s->incarnation = (uint64_t)n;
    return prepare_batches(w);
}

static td_status open_metrics(struct td_databases *s) {
    td_status failed = td_metrics_db_open(s->options.dir, s->metrics.name, &s->points);
    s->metrics.db = s->points.db;
    TD_TRY(failed);
    TD_TRY(prepare_batches(&s->metrics));
    TD_TRY(td_db_open_reader(s->options.dir, s->metrics.name, &s->asked));
    return td_db_sql(s->asked, s->metrics.name, "SELECT 1 FROM schema"); // its descriptors are open
}

// The writer's connection last: it takes the write-ahead log into the file.
static void close_metrics(struct td_databases *s) {
    sqlite3_close(td_steal(s->asked));
    td_metrics_db_finish(&s->points);
    close_writer(&s->metrics);
}

td_status td_databases_renew_metrics(struct td_databases *s, td_status take_why) {
    char moved[TD_FS_PATH_BYTES];
    close_metrics(s);
    td_status failed = td_db_move_aside(s->options.dir, s->metrics.name, moved);
    if (!failed) {
        td_log_error("metrics.db is damaged and was moved aside to=%s why=\"%s\"; points of jobs "
                     "that ended are in that file alone, attempts that still run are read again "
                     "from their first byte, continuing",
                     moved, td_status_message(take_why));
        failed = open_metrics(s);
    }
    td_status_free(take_why);
    return failed;
}

static td_status open_metrics_or_new(struct td_databases *s) {
    td_status failed = td_db_marked(s->options.dir, s->metrics.name);
    if (!failed) failed = open_metrics(s);
    return td_status_code(failed) == TD_DATA_LOSS ? td_databases_renew_metrics(s, failed) : failed;
}

// ---- carrying out, on a writer's thread ---------------------------------------------------------
static int put_records(struct writer *w, struct item *i) {
    for (const struct td_record *r = i->records; r; r = r->next) {
        sqlite3_stmt *q = r->body ? w->store->put[r->kind] : w->store->drop[r->kind];
        sqlite3_bind_text(q, 1, r->key, -1, SQLITE_STATIC);
        if (r->body) {
            sqlite3_bind_text(q, 2, r->body, -1, SQLITE_STATIC);
            sqlite3_bind_int64(q, 3, td_db_row_digest(r->key, r->body));
        }
        int rc = td_db_step(q);
        if (rc != SQLITE_OK) return rc;
    }
    return SQLITE_OK;
}

static int carry_out_metrics(struct writer *w, struct item *i) {
    if (i->points) return td_metrics_db_put(&w->store->points, i->points);
    return i->forget[0] ? td_metrics_db_forget(&w->store->points, i->forget) : SQLITE_OK;
}

// ---- the writers' loop --------------------------------------------------------------------------
static void note_failing(struct writer *w, const char *why) {
    pthread_mutex_lock(&w->mutex);
    (void)td_clip(w->why, sizeof w->why, "%s: %s", w->name, why);
    bool is_first = !atomic_exchange(&w->failing, true);
    pthread_cond_broadcast(&w->settled);
    pthread_mutex_unlock(&w->mutex);
    if (!is_first) return;
    td_log_error("%s cannot be written: %s; nothing is acknowledged until it can, trying again "
                 "each second",
                 w->name, why);
    td_loop_wakeup_send(w->wakeup);
}

static void note_writable(struct writer *w) {
    if (!atomic_exchange(&w->failing, false)) return;
    td_log_info("%s is written again", w->name);
    td_loop_wakeup_send(w->wakeup);
}

// False: what is written is lost with this process, and was said to fail.
static bool is_in_place(struct writer *w) {
    td_status gone = td_db_held_check(&w->held);
    if (!gone) return true;
    note_failing(w, td_status_message(gone));
    td_status_free(gone);
    return false;
}

// Of a writer that has nothing to do: its files may go meanwhile, which is to be known before
// somebody asks for a change. Under the mutex.
static void wait_for_items(struct writer *w) {
    while (!w->head && !w->stop) {
        struct timespec until = td_clock_cond_after(LOOK_MS);
        if (pthread_cond_timedwait(&w->cond, &w->mutex, &until) != ETIMEDOUT) continue;
        pthread_mutex_unlock(&w->mutex);
        if (is_in_place(w)) note_writable(w);
        pthread_mutex_lock(&w->mutex);
    }
}

// Waits until there is something, then (metrics) until the second is over, something urgent came or
// the store closes. False: closed, and nothing is left.
static bool take_all(struct writer *w, struct item **out_head) {
    pthread_mutex_lock(&w->mutex);
    wait_for_items(w);
    struct timespec until = td_clock_cond_after(w->gather_ms);
    while (w->gather_ms && !w->stop && !w->urgent) {
        if (pthread_cond_timedwait(&w->cond, &w->mutex, &until) == ETIMEDOUT) break;
    }
    *out_head = w->head;
    w->head = NULL;
    w->tail = &w->head;
    w->urgent = false;
    w->n_taken = w->n_given;
    pthread_mutex_unlock(&w->mutex);
    return *out_head != NULL;
}

// Looked at after the commit, which counts only where the file is in its place; before it only
// while the writer fails, so that no try is made in vain. What is committed is not carried out
// twice.
static bool commit_once(struct writer *w, struct item *head) {
    if (w->written) return is_in_place(w);
    if (atomic_load(&w->failing) && !is_in_place(w)) return false;
    int rc = td_db_step(w->begin);
    for (struct item *i = head; i && rc == SQLITE_OK; i = i->next) {
        rc = w->carry_out(w, i);
    }
    if (rc == SQLITE_OK) rc = td_db_step(w->commit);
    if (rc != SQLITE_OK) {
        note_failing(w, sqlite3_errmsg(w->db));
        sqlite3_exec(w->db, "ROLLBACK", NULL, NULL, NULL);
        return false;
    }
    w->written = true;
    return is_in_place(w);
}

static void item_destroy(struct item *i) {
    while (i->records) {
        struct td_record *r = i->records;
        i->records = r->next;
        td_record_destroy(r);
    }
    td_points_destroy(i->points);
    free(i);
}

// What the loop must see goes to the done list; the rest ends here. Not committed: the store
// closes.
static void finish_items(struct writer *w, struct item *head, bool committed) {
    while (head) {
        struct item *i = head;
        head = i->next;
        i->next = NULL;
        if (committed && i->ticket) atomic_store(&w->store->committed, i->ticket);
        if (!i->points && !(i->forget[0] && committed)) {
            item_destroy(i);
            continue;
        }
        pthread_mutex_lock(&w->mutex);
        *w->done_tail = i;
        w->done_tail = &i->next;
        pthread_mutex_unlock(&w->mutex);
    }
    td_loop_wakeup_send(w->wakeup);
}

// Until the next try. True: closing.
static bool wait_for_disk(struct writer *w) {
    struct timespec until = td_clock_cond_after(RETRY_MS);
    pthread_mutex_lock(&w->mutex);
    while (!w->stop && pthread_cond_timedwait(&w->cond, &w->mutex, &until) != ETIMEDOUT) {}
    bool stop = w->stop;
    pthread_mutex_unlock(&w->mutex);
    return stop;
}

static void note_committed(struct writer *w) {
    w->written = false;
    note_writable(w);
    pthread_mutex_lock(&w->mutex);
    w->n_committed = w->n_taken;
    w->late = false;
    pthread_cond_broadcast(&w->settled);
    pthread_mutex_unlock(&w->mutex);
}

// False: the store closes and the disk still refuses.
static bool commit_all(struct writer *w, struct item *head) {
    bool committed = commit_once(w, head);
    for (bool closing = false; !committed && !closing;) {
        closing = wait_for_disk(w);
        committed = commit_once(w, head);
    }
    if (committed) note_committed(w);
    return committed;
}

static void *write_loop(void *arg) {
    struct writer *w = arg;
    td_log_context("thread", w->name);
    struct item *head;
    while (take_all(w, &head)) {
        struct timespec a, b;
        clock_gettime(CLOCK_MONOTONIC, &a);
        bool committed = commit_all(w, head);
        clock_gettime(CLOCK_MONOTONIC, &b);
        if (w == &w->store->state) {
            atomic_store(&w->store->commit_ns,
                         (int64_t)(b.tv_sec - a.tv_sec) * TD_NS_PER_S + (b.tv_nsec - a.tv_nsec));
        }
        finish_items(w, head, committed);
    }
    return NULL;
}

// ---- the loop's side ----------------------------------------------------------------------------
// Reports points and jobs that are gone (not while the store closes).
static void deliver(struct writer *w, bool closing) {
    const struct td_databases_options *o = &w->store->options;
    pthread_mutex_lock(&w->mutex);
    struct item *head = w->done;
    w->done = NULL;
    w->done_tail = &w->done;
    pthread_mutex_unlock(&w->mutex);
    while (head) {
        struct item *i = head;
        head = i->next;
        if (i->points && !closing) o->on_points(i->points, o->arg);
        if (i->forget[0] && !closing) o->on_forgotten(i->forget, o->arg);
        item_destroy(i);
    }
}

static void on_wakeup(void *arg) {
    struct writer *w = arg;
    struct td_databases *s = w->store;
    s->options.on_committed(atomic_load(&s->committed), s->options.arg);
    deliver(w, false);
}

static void hand_over(struct writer *w, struct item *i, bool urgent) {
    pthread_mutex_lock(&w->mutex);
    *w->tail = i;
    w->tail = &i->next;
    w->n_given++;
    w->urgent |= urgent;
    pthread_cond_signal(&w->cond);
    pthread_mutex_unlock(&w->mutex);
}

static struct item *new_item(void) {
    struct item *i = td_calloc(1, sizeof *i);
    TD_CHECK(i && "out of memory: start again from the disk");
    return i;
}

void td_databases_commit(struct td_databases *s, struct td_record *take_records, uint64_t ticket) {
    struct item *i = new_item();
    i->records = take_records;
    i->ticket = ticket;
    hand_over(&s->state, i, true);
}

void td_databases_points(struct td_databases *s, struct td_points *take_points) {
    while (take_points) {
        struct item *i = new_item();
        i->points = take_points;
        take_points = take_points->next;
        i->points->next = NULL;
        hand_over(&s->metrics, i, false);
    }
}

void td_databases_forget(struct td_databases *s, const char *job) {
    struct item *i = new_item();
    snprintf(i->forget, sizeof i->forget, "%s", job);
    hand_over(&s->metrics, i, false);
}

// ---- queries, on their thread -------------------------------------------------------------------
struct question {
    struct td_disk_job job;
    struct td_databases *store;
    uint64_t n_before; // items that were handed over before it
    struct td_databases_query *query;
};

// Until n items are committed, FRESH_MS at most. Not while the disk refuses or a commit is late.
static void wait_for_points(struct writer *w, uint64_t n) {
    struct timespec until = td_clock_cond_after(FRESH_MS);
    pthread_mutex_lock(&w->mutex);
    while (w->n_committed < n && !w->late && !atomic_load(&w->failing)) {
        int rc = pthread_cond_timedwait(&w->settled, &w->mutex, &until);
        w->late = rc == ETIMEDOUT && w->n_committed < n;
    }
    pthread_mutex_unlock(&w->mutex);
}

static void question_run(struct td_disk_job *job) {
    struct question *k = (struct question *)job;
    wait_for_points(&k->store->metrics, k->n_before);
    k->query->failure = td_metrics_query_read(k->store->asked, k->query);
}

static void question_done(struct td_disk_job *job) {
    struct question *k = (struct question *)job;
    k->query->done(k->query, k->query->arg);
    free(k);
}

// Ends the gathering of points, if there are some. How many items were handed over so far.
static uint64_t hurry(struct writer *w) {
    pthread_mutex_lock(&w->mutex);
    uint64_t n = w->n_given;
    w->urgent |= w->head != NULL;
    pthread_cond_signal(&w->cond);
    pthread_mutex_unlock(&w->mutex);
    return n;
}

void td_databases_hurry(struct td_databases *s) {
    (void)hurry(&s->metrics);
}

void td_databases_query(struct td_databases *s, struct td_databases_query *take_query) {
    struct question *k = td_calloc(1, sizeof *k);
    TD_CHECK(k && "out of memory: start again from the disk");
    *k = (struct question){.job = {.run = question_run, .done = question_done},
                           .store = s,
                           .n_before = hurry(&s->metrics),
                           .query = take_query};
    td_status refused = td_disk_submit(s->queries, &k->job); // if not, it is the thread's
    if (!refused) return;
    take_query->failure = refused;
    question_done(&k->job);
}

uint64_t td_databases_incarnation(const struct td_databases *s) {
    return s->incarnation;
}

bool td_databases_failing(const struct td_databases *s) {
    return atomic_load(&s->state.failing) || atomic_load(&s->metrics.failing);
}

bool td_databases_state_failing(const struct td_databases *s) {
    return atomic_load(&s->state.failing);
}

void td_databases_why(struct td_databases *s, char out[TD_DB_STORE_WHY]) {
    struct writer *w = atomic_load(&s->state.failing) ? &s->state : &s->metrics;
    out[0] = '\0';
    if (!atomic_load(&w->failing)) return;
    pthread_mutex_lock(&w->mutex);
    memcpy(out, w->why, TD_DB_STORE_WHY);
    pthread_mutex_unlock(&w->mutex);
}

int64_t td_databases_commit_ns(const struct td_databases *s) {
    return atomic_load(&s->commit_ns);
}

// ---- life ---------------------------------------------------------------------------------------
static td_status start_writer(struct writer *w) {
    td_clock_cond_init(&w->cond);
    td_clock_cond_init(&w->settled);
    pthread_mutex_init(&w->mutex, NULL);
    w->tail = &w->head;
    w->done_tail = &w->done;
    TD_TRY(td_loop_wakeup_create(w->store->loop, on_wakeup, w, &w->wakeup));
    int rc = pthread_create(&w->thread, NULL, write_loop, w);
    if (rc != 0) return td_fail(TD_RESOURCE_EXHAUSTED, "thread of %s: %s", w->name, strerror(rc));
    w->running = true;
    return TD_OK;
}

static void stop_writer(struct writer *w) {
    if (!w->running) return;
    pthread_mutex_lock(&w->mutex);
    w->stop = true;
    pthread_cond_signal(&w->cond);
    pthread_mutex_unlock(&w->mutex);
    pthread_join(w->thread, NULL);
    w->running = false;
}

td_status td_databases_open(struct td_loop *loop, const struct td_databases_options *options,
                            struct td_databases **out_store) {
    TD_AUTO(td_databases) *s = td_calloc(1, sizeof *s);
    if (!s) return td_fail_oom();
    s->loop = loop;
    s->options = *options;
    s->state = (struct writer){.name = "state.db", .store = s, .carry_out = put_records};
    s->metrics = (struct writer){
        .name = "metrics.db", .store = s, .carry_out = carry_out_metrics, .gather_ms = GATHER_MS};
    TD_TRY(open_state(s));
    TD_TRY(open_metrics_or_new(s));
    TD_TRY(start_writer(&s->state));
    TD_TRY(start_writer(&s->metrics));
    TD_TRY(td_disk_create(s->loop, "queries", &s->queries));
    *out_store = td_steal(s);
    return TD_OK;
}

static void finish_writer(struct writer *w) {
    if (!w->tail) return; // never started
    deliver(w, true);
    td_loop_wakeup_destroy(w->wakeup);
    pthread_mutex_destroy(&w->mutex);
    pthread_cond_destroy(&w->cond);
    pthread_cond_destroy(&w->settled);
}

void td_databases_close(struct td_databases *s) {
    if (!s) return;
    stop_writer(&s->state);
    stop_writer(&s->metrics);
    td_disk_destroy(s->queries);
    finish_writer(&s->state);
    finish_writer(&s->metrics);
    for (int k = 0; k < TD_RECORD_KIND_COUNT; k++) {
        sqlite3_finalize(s->put[k]);
        sqlite3_finalize(s->drop[k]);
    }
    close_metrics(s);
    close_writer(&s->state);
    free(s);
}

// ---- loading ------------------------------------------------------------------------------------
td_status td_databases_load_table(struct td_databases *s, enum td_record_kind kind,
                                  td_databases_row_fn *row, void *arg) {
    char text[96];
    snprintf(text, sizeof text, "SELECT key, body, digest FROM %s ORDER BY length(key), key",
             td_schema_tables[kind]);
    sqlite3_stmt *q = NULL;
    TD_TRY(prepare(&s->state, text, &q));
    td_status failed = TD_OK;
    int rc = SQLITE_DONE;
    while (!failed && (rc = sqlite3_step(q)) == SQLITE_ROW) {
        failed = td_db_row_check(q, s->state.name, td_schema_tables[kind]);
        if (failed) break;
        failed = row(kind, (const char *)sqlite3_column_text(q, 0),
                     (const char *)sqlite3_column_text(q, 1), arg);
    }
    return td_db_end(s->state.db, s->state.name, q, rc, td_schema_tables[kind], failed);
}

td_status td_databases_load(struct td_databases *s, td_databases_row_fn *row, void *arg) {
    for (size_t i = 0; i < TD_COUNTOF(load_order); i++) {
        TD_TRY(td_databases_load_table(s, load_order[i], row, arg));
    }
    return TD_OK;
}

td_status td_databases_load_cursors(struct td_databases *s, const struct td_cursor_loader *to) {
    return td_metrics_db_load_cursors(&s->points, to);
}

td_status td_databases_load_last(struct td_databases *s, const char *job,
                                 void (*last)(struct td_metric_last *m, void *arg), void *arg) {
    return td_metrics_db_load_last(&s->points, job, last, arg);
}
