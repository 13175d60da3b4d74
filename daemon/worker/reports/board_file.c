// See the header.

#include "daemon/worker/reports/board_file.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/worker/reports/board_notes.h"
#include "lib/base/files/fs_fail.h"
#include "lib/base/files/tfevents.h"

enum {
    TURN_RECORDS = 256,
    TURN_BYTES = 1 << 20,
    CHUNK = 64 << 10, // that is read at once, unless one record is longer
    FRAME = TD_TFRECORD_HEAD + TD_TFRECORD_TAIL,
};
static const int64_t damaged_ns = 5 * TD_NS_PER_S;

void td_board_file_finish(struct td_board_file *f) {
    free(f->path);
    f->path = NULL;
}

static int64_t changed_ns(const struct stat *st) {
    return st->st_mtim.tv_sec * TD_NS_PER_S + st->st_mtim.tv_nsec;
}

bool td_board_file_calls(const struct td_board_file *f, const struct stat *st) {
    const bool tries = f->bad_since.ns && !f->bad_said;
    return f->more || tries || st->st_size != f->bytes || changed_ns(st) != f->changed_ns ||
           st->st_ino != f->mark.inode || st->st_dev != f->mark.device;
}

void td_board_file_seen(struct td_board_file *f, const struct stat *st) {
    f->mark.device = st->st_dev;
    f->mark.inode = st->st_ino;
    f->bytes = st->st_size;
    f->changed_ns = changed_ns(st);
}

// ---- is it the same file ------------------------------------------------------------------------
// *out_bytes: how many came.
static td_status read_at(const struct td_board_file *f, int fd, char *to, size_t bytes,
                         uint64_t from, size_t *out_bytes) {
    ssize_t n;
    do {
        n = pread(fd, to, bytes, (off_t)from);
    } while (n < 0 && errno == EINTR);
    if (n < 0) return td_fs_fail("read", f->path);
    *out_bytes = (size_t)n;
    return TD_OK;
}

static td_status has_print(const struct td_board_file *f, int fd, bool *out_has) {
    char first[TD_BOARD_PRINT];
    size_t n = 0;
    const size_t wanted = TD_MIN(f->mark.n_print, sizeof first);
    *out_has = true;
    if (wanted == 0) return TD_OK;
    TD_TRY(read_at(f, fd, first, wanted, 0, &n));
    *out_has = n == wanted && td_crc32c(first, n) == f->mark.print;
    return TD_OK;
}

// Sees the file as it is now, and whether it has to be read again.
static td_status look(struct td_board_file *f, int fd, struct td_board_notes *notes) {
    struct stat st;
    bool same;
    if (fstat(fd, &st) != 0) return td_fs_fail("look at", f->path);
    TD_TRY(has_print(f, fd, &same));
    same = same && f->mark.n_print && (uint64_t)st.st_size >= f->mark.at;
    if (!same && f->mark.at > 0) {
        td_board_note(notes, TD_BOARD_REWRITTEN, f->path,
                      "was cut or written again, and is read from its beginning; what it repeats "
                      "is dropped");
    }
    if (!same) {
        f->mark = (struct td_board_mark){0};
        f->bad_since.ns = 0;
    }
    td_board_file_seen(f, &st);
    return TD_OK;
}

// ---- records ------------------------------------------------------------------------------------
enum next { NEXT_TAKEN, NEXT_PASSED, NEXT_CUT, NEXT_TORN, NEXT_DAMAGED };

