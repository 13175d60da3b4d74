// See the header. The thread looks at the segments five times a second, and when it is woken. Each
// round takes at most a
// chunk of each rank, so that ranks stay in step and few rows are open.

#include "daemon/launcher/loggers/logger.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "daemon/launcher/loggers/logger_sink.h"
#include "lib/attempt/segments.h"
#include "lib/base/clip.h"
#include "lib/base/clock.h"
#include "lib/base/files/files.h"
#include "lib/base/files/named_output.h"
#include "lib/base/json.h"
#include "lib/base/log.h"

enum {
    PLAN_MAX = 4 << 20,
    ARENA_BYTES = 16 << 20,
    CHUNK_RECORDS = 1024,
    LOOK_MS = 200,
    END_MS = 10000,
    NOTES_MAX = 8, // that wait; further ones are only logged
    SINKS_MAX = 8,
};
#define RETRY_NS   (5 * TD_NS_PER_S)
#define PRESENT_NS (2 * TD_NS_PER_S) // ranks that say nothing for so long after the first point

static const struct td_log_sink_ops *const kinds[] = {&td_log_csv, &td_log_tensorboard};

struct slot {
    const struct td_log_sink_ops *ops;
    char dir[TD_FS_PATH_BYTES];
    struct td_log_sink *sink; // NULL: not open
    bool opened;              // it was, in this attempt
    bool noted;               // that it fails
    struct td_mono retry_at;
};
// The segments of an attempt, as far as they were read.
struct segments {
    int fd[TD_LAUNCH_RANKS_MAX];
    uint64_t offset[TD_LAUNCH_RANKS_MAX];
    struct td_metric_names names[TD_LAUNCH_RANKS_MAX];
};
// The next points of a rank.
struct chunk {
    struct td_metric_record record[CHUNK_RECORDS];
    struct td_metric_point point[CHUNK_RECORDS];
    size_t n; // points
};
struct td_logger {
    char attempt_dir[TD_FS_PATH_BYTES];
    char parent_dir[TD_FS_PATH_BYTES]; // of the directories of all attempts
    uint32_t attempt;
    int32_t first_rank, n_ranks;
    struct slot slot[SINKS_MAX];
    size_t n_slots;
    struct segments segments;
    struct td_log_rows rows;
    bool begun;
    int64_t first_step; // the lowest of the first points
    struct td_mono present_at;
    _Atomic uint64_t written[TD_LAUNCH_RANKS_MAX]; // as far as the segments are in all files
    _Atomic bool fails;                            // one of them cannot be written
    int stop_fd, done_fd, look_fd;
    pthread_t thread;
    bool runs;
    pthread_mutex_t lock; // of what follows
    char note[NOTES_MAX][TD_LOGGER_NOTE];
    size_t n_notes;
};

// ---- notes --------------------------------------------------------------------------------------
static void say(struct td_logger *g, const char *text) {
    td_log_warn("%s", text);
    pthread_mutex_lock(&g->lock);
    if (g->n_notes < NOTES_MAX) {
        (void)td_clip(g->note[g->n_notes++], TD_LOGGER_NOTE, "%s", text);
    }
    pthread_mutex_unlock(&g->lock);
}

bool td_logger_take_note(struct td_logger *g, char out_text[TD_LOGGER_NOTE]) {
    if (!g) return false;
    pthread_mutex_lock(&g->lock);
    const bool is_new = g->n_notes > 0;
    if (is_new) {
        memcpy(out_text, g->note[0], TD_LOGGER_NOTE);
        memmove(g->note[0], g->note[1], --g->n_notes * sizeof g->note[0]);
    }
    pthread_mutex_unlock(&g->lock);
    return is_new;
}

// ---- segments -----------------------------------------------------------------------------------
static void close_segments(struct segments *from, int32_t n_ranks) {
    for (int32_t i = 0; i < n_ranks; i++) {
        td_auto_close(&from->fd[i]);
        from->fd[i] = -1;
        td_metric_names_finish(&from->names[i]);
    }
}

