// See the header. One file at a time; the disk is written from the loop thread, in the chunks that
// arrive: nothing else runs on this node's behalf meanwhile but heartbeats and other attempts'
// messages, and a chunk is a quarter of a MiB.

#include "daemon/node/fetch.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/digest.h"
#include "lib/base/log.h"
#include "lib/rpc/client.h"
#include "lib/rpc/loop.h"
#include "traind/v1/checkpoint.pb-c.h"

enum { td_fetch_magic = 0x46544348, TRIES = 5, FILES_MAX = 64 };
static const int64_t call_ns = 30 * TD_NS_PER_S, file_ns = 600 * TD_NS_PER_S,
                     retry_ns = TD_NS_PER_S;

struct file {
    char name[128];
    uint64_t bytes;
    char digest[TD_DIGEST_HEX];
};

struct td_fetch {
    uint32_t magic;
    struct td_rpc_channel *channel;
    const struct td_assignment *assigned;
    td_fetch_fn *fn;
    void *arg;
    size_t source; // index into resume
    int tries;
    struct file files[FILES_MAX];
    size_t n_files, file;
    char tmp[TD_FS_PATH_BYTES];
    int fd;
    uint64_t at;
    struct td_digest *digest;
    td_status failed; // found on our side while a stream runs
    bool destroyed;   // freed when the call that is under way has ended
    struct td_rpc_stream *call;
    struct td_loop_timer *timer;
};

static void next_file(struct td_fetch *f);

static const struct td_resume *source(const struct td_fetch *f) {
    return &f->assigned->resume[f->source];
}

