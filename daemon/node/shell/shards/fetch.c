// See the header. One file at a time; the disk is written and read from the loop thread, in the
// chunks that arrive and in pieces of PIECE_BYTES. Meanwhile nothing else runs on this node's
// behalf but heartbeats and other attempts' messages, which come between two of them. The best
// checkpoint comes last, as one more source: which it is, only the manifest of the one that is
// resumed from says exactly.

#include "daemon/node/shell/shards/fetch.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/attempt/checkpoint_name.h"
#include "lib/base/digest.h"
#include "lib/base/json.h"
#include "lib/base/log.h"
#include "lib/loop/loop.h"
#include "lib/rpc/client.h"
#include "traind/v1/checkpoint.pb-c.h"

enum {
    td_fetch_magic = 0x46544348,
    TRIES = 5,
    PIECE_BYTES = 1 << 20,
    MANIFEST_BYTES = 32 << 20, // as ranks write at most
    MANIFEST_ARENA_BYTES = 64 << 20,
};
static const int64_t call_ns = 30 * TD_NS_PER_S, file_ns = 600 * TD_NS_PER_S,
                     retry_ns = TD_NS_PER_S;
static const char manifest[] = "manifest.json";

struct file {
    char name[TD_CHECKPOINT_FILE_BYTES];
    uint64_t bytes;
    char digest[TD_DIGEST_HEX];
};

// The copy of a source on this node's disk.
enum copy { COPY_NONE, COPY_UNCHECKED, COPY_CHECKING, COPY_DAMAGED };

struct td_fetch {
    uint32_t magic;
    struct td_rpc_channel *channel;
    const struct td_assignment *assigned;
    td_fetch_fn *fn;
    void *arg;
    size_t source;         // index into resume
    struct td_resume best; // the source after the one that was found
    bool takes_best;       // it is due, or was
    int tries;
    enum copy copy; // of the source
    struct file files[TD_CHECKPOINT_MAX_FILES + 1];
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
    return f->takes_best ? &f->best : &f->assigned->resume[f->source];
}

static bool wants_best(const struct td_assignment *a) {
    return a->evaluates_best && a->stream_store;
}

bool td_fetch_needed(const struct td_assignment *a) {
    return a->n_resume > 0 && (a->resume[0].fetch || wants_best(a));
}

