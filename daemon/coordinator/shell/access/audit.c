// Lines wait in one buffer. While nothing is with the thread, the buffer goes there whole; while
// something is, lines gather. A batch that the disk refused stays with us and is tried again each
// second, before newer ones. A second after the first batch that is not synced the thread is asked
// to sync; what it wrote until then is synced with it.
//
// Lines of changes have consecutive numbers. Those whose commit is awaited are in a list. What was
// put into the buffer has numbers up to `filed`; what was synced, up to `synced`.

#include "daemon/coordinator/shell/access/audit.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/shell/databases/rows.h"
#include "daemon/coordinator/shell/disk/disk.h"
#include "lib/base/clock.h"
#include "lib/base/files/files.h"
#include "lib/base/json.h"
#include "lib/base/log.h"
#include "lib/loop/loop.h"

static const int64_t retry_ns = TD_NS_PER_S, sync_after_ns = TD_NS_PER_S;

enum { LINE_MAX_BYTES = 4096, SMALL_LINE = 160, KEY_BYTES = 24, MAX_DROPS = 8 };

// Text that is appended, or, without one, a sync.
struct batch {
    struct td_disk_job job;
    struct td_audit *audit;
    char *text;
    size_t bytes;
    uint64_t last; // number of its last line of a change, or of those before it
    td_status failure;
};

// The line of a change, until its row is committed.
struct line {
    struct line *next;
    uint64_t number;
    size_t bytes;
    char text[];
};

struct td_audit {
    uint32_t magic;
    char path[TD_FS_PATH_BYTES];
    struct td_disk *disk;
    struct td_loop_timer *timer; // tries again, and reports what was counted
    struct td_buf waiting;
    struct batch *refused_batch; // by the disk; it goes before what waits
    bool busy, failing, closing;
    double tokens; // of the bucket for refused calls
    struct td_mono filled;
    uint64_t n_refused, n_lost; // not written, not yet reported
    struct td_loop_timer *sync_timer;
    bool syncing, complained;
    struct line *first, **last;            // whose commit is awaited
    struct td_rows rows;                   // that nobody took so far
    uint64_t next, filed, written, synced; // numbers: of the next line; the others see above
    uint64_t oldest_row;                   // the first that is still in state.db
};
enum { td_audit_magic = 0x54444155 }; // "TDAU"

// ---- on the thread
// -------------------------------------------------------------------------------
static void run(struct td_disk_job *job) {
    struct batch *b = (struct batch *)job;
    b->failure = b->text ? td_audit_file_append(b->audit->path, b->text, b->bytes)
                         : td_audit_file_sync(b->audit->path);
}

// ---- handing over -------------------------------------------------------------------------------
static void batch_destroy(struct batch *b) {
    if (!b) return;
    td_status_free(b->failure);
    free(b->text);
    free(b);
}

static void flush(struct td_audit *a);

static void done_sync(struct td_disk_job *job) {
    struct batch *b = (struct batch *)job;
    struct td_audit *a = b->audit;
    a->syncing = false;
    bool failed = b->failure != TD_OK;
    if (failed && !a->complained) {
        td_log_warn("the audit log is not synced: %s; trying again, continuing",
                    td_status_message(b->failure));
    }
    a->complained = failed;
    if (!failed) a->synced = b->last;
    if (a->synced < a->written && !a->closing) td_loop_timer_arm(a->sync_timer, sync_after_ns);
    batch_destroy(b);
}

static void on_sync_timer(void *arg) {
    struct td_audit *a = TD_CAST(td_audit, arg);
    struct batch *b = a->syncing ? NULL : td_calloc(1, sizeof *b);
    if (b) {
        *b = (struct batch){.job = {.run = run, .done = done_sync}, .audit = a, .last = a->written};
        td_status full = td_disk_submit(a->disk, &b->job);
        a->syncing = !full;
        if (full) batch_destroy(b);
        td_status_free(full);
    }
    if (!a->syncing) td_loop_timer_arm(a->sync_timer, sync_after_ns); // again
}

static void sync_soon(struct td_audit *a) {
    bool waits = a->closing || a->syncing || td_loop_timer_is_armed(a->sync_timer);
    if (!waits) td_loop_timer_arm(a->sync_timer, sync_after_ns);
}

static void done(struct td_disk_job *job) {
    struct batch *b = (struct batch *)job;
    struct td_audit *a = b->audit;
    a->busy = false;
    bool failed = b->failure != TD_OK;
    if (failed && !a->failing) {
        td_log_error("the audit log cannot be written: %s; lines wait, up to %d KiB, continuing",
                     td_status_message(b->failure), TD_AUDIT_WAITING_BYTES >> 10);
    }
    if (!failed && a->failing) td_log_info("the audit log is written again");
    a->failing = failed;
    if (failed) {
        td_status_free(td_steal(b->failure));
        a->refused_batch = b;
        if (!a->closing) td_loop_timer_arm(a->timer, retry_ns);
        return;
    }
    a->written = b->last;
    sync_soon(a);
    batch_destroy(b);
    flush(a);
}