// False: none is there.
static bool open_segments(const struct td_logger *g, const char *dir, struct segments *out) {
    bool any = false;
    for (int32_t i = 0; i < g->n_ranks; i++) {
        char path[TD_FS_PATH_BYTES];
        td_status s =
            td_fs_path(path, "%s/" TD_SEGMENT_METRICS, dir, (unsigned)(g->first_rank + i));
        out->fd[i] = -1;
        if (!s) s = td_fs_open(path, &out->fd[i], NULL);
        out->offset[i] = 0;
        out->names[i] = (struct td_metric_names){0};
        any |= out->fd[i] >= 0;
        td_status_free(s);
    }
    return any;
}

// False: there is nothing new.
static bool read_points(struct segments *from, int32_t i, uint64_t end, struct chunk *out) {
    out->n = 0;
    if (from->fd[i] < 0 || from->offset[i] >= end) return false;
    const size_t most = (size_t)TD_MIN((uint64_t)sizeof out->record, end - from->offset[i]);
    const ssize_t bytes = pread(from->fd[i], out->record, most, (off_t)from->offset[i]);
    const size_t n = bytes > 0 ? (size_t)bytes / sizeof out->record[0] : 0;
    from->offset[i] += n * sizeof out->record[0];
    for (size_t k = 0; k < n; k++) {
        struct td_metric_point *p = &out->point[out->n];
        out->n += td_metric_names_take(&from->names[i], &out->record[k], p) == TD_METRIC_IS_POINT;
    }
    return n > 0;
}

// ---- sinks --------------------------------------------------------------------------------------
static void give_up(struct td_logger *g, struct slot *slot, td_status failed) {
    char text[TD_LOGGER_NOTE];
    slot->ops->close(slot->sink);
    slot->sink = NULL;
    slot->retry_at = td_mono_add(td_mono_now(), RETRY_NS);
    (void)td_clip(text, sizeof text,
                  "the %s logger cannot write: %s; the job goes on, it is tried again, and "
                  "`trainctl metrics` has all metrics",
                  slot->ops->name, td_status_message(failed));
    td_status_free(failed);
    if (!slot->noted) say(g, text);
    slot->noted = true;
}

static bool is_of_device(const struct td_metric_point *p) {
    return (p->flags & TD_METRIC_DEVICE) != 0;
}

// Puts the rows of segments, up to a step and to the offsets of `end` (NULL: all that is there).
// *out_any: a rank has made a point. What its device did before that is in no file: it was loading.
static td_status replay(const struct td_logger *g, struct slot *slot, struct segments *from,
                        const struct segments *end, int64_t last, int flags, bool *out_any) {
    TD_AUTO_FREE struct chunk *chunk = td_calloc(1, sizeof *chunk);
    struct td_log_rows rows = {0};
    struct td_log_row row;
    bool any = false;
    td_status failed = chunk ? td_log_rows_init(&rows, g->n_ranks) : td_fail_oom();
    for (bool more = true; more && !failed;) {
        more = false;
        for (int32_t i = 0; i < g->n_ranks && !failed; i++) {
            more |= read_points(from, i, end ? end->offset[i] : UINT64_MAX, chunk);
            for (size_t k = 0; k < chunk->n && !failed; k++) {
                const struct td_metric_point *p = &chunk->point[k];
                any |= !is_of_device(p);
                if (any && p->step <= last) failed = td_log_rows_add(&rows, i, p);
            }
        }
        while (!failed && td_log_rows_take(&rows, more ? 0 : flags, &row)) {
            failed = slot->ops->put(slot->sink, &row);
        }
    }
    td_log_rows_finish(&rows);
    *out_any = any;
    return failed ? failed : slot->ops->flush(slot->sink);
}