static td_status path_here(const struct td_fetch *f, const char *file, char *out_path) {
    return td_fs_path(out_path, "%s/%s/%s", f->assigned->checkpoints, source(f)->path, file);
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

// ---- the best of the source that is here --------------------------------------------------------
static td_status read_best(struct td_fetch *f) {
    char path[TD_FS_PATH_BYTES];
    TD_TRY(path_here(f, manifest, path));
    TD_AUTO_BUF text;
    td_buf_init(&text, MANIFEST_BYTES);
    TD_TRY(td_fs_read(path, MANIFEST_BYTES, &text));
    TD_AUTO(td_arena) *arena = NULL;
    TD_TRY(td_arena_create(MANIFEST_ARENA_BYTES, &arena));
    struct td_json *v;
    TD_TRY_CTX(td_json_parse(arena, text.data, text.len, &v), "'%s'", path);
    const char *best = td_json_string(td_json_get(td_json_get(v, "best"), "path"), "");
    if (!td_checkpoint_path_ok(best) || strcmp(best, source(f)->path) == 0) return TD_OK;
    snprintf(f->best.path, sizeof f->best.path, "%s", best);
    return TD_OK;
}

// False: there is none, or it is the source itself. A manifest that cannot be read is the rank's to
// judge.
static bool find_best(struct td_fetch *f) {
    if (!wants_best(f->assigned)) return false;
    td_status s = read_best(f);
    if (s) {
        td_log_warn("best checkpoint not looked for job=%s path=%s why=\"%s\", continuing",
                    f->assigned->job, source(f)->path, td_status_message(s));
    }
    td_status_free(s);
    return f->best.path[0] != '\0';
}

// ---- one source after the other -----------------------------------------------------------------
static void look_at_next(struct td_fetch *f) {
    f->tries = 0;
    f->copy = COPY_NONE;
    td_loop_timer_arm(f->timer, 0);
}

// The source that is due is here, or nobody can say more of it.
static void source_ready(struct td_fetch *f) {
    if (f->takes_best || !find_best(f)) {
        f->fn(TD_OK, f->arg);
        return;
    }
    f->takes_best = true;
    look_at_next(f);
}

// Without this source; the rank says what it does without the best.
static void advance(struct td_fetch *f) {
    drop_tmp(f);
    if (f->takes_best) {
        f->fn(TD_OK, f->arg);
        return;
    }
    f->source++;
    look_at_next(f);
}

static void give_back(struct td_fetch *f, td_status take_status) {
    td_status_free(f->failed);
    f->failed = NULL;
    drop_tmp(f);
    td_status s = td_status_context(take_status, "fetch checkpoint %s of %s", source(f)->path,
                                    f->assigned->job);
    f->fn(s, f->arg);
}

// Nobody can say whether the copy that is here is whole, so it is as good as one of our own.
static void take_unchecked(struct td_fetch *f, td_status take_status) {
    td_log_warn(
        "checkpoint not compared with the coordinator's job=%s path=%s why=\"%s\", continuing",
        f->assigned->job, source(f)->path, td_status_message(take_status));
    td_status_free(take_status);
    source_ready(f);
}

static void source_failed(struct td_fetch *f, td_status take_status) {
    enum td_code code = td_status_code(take_status);
    bool bad = code == TD_NOT_FOUND || code == TD_DATA_LOSS || code == TD_INVALID_ARGUMENT;
    bool last = td_status_class(take_status) == TD_CLASS_DISK || ++f->tries == TRIES;
    if (!bad && !last) {
        td_status_free(take_status);
        drop_tmp(f);
        td_loop_timer_arm(f->timer, retry_ns);
    } else if (f->copy == COPY_UNCHECKED) {
        take_unchecked(f, take_status);
    } else if (bad || f->copy == COPY_DAMAGED) {
        td_log_warn("checkpoint skipped job=%s path=%s why=\"%s\", continuing", f->assigned->job,
                    source(f)->path, td_status_message(take_status));
        td_status_free(take_status);
        advance(f);
    } else {
        give_back(f, take_status);
    }
}

static td_status move_into_place(struct td_fetch *f) {
    char path[TD_FS_PATH_BYTES];
    TD_TRY(td_fs_fsync_dir(f->tmp));
    TD_TRY(td_fs_path(path, "%s/%s", f->assigned->checkpoints, source(f)->path));
    TD_TRY(td_fs_remove_tree(path)); // damaged, or without a manifest
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
    if (file->bytes == 0) file->bytes = r->file_bytes;
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

static td_status compare(const struct td_fetch *f) {
    const struct file *file = &f->files[f->file];
    char hex[TD_DIGEST_HEX];
    td_digest_hex(f->digest, hex);
    bool other_size = file->bytes != 0 && f->at != file->bytes; // 0: the list does not know it
    if (other_size || strcmp(hex, file->digest) != 0) {
        return td_fail(TD_DATA_LOSS,
                       "%s: %" PRIu64 " bytes with digest %s, expected %" PRIu64 " with %s",
                       file->name, f->at, hex, file->bytes, file->digest);
    }
    return TD_OK;
}

static td_status finish_file(struct td_fetch *f) {
    TD_TRY(compare(f));
    if (fsync(f->fd) != 0) return td_fs_fail("sync", f->files[f->file].name);
    close_file(f);
    return TD_OK;
}

// A call has ended. True: it was waited for by td_fetch_destroy alone, and all is gone now.
static bool ends_late(struct td_fetch *f) {
    f->call = NULL;
    if (!f->destroyed) return false;
    td_fetch_destroy(f);
    return true;
}

static void on_done(struct td_rpc_stream *s, td_status take_status, void *arg) {
    (void)s;
    struct td_fetch *f = TD_CAST(td_fetch, arg);
    if (ends_late(f)) {
        td_status_free(take_status);
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
        source_ready(f);
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
    if (c->node[0] || c->state != TRAIND__V1__CHECKPOINT__STATE__COMMITTED) {
        return td_fail(TD_NOT_FOUND, "the coordinator does not have it whole");
    }
    if (c->n_files == 0 || c->n_files > TD_COUNTOF(f->files)) {
        return td_fail(TD_DATA_LOSS, "a checkpoint of %zu files", c->n_files);
    }
    f->n_files = c->n_files;
    f->file = 0; // also of the copy, if there is one
    for (size_t i = 0; i < c->n_files; i++) {
        struct file *file = &f->files[i];
        if (!td_checkpoint_file_ok(c->files[i]->name)) {
            return td_fail(TD_DATA_LOSS, "'%.64s' is no file name", c->files[i]->name);
        }
        snprintf(file->name, sizeof file->name, "%s", c->files[i]->name);
        snprintf(file->digest, sizeof file->digest, "%s", c->files[i]->digest);
        file->bytes = c->files[i]->bytes;
    }
    return TD_OK;
}

static td_status make_tmp(struct td_fetch *f) {
    TD_TRY(td_fs_path(f->tmp, "%s/%s.tmp", f->assigned->checkpoints, source(f)->path));
    TD_TRY(td_fs_remove_tree(f->tmp));
    return td_fs_mkdirs(f->tmp, 0700);
}

static void read_files(struct td_fetch *f) {
    f->file = 0;
    td_status s = make_tmp(f);
    if (s) {
        source_failed(f, s);
    } else {
        next_file(f);
    }
}

// ---- the copy that is here ----------------------------------------------------------------------
static td_status open_copy(struct td_fetch *f) {
    char path[TD_FS_PATH_BYTES];
    TD_TRY(path_here(f, f->files[f->file].name, path));
    TD_TRY(td_fs_open_below(path, strlen(f->assigned->checkpoints), &f->fd, NULL));
    f->at = 0;
    return td_digest_create(&f->digest);
}

static td_status check_piece(struct td_fetch *f) {
    static char piece[PIECE_BYTES]; // one loop thread
    struct file *file = &f->files[f->file];
    if (f->fd < 0) TD_TRY(open_copy(f));
    ssize_t n = read(f->fd, piece, sizeof piece);
    if (n < 0) return td_fs_fail("read", file->name);
    td_digest_update(f->digest, piece, (size_t)n);
    f->at += (uint64_t)n;
    if (n > 0 && (file->bytes == 0 || f->at <= file->bytes)) return TD_OK;
    TD_TRY(compare(f));
    close_file(f);
    f->file++;
    return TD_OK;
}

// A manifest that is not the one that was committed makes no checkpoint: whatever comes of the
// fetch, nobody shall believe it. Damage of the other files is for their readers to report.
static void copy_damaged(struct td_fetch *f, td_status take_why) {
    const char *name = f->files[f->file].name;
    char path[TD_FS_PATH_BYTES];
    td_log_warn("copy of a checkpoint is damaged job=%s path=%s why=\"%s\", fetching it again",
                f->assigned->job, source(f)->path, td_status_message(take_why));
    td_status_free(take_why);
    if (strcmp(name, manifest) == 0 && !path_here(f, name, path)) (void)unlink(path);
    f->copy = COPY_DAMAGED;
    close_file(f);
    read_files(f);
}

static void check_copy(struct td_fetch *f) {
    td_status s = check_piece(f);
    if (s) {
        copy_damaged(f, s);
    } else if (f->file < f->n_files) {
        td_loop_timer_arm(f->timer, 0); // others come between
    } else {
        source_ready(f);
    }
}

static bool has_copy(const struct td_fetch *f) {
    char path[TD_FS_PATH_BYTES];
    td_status s = path_here(f, manifest, path);
    td_status_free(s);
    return !s && td_fs_exists(path);
}

// ---- the list -----------------------------------------------------------------------------------
static void on_checkpoint(td_status take_status, const ProtobufCMessage *response, void *arg) {
    struct td_fetch *f = TD_CAST(td_fetch, arg);
    if (ends_late(f)) {
        td_status_free(take_status);
        return;
    }
    if (!take_status) take_status = take_files(f, (const Traind__V1__Checkpoint *)response);
    if (take_status) {
        source_failed(f, take_status);
    } else if (f->copy == COPY_UNCHECKED) {
        f->copy = COPY_CHECKING;
        check_copy(f);
    } else {
        read_files(f);
    }
}

// The timer: looks at the source that is due, or on at its copy.
static void on_timer(void *arg) {
    struct td_fetch *f = TD_CAST(td_fetch, arg);
    if (f->copy == COPY_CHECKING) {
        check_copy(f);
        return;
    }
    if (f->source == f->assigned->n_resume) {
        td_status s = td_fail(TD_DATA_LOSS, "none of the %zu checkpoints of %s could be had",
                              f->assigned->n_resume, f->assigned->job);
        f->fn(td_status_with_class(s, TD_CLASS_DATA), f->arg);
        return;
    }
    if (!f->takes_best && !source(f)->fetch) { // a file of this node
        source_ready(f);
        return;
    }
    if (f->copy == COPY_NONE && has_copy(f)) f->copy = COPY_UNCHECKED;
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
    td_status s = td_loop_timer_create(loop, on_timer, f, &f->timer);
    if (s) {
        td_fetch_destroy(f);
        return s;
    }
    td_loop_timer_arm(f->timer, 0);
    *out_fetch = f;
    return TD_OK;
}
