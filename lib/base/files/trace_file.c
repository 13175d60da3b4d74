// One buffer, one file, one lock (see trace_file.h).

#include "lib/base/files/trace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>

#include "lib/base/buf.h"
#include "lib/base/files/files.h"
#include "lib/base/files/named_output.h"
#include "lib/base/log.h"

enum { BUFFER_BYTES = 64 << 10, LINE_BYTES = 768 };

struct td_trace_file {
    pthread_mutex_t lock;
    int fd;
    int64_t n_events, max_events;
    int32_t process; // of the last event
    struct td_buf lines;
    char path[TD_FS_PATH_BYTES];
};

td_status td_trace_file_create(const char *path, int64_t max_events,
                               struct td_trace_file **out_file) {
    TD_AUTO(td_trace_file) *f = td_calloc(1, sizeof *f);
    if (!f) return td_fail_oom();
    f->fd = -1;
    f->max_events = max_events;
    pthread_mutex_init(&f->lock, NULL);
    td_buf_init(&f->lines, BUFFER_BYTES);
    TD_TRY(td_fs_path(f->path, "%s", path));
    TD_TRY(td_named_output_update(f->path, O_WRONLY, 0644, &f->fd));
    if (ftruncate(f->fd, 0) != 0) return td_fs_fail("cut", f->path);
    *out_file = td_steal(f);
    return TD_OK;
}

// The lock is held, here and in the next two.
static td_status write_lines(struct td_trace_file *f) {
    const uint8_t *at = (const uint8_t *)f->lines.data;
    for (size_t left = f->lines.len; left;) {
        const ssize_t n = write(f->fd, at, left);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return td_fs_fail("write the trace", f->path);
        at += n;
        left -= (size_t)n;
    }
    td_buf_clear(&f->lines);
    return TD_OK;
}

static td_status add(struct td_trace_file *f, const struct td_trace_event *e, const char *args) {
    const int64_t ns = e->end.ns - e->start.ns;
    if (f->n_events++ >= f->max_events) return TD_OK;
    if (f->lines.len + LINE_BYTES > BUFFER_BYTES) TD_TRY(write_lines(f));
    f->process = e->process;
    return td_buf_printf(&f->lines,
                         "%s{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"ts\":%" PRId64
                         ".%03d,\"dur\":%" PRId64 ".%03d,\"pid\":%d,\"tid\":%d,\"args\":{%.300s}}",
                         f->n_events == 1 ? "[\n" : ",\n", e->name, e->category, e->start.ns / 1000,
                         (int)(e->start.ns % 1000), ns / 1000, (int)(ns % 1000), e->process,
                         e->thread, args ? args : "");
}

static td_status name_thread(struct td_trace_file *f, int32_t process, int32_t thread,
                             const char *name) {
    if (f->n_events++ >= f->max_events) return TD_OK;
    if (f->lines.len + LINE_BYTES > BUFFER_BYTES) TD_TRY(write_lines(f));
    return td_buf_printf(&f->lines,
                         "%s{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,"
                         "\"args\":{\"name\":\"%s\"}}",
                         f->n_events == 1 ? "[\n" : ",\n", process, thread, name);
}

td_status td_trace_file_add(struct td_trace_file *f, const struct td_trace_event *e,
                            const char *args) {
    pthread_mutex_lock(&f->lock);
    td_status s = add(f, e, args);
    pthread_mutex_unlock(&f->lock);
    return s;
}

td_status td_trace_file_name_thread(struct td_trace_file *f, int32_t process, int32_t thread,
                                    const char *name) {
    pthread_mutex_lock(&f->lock);
    td_status s = name_thread(f, process, thread, name);
    pthread_mutex_unlock(&f->lock);
    return s;
}

td_status td_trace_file_flush(struct td_trace_file *f) {
    pthread_mutex_lock(&f->lock);
    td_status s = write_lines(f);
    pthread_mutex_unlock(&f->lock);
    return s;
}

static td_status end(struct td_trace_file *f) {
    const int64_t left_out = TD_MAX(f->n_events - f->max_events, (int64_t)0);
    TD_TRY(td_buf_printf(&f->lines, "%s", f->n_events ? "" : "["));
    if (left_out) {
        TD_TRY(td_buf_printf(&f->lines,
                             ",\n{\"name\":\"the trace is full\",\"ph\":\"i\",\"s\":\"p\",\"ts\":"
                             "%" PRId64 ",\"pid\":%d,\"tid\":0,\"args\":{\"events_not_written\":"
                             "%" PRId64 "}}",
                             td_mono_now().ns / 1000, f->process, left_out));
    }
    TD_TRY(td_buf_printf(&f->lines, "\n]\n"));
    return write_lines(f);
}

void td_trace_file_destroy(struct td_trace_file *f) {
    if (!f) return;
    if (f->fd >= 0) {
        td_status_log(TD_LOG_DEBUG, end(f), "end the trace");
        close(f->fd);
    }
    td_buf_finish(&f->lines);
    pthread_mutex_destroy(&f->lock);
    free(f);
}