static struct batch *next_batch(struct td_audit *a) {
    if (a->refused_batch) return td_steal(a->refused_batch);
    if (!a->waiting.len) return NULL;
    struct batch *b = td_calloc(1, sizeof *b);
    if (!b) return NULL; // the lines wait on
    *b = (struct batch){
        .job = {.run = run, .done = done}, .audit = a, .bytes = a->waiting.len, .last = a->filed};
    b->text = td_buf_take_cstr(&a->waiting);
    if (b->text) return b;
    free(b);
    return NULL;
}

static void flush(struct td_audit *a) {
    struct batch *b = a->busy ? NULL : next_batch(a);
    if (!b) return;
    td_status full = td_disk_submit(a->disk, &b->job);
    a->busy = !full;
    if (!full) return;
    td_status_free(full); // its thread is ours alone: no other job waits there
    a->refused_batch = b;
    td_loop_timer_arm(a->timer, retry_ns);
}

// ---- lines --------------------------------------------------------------------------------------
static bool keep(struct td_audit *a, const char *line, size_t bytes) {
    size_t held = a->waiting.len + (a->refused_batch ? a->refused_batch->bytes : 0);
    td_status full = held + bytes > TD_AUDIT_WAITING_BYTES
                         ? td_fail_oom()
                         : td_buf_append(&a->waiting, line, bytes);
    bool kept = full == TD_OK;
    td_status_free(full);
    return kept;
}

static void report(struct td_audit *a, const char *key, uint64_t *n) {
    char line[SMALL_LINE], time[32];
    if (!*n) return;
    td_real_format(td_real_now(), time, sizeof time);
    int len = snprintf(line, sizeof line, "{\"time\":\"%s\",\"%s\":%" PRIu64 "}\n", time, key, *n);
    if (keep(a, line, (size_t)len)) *n = 0;
}

static td_status put(struct td_buf *out, const char *key, const char *text) {
    TD_TRY(td_buf_printf(out, ",\"%s\":", key));
    return td_json_print_string(text, strlen(text), out);
}

// number 0: it has none.
static td_status print(const struct td_audit_entry *e, uint64_t number, struct td_buf *out) {
    char time[32];
    td_real_format(td_real_now(), time, sizeof time);
    TD_TRY(td_buf_printf(out, "{\"time\":\"%s\"", time));
    if (number) TD_TRY(td_buf_printf(out, ",\"n\":%" PRIu64, number));
    TD_TRY(put(out, "token", e->token));
    TD_TRY(put(out, "name", e->name));
    TD_TRY(put(out, "role", e->role));
    TD_TRY(put(out, "source", e->source));
    TD_TRY(put(out, "method", e->method));
    TD_TRY(put(out, "object", e->object));
    TD_TRY(put(out, "code", e->code));
    if (e->reason[0]) TD_TRY(put(out, "reason", e->reason));
    return td_buf_str(out, "}\n");
}

// Is there room for one more line of a refused call?
static bool within_rate(struct td_audit *a) {
    struct td_mono now = td_mono_now();
    double s = (double)(now.ns - a->filled.ns) / (double)TD_NS_PER_S;
    a->filled = now;
    a->tokens = TD_MIN(a->tokens + s * TD_AUDIT_REFUSED_PER_S, (double)TD_AUDIT_REFUSED_BURST);
    if (a->tokens < 1) return false;
    a->tokens -= 1;
    return true;
}

static void on_timer(void *arg) {
    struct td_audit *a = TD_CAST(td_audit, arg);
    report(a, "refused_more", &a->n_refused);
    report(a, "lost", &a->n_lost);
    flush(a);
    if (a->n_refused || a->n_lost) td_loop_timer_arm(a->timer, retry_ns); // there was no room
}

static void report_soon(struct td_audit *a) {
    if (!td_loop_timer_is_armed(a->timer)) td_loop_timer_arm(a->timer, retry_ns);
}

void td_audit_add(struct td_audit *a, const struct td_audit_entry *entry) {
    if (entry->refused && !within_rate(a)) {
        a->n_refused++;
        report_soon(a);
        return;
    }
    TD_AUTO_BUF line;
    td_buf_init(&line, LINE_MAX_BYTES);
    td_status bad = print(entry, 0, &line);
    if (bad || !keep(a, line.data, line.len)) {
        a->n_lost++;
        report_soon(a);
    }
    td_status_free(bad);
    if (!a->failing) flush(a);
}

// ---- lines of changes ---------------------------------------------------------------------------
static void await(struct td_audit *a, struct line *take_line) {
    *a->last = take_line;
    a->last = &take_line->next;
}

static struct line *make_line(uint64_t number, const char *text, size_t bytes) {
    struct line *l = td_calloc(1, sizeof *l + bytes);
    if (!l) return NULL;
    l->number = number;
    l->bytes = bytes;
    memcpy(l->text, text, bytes);
    return l;
}

static void key_of(uint64_t number, char out[KEY_BYTES]) {
    snprintf(out, KEY_BYTES, "%" PRIu64, number);
}