// What the attempt before had not written: the newest of them that left points here has it.
static td_status take_up_before(const struct td_logger *g, struct slot *slot) {
    for (uint32_t a = g->attempt - 1; a > 0; a--) {
        char dir[TD_FS_PATH_BYTES];
        struct segments before;
        TD_TRY(td_fs_path(dir, "%s/a%u", g->parent_dir, a));
        if (!open_segments(g, dir, &before)) continue;
        bool any = false;
        td_status failed = replay(g, slot, &before, NULL, g->first_step, TD_LOG_TAKE_ALL, &any);
        close_segments(&before, g->n_ranks);
        if (failed || any) return failed;
    }
    return TD_OK;
}

static td_status open_sink(struct td_logger *g, struct slot *slot) {
    struct td_log_open how = {.dir = slot->dir, .attempt = g->attempt};
    how.fresh = g->attempt == 1 && !slot->opened;
    how.last = slot->opened ? INT64_MAX : g->first_step;
    TD_TRY(td_named_output_mkdirs(slot->dir, 0777));
    TD_TRY(slot->ops->open(&how, &slot->sink));
    if (g->attempt > 1 && !slot->opened) TD_TRY(take_up_before(g, slot));
    slot->opened = true;
    return TD_OK;
}

// Opens it again, with all rows that are closed by now.
static td_status catch_up(struct td_logger *g, struct slot *slot, int flags) {
    struct segments own;
    bool any;
    TD_TRY(open_sink(g, slot));
    if (!open_segments(g, g->attempt_dir, &own)) return TD_OK;
    td_status failed = replay(g, slot, &own, &g->segments, INT64_MAX, flags, &any);
    close_segments(&own, g->n_ranks);
    return failed;
}

static void begin(struct td_logger *g) {
    g->begun = true;
    g->present_at = td_mono_add(td_mono_now(), PRESENT_NS);
    for (size_t i = 0; i < g->n_slots; i++) {
        td_status failed = open_sink(g, &g->slot[i]);
        if (failed) give_up(g, &g->slot[i], failed);
    }
}

static void put_all(struct td_logger *g, const struct td_log_row *row) {
    for (size_t i = 0; i < g->n_slots; i++) {
        struct slot *slot = &g->slot[i];
        if (!slot->sink) continue;
        td_status failed = slot->ops->put(slot->sink, row);
        if (failed) give_up(g, slot, failed);
    }
}

static void flush_all(struct td_logger *g, int flags) {
    for (size_t i = 0; i < g->n_slots && g->begun; i++) {
        struct slot *slot = &g->slot[i];
        td_status failed = TD_OK;
        if (slot->sink) {
            failed = slot->ops->flush(slot->sink);
        } else if (flags & TD_LOG_TAKE_ALL || td_mono_now().ns >= slot->retry_at.ns) {
            failed = catch_up(g, slot, flags);
            if (!failed) {
                slot->noted = false;
                td_log_info("logger writes again name=%s dir=%s", slot->ops->name, slot->dir);
            }
        }
        if (failed) give_up(g, slot, failed);
    }
}

// ---- the thread ---------------------------------------------------------------------------------
// The step of the first point that a rank itself has made; INT64_MAX: there is none.
static int64_t first_of(const struct chunk *chunk) {
    for (size_t i = 0; i < chunk->n; i++) {
        if (!is_of_device(&chunk->point[i])) return chunk->point[i].step;
    }
    return INT64_MAX;
}

// One chunk of each rank; false: there was nothing.
static bool read_round(struct td_logger *g, struct chunk *chunk) {
    bool any = false;
    int64_t lowest = INT64_MAX;
    for (int32_t i = 0; i < g->n_ranks; i++) {
        any |= read_points(&g->segments, i, UINT64_MAX, chunk);
        lowest = TD_MIN(lowest, first_of(chunk));
        for (size_t k = 0; k < chunk->n; k++) {
            if (!g->begun && is_of_device(&chunk->point[k])) continue;
            td_status failed = td_log_rows_add(&g->rows, i, &chunk->point[k]);
            if (failed) td_status_log(TD_LOG_WARN, failed, "a point is in no logger, continuing");
        }
    }
    if (lowest == INT64_MAX || g->begun) return any;
    g->first_step = lowest;
    begin(g);
    return true;
}