// The record at mark.at, of which `bytes` are here. CUT: more of it is in the file.
static enum next take_next(struct td_board_file *f, const char *data, size_t bytes,
                           struct td_board_notes *notes, td_board_take *take, void *arg) {
    const uint64_t left = (uint64_t)f->bytes - f->mark.at;
    uint64_t length = 0;
    if (left < FRAME) return NEXT_TORN;
    if (bytes < FRAME) return NEXT_CUT;
    if (!td_tfrecord_head(data, &length)) return NEXT_DAMAGED;
    if (length > left - FRAME) return NEXT_TORN;
    const bool is_large = length > TD_BOARD_RECORD;
    if (!is_large && length + FRAME > bytes) return NEXT_CUT;
    if (!is_large && !td_tfrecord_holds(data, (size_t)length)) return NEXT_DAMAGED;
    if (f->mark.at == 0) {
        f->mark.n_print = (uint32_t)TD_MIN(length + FRAME, (uint64_t)TD_BOARD_PRINT);
        if (f->mark.n_print > bytes) f->mark.n_print = FRAME;
        f->mark.print = td_crc32c(data, f->mark.n_print);
    }
    f->mark.at += length + FRAME;
    if (is_large) {
        td_board_note(notes, TD_BOARD_LARGE, f->path,
                      "has a record of %llu bytes: one over %d is passed over",
                      (unsigned long long)length, TD_BOARD_RECORD);
        return NEXT_PASSED;
    }
    take(arg, f, (struct td_str){data + TD_TFRECORD_HEAD, (size_t)length});
    return NEXT_TAKEN;
}

static void say_damaged(struct td_board_file *f, struct td_board_notes *notes) {
    f->bad_said = true;
    td_board_note(notes, TD_BOARD_DAMAGED, f->path,
                  "is damaged at byte %llu: what comes before it counts, and nothing after it",
                  (unsigned long long)f->mark.at);
}

static void is_damaged(struct td_board_file *f, struct td_board_notes *notes, struct td_mono now) {
    if (!f->bad_since.ns) {
        f->bad_since = now;
        f->bad_said = false;
    }
    if (!f->bad_said && now.ns - f->bad_since.ns >= damaged_ns) say_damaged(f, notes);
}

void td_board_file_end(struct td_board_file *f, struct td_board_notes *notes) {
    if (f->bad_since.ns && !f->bad_said) say_damaged(f, notes);
    if (!f->torn) return;
    td_board_note(notes, TD_BOARD_TORN, f->path,
                  "ends within a record, %lld bytes after the last one that is whole",
                  (long long)(f->bytes - (int64_t)f->mark.at));
}

td_status td_board_file_turn(struct td_board_file *f, int fd, char *buffer,
                             struct td_board_notes *notes, struct td_mono now, td_board_take *take,
                             void *arg) {
    TD_TRY(look(f, fd, notes));
    const uint64_t began = f->mark.at;
    size_t chunk = CHUNK;
    f->more = f->torn = false;
    for (int records = 0; f->mark.at < (uint64_t)f->bytes;) {
        const uint64_t from = f->mark.at, left = (uint64_t)f->bytes - from;
        size_t n = 0, used = 0;
        TD_TRY(read_at(f, fd, buffer, (size_t)TD_MIN(left, (uint64_t)chunk), from, &n));
        enum next next = n == 0 ? NEXT_TORN : NEXT_TAKEN;
        while (next == NEXT_TAKEN && used < n && records < TURN_RECORDS) {
            next = take_next(f, buffer + used, n - used, notes, take, arg);
            if (next == NEXT_TAKEN) used = (size_t)(f->mark.at - from);
            records++;
        }
        if (f->mark.at > from) f->bad_since.ns = 0;
        if (next == NEXT_DAMAGED) {
            is_damaged(f, notes, now);
            return TD_OK;
        }
        const bool is_long = next == NEXT_CUT && f->mark.at == from;
        f->torn = next == NEXT_TORN || (is_long && n < chunk); // it shrinks
        if (f->torn) return TD_OK;
        chunk = is_long ? TD_BOARD_BUFFER : CHUNK;
        f->more = records >= TURN_RECORDS || f->mark.at - began >= TURN_BYTES;
        if (f->more) break;
    }
    f->more = f->more && f->mark.at < (uint64_t)f->bytes;
    return TD_OK;
}
