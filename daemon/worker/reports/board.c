// See the header.

#include "daemon/worker/reports/board.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/worker/reports/board_event.h"
#include "daemon/worker/reports/board_notes.h"
#include "daemon/worker/reports/board_tree.h"
#include "daemon/worker/reports/sink.h"
#include "lib/attempt/metric_names.h"
#include "lib/attempt/report_message.h"
#include "lib/base/files/path_rules.h"

enum { td_board_magic = 0x626f7264, SERIES_BYTES = 256 };
static const int64_t look_ns = TD_NS_PER_S / 10, end_ns = 3 * TD_NS_PER_S,
                     older_ns = 60 * TD_NS_PER_S;

struct td_board {
    uint32_t magic;
    char *dir; // the root's path
    int64_t since_ns;
    struct td_report_sink *sink;
    struct td_loop_timer *timer;
    struct td_board_notes notes;
    struct td_board_tree tree;
    struct td_mono looked;
    struct td_board_mark *mark; // (n_marks), of the child before this one
    size_t n_marks;
    uint64_t n_taken, n_old; // records with scalars, of this attempt and of before it
    char *buffer;            // (TD_BOARD_BUFFER)
};

// ---- what a record becomes ----------------------------------------------------------------------
static void print_series(const struct td_board_file *f, struct td_str tag, char out[SERIES_BYTES]) {
    const bool is_text = tag.len > 0 && !memchr(tag.data, '\0', tag.len);
    const char *slash = f->dir_bytes ? "/" : "";
    *out = '\0'; // no metric's name; one that is cut is none, either
    if (!is_text) return;
    snprintf(out, SERIES_BYTES, "%.*s%s%.*s", (int)f->dir_bytes, f->path, slash,
             (int)TD_MIN(tag.len, (size_t)SERIES_BYTES), tag.data);
}

static void take_scalars(struct td_board *b, const struct td_board_file *f,
                         struct td_board_event *e) {
    char name[TD_REPORT_KEPT_NAME], kept[TD_REPORT_KEPT], series[SERIES_BYTES];
    const struct td_board_mark *m = &f->mark;
    const struct td_report report = {.step = e->step,
                                     .total_steps = -1,
                                     .epoch = -1,
                                     .aside = true,
                                     .kept_name = name,
                                     .kept = kept};
    struct td_board_scalar scalar;
    bool is_open = false, more = true;
    td_status broken = TD_OK;
    snprintf(name, sizeof name, "%" PRIx64 ":%" PRIx64, m->device, m->inode);
    snprintf(kept, sizeof kept, "%" PRIx64 ":%" PRIx32 ":%" PRIx32, m->at, m->print, m->n_print);
    while (!(broken = td_board_event_next(e, &scalar, &more)) && more) {
        if (!is_open) td_report_begin(b->sink, &report);
        is_open = true;
        print_series(f, scalar.tag, series);
        td_report_value(b->sink, series, scalar.value);
    }
    if (is_open) td_report_end(b->sink);
    b->n_taken += is_open;
    if (broken) {
        td_board_note(&b->notes, TD_BOARD_NO_EVENT, f->path, "has a record that is no event: %s",
                      td_status_message(broken));
    }
    td_status_free(broken);
}

static bool has_scalars(struct td_board_event e) {
    struct td_board_scalar scalar;
    bool more = false;
    td_status broken = td_board_event_next(&e, &scalar, &more);
    const bool has = !broken && more;
    td_status_free(broken);
    return has;
}

static void take(void *arg, const struct td_board_file *f, struct td_str bytes) {
    struct td_board *b = TD_CAST(td_board, arg);
    struct td_board_event e;
    td_status broken = td_board_event_read(bytes, &e);
    if (broken) {
        td_board_note(&b->notes, TD_BOARD_NO_EVENT, f->path, "has a record that is no event: %s",
                      td_status_message(broken));
        td_status_free(broken);
    } else if (!(e.wall_time >= (double)b->since_ns / (double)TD_NS_PER_S)) {
        b->n_old += has_scalars(e);
    } else if (e.step < 0 || e.step > INT32_MAX) {
        if (!has_scalars(e)) return;
        td_board_note(&b->notes, TD_BOARD_NO_EVENT, f->path,
                      "has step %lld: one from 0 to %d is taken", (long long)e.step, INT32_MAX);
    } else {
        take_scalars(b, f, &e);
    }
}

// ---- looking ------------------------------------------------------------------------------------
// Where the child before this one was in a file that is new here.
static void go_on(const struct td_board *b, struct td_board_file *f) {
    for (size_t i = 0; i < b->n_marks && f->bytes < 0; i++) {
        const struct td_board_mark *m = &b->mark[i];
        if (m->inode == f->mark.inode && m->device == f->mark.device) f->mark = *m;
    }
}

