// NodeService/PutShard: files of streamed checkpoints, resumable, verified, durable.
//
// Bytes go into "<file>.part" beside their place. The sender may ask with an empty chunk how much
// is here; it goes on from there. With the last byte the file is hashed on the disk thread, synced,
// renamed, its directory synced. Only then does the core learn of it, and the reply waits for the
// core's record. A file with another digest than promised is removed: DATA_LOSS HASH_MISMATCH. One
// of that length that is at its place already is hashed as well, unless the catalog knows it.
// One upload per file: a second one (a node that dialled again) takes over, the first is ended.

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/api/api.h"
#include "daemon/coordinator/core/catalog/catalog.h"
#include "daemon/coordinator/shell/access/access.h"
#include "lib/attempt/checkpoint_name.h"
#include "lib/base/digest.h"
#include "lib/base/files/files.h"

enum { WINDOW = 8 };
static const uint64_t max_file_bytes = UINT64_C(1) << 42;

struct upload {
    struct upload *next; // of all that began
    struct td_coordinator *c;
    struct td_rpc_call *call;
    char job[TD_JOB_ID_MAX];
    uint32_t attempt;
    uint64_t epoch;
    char checkpoint[TD_JOB_PATH_MAX];
    char file[208];
    char digest[TD_DIGEST_HEX];
    char path[TD_SHELL_PATH_MAX];     // final
    char part[TD_SHELL_PATH_MAX + 8]; // meanwhile
    uint64_t file_bytes;
    uint64_t given; // bytes handed to the disk
    uint32_t n_pending;
    bool began, complete, finishing, half_closed, answered, gone;
    bool unwanted; // no reader asks for the file any more
};

static struct upload *uploads; // of the one coordinator of this process; loop thread

// ---- the disk's part ----------------------------------------------------------------------------
enum work_kind { WORK_WRITE, WORK_SYNC, WORK_FINISH };
struct work {
    struct td_disk_job job;
    struct upload *u; // stays until n_pending is 0
    enum work_kind kind;
    uint64_t offset;
    size_t bytes;
    void *data;
    td_status failure;
};

static td_status disk_fail(const char *what, const char *path) {
    bool full = errno == ENOSPC || errno == EDQUOT;
    td_status s =
        td_fail_errno(full ? TD_RESOURCE_EXHAUSTED : TD_UNAVAILABLE, "%s '%s'", what, path);
    return full ? td_status_with_class(s, TD_CLASS_DISK) : s;
}

