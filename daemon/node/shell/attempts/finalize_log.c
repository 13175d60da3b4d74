// See the header. The launcher's lock on the directory is taken meanwhile, so that a mistake about
// its death cannot make two writers: then settling fails and is tried again by the caller.

#include "daemon/node/shell/attempts/finalize_log.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/node/shell/shards/unreported_checkpoints.h"
#include "lib/attempt/checkpoint_name.h"
#include "lib/attempt/event_writer.h"
#include "lib/attempt/segments.h"
#include "lib/base/clock.h"
#include "lib/base/files/files.h"
#include "lib/base/log.h"

enum { REST_MAX = 16 << 20 /* what is appended */, LOST_MAX = 4 << 10 };

// The whole last line, and where the last whole line ends. "" when there is none.
static td_status read_last(int fd, const char *path, char *line, size_t line_bytes,
                           uint64_t *out_end) {
    struct stat st;
    if (fstat(fd, &st) != 0) return td_fs_fail("look at", path);
    uint64_t size = (uint64_t)st.st_size, want = 2 * TD_SEGMENT_LINE_MAX;
    uint64_t from = size > want ? size - want : 0;
    TD_AUTO_FREE char *text = td_calloc(1, (size_t)(size - from) + 1);
    if (!text) return td_fail_oom();
    ssize_t n = pread(fd, text, (size_t)(size - from), (off_t)from);
    if (n < 0) return td_fs_fail("read", path);
    text[n] = '\0';
    char *end = memrchr(text, '\n', (size_t)n);
    line[0] = '\0';
    *out_end = end ? from + (uint64_t)(end - text) + 1 : from;
    if (!end) return TD_OK;
    char *start = memrchr(text, '\n', (size_t)(end - text));
    start = start ? start + 1 : text;
    snprintf(line, line_bytes, "%.*s", (int)(end - start), start);
    return TD_OK;
}

// ---- the end ------------------------------------------------------------------------------------
static td_status path_in(const struct td_log_end *s, const char *name, char out[TD_FS_PATH_BYTES]) {
    return td_fs_path(out, "%s/%s", s->dir, name);
}

// What the launcher said of its log, if it said that it is lost; else "".
static void read_lost(const struct td_log_end *s, char *out_why, size_t out_bytes) {
    char path[TD_FS_PATH_BYTES];
    TD_AUTO_BUF text;
    td_buf_init(&text, LOST_MAX);
    out_why[0] = '\0';
    td_status failed = path_in(s, TD_SEGMENT_LOST, path);
    if (!failed) failed = td_fs_read(path, LOST_MAX, &text);
    if (!failed) snprintf(out_why, out_bytes, "%s", td_buf_cstr(&text));
    td_status_free(failed); // it does not exist: the usual case
}

static td_status add_end(const struct td_log_end *s, const char *lost, struct td_buf *b) {
    const char *why = s->rebooted
                          ? "the machine was restarted while the attempt ran"
                          : "the launcher was killed, and its ranks with it: by somebody on this "
                            "machine, or by the kernel for lack of memory";
    char text[512];
    if (lost[0] && !s->rebooted) {
        snprintf(text, sizeof text, "%s: nobody else may change the files of an attempt", lost);
        why = text;
    }
    struct td_event_writer w;
    td_event_open(&w, TD_EVENT_LAUNCHER_LOST, b);
    td_event_real_ns(&w, td_real_now().ns);
    td_event_launcher_lost_class(
        &w, td_class_name(s->rebooted ? TD_CLASS_NODE_LOST : TD_CLASS_INTERNAL));
    td_event_launcher_lost_code(
        &w, td_code_name(lost[0] && !s->rebooted ? TD_DATA_LOSS : TD_UNAVAILABLE));
    td_event_launcher_lost_message(&w, why);
    TD_TRY(td_event_close(&w));
    return td_buf_str(b, "\n");
}

static td_status write_blank(int fd, const char *path, uint64_t from, uint64_t to) {
    char blank[4096];
    memset(blank, '\n', sizeof blank);
    while (from < to) {
        size_t n = (size_t)TD_MIN(to - from, (uint64_t)sizeof blank);
        ssize_t written = pwrite(fd, blank, n, (off_t)from);
        if (written <= 0) return td_fs_fail("write", path);
        from += (uint64_t)written;
    }
    return TD_OK;
}

static td_status write_end(int fd, const char *path, uint64_t at, const struct td_buf *rest) {
    if (pwrite(fd, rest->data, rest->len, (off_t)at) != (ssize_t)rest->len) {
        return td_fs_fail("write", path);
    }
    return fsync(fd) == 0 ? TD_OK : td_fs_fail("sync", path);
}

