// One thread, one list in, one list out, and a wake-up of the loop. See disk.h.

#include "daemon/coordinator/shell/disk/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/base/files/files.h"
#include "lib/base/files/path_rules.h"
#include "lib/base/log.h"
#include "lib/loop/loop.h"

struct td_disk {
    const char *name;
    pthread_t thread;
    bool running;
    pthread_mutex_t mutex; // guards what follows
    pthread_cond_t cond;
    struct td_disk_job *waiting, **waiting_tail;
    struct td_disk_job *done, **done_tail;
    uint32_t n_jobs; // given and not yet done
    bool stop;
    struct td_loop_wakeup *wakeup;
};

static void *disk_loop(void *arg) {
    struct td_disk *d = arg;
    td_log_context("thread", d->name);
    pthread_mutex_lock(&d->mutex);
    for (;;) {
        while (!d->waiting && !d->stop) {
            pthread_cond_wait(&d->cond, &d->mutex);
        }
        struct td_disk_job *job = d->waiting;
        if (!job) break;
        d->waiting = job->next;
        if (!d->waiting) d->waiting_tail = &d->waiting;
        pthread_mutex_unlock(&d->mutex);
        job->run(job);
        pthread_mutex_lock(&d->mutex);
        job->next = NULL;
        *d->done_tail = job;
        d->done_tail = &job->next;
        td_loop_wakeup_send(d->wakeup);
    }
    pthread_mutex_unlock(&d->mutex);
    return NULL;
}

static void deliver(void *arg) {
    struct td_disk *d = arg;
    pthread_mutex_lock(&d->mutex);
    struct td_disk_job *head = d->done;
    d->done = NULL;
    d->done_tail = &d->done;
    pthread_mutex_unlock(&d->mutex);
    while (head) {
        struct td_disk_job *job = head;
        head = job->next;
        pthread_mutex_lock(&d->mutex);
        d->n_jobs--;
        pthread_mutex_unlock(&d->mutex);
        job->done(job);
    }
}

td_status td_disk_create(struct td_loop *loop, const char *name, struct td_disk **out_disk) {
    TD_AUTO(td_disk) *d = td_calloc(1, sizeof *d);
    if (!d) return td_fail_oom();
    d->name = name;
    d->waiting_tail = &d->waiting;
    d->done_tail = &d->done;
    pthread_mutex_init(&d->mutex, NULL);
    pthread_cond_init(&d->cond, NULL);
    TD_TRY(td_loop_wakeup_create(loop, deliver, d, &d->wakeup));
    int rc = pthread_create(&d->thread, NULL, disk_loop, d);
    if (rc != 0) return td_fail(TD_RESOURCE_EXHAUSTED, "thread '%s': %s", name, strerror(rc));
    d->running = true;
    *out_disk = td_steal(d);
    return TD_OK;
}

void td_disk_destroy(struct td_disk *d) {
    if (!d) return;
    if (d->running) {
        pthread_mutex_lock(&d->mutex);
        d->stop = true;
        pthread_cond_signal(&d->cond);
        pthread_mutex_unlock(&d->mutex);
        pthread_join(d->thread, NULL);
        deliver(d);
    }
    td_loop_wakeup_destroy(d->wakeup);
    pthread_mutex_destroy(&d->mutex);
    pthread_cond_destroy(&d->cond);
    free(d);
}

td_status td_disk_submit(struct td_disk *d, struct td_disk_job *job) {
    pthread_mutex_lock(&d->mutex);
    bool full = d->n_jobs >= TD_DISK_MAX_JOBS || d->stop;
    if (!full) {
        job->next = NULL;
        *d->waiting_tail = job;
        d->waiting_tail = &job->next;
        d->n_jobs++;
        pthread_cond_signal(&d->cond);
    }
    pthread_mutex_unlock(&d->mutex);
    if (!full) return TD_OK;
    return td_status_with_reason(
        td_fail(TD_RESOURCE_EXHAUSTED, "%d pieces of work wait for the disk", TD_DISK_MAX_JOBS),
        "OVERLOADED");
}

// ---- reading ------------------------------------------------------------------------------------
struct reading {
    struct td_disk_job job;
    struct td_disk_file file; // its path is this one's
    char *path;
    uint64_t offset;
    size_t bytes, n;
    void *data;
    td_status failure;
    td_disk_read_fn *done;
    void *arg;
};

static void free_reading(struct reading *r) {
    free(r->path);
    free(r->data);
    free(r);
}

static td_status open_file(const struct reading *r, int *out_fd) {
    TD_AUTO_CLOSE int fd = -1;
    TD_TRY(td_fs_open_below(r->path, r->file.root_bytes, &fd, NULL));
    if (r->file.is_named) TD_TRY(td_path_rules_check(TD_PATH_READ, r->path, fd));
    *out_fd = td_steal_fd(&fd);
    return TD_OK;
}

static void reading_run(struct td_disk_job *job) {
    struct reading *r = (struct reading *)job;
    TD_AUTO_CLOSE int own_fd = -1;
    int *kept = r->file.fd ? r->file.fd : &own_fd;
    if (*kept < 0) r->failure = open_file(r, kept);
    if (r->failure) return;
    const int fd = *kept;
    while (r->n < r->bytes) {
        ssize_t got = pread(fd, (char *)r->data + r->n, r->bytes - r->n, (off_t)(r->offset + r->n));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) r->failure = td_fail_errno(TD_UNAVAILABLE, "read '%s'", r->path);
        if (got <= 0) return;
        r->n += (size_t)got;
    }
}

static void reading_done(struct td_disk_job *job) {
    struct reading *r = (struct reading *)job;
    r->done(r->failure, r->data, r->n, r->arg);
    free_reading(r);
}

td_status td_disk_file_bytes(const char *path, uint64_t *out_bytes) {
    struct stat st;
    if (lstat(path, &st) != 0) {
        return td_fail_errno(errno == ENOENT ? TD_NOT_FOUND : TD_UNAVAILABLE, "look at '%s'", path);
    }
    if (!S_ISREG(st.st_mode)) return td_fail(TD_DATA_LOSS, "'%s' is no regular file", path);
    *out_bytes = (uint64_t)st.st_size;
    return TD_OK;
}

td_status td_disk_write_at(int fd, const char *path, uint64_t offset, const void *data,
                           size_t bytes) {
    struct stat st;
    if (fstat(fd, &st) != 0) return td_fail_errno(TD_UNAVAILABLE, "look at '%s'", path);
    if ((uint64_t)st.st_size < offset) {
        return td_fail(TD_UNAVAILABLE, "'%s' has %jd bytes and not %" PRIu64 ": send from there",
                       path, (intmax_t)st.st_size, offset);
    }
    if (lseek(fd, (off_t)offset, SEEK_SET) < 0) {
        return td_fail_errno(TD_UNAVAILABLE, "seek in '%s'", path);
    }
    return td_fd_write_all(fd, data, bytes, path);
}

td_status td_disk_read(struct td_disk *d, const struct td_disk_file *file, uint64_t offset,
                       size_t bytes, td_disk_read_fn *done, void *arg) {
    struct reading *r = td_calloc(1, sizeof *r);
    if (!r) return td_fail_oom();
    *r = (struct reading){.job = {.run = reading_run, .done = reading_done},
                          .file = *file,
                          .path = td_strdup(file->path),
                          .offset = offset,
                          .bytes = bytes,
                          .data = malloc(bytes ? bytes : 1),
                          .done = done,
                          .arg = arg};
    td_status s = r->path && r->data ? td_disk_submit(d, &r->job) : td_fail_oom();
    if (s) free_reading(r);
    return s;
}