static void turn(struct td_logger *g, struct chunk *chunk, bool is_last) {
    struct td_log_row row;
    int flags = is_last ? TD_LOG_TAKE_ALL : 0;
    for (bool more = true; more;) {
        more = read_round(g, chunk);
        if (g->begun && td_mono_now().ns >= g->present_at.ns) flags |= TD_LOG_TAKE_PRESENT;
        while (td_log_rows_take(&g->rows, more ? flags & ~TD_LOG_TAKE_ALL : flags, &row)) {
            put_all(g, &row);
        }
    }
    flush_all(g, flags);
}

static void say_how_far(struct td_logger *g) {
    bool fails = false;
    for (size_t i = 0; i < g->n_slots && g->begun; i++) {
        fails |= !g->slot[i].sink;
    }
    for (int32_t i = 0; i < g->n_ranks && !fails; i++) {
        atomic_store(&g->written[i], g->segments.offset[i]);
    }
    atomic_store(&g->fails, fails);
}

bool td_logger_has(struct td_logger *g, const uint64_t *bytes) {
    if (!g || atomic_load(&g->fails)) return true;
    bool has = true;
    for (int32_t i = 0; i < g->n_ranks; i++) {
        has &= atomic_load(&g->written[i]) >= bytes[i];
    }
    if (!has) (void)eventfd_write(g->look_fd, 1);
    return has;
}

static void *logger_main(void *arg) {
    struct td_logger *g = arg;
    TD_AUTO_FREE struct chunk *chunk = td_calloc(1, sizeof *chunk);
    for (bool is_last = false; chunk && !is_last;) {
        struct pollfd asked[] = {{.fd = g->stop_fd, .events = POLLIN},
                                 {.fd = g->look_fd, .events = POLLIN}};
        eventfd_t looks;
        (void)poll(asked, TD_COUNTOF(asked), LOOK_MS);
        if (asked[1].revents) (void)eventfd_read(g->look_fd, &looks);
        is_last = asked[0].revents;
        turn(g, chunk, is_last);
        say_how_far(g);
    }
    for (size_t i = 0; i < g->n_slots; i++) {
        g->slot[i].ops->close(g->slot[i].sink);
        g->slot[i].sink = NULL;
    }
    (void)eventfd_write(g->done_fd, 1);
    return NULL;
}

// ---- the plan -----------------------------------------------------------------------------------
// TensorBoard lists folders, so theirs has the job's name before its id. Builds before had the id
// alone: a job that they began goes on there.
static td_status place_in(struct slot *slot, const char *dir, const struct td_json *plan,
                          const char *job) {
    const char *name = td_json_string(td_json_get(plan, "name"), "");
    TD_TRY(td_fs_path(slot->dir, "%s/%s", dir, job));
    if (!name[0] || strcmp(name, job) == 0 || access(slot->dir, F_OK) == 0) return TD_OK;
    return td_fs_path(slot->dir, "%s/%s-%s", dir, name, job);
}

static td_status place(struct slot *slot, const struct td_json *entry, const struct td_json *plan,
                       const struct td_launch_options *o) {
    const char *dir = td_json_string(td_json_get(entry, "dir"), NULL);
    const char *own = td_json_string(td_json_path(plan, "run.checkpoint_dir"), o->dir);
    const char *end = strrchr(own, '/');
    if (dir) return place_in(slot, dir, plan, o->job);
    return td_fs_path(slot->dir, "%.*s/logs", (int)(end ? end - own : 0), own);
}

static td_status read_plan(struct td_logger *g, const struct td_launch_options *o) {
    TD_AUTO(td_arena) *arena = NULL;
    TD_AUTO_BUF text;
    struct td_json *plan;
    td_buf_init(&text, PLAN_MAX);
    TD_TRY(td_arena_create(ARENA_BYTES, &arena));
    TD_TRY(td_fs_read(o->plan, PLAN_MAX, &text));
    TD_TRY_CTX(td_json_parse(arena, text.data, text.len, &plan), "'%s'", o->plan);
    const struct td_json *list = td_json_get(plan, "loggers");
    for (const struct td_json *e = list ? list->first : NULL; e && g->n_slots < SINKS_MAX;
         e = e->next) {
        const char *name = td_json_string(td_json_get(e, "name"), "");
        for (size_t k = 0; k < TD_COUNTOF(kinds); k++) {
            if (strcmp(kinds[k]->name, name) != 0) continue;
            struct slot *slot = &g->slot[g->n_slots++];
            slot->ops = kinds[k];
            TD_TRY(place(slot, e, plan, o));
        }
    }
    return TD_OK;
}

