// Event files of TensorBoard: events.out.tfevents.<seconds>.<host>.traind.a<attempt>, one an
// attempt, so that a reader that has the older ones open goes on to the next. A row is one record
// with a scalar for each value and the epoch; a value that comes later is a record of its own. A
// tag is written once a step: what a row repeats is passed over.
//
// When an attempt begins, the files of those before it are cut after the last record that still
// holds. The new file begins with a session start: a reader that runs forgets there what it saw of
// later steps.

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/launcher/loggers/logger_sink.h"
#include "lib/base/clock.h"
#include "lib/base/files/files.h"
#include "lib/base/files/named_output.h"
#include "lib/base/files/tfevents.h"

enum {
    BOARD_MAGIC = 0x6c746266,
    TAGS_MAX = 256 + TD_LOG_DEVICE_CELLS,
    PENDING_MAX = 256 << 10,
    CHUNK = 2 * TD_TFEVENT_MAX,
    HOST_BYTES = 65
};

struct tag {
    char name[TD_LOG_COLUMN_BYTES];
    struct td_step_set there; // steps of its scalars
};
struct board {
    struct td_log_sink base;
    char path[TD_FS_PATH_BYTES];
    int fd;
    uint64_t bytes; // whole records in the file
    struct td_buf pending;
    struct tag tag[TAGS_MAX];
    size_t n_tags;
    struct td_tfevent event; // the one that is read
};

// NULL: there are too many; it is left out.
static struct tag *tag_of(struct board *s, const char *name) {
    for (size_t i = 0; i < s->n_tags; i++) {
        if (strcmp(s->tag[i].name, name) == 0) return &s->tag[i];
    }
    if (s->n_tags == TAGS_MAX) return NULL;
    struct tag *t = &s->tag[s->n_tags++];
    snprintf(t->name, sizeof t->name, "%s", name);
    return t;
}

// ---- files of before ----------------------------------------------------------------------------
// events.out.tfevents.1700000000.host.traind.a3 -> 3; 0: another name.
static unsigned attempt_of(const char *name) {
    static const char prefix[] = "events.out.tfevents.";
    const char *mark = strstr(name, ".traind.a");
    unsigned attempt = 0;
    int end = 0;
    if (strncmp(name, prefix, sizeof prefix - 1) != 0 || !mark) return 0;
    bool whole = sscanf(mark, ".traind.a%9u%n", &attempt, &end) == 1 && !mark[end];
    return whole ? attempt : 0;
}

static void remember(struct board *s) {
    for (size_t i = 0; i < s->event.n; i++) {
        struct tag *t = tag_of(s, s->event.tag[i]);
        if (t) (void)td_step_set_add(&t->there, (int32_t)s->event.step);
    }
}

// Bytes up to the first record that is torn, damaged or too late.
static td_status keep_until(struct board *s, int fd, const char *path, int64_t last,
                            uint64_t *out_bytes) {
    TD_AUTO_FREE unsigned char *chunk = td_calloc(CHUNK, 1);
    if (!chunk) return td_fail_oom();
    for (*out_bytes = 0;;) {
        const ssize_t n = pread(fd, chunk, CHUNK, (off_t)*out_bytes);
        if (n < 0) return td_fs_fail("read", path);
        size_t at = 0, record;
        while ((record = td_tfevent_read(chunk + at, (size_t)n - at, &s->event))) {
            if (s->event.n && s->event.step > last) break;
            remember(s);
            at += record;
        }
        *out_bytes += at;
        if (record || at == 0) return TD_OK;
    }
}

static td_status take_up(struct board *s, const char *path, int64_t last) {
    struct stat st;
    uint64_t bytes = 0;
    TD_AUTO_CLOSE int fd = -1;
    TD_TRY(td_named_output_update(path, O_RDWR, 0666, &fd));
    TD_TRY(keep_until(s, fd, path, last, &bytes));
    if (fstat(fd, &st) != 0) return td_fs_fail("look at", path);
    if ((uint64_t)st.st_size == bytes) return TD_OK;
    return ftruncate(fd, (off_t)bytes) == 0 ? TD_OK : td_fs_fail("cut", path);
}

static td_status look_at(struct board *s, const struct td_log_open *how) {
    DIR *dir = opendir(how->dir);
    td_status failed = TD_OK;
    if (!dir) return td_fs_fail("open", how->dir);
    for (struct dirent *e; !failed && (e = readdir(dir));) {
        char path[TD_FS_PATH_BYTES];
        if (!attempt_of(e->d_name)) continue;
        failed = td_fs_path(path, "%s/%s", how->dir, e->d_name);
        if (failed) break;
        if (!how->fresh) {
            failed = take_up(s, path, how->last);
        } else if (unlink(path) != 0) {
            failed = td_fs_fail("remove", path);
        }
    }
    closedir(dir);
    return failed;
}

