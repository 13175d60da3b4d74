// Lines wait in one buffer. While nothing is with the thread, the buffer goes there whole; while
// something is, lines gather. A batch that the disk refused stays with us and is tried again each
// second, before newer ones. The file is opened for each batch, so that whoever moved it away gets
// no more lines. Rejected: a line before the answer; a full disk would then stop who could make
// room.

#include "daemon/coordinator/shell/audit.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/coordinator/shell/disk.h"
#include "lib/base/clock.h"
#include "lib/base/fsio.h"
#include "lib/base/json.h"
#include "lib/base/log.h"
#include "lib/rpc/loop.h"

static const int64_t retry_ns = TD_NS_PER_S;

enum { LINE_MAX_BYTES = 4096, SMALL_LINE = 160 };

struct batch {
    struct td_disk_job job;
    struct td_audit *audit;
    char *text;
    size_t bytes;
    td_status failure;
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
};
enum { td_audit_magic = 0x54444155 }; // "TDAU"

// ---- the file, on the thread
// ----------------------------------------------------------------------
static td_status rotate(const char *path) {
    char from[TD_FS_PATH_BYTES], to[TD_FS_PATH_BYTES];
    for (int i = TD_AUDIT_FILES - 1; i > 0; i--) {
        TD_TRY(i > 1 ? td_fs_path(from, "%s.%d", path, i - 1) : td_fs_path(from, "%s", path));
        TD_TRY(td_fs_path(to, "%s.%d", path, i));
        if (td_fs_exists(from)) TD_TRY(td_fs_rename(from, to));
    }
    return TD_OK;
}

// Nothing of a batch that fails stays: it is tried again whole.
static td_status append(const char *path, const char *text, size_t bytes) {
    struct stat st;
    if (stat(path, &st) == 0 && (size_t)st.st_size + bytes > TD_AUDIT_FILE_BYTES && st.st_size) {
        TD_TRY(rotate(path));
    }
    TD_AUTO_CLOSE int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || fstat(fd, &st) != 0) return td_fs_fail("open", path);
    td_status failed = td_fd_write_all(fd, text, bytes, path);
    if (failed && ftruncate(fd, st.st_size) != 0) {
        return td_status_context(failed, "and a part of a line stays in the file");
    }
    return failed;
}

static void run(struct td_disk_job *job) {
    struct batch *b = (struct batch *)job;
    b->failure = append(b->audit->path, b->text, b->bytes);
}

// ---- handing over -------------------------------------------------------------------------------
static void batch_destroy(struct batch *b) {
    if (!b) return;
    td_status_free(b->failure);
    free(b->text);
    free(b);
}

static void flush(struct td_audit *a);

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
    batch_destroy(b);
    flush(a);
}

static struct batch *next_batch(struct td_audit *a) {
    if (a->refused_batch) return td_steal(a->refused_batch);
    if (!a->waiting.len) return NULL;
    struct batch *b = td_calloc(1, sizeof *b);
    if (!b) return NULL; // the lines wait on
    *b = (struct batch){.job = {.run = run, .done = done}, .audit = a, .bytes = a->waiting.len};
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

static td_status print(const struct td_audit_entry *e, struct td_buf *out) {
    char time[32];
    td_real_format(td_real_now(), time, sizeof time);
    TD_TRY(td_buf_printf(out, "{\"time\":\"%s\"", time));
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
    td_status bad = print(entry, &line);
    if (bad || !keep(a, line.data, line.len)) {
        a->n_lost++;
        report_soon(a);
    }
    td_status_free(bad);
    if (!a->failing) flush(a);
}

// ---- life ---------------------------------------------------------------------------------------
td_status td_audit_create(struct td_loop *loop, const char *state_dir,
                          struct td_audit **out_audit) {
    TD_AUTO(td_audit) *a = td_calloc(1, sizeof *a);
    if (!a) return td_fail_oom();
    a->magic = td_audit_magic;
    td_buf_init(&a->waiting, TD_AUDIT_WAITING_BYTES);
    a->filled = td_mono_now();
    a->tokens = TD_AUDIT_REFUSED_BURST;
    TD_TRY(td_fs_path(a->path, "%s/audit.log", state_dir));
    TD_TRY(td_loop_timer_create(loop, on_timer, a, &a->timer));
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
    td_loop_timer_destroy(a->timer);
    td_buf_finish(&a->waiting);
    a->magic = 0;
    free(a);
}