// ---- life ---------------------------------------------------------------------------------------
static td_status make(struct td_logger *g, const struct td_launch_options *o) {
    const char *end = strrchr(o->dir, '/');
    TD_TRY(td_fs_path(g->attempt_dir, "%s", o->dir));
    TD_TRY(td_fs_path(g->parent_dir, "%.*s", (int)(end ? end - o->dir : 0), o->dir));
    g->attempt = o->attempt;
    g->first_rank = o->first_rank;
    g->n_ranks = o->n_ranks;
    TD_TRY(read_plan(g, o));
    if (g->n_slots == 0) return TD_OK;
    TD_TRY(td_log_rows_init(&g->rows, g->n_ranks));
    (void)open_segments(g, g->attempt_dir, &g->segments);
    g->stop_fd = eventfd(0, EFD_CLOEXEC);
    g->done_fd = eventfd(0, EFD_CLOEXEC);
    g->look_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (g->stop_fd < 0 || g->done_fd < 0 || g->look_fd < 0) {
        return td_fail_errno(TD_RESOURCE_EXHAUSTED, "make an eventfd for the loggers");
    }
    errno = pthread_create(&g->thread, NULL, logger_main, g);
    if (errno) return td_fail_errno(TD_RESOURCE_EXHAUSTED, "start the loggers' thread");
    g->runs = true;
    if (g->n_ranks == o->world_size) return TD_OK;
    char text[TD_LOGGER_NOTE];
    snprintf(text, sizeof text,
             "loggers write the metrics of the first node's ranks alone, %d of %d; `trainctl "
             "metrics` has those of all",
             g->n_ranks, o->world_size);
    say(g, text);
    return TD_OK;
}

td_status td_logger_start(const struct td_launch_options *o, struct td_logger **out_logger) {
    *out_logger = NULL;
    if (o->first_rank != 0) return TD_OK;
    struct td_logger *g = td_calloc(1, sizeof *g);
    if (!g) return td_fail_oom();
    g->stop_fd = g->done_fd = g->look_fd = -1;
    for (size_t i = 0; i < TD_LAUNCH_RANKS_MAX; i++) {
        g->segments.fd[i] = -1;
    }
    pthread_mutex_init(&g->lock, NULL);
    td_status failed = make(g, o);
    if (failed || !g->runs) {
        td_logger_destroy(g);
        return failed;
    }
    *out_logger = g;
    return TD_OK;
}

bool td_logger_finish(struct td_logger *g) {
    if (!g || !g->runs) return true;
    struct pollfd done = {.fd = g->done_fd, .events = POLLIN};
    (void)eventfd_write(g->stop_fd, 1);
    if (poll(&done, 1, END_MS) > 0) {
        (void)pthread_join(g->thread, NULL);
        g->runs = false;
        return true;
    }
    char text[TD_LOGGER_NOTE];
    (void)td_clip(
        text, sizeof text,
        "the loggers did not end in %d s: '%s' may lack the last rows; `trainctl metrics` "
        "has them",
        END_MS / 1000, g->slot[0].dir);
    say(g, text);
    return false;
}

void td_logger_destroy(struct td_logger *g) {
    if (!g || g->runs) return; // a thread that hangs keeps it
    close_segments(&g->segments, g->n_ranks);
    td_log_rows_finish(&g->rows);
    td_auto_close(&g->stop_fd);
    td_auto_close(&g->done_fd);
    td_auto_close(&g->look_fd);
    pthread_mutex_destroy(&g->lock);
    free(g);
}