// False: the file is gone.
static bool read_file(struct td_board *b, struct td_board_file *f, bool looks) {
    struct stat st;
    if (!looks && !f->more) return true;
    if (!td_board_tree_stat(&b->tree, f, &st)) return false;
    if (!td_board_file_calls(f, &st)) return true;
    TD_AUTO_CLOSE int fd = -1;
    go_on(b, f);
    td_status failed = td_board_tree_open(&b->tree, f, &fd);
    if (!failed) {
        failed = td_board_file_turn(f, fd, b->buffer, &b->notes, td_mono_now(), take, b);
    }
    if (!failed) return true;
    td_board_file_seen(f, &st); // tried again when it has changed
    td_board_note(&b->notes, TD_BOARD_UNREAD, f->path, "cannot be read: %s",
                  td_status_message(failed));
    td_status_free(failed);
    return true;
}

// True: there is more to read.
static bool look(struct td_board *b) {
    const struct td_mono now = td_mono_now();
    const bool looks = now.ns - b->looked.ns >= look_ns;
    bool more = false;
    if (looks) {
        b->looked = now;
        td_board_tree_look(&b->tree, now);
    }
    for (size_t i = b->tree.n_files; i-- > 0;) {
        if (!read_file(b, &b->tree.file[i], looks)) {
            td_board_tree_forget(&b->tree, i);
        } else {
            more |= b->tree.file[i].more;
        }
        if (td_report_sink_is_gone(b->sink)) return false;
    }
    return more;
}

static void on_time(void *arg) {
    struct td_board *b = TD_CAST(td_board, arg);
    td_loop_timer_arm(b->timer, look(b) ? 0 : look_ns);
}

// ---- life ---------------------------------------------------------------------------------------
void td_board_destroy(struct td_board *b) {
    if (!b) return;
    td_loop_timer_destroy(b->timer);
    td_board_tree_finish(&b->tree);
    b->magic = 0;
    free(b->mark);
    free(b->buffer);
    free(b->dir);
    free(b);
}

td_status td_board_create(const struct td_json *settings, struct td_loop *loop,
                          struct td_report_sink *sink, struct td_board **out_board) {
    const char *dir = td_json_string(td_json_get(settings, "dir"), "");
    const char *rules = td_json_string(td_json_get(settings, "rules"), "");
    if (*dir != '/') return td_fail(TD_INVALID_ARGUMENT, "--settings: `tensorboard` has no `dir`");
    if (*rules) TD_TRY(td_path_rules_take(rules));
    TD_AUTO(td_board) *b = td_calloc(1, sizeof *b);
    if (!b) return td_fail_oom();
    *b = (struct td_board){.magic = td_board_magic, .sink = sink, .notes = {.sink = sink}};
    b->tree.root_fd = -1;
    b->since_ns = td_json_int(td_json_get(settings, "since"), 0);
    b->dir = td_strdup(dir);
    b->buffer = td_calloc(TD_BOARD_BUFFER, 1);
    if (!b->dir || !b->buffer) return td_fail_oom();
    b->tree.path = b->dir;
    b->tree.notes = &b->notes;
    b->tree.old_ns = b->since_ns - older_ns;
    TD_TRY(td_loop_timer_create(loop, on_time, b, &b->timer));
    *out_board = td_steal(b);
    return TD_OK;
}

void td_board_begin(struct td_board *b, const char *lines, size_t bytes) {
    const char *end = lines + bytes;
    b->mark = td_calloc(TD_REPORT_KEPT_MAX, sizeof *b->mark);
    while (b->mark && lines < end && b->n_marks < TD_REPORT_KEPT_MAX) {
        char line[TD_REPORT_KEPT_NAME + TD_REPORT_KEPT];
        const char *stop = memchr(lines, '\n', (size_t)(end - lines));
        const size_t n = stop ? (size_t)(stop - lines) : (size_t)(end - lines);
        struct td_board_mark m = {0};
        snprintf(line, sizeof line, "%.*s", (int)TD_MIN(n, sizeof line - 1), lines);
        if (sscanf(line, "%" SCNx64 ":%" SCNx64 " %" SCNx64 ":%" SCNx32 ":%" SCNx32, &m.device,
                   &m.inode, &m.at, &m.print, &m.n_print) == 5) {
            b->mark[b->n_marks++] = m;
        }
        lines += n + 1;
    }
    td_loop_timer_arm(b->timer, 0);
}

void td_board_end(struct td_board *b) {
    const struct td_mono until = td_mono_add(td_mono_now(), end_ns);
    uint64_t unread = 0;
    td_loop_timer_disarm(b->timer);
    b->looked.ns = 0; // all of it
    while (look(b) && td_mono_now().ns < until.ns) {}
    for (size_t i = 0; i < b->tree.n_files; i++) {
        struct td_board_file *f = &b->tree.file[i];
        if (f->more) unread += (uint64_t)f->bytes - f->mark.at;
        td_board_file_end(f, &b->notes);
    }
    if (unread) {
        td_report_note(b->sink,
                       "loggers_in.tensorboard: %llu bytes of event files were not read in time, "
                       "and do not count",
                       (unsigned long long)unread);
    }
    if (b->n_old && !b->n_taken) {
        td_report_note(b->sink,
                       "loggers_in.tensorboard: no record counts, as the time in each of the %llu "
                       "with scalars is before this attempt began",
                       (unsigned long long)b->n_old);
    }
    td_board_notes_end(&b->notes);
}