// Of a log that is open: cuts it back to whole lines and appends the rest.
static td_status append_end(const struct td_log_end *s, int fd, const char *path, uint64_t end,
                            const char *lost) {
    if (ftruncate(fd, (off_t)end) != 0) return td_fs_fail("cut", path);
    TD_AUTO_BUF rest;
    td_buf_init(&rest, REST_MAX);
    TD_TRY(td_unreported_lines(fd, s->checkpoint_dir, &rest));
    TD_TRY(add_end(s, lost, &rest));
    TD_TRY(write_blank(fd, path, end, s->sent));
    return write_end(fd, path, TD_MAX(end, s->sent), &rest);
}

td_status td_finalize_log(const struct td_log_end *s, uint64_t *out_own) {
    char path[TD_FS_PATH_BYTES], lock_path[TD_FS_PATH_BYTES], line[128], lost[256];
    TD_TRY(path_in(s, TD_SEGMENT_EVENTS, path));
    TD_TRY(path_in(s, TD_SEGMENT_LOCK, lock_path));
    TD_TRY(td_fs_mkdirs(s->dir, 0700)); // it may be gone as a whole
    TD_AUTO_CLOSE int lock_fd = -1;
    if (!s->unlocked) TD_TRY(td_fs_lock(lock_path, "traind, settling", &lock_fd));
    bool removed = !td_fs_exists(path);
    TD_AUTO_CLOSE int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return td_fs_fail("open", path);
    uint64_t end = 0;
    TD_TRY(read_last(fd, path, line, sizeof line, &end));
    *out_own = UINT64_MAX;
    read_lost(s, lost, sizeof lost);
    bool by_node = td_event_line_is(line, strlen(line), TD_EVENT_LAUNCHER_LOST);
    bool ended = by_node || td_event_line_is(line, strlen(line), TD_EVENT_LAUNCHER_END);
    if (ended && (by_node || !lost[0]) && end >= s->sent) return TD_OK;
    if (lost[0]) {
        end = 0; // what is there now is not what the launcher wrote
    } else if (removed) {
        snprintf(lost, sizeof lost, "%s of the attempt was removed", TD_SEGMENT_EVENTS);
    } else if (end < s->sent) {
        snprintf(lost, sizeof lost, "%s of the attempt was cut to %" PRIu64 " of %" PRIu64 " bytes",
                 TD_SEGMENT_EVENTS, end, s->sent);
    }
    TD_TRY(append_end(s, fd, path, end, lost));
    *out_own = TD_MAX(end, s->sent);
    return TD_OK;
}

// The lines are read into memory and their end is made again, because it says now that the log was
// cut. Blank lines take their place first, so that a crash in between leaves a log without an end.
td_status td_finalize_log_after(const struct td_log_end *s, uint64_t own) {
    char path[TD_FS_PATH_BYTES], lost[256];
    TD_TRY(path_in(s, TD_SEGMENT_EVENTS, path));
    TD_AUTO_CLOSE int fd = open(path, O_RDWR | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) return td_fs_fail("open", path);
    uint64_t size = (uint64_t)st.st_size;
    if (size < own || size - own > REST_MAX) {
        return td_fail(TD_DATA_LOSS, "the end of '%s' has changed", path);
    }
    size_t bytes = (size_t)(size - own);
    TD_AUTO_FREE char *text = td_calloc(1, bytes + 1);
    if (!text) return td_fail_oom();
    if (pread(fd, text, bytes, (off_t)own) != (ssize_t)bytes) return td_fs_fail("read", path);
    char *last = bytes ? memrchr(text, '\n', bytes - 1) : NULL;
    read_lost(s, lost, sizeof lost);
    if (!lost[0] && own == 0) {
        snprintf(lost, sizeof lost, "%s of the attempt was removed or emptied", TD_SEGMENT_EVENTS);
    } else if (!lost[0]) {
        snprintf(lost, sizeof lost, "%s of the attempt was cut to %" PRIu64 " of %" PRIu64 " bytes",
                 TD_SEGMENT_EVENTS, own, s->sent);
    }
    TD_AUTO_BUF rest;
    td_buf_init(&rest, 2 * REST_MAX);
    TD_TRY(td_buf_append(&rest, text, last ? (size_t)(last - text) + 1 : 0));
    TD_TRY(add_end(s, lost, &rest));
    TD_TRY(write_blank(fd, path, own, s->sent));
    if (ftruncate(fd, (off_t)s->sent) != 0) return td_fs_fail("cut", path);
    return write_end(fd, path, s->sent, &rest);
}

void td_remove_unfinished_checkpoints(const char *checkpoint_dir) {
    DIR *dir = opendir(checkpoint_dir);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (td_checkpoint_name_step(e->d_name, TD_CHECKPOINT_HALF) < 0) continue;
        char path[TD_FS_PATH_BYTES];
        td_status s = td_fs_path(path, "%s/%s", checkpoint_dir, e->d_name);
        if (!s) s = td_fs_remove_tree(path);
        td_status_log(TD_LOG_WARN, s, "half-written checkpoint stays, continuing");
    }
    if (dir) closedir(dir);
}