static bool is_here(const struct td_assignment *a, const struct td_resume *r) {
    char path[TD_FS_PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s/manifest.json", a->checkpoints, r->path);
    return !r->fetch || td_fs_exists(path);
}

bool td_fetch_needed(const struct td_assignment *a) {
    return a->n_resume > 0 && !is_here(a, &a->resume[0]);
}

static void close_file(struct td_fetch *f) {
    td_auto_close(&f->fd);
    f->fd = -1;
    td_digest_destroy(td_steal(f->digest));
}

static void drop_tmp(struct td_fetch *f) {
    close_file(f);
    if (f->tmp[0]) td_status_free(td_fs_remove_tree(f->tmp));
    f->tmp[0] = '\0';
}

void td_fetch_destroy(struct td_fetch *f) {
    if (!f) return;
    drop_tmp(f);
    td_loop_timer_destroy(td_steal(f->timer));
    if (f->call) {
        f->destroyed = true;
        td_rpc_stream_cancel(f->call);
        return;
    }
    td_status_free(f->failed);
    f->magic = 0;
    free(f);
}

// ---- one source after the other -----------------------------------------------------------------
static void advance(struct td_fetch *f) {
    drop_tmp(f);
    f->tries = 0;
    f->source++;
    td_loop_timer_arm(f->timer, 0);
}

static void give_back(struct td_fetch *f, td_status take_status) {
    td_status_free(f->failed);
    f->failed = NULL;
    drop_tmp(f);
    td_status s = td_status_context(take_status, "fetch checkpoint %s of %s", source(f)->path,
                                    f->assigned->job);
    f->fn(s, f->arg);
}

static void source_failed(struct td_fetch *f, td_status take_status) {
    enum td_code code = td_status_code(take_status);
    bool bad = code == TD_NOT_FOUND || code == TD_DATA_LOSS || code == TD_INVALID_ARGUMENT;
    bool full = td_status_class(take_status) == TD_CLASS_DISK;
    if (bad) {
        td_log_warn("checkpoint skipped job=%s path=%s why=\"%s\", continuing", f->assigned->job,
                    source(f)->path, td_status_message(take_status));
        td_status_free(take_status);
        advance(f);
    } else if (full || ++f->tries == TRIES) {
        give_back(f, take_status);
    } else {
        td_status_free(take_status);
        drop_tmp(f);
        td_loop_timer_arm(f->timer, retry_ns);
    }
}

static td_status move_into_place(struct td_fetch *f) {
    char path[TD_FS_PATH_BYTES];
    TD_TRY(td_fs_fsync_dir(f->tmp));
    TD_TRY(td_fs_path(path, "%s/%s", f->assigned->checkpoints, source(f)->path));
    TD_TRY(td_fs_remove_tree(path)); // without a manifest it was none
    TD_TRY(td_fs_rename(f->tmp, path));
    f->tmp[0] = '\0';
    return TD_OK;
}

// ---- files --------------------------------------------------------------------------------------
static void on_message(struct td_rpc_stream *s, const ProtobufCMessage *message, void *arg) {
    struct td_fetch *f = TD_CAST(td_fetch, arg);
    const Traind__V1__ReadShardResponse *r = (const Traind__V1__ReadShardResponse *)message;
    struct file *file = &f->files[f->file];
    td_status failed = TD_OK;
    if (f->failed || f->destroyed) return;
    if (file->bytes == 0) file->bytes = r->file_bytes; // the list does not know the manifest's
    if (r->offset != f->at || r->data.len > file->bytes - f->at) {
        failed = td_fail(TD_DATA_LOSS, "%s: bytes at %" PRIu64 " where %" PRIu64 " was next",
                         file->name, r->offset, f->at);
    } else {
        failed = td_fd_write_all(f->fd, r->data.data, r->data.len, file->name);
        td_digest_update(f->digest, r->data.data, r->data.len);
        f->at += r->data.len;
    }
    if (!failed) return;
    f->failed = failed;
    td_rpc_stream_cancel(s);
}

static td_status finish_file(struct td_fetch *f) {
    const struct file *file = &f->files[f->file];
    char hex[TD_DIGEST_HEX];
    td_digest_hex(f->digest, hex);
    if (f->at != file->bytes || strcmp(hex, file->digest) != 0) {
        return td_fail(TD_DATA_LOSS,
                       "%s: %" PRIu64 " bytes with digest %s, expected %" PRIu64 " with %s",
                       file->name, f->at, hex, file->bytes, file->digest);
    }
    if (fsync(f->fd) != 0) return td_fs_fail("sync", file->name);
    close_file(f);
    return TD_OK;
}

static void on_done(struct td_rpc_stream *s, td_status take_status, void *arg) {
    (void)s;
    struct td_fetch *f = TD_CAST(td_fetch, arg);
    f->call = NULL;
    if (f->destroyed) {
        td_status_free(take_status);
        td_fetch_destroy(f);
        return;
    }
    td_status result = f->failed ? td_steal(f->failed) : td_steal(take_status);
    td_status_free(take_status);
    if (!result) result = finish_file(f);
    if (result) {
        source_failed(f, result);
        return;
    }
    f->file++;
    next_file(f);
}

static const struct td_rpc_stream_ops read_ops = {.on_message = on_message, .on_done = on_done};

static td_status open_file(struct td_fetch *f) {
    char path[TD_FS_PATH_BYTES];
    const struct file *file = &f->files[f->file];
    TD_TRY(td_fs_path(path, "%s/%s", f->tmp, file->name));
    f->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (f->fd < 0) return td_fs_fail("open", path);
    f->at = 0;
    return td_digest_create(&f->digest);
}

static void next_file(struct td_fetch *f) {
    if (f->file == f->n_files) {
        td_status s = move_into_place(f);
        if (s) {
            source_failed(f, s);
            return;
        }
        td_log_info("checkpoint fetched job=%s path=%s", f->assigned->job, source(f)->path);
        f->fn(TD_OK, f->arg);
        return;
    }
    td_status s = open_file(f);
    if (!s) {
        char job[64], path[TD_ASSIGNMENT_PATH];
        Traind__V1__ReadShardRequest m = TRAIND__V1__READ_SHARD_REQUEST__INIT;
        snprintf(job, sizeof job, "%s", f->assigned->job);
        snprintf(path, sizeof path, "%s", source(f)->path);
        m.job = job;
        m.path = path;
        m.file = f->files[f->file].name;
        s = td_rpc_stream_open(f->channel, "/traind.v1.CheckpointService/ReadShard",
                               &traind__v1__read_shard_response__descriptor, file_ns, &read_ops, f,
                               &f->call);
        if (!s) {
            (void)td_rpc_stream_send(f->call, &m.base);
            td_rpc_stream_half_close(f->call);
        }
    }
    if (s) source_failed(f, s);
}

static td_status take_files(struct td_fetch *f, const Traind__V1__Checkpoint *c) {
    if (c->n_files == 0 || c->n_files > FILES_MAX) {
        return td_fail(TD_DATA_LOSS, "a checkpoint of %zu files", c->n_files);
    }
    f->n_files = c->n_files;
    f->file = 0;
    for (size_t i = 0; i < c->n_files; i++) {
        struct file *file = &f->files[i];
        if (!td_checkpoint_file_valid(c->files[i]->name)) {
            return td_fail(TD_DATA_LOSS, "'%.64s' is no file name", c->files[i]->name);
        }
        snprintf(file->name, sizeof file->name, "%s", c->files[i]->name);
        snprintf(file->digest, sizeof file->digest, "%s", c->files[i]->digest);
        file->bytes = c->files[i]->bytes;
    }
    TD_TRY(td_fs_path(f->tmp, "%s/%s.tmp", f->assigned->checkpoints, source(f)->path));
    TD_TRY(td_fs_remove_tree(f->tmp));
    return td_fs_mkdirs(f->tmp, 0700);
}

static void on_checkpoint(td_status take_status, const ProtobufCMessage *response, void *arg) {
    struct td_fetch *f = TD_CAST(td_fetch, arg);
    f->call = NULL;
    if (f->destroyed) {
        td_status_free(take_status);
        td_fetch_destroy(f);
        return;
    }
    if (!take_status) take_status = take_files(f, (const Traind__V1__Checkpoint *)response);
    if (take_status) {
        source_failed(f, take_status);
    } else {
        next_file(f);
    }
}

// The timer: looks at the source that is due.
static void on_source(void *arg) {
    struct td_fetch *f = TD_CAST(td_fetch, arg);
    if (f->source == f->assigned->n_resume || is_here(f->assigned, source(f))) {
        f->fn(f->source < f->assigned->n_resume
                  ? TD_OK
                  : td_status_with_class(td_fail(TD_DATA_LOSS,
                                                 "none of the %zu checkpoints of %s could be had",
                                                 f->assigned->n_resume, f->assigned->job),
                                         TD_CLASS_DATA),
              f->arg);
        return;
    }
    char job[64], path[TD_ASSIGNMENT_PATH];
    Traind__V1__GetCheckpointRequest m = TRAIND__V1__GET_CHECKPOINT_REQUEST__INIT;
    snprintf(job, sizeof job, "%s", f->assigned->job);
    snprintf(path, sizeof path, "%s", source(f)->path);
    m.job = job;
    m.path = path;
    td_status s =
        td_rpc_unary(f->channel, "/traind.v1.CheckpointService/GetCheckpoint", &m.base,
                     &traind__v1__checkpoint__descriptor, call_ns, on_checkpoint, f, &f->call);
    if (s) source_failed(f, s);
}

td_status td_fetch_create(struct td_loop *loop, struct td_rpc_channel *channel,
                          const struct td_assignment *assigned, td_fetch_fn *fn, void *arg,
                          struct td_fetch **out_fetch) {
    struct td_fetch *f = td_calloc(1, sizeof *f);
    if (!f) return td_fail_oom();
    f->magic = td_fetch_magic;
    f->channel = channel;
    f->assigned = assigned;
    f->fn = fn;
    f->arg = arg;
    f->fd = -1;
    td_status s = td_loop_timer_create(loop, on_source, f, &f->timer);
    if (s) {
        td_fetch_destroy(f);
        return s;
    }
    td_loop_timer_arm(f->timer, 0);
    *out_fetch = f;
    return TD_OK;
}
