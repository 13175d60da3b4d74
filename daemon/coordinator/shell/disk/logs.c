// See logs.h. A stream is known from its first use; unknown ones are asked of the file system.

#include "daemon/coordinator/shell/disk/logs.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/coordinator/shell/shell.h"
#include "lib/base/files/files.h"
#include "lib/base/log.h"
#include "lib/base/map.h"

struct stream {
    uint64_t size;   // durable
    uint64_t queued; // and accepted
};

struct td_logs {
    struct td_coordinator *c;
    struct td_map *streams; // "<job>/a<n>/<rank>.out"
};

struct write {
    struct td_disk_job job;
    struct td_logs *logs;
    struct td_log_key key;
    char path[TD_SHELL_PATH_MAX];
    uint64_t offset;
    void *data;
    size_t bytes;
    td_status failure;
    void (*done)(td_status take_status, void *arg);
    void *arg;
};

td_status td_logs_create(struct td_coordinator *c, struct td_logs **out_logs) {
    struct td_logs *l = td_calloc(1, sizeof *l);
    if (!l) return td_fail_oom();
    l->c = c;
    td_status s = td_map_create(TD_LOGS_MAX_STREAMS, &l->streams);
    if (s) {
        free(l);
        return s;
    }
    *out_logs = l;
    return TD_OK;
}

void td_logs_destroy(struct td_logs *l) {
    if (!l) return;
    void *value;
    for (size_t cursor = 0; (value = td_map_each(l->streams, &cursor));) {
        free(value);
    }
    td_map_destroy(l->streams);
    free(l);
}

static void name_of(const struct td_log_key *k, char out[80]) {
    snprintf(out, 80, "%s/a%u/%u.%s", k->job, k->attempt, k->rank, k->err ? "err" : "out");
}

void td_logs_path(const struct td_logs *l, const struct td_log_key *key, char *out, size_t bytes) {
    char name[80];
    name_of(key, name);
    snprintf(out, bytes, "%s/logs/%s", l->c->state_dir, name);
}

static uint64_t size_on_disk(const struct td_logs *l, const struct td_log_key *key) {
    char path[TD_SHELL_PATH_MAX];
    struct stat st;
    td_logs_path(l, key, path, sizeof path);
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
}

// Those at rest can be found again on disk.
static void make_room(struct td_logs *l) {
    size_t cursor = 0;
    const char *key;
    void *value;
    while (td_map_next(l->streams, &cursor, &key, &value)) {
        struct stream *s = value;
        if (s->size != s->queued) continue;
        td_map_remove(l->streams, key);
        free(s);
    }
}

static td_status find(struct td_logs *l, const struct td_log_key *key, struct stream **out) {
    char name[80];
    name_of(key, name);
    *out = td_map_get(l->streams, name);
    if (*out) return TD_OK;
    if (td_map_count(l->streams) == TD_LOGS_MAX_STREAMS) make_room(l);
    struct stream *s = td_calloc(1, sizeof *s);
    if (!s) return td_fail_oom();
    s->size = s->queued = size_on_disk(l, key);
    td_status failed = td_map_put(l->streams, name, s, NULL);
    if (failed) {
        free(s);
        return failed;
    }
    *out = s;
    return TD_OK;
}

uint64_t td_logs_size(struct td_logs *l, const struct td_log_key *key) {
    char name[80];
    name_of(key, name);
    const struct stream *s = td_map_get(l->streams, name);
    return s ? s->size : size_on_disk(l, key);
}

void td_logs_load(struct td_logs *l, const struct td_job *j) {
    for (uint32_t n = 1; n <= j->n_attempts; n++) {
        const struct td_attempt *a = td_job_attempt(j, n);
        if (td_attempt_over(a)) continue;
        for (uint32_t i = 0; i < 2 * a->n_ranks; i++) {
            struct td_log_key key = {.attempt = n, .rank = i / 2, .err = i % 2};
            memcpy(key.job, j->id, sizeof key.job);
            td_core_load_offset(l->c->core, j->id, n, key.rank,
                                key.err ? TRAIND__V1__SEGMENT__KIND__ERR
                                        : TRAIND__V1__SEGMENT__KIND__OUT,
                                size_on_disk(l, &key));
        }
    }
}

