// See the header. One write(2) for all that waits; what was written only in part is cut back, so
// the file holds whole lines whenever somebody looks.

#include "daemon/launcher/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/attempt/segments.h"
#include "lib/base/clock.h"
#include "lib/base/files/files.h"
#include "lib/base/log.h"

enum { PENDING_MAX = 1 << 20, ARENA_MAX = 1 << 20 };

td_status td_journal_init(struct td_journal *j, const char *dir) {
    *j = (struct td_journal){.fd = -1};
    td_buf_init(&j->pending, PENDING_MAX);
    TD_TRY(td_arena_create(ARENA_MAX, &j->arena));
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", dir, TD_SEGMENT_EVENTS);
    j->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (j->fd < 0) return td_fs_fail("open", path);
    TD_TRY(td_launch_file_init(&j->file, dir, TD_SEGMENT_EVENTS));
    struct stat st;
    if (fstat(j->fd, &st) != 0) return td_fs_fail("look at", path);
    j->bytes = (uint64_t)st.st_size;
    return TD_OK;
}

void td_journal_finish(struct td_journal *j) {
    if (!j->arena) return;
    td_journal_flush(j);
    td_auto_close(&j->fd);
    j->fd = -1;
    td_buf_finish(&j->pending);
    td_arena_destroy(td_steal(j->arena));
}

void td_journal_begin(struct td_journal *j, enum td_event_kind kind,
                      struct td_event_writer *out_line) {
    j->whole = j->pending.len;
    td_event_open(out_line, kind, &j->pending);
    td_event_real_ns(out_line, td_real_now().ns);
}

// Takes the line that pending ends with, or cuts it off.
static void append(struct td_journal *j, td_status s) {
    size_t before = j->whole;
    if (!s) s = td_buf_str(&j->pending, "\n");
    if (!s && j->pending.len - before > TD_SEGMENT_LINE_MAX) s = td_fail_oom();
    if (s) {
        j->pending.len = before;
        if (j->pending.data) j->pending.data[before] = '\0';
        td_status_log(TD_LOG_WARN, s, "an event was dropped, continuing");
    }
    td_journal_flush(j);
}

void td_journal_append(struct td_journal *j, struct td_event_writer *line) {
    append(j, td_event_close(line));
}

// An integer of the launcher, in place of what the rank may have said.
static td_status set(struct td_journal *j, struct td_json *line, const char *key, int64_t value) {
    struct td_json *v = td_json_new_int(j->arena, value);
    return td_json_set(j->arena, line, key, v) ? TD_OK : td_fail_oom();
}

// What only the launcher and the node may say of an attempt is refused: its end must not be the
// rank's word.
td_status td_journal_forward(struct td_journal *j, uint32_t rank, const char *text, size_t bytes,
                             struct td_event *out_event) {
    td_arena_reset(j->arena);
    struct td_json *line;
    struct td_event event;
    TD_TRY(td_json_parse(j->arena, text, bytes, &line));
    enum td_event_kind kind;
    TD_TRY(td_event_kind_of(line, &kind));
    if (kind && !td_event_is_written_by(kind, TD_PARTY_RANK)) {
        return td_fail(TD_INVALID_ARGUMENT, "'%s' is not a rank's to say",
                       td_event_rows[kind].name);
    }
    TD_TRY(set(j, line, "rank", rank));
    TD_TRY(set(j, line, "real_ns", td_real_now().ns));
    TD_TRY(td_event_read(line, &event));
    j->whole = j->pending.len;
    append(j, td_json_print(line, false, &j->pending));
    *out_event = event;
    return TD_OK;
}

void td_journal_flush(struct td_journal *j) {
    if (j->pending.len == 0 || j->fd < 0) return;
    ssize_t n = write(j->fd, j->pending.data, j->pending.len);
    if (n == (ssize_t)j->pending.len) {
        j->bytes += (uint64_t)n;
        td_buf_clear(&j->pending);
        return;
    }
    if (n > 0 && ftruncate(j->fd, (off_t)j->bytes) != 0) {
        // The part stays in the file: take it as written, the rest follows it.
        j->bytes += (uint64_t)n;
        td_buf_consume(&j->pending, (size_t)n);
    }
}

td_status td_journal_sync(struct td_journal *j) {
    td_journal_flush(j);
    if (j->pending.len > 0) {
        return td_fail(TD_RESOURCE_EXHAUSTED, "%zu bytes of %s wait for room on the disk",
                       j->pending.len, TD_SEGMENT_EVENTS);
    }
    if (fsync(j->fd) != 0) return td_fail_errno(TD_DATA_LOSS, "sync %s", TD_SEGMENT_EVENTS);
    return TD_OK;
}