static td_status open_part(const struct upload *u, int *out_fd) {
    char dir[TD_SHELL_PATH_MAX];
    snprintf(dir, sizeof dir, "%s", u->path);
    *strrchr(dir, '/') = '\0';
    TD_TRY(td_held_path_check(&u->c->home));
    TD_TRY(td_fs_mkdirs(dir, 0700));
    *out_fd = open(u->part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    return *out_fd < 0 ? disk_fail("open", u->part) : TD_OK;
}

static td_status write_part(const struct work *w) {
    TD_AUTO_CLOSE int fd = -1;
    TD_TRY(open_part(w->u, &fd));
    return td_disk_write_at(fd, w->u->part, w->offset, w->data, w->bytes);
}

// Is the file at its place the one that was promised? Another one goes, so that all of this one is
// sent.
static td_status is_here(const struct upload *u, bool *out_here) {
    char hex[TD_DIGEST_HEX];
    uint64_t have = 0;
    *out_here = false;
    td_status absent = td_disk_file_bytes(u->path, &have);
    if (absent || have != u->file_bytes) {
        td_status_free(absent);
        return TD_OK;
    }
    TD_AUTO_CLOSE int fd = -1;
    TD_TRY(td_fs_open(u->path, &fd, NULL));
    TD_TRY(td_digest_fd(fd, u->path, hex));
    *out_here = strcmp(hex, u->digest) == 0;
    if (!*out_here && unlink(u->path) != 0) return disk_fail("remove", u->path);
    return TD_OK;
}

static td_status finish_part(const struct upload *u) {
    TD_AUTO_CLOSE int fd = -1;
    char hex[TD_DIGEST_HEX];
    uint64_t have = 0;
    bool here = false;
    TD_TRY(is_here(u, &here));
    if (here) return TD_OK; // the upload before this one finished it
    TD_TRY(open_part(u, &fd));
    TD_TRY(td_disk_file_bytes(u->part, &have));
    // A write failed, which was reported, or another file was at its place.
    if (have < u->file_bytes) {
        return td_fail(TD_UNAVAILABLE, "'%s' has %" PRIu64 " of %" PRIu64 " bytes", u->part, have,
                       u->file_bytes);
    }
    if (ftruncate(fd, (off_t)u->file_bytes) != 0) return disk_fail("cut", u->part);
    TD_TRY(td_digest_fd(fd, u->part, hex));
    if (strcmp(hex, u->digest) != 0) {
        (void)unlink(u->part);
        return td_status_with_reason(
            td_fail(TD_DATA_LOSS, "%s/%s of job %s: digest %s promised, %s came; send it again",
                    u->checkpoint, u->file, u->job, u->digest, hex),
            "HASH_MISMATCH");
    }
    if (fsync(fd) != 0) return disk_fail("sync", u->part);
    return td_fs_rename(u->part, u->path);
}

static void work_run(struct td_disk_job *job) {
    struct work *w = (struct work *)job;
    if (w->kind == WORK_WRITE) w->failure = write_part(w);
    if (w->kind == WORK_FINISH) w->failure = finish_part(w->u);
    if (w->kind == WORK_SYNC) {
        TD_AUTO_CLOSE int fd = -1;
        w->failure = open_part(w->u, &fd);
        if (!w->failure && fdatasync(fd) != 0) w->failure = disk_fail("sync", w->u->part);
    }
}

// ---- answers ------------------------------------------------------------------------------------
static void fail(struct upload *u, td_status take_status) {
    if (u->answered) {
        td_status_free(take_status);
        return;
    }
    u->answered = true;
    td_shell_fail(u->c, u->call, take_status);
}

static void reply(struct upload *u, uint64_t offset) {
    struct td_arena *arena = NULL;
    td_status s = td_shell_arena(&arena);
    Traind__V1__PutReply *m = s ? NULL : td_arena_alloc(arena, sizeof *m);
    if (s || u->answered) {
        td_arena_destroy(arena);
        fail(u, s);
        return;
    }
    u->answered = true;
    if (m) {
        traind__v1__put_reply__init(m);
        m->offset = offset;
    }
    td_shell_reply_held(u->c, u->call, arena, m ? &m->base : NULL);
}

static void finished(struct upload *u) {
    Traind__V1__AttemptId id = TRAIND__V1__ATTEMPT_ID__INIT;
    id.job = u->job;
    id.attempt = u->attempt;
    id.epoch = u->epoch;
    u->complete = true;
    td_status s = td_core_shard_durable(u->c->core, td_shell_now(), &id, u->checkpoint, u->file,
                                        u->file_bytes, u->digest);
    td_shell_after(u->c);
    if (s) {
        fail(u, s);
    } else if (u->half_closed) {
        reply(u, u->file_bytes);
    }
}

static void free_upload(struct upload *u) {
    struct upload **at = &uploads;
    while (*at && *at != u) {
        at = &(*at)->next;
    }
    if (*at) *at = u->next;
    free(u);
}

static void work_done(struct td_disk_job *job) {
    struct work *w = (struct work *)job;
    struct upload *u = w->u;
    td_status failure = td_steal(w->failure);
    enum work_kind kind = w->kind;
    free(w->data);
    free(w);
    u->n_pending--;
    if (failure) {
        fail(u, failure);
    } else if (kind == WORK_FINISH) {
        if (!u->unwanted) finished(u);
    } else if (kind == WORK_SYNC) {
        reply(u, u->given);
    }
    if (u->gone) {
        if (!u->n_pending) free_upload(u);
    } else if (u->n_pending < WINDOW / 2) {
        td_rpc_call_resume(u->call);
    }
}

static td_status give(struct upload *u, enum work_kind kind, const void *data, size_t bytes) {
    struct work *w = td_calloc(1, sizeof *w);
    if (!w) return td_fail_oom();
    *w = (struct work){.job = {.run = work_run, .done = work_done},
                       .u = u,
                       .kind = kind,
                       .offset = u->given,
                       .bytes = bytes,
                       .data = malloc(bytes ? bytes : 1)};
    if (w->data && bytes) memcpy(w->data, data, bytes);
    td_status s = w->data ? td_disk_submit(u->c->disk, &w->job) : td_fail_oom();
    if (s) {
        free(w->data);
        free(w);
        return s;
    }
    u->given += bytes;
    if (++u->n_pending >= WINDOW) td_rpc_call_pause(u->call);
    return TD_OK;
}

// ---- the call -----------------------------------------------------------------------------------
static td_status check(const Traind__V1__ShardChunk *m) {
    if (!td_checkpoint_path_ok(m->checkpoint)) {
        return td_shell_bad_field("checkpoint", "looks like a1/step-2340");
    }
    if (!td_checkpoint_file_ok(m->file)) return td_shell_bad_field("file", "a plain file name");
    if (strlen(m->digest) != 32 || strspn(m->digest, "0123456789abcdef") != 32) {
        return td_shell_bad_field("digest", "32 hex digits of XXH3-128");
    }
    if (m->file_bytes > max_file_bytes) return td_shell_bad_field("file_bytes", "too large");
    return TD_OK;
}

// A path that begins with another attempt's number would be a way around the fence.
static td_status check_attempt(const Traind__V1__ShardChunk *m) {
    char prefix[16];
    int n = snprintf(prefix, sizeof prefix, "a%u/", m->id->attempt);
    if (strncmp(m->checkpoint, prefix, (size_t)n) == 0) return TD_OK;
    return td_shell_bad_field("checkpoint", "is not of attempt %u", m->id->attempt);
}

static void take_over(const struct upload *u) {
    for (struct upload *o = uploads; o; o = o->next) {
        if (o == u || o->gone || strcmp(o->path, u->path) != 0) continue;
        fail(o, td_status_with_reason(
                    td_fail(TD_ABORTED, "another upload of %s took over", o->file), "SUPERSEDED"));
    }
}

bool td_uploads_end(const char *job, uint32_t attempt, const char *path) {
    bool any = false;
    for (struct upload *u = uploads; u; u = u->next) {
        if (!u->began || strcmp(u->job, job) != 0) continue;
        if (path ? strcmp(u->checkpoint, path) != 0 : u->attempt != attempt) continue;
        u->unwanted = any = true;
        fail(u, td_status_with_reason(td_fail(TD_ABORTED, "%s/%s of job %s is not wanted any more",
                                              u->checkpoint, u->file, u->job),
                                      "UPLOAD_UNWANTED"));
    }
    return any;
}

static td_status begin(struct upload *u, const Traind__V1__ShardChunk *m) {
    bool known = false;
    TD_TRY(check(m));
    TD_TRY(
        td_core_check_shard(u->c->core, m->id, m->key, m->checkpoint, m->file, m->digest, &known));
    TD_TRY(check_attempt(m));
    snprintf(u->job, sizeof u->job, "%s", m->id->job);
    u->attempt = m->id->attempt;
    u->epoch = m->id->epoch;
    snprintf(u->checkpoint, sizeof u->checkpoint, "%s", m->checkpoint);
    snprintf(u->file, sizeof u->file, "%s", m->file);
    snprintf(u->digest, sizeof u->digest, "%s", m->digest);
    u->file_bytes = m->file_bytes;
    td_shell_checkpoint_path(u->c, u->job, u->checkpoint, u->file, u->path);
    snprintf(u->part, sizeof u->part, "%s.part", u->path);
    take_over(u);
    u->began = true;
    uint64_t have = 0;
    td_status s = td_disk_file_bytes(u->path, &have);
    if (!s && have == u->file_bytes) { // the answer to the upload before this one was lost
        u->given = have;
        u->finishing = true;
        if (!known) return give(u, WORK_FINISH, NULL, 0);
        finished(u);
        return TD_OK;
    }
    td_status_free(s);
    s = td_disk_file_bytes(u->part, &have);
    u->given = s ? 0 : TD_MIN(have, u->file_bytes);
    td_status_free(s);
    return TD_OK;
}

static td_status take_chunk(struct upload *u, const Traind__V1__ShardChunk *m) {
    if (!u->began) TD_TRY(begin(u, m));
    if (u->complete) return TD_OK;
    if (m->data.len && m->offset > u->given) { // an empty chunk only asks, wherever it points
        td_status s =
            td_fail(TD_OUT_OF_RANGE,
                    "offset %" PRIu64 ", but only %" PRIu64 " bytes are here; go on from there",
                    m->offset, u->given);
        return td_status_with_meta(td_status_with_reason(s, "OFFSET_GAP"), "offset", "%" PRIu64,
                                   u->given);
    }
    if (m->data.len && m->offset + m->data.len > u->given) {
        if (m->offset + m->data.len > u->file_bytes) {
            return td_shell_bad_field("data", "goes past file_bytes");
        }
        size_t skip = (size_t)(u->given - m->offset);
        TD_TRY(give(u, WORK_WRITE, m->data.data + skip, m->data.len - skip));
    }
    if (u->given == u->file_bytes && !u->finishing) {
        u->finishing = true;
        TD_TRY(give(u, WORK_FINISH, NULL, 0));
    }
    return TD_OK;
}

static void put_shard(struct td_rpc_call *call, const ProtobufCMessage *request, void *ctx) {
    struct upload *u = td_calloc(1, sizeof *u);
    (void)request;
    if (!u) {
        td_rpc_call_finish(call, td_fail_oom());
        return;
    }
    u->c = TD_CAST(td_coordinator, ctx);
    u->call = call;
    u->next = uploads;
    uploads = u;
    td_rpc_call_set_user(call, u);
}

static void on_message(struct td_rpc_call *call, const ProtobufCMessage *message, void *ctx) {
    struct upload *u = td_rpc_call_user(call);
    (void)ctx;
    if (!u || u->answered || !td_rpc_call_is_live(call)) return;
    td_status s = take_chunk(u, (const Traind__V1__ShardChunk *)message);
    if (s) fail(u, s);
}

static void on_half_close(struct td_rpc_call *call, void *ctx) {
    struct upload *u = td_rpc_call_user(call);
    (void)ctx;
    if (!u) return;
    u->half_closed = true;
    if (u->complete) {
        reply(u, u->file_bytes);
    } else if (!u->began) {
        fail(u, td_shell_bad_field("id", "the call ended without a chunk"));
    } else if (!u->finishing && u->given == 0) {
        reply(u, 0);
    } else if (!u->finishing) {
        td_status s = give(u, WORK_SYNC, NULL, 0);
        if (s) fail(u, s);
    }
}

static void on_done(struct td_rpc_call *call, void *ctx) {
    struct upload *u = td_rpc_call_user(call);
    (void)ctx;
    if (!u) return;
    u->gone = u->answered = true;
    if (!u->n_pending) free_upload(u);
}

static const struct td_rpc_method rows[] = {
    {.service = "traind.v1.NodeService",
     .method = "PutShard",
     .role = TD_ROLE_NODE,
     .kind = TD_RPC_CLIENT_STREAM,
     .own_calls = TD_SHELL_NODE_CALLS,
     .request = &traind__v1__shard_chunk__descriptor,
     .response = &traind__v1__put_reply__descriptor,
     .on_call = put_shard,
     .on_message = on_message,
     .on_half_close = on_half_close,
     .on_done = on_done},
};

td_status td_api_shards_add(struct td_coordinator *c) {
    return td_access_add_rows(c, rows, TD_COUNTOF(rows));
}