uint64_t td_audit_add_change(struct td_audit *a, const struct td_audit_entry *entry) {
    TD_AUTO_BUF text;
    char key[KEY_BYTES];
    td_buf_init(&text, LINE_MAX_BYTES);
    td_status bad = print(entry, a->next, &text);
    struct line *l = bad ? NULL : make_line(a->next, text.data, text.len);
    td_status_free(bad);
    if (!l) {
        a->n_lost++;
        report_soon(a);
        return 0;
    }
    key_of(a->next, key);
    td_rows_put(&a->rows, TD_RECORD_AUDIT, key, td_buf_cstr(&text));
    await(a, l);
    return a->next++;
}

struct td_record *td_audit_take(struct td_audit *a) {
    for (int i = 0; i < MAX_DROPS && a->oldest_row <= a->synced; i++) {
        char key[KEY_BYTES];
        key_of(a->oldest_row++, key);
        td_rows_put(&a->rows, TD_RECORD_AUDIT, key, NULL);
    }
    return td_rows_take(&a->rows);
}

void td_audit_committed(struct td_audit *a, uint64_t number) {
    while (a->first && a->first->number <= number) {
        struct line *l = a->first;
        a->first = l->next;
        if (!a->first) a->last = &a->first;
        if (!keep(a, l->text, l->bytes)) {
            a->n_lost++;
            report_soon(a);
        }
        a->filed = l->number;
        free(l);
    }
    if (!a->failing) flush(a);
}

td_status td_audit_load(struct td_audit *a, const char *key, const char *body) {
    char *end;
    size_t bytes = strlen(body);
    uint64_t number = strtoull(key, &end, 10);
    if (!number || *end || number < a->next || !bytes || body[bytes - 1] != '\n') {
        return td_fail(TD_DATA_LOSS, "state.db, audit '%s': it is no line of the audit log", key);
    }
    struct line *l = make_line(number, body, bytes);
    if (!l) return td_fail_oom();
    if (!a->first) a->oldest_row = number;
    await(a, l);
    a->next = number + 1;
    return TD_OK;
}

void td_audit_start(struct td_audit *a) {
    uint64_t last = 0;
    bool torn = false;
    td_status bad = td_audit_file_last(a->path, &last, &torn);
    if (bad) {
        td_status_log(TD_LOG_WARN, bad,
                      "the audit log cannot be read; its last lines may come a "
                      "second time, continuing");
    }
    while (a->first && a->first->number <= last) {
        struct line *l = a->first;
        a->first = l->next;
        if (!a->first) a->last = &a->first;
        free(l);
    }
    a->filed = a->written = last;
    a->synced = TD_MIN(last, a->oldest_row - 1); // lines of a killed coordinator may not be synced
    if (a->synced < last) sync_soon(a);
    a->next = TD_MAX(a->next, last + 1);
    if (a->oldest_row > a->next) a->oldest_row = a->next;
    if (torn && !keep(a, "\n", 1)) a->n_lost++;
    td_audit_committed(a, UINT64_MAX);
}

// ---- life ---------------------------------------------------------------------------------------
td_status td_audit_create(struct td_loop *loop, const char *state_dir,
                          struct td_audit **out_audit) {
    TD_AUTO(td_audit) *a = td_calloc(1, sizeof *a);
    if (!a) return td_fail_oom();
    a->magic = td_audit_magic;
    td_buf_init(&a->waiting, TD_AUDIT_WAITING_BYTES);
    a->last = &a->first;
    a->next = 1;
    a->oldest_row = UINT64_MAX; // td_audit_start
    a->filled = td_mono_now();
    a->tokens = TD_AUDIT_REFUSED_BURST;
    TD_TRY(td_fs_path(a->path, "%s/audit.log", state_dir));
    TD_TRY(td_loop_timer_create(loop, on_timer, a, &a->timer));
    TD_TRY(td_loop_timer_create(loop, on_sync_timer, a, &a->sync_timer));
    TD_TRY(td_disk_create(loop, "audit", &a->disk));
    *out_audit = td_steal(a);
    return TD_OK;
}

void td_audit_destroy(struct td_audit *a) {
    if (!a) return;
    a->closing = true;
    report(a, "refused_more", &a->n_refused);
    report(a, "lost", &a->n_lost);
    td_disk_destroy(a->disk); // what it had is written, or refused
    a->disk = NULL;
    for (struct batch *b; !a->failing && (b = next_batch(a));) {
        run(&b->job);
        a->failing = b->failure != TD_OK;
        td_status_log(TD_LOG_WARN, td_steal(b->failure), "audit lines are lost, continuing");
        batch_destroy(b);
    }
    batch_destroy(a->refused_batch);
    if (!a->failing) td_status_log(TD_LOG_WARN, td_audit_file_sync(a->path), "sync the audit log");
    while (a->first) { // their rows are for the next start
        struct line *l = a->first;
        a->first = l->next;
        free(l);
    }
    td_rows_finish(&a->rows);
    td_loop_timer_destroy(a->sync_timer);
    td_loop_timer_destroy(a->timer);
    td_buf_finish(&a->waiting);
    a->magic = 0;
    free(a);
}