// ---- the file -----------------------------------------------------------------------------------
static struct board *board_of(struct td_log_sink *sink) {
    TD_CHECK(sink && sink->magic == BOARD_MAGIC);
    return (struct board *)(void *)sink;
}

static td_status board_flush(struct td_log_sink *sink) {
    struct board *s = board_of(sink);
    if (s->pending.len == 0) return TD_OK;
    TD_TRY(td_log_sink_write(s->fd, s->path, &s->pending, s->bytes));
    s->bytes += s->pending.len;
    td_buf_clear(&s->pending);
    return TD_OK;
}

static void board_close(struct td_log_sink *sink) {
    if (!sink) return;
    struct board *s = board_of(sink);
    s->base.magic = 0;
    if (s->fd >= 0) close(s->fd);
    td_buf_finish(&s->pending);
    for (size_t i = 0; i < s->n_tags; i++) {
        td_step_set_finish(&s->tag[i].there);
    }
    free(s);
}

// Where the attempt has a file already, it goes on with that.
static td_status find_own(struct board *s, const struct td_log_open *how) {
    DIR *dir = opendir(how->dir);
    td_status failed = TD_OK;
    s->path[0] = '\0';
    if (!dir) return td_fs_fail("open", how->dir);
    for (struct dirent *e; (e = readdir(dir));) {
        if (attempt_of(e->d_name) != how->attempt) continue;
        failed = td_fs_path(s->path, "%s/%s", how->dir, e->d_name);
        break;
    }
    closedir(dir);
    return failed;
}

static td_status open_file(struct board *s, const struct td_log_open *how) {
    char host[HOST_BYTES] = "host";
    const int64_t now_ns = td_real_now().ns;
    struct stat st;
    TD_TRY(look_at(s, how));
    TD_TRY(find_own(s, how));
    (void)gethostname(host, sizeof host - 1);
    if (!s->path[0]) {
        TD_TRY(td_fs_path(s->path, "%s/events.out.tfevents.%010lld.%s.traind.a%u", how->dir,
                          (long long)(now_ns / TD_NS_PER_S), host, how->attempt));
    }
    TD_TRY(td_named_output_update(s->path, O_RDWR, 0666, &s->fd));
    if (fstat(s->fd, &st) != 0) return td_fs_fail("look at", s->path);
    s->bytes = (uint64_t)st.st_size;
    if (s->bytes) return TD_OK;
    TD_TRY(td_tfevent_version(now_ns, &s->pending));
    if (how->fresh || how->last == INT64_MAX) return TD_OK;
    return td_tfevent_start(now_ns, how->last + 1, &s->pending);
}

static td_status board_open(const struct td_log_open *how, struct td_log_sink **out_sink) {
    struct board *s = td_calloc(1, sizeof *s);
    if (!s) return td_fail_oom();
    s->base.magic = BOARD_MAGIC;
    s->fd = -1;
    td_buf_init(&s->pending, 2 * PENDING_MAX);
    td_status failed = open_file(s, how);
    if (failed) {
        board_close(&s->base);
        return failed;
    }
    *out_sink = &s->base;
    return TD_OK;
}

// ---- rows ---------------------------------------------------------------------------------------
static void add(struct board *s, const char *name, double value, int64_t step,
                struct td_tfscalar *scalar, size_t *io_n) {
    struct tag *t = tag_of(s, name);
    if (t && td_step_set_add(&t->there, (int32_t)step)) {
        scalar[(*io_n)++] = (struct td_tfscalar){t->name, value};
    }
}

static td_status board_put(struct td_log_sink *sink, const struct td_log_row *row) {
    struct board *s = board_of(sink);
    struct td_tfscalar scalar[TD_LOG_VALUES + 1];
    size_t n = 0;
    for (size_t i = 0; i < row->n; i++) {
        char name[TD_LOG_COLUMN_BYTES];
        td_log_column(row->value[i].name, name);
        add(s, name, row->value[i].value, row->step, scalar, &n);
    }
    if (n == 0) return TD_OK;
    add(s, "epoch", (double)row->epoch, row->step, scalar, &n);
    if (s->pending.len > PENDING_MAX) TD_TRY(board_flush(sink));
    return td_tfevent_scalars(row->real_ns, row->step, scalar, n, &s->pending);
}

const struct td_log_sink_ops td_log_tensorboard = {.name = "tensorboard",
                                                   .open = board_open,
                                                   .put = board_put,
                                                   .flush = board_flush,
                                                   .close = board_close};