// ---- appending ----------------------------------------------------------------------------------
static td_status write_at(const struct write *w) {
    char dir[TD_SHELL_PATH_MAX];
    snprintf(dir, sizeof dir, "%s", w->path);
    *strrchr(dir, '/') = '\0';
    TD_TRY(td_held_path_check(&w->logs->c->home));
    if (w->offset == 0) TD_TRY(td_fs_mkdirs(dir, 0700));
    TD_AUTO_CLOSE int fd = open(w->path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return td_fail_errno(TD_UNAVAILABLE, "open log '%s'", w->path);
    TD_TRY(td_disk_write_at(fd, w->path, w->offset, w->data, w->bytes));
    if (fdatasync(fd) != 0) return td_fail_errno(TD_UNAVAILABLE, "sync log '%s'", w->path);
    return TD_OK;
}

static void write_run(struct td_disk_job *job) {
    struct write *w = (struct write *)job;
    w->failure = write_at(w);
}

static void write_done(struct td_disk_job *job) {
    struct write *w = (struct write *)job;
    struct td_coordinator *c = w->logs->c;
    struct stream *s = NULL;
    td_status failed = find(w->logs, &w->key, &s);
    if (!failed && w->failure) {
        s->queued = s->size; // whoever sends it receives the length and sends again from there
    } else if (!failed && w->offset <= s->size && w->offset + w->bytes > s->size) {
        s->size = w->offset + w->bytes; // past a write that failed, nothing counts
    }
    if (!failed) {
        td_core_log_committed(
            c->core, td_shell_now(), w->key.job, w->key.attempt, w->key.rank,
            w->key.err ? TRAIND__V1__SEGMENT__KIND__ERR : TRAIND__V1__SEGMENT__KIND__OUT, s->size);
        td_shell_after(c);
        c->roof->log_grew(c, w->key.job);
    }
    td_status_free(failed);
    w->done(w->failure, w->arg);
    free(w->data);
    free(w);
}

td_status td_logs_append(struct td_logs *l, const struct td_log_key *key, uint64_t offset,
                         const void *data, size_t bytes,
                         void (*done)(td_status take_status, void *arg), void *arg,
                         bool *out_pending) {
    struct stream *s = NULL;
    TD_TRY(find(l, key, &s));
    *out_pending = false;
    if (offset > s->queued || s->queued - offset >= bytes) return TD_OK;
    size_t skip = (size_t)(s->queued - offset);
    if (offset + bytes > TD_LOGS_MAX_BYTES) {
        return td_status_with_reason(
            td_fail(TD_RESOURCE_EXHAUSTED, "a log of more than %d MiB", TD_LOGS_MAX_BYTES >> 20),
            "LIMIT_LOG");
    }
    struct write *w = td_calloc(1, sizeof *w);
    if (!w) return td_fail_oom();
    *w = (struct write){.job = {.run = write_run, .done = write_done},
                        .logs = l,
                        .key = *key,
                        .offset = s->queued,
                        .bytes = bytes - skip,
                        .done = done,
                        .arg = arg};
    td_logs_path(l, key, w->path, sizeof w->path);
    w->data = malloc(w->bytes);
    if (w->data) memcpy(w->data, (const char *)data + skip, w->bytes);
    size_t taken = w->bytes; // the job is the thread's once it was given
    td_status failed = w->data ? td_disk_submit(l->c->disk, &w->job) : td_fail_oom();
    if (failed) {
        free(w->data);
        free(w);
        return failed;
    }
    s->queued += taken;
    *out_pending = true;
    return TD_OK;
}
