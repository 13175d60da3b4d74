// CheckpointService: what the catalog holds, and the bytes of its files.
// Names are looked up in the catalog, so no path of a caller ever reaches the file system. Bytes
// are read by file_stream.h, on a disk thread.

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/api/api.h"
#include "daemon/coordinator/api/file_stream.h"
#include "daemon/coordinator/core/catalog/catalog.h"
#include "daemon/coordinator/core/catalog/retain.h"
#include "daemon/coordinator/core/model/changes.h"
#include "daemon/coordinator/core/page.h"
#include "daemon/coordinator/shell/access/access.h"
#include "lib/attempt/checkpoint_name.h"

enum { CHUNK_BYTES = 256 << 10 };

// ---- ListCheckpoints, GetCheckpoint -------------------------------------------------------------
// Where a job is that the core found: knobs of one that has ended are read when they are asked for.
static struct td_retain_marks marks_of(const struct td_coordinator *c, const struct td_job *found) {
    return td_retain_mark(td_core_job(c->core, found->id));
}

static Traind__V1__Checkpoint *view(struct td_arena *a, const struct td_coordinator *c,
                                    const struct td_job *j, const struct td_checkpoint *cp,
                                    const struct td_retain_marks *marks) {
    Traind__V1__Checkpoint *m = td_view_checkpoint(a, c->core, j, cp);
    if (!m) return NULL;
    m->monitor = td_arena_strdup(a, marks->monitor);
    m->monitored = td_retain_value(cp, marks->monitor);
    m->best = cp == marks->best;
    m->last = cp == marks->last;
    return m->monitor ? m : NULL;
}

static td_status list(struct td_coordinator *c, struct td_rpc_call *call,
                      const Traind__V1__ListCheckpointsRequest *q) {
    const struct td_job *j = NULL;
    TD_TRY(td_core_find_job(c->core, q->job, &j));
    uint32_t at = j->n_checkpoints; // rows before it are still to be listed
    if (q->page_token[0]) {         // the path of the last one seen
        while (at > 0 && strcmp(j->checkpoints[at - 1]->path, q->page_token) != 0) {
            at--;
        }
        if (!at) {
            return td_page_bad_token();
        }
        at--;
    }
    struct td_page page = td_page_of(q->page_size);
    TD_AUTO(td_arena) *arena = NULL;
    TD_TRY(td_shell_arena(&arena));
    Traind__V1__ListCheckpointsResponse *m = td_arena_alloc(arena, sizeof *m);
    if (!m) return td_fail_oom();
    traind__v1__list_checkpoints_response__init(m);
    m->checkpoints = td_arena_array(arena, page.most, sizeof *m->checkpoints);
    if (!m->checkpoints) return td_fail_oom();
    const struct td_retain_marks marks = marks_of(c, j);
    for (; at > 0; at--) {
        Traind__V1__Checkpoint *row = view(arena, c, j, j->checkpoints[at - 1], &marks);
        if (!row) return td_fail_oom();
        if (!td_page_takes(&page, &row->base)) break;
        m->checkpoints[m->n_checkpoints++] = row;
    }
    if (at > 0) m->next_page_token = td_arena_strdup(arena, j->checkpoints[at]->path);
    if (!m->next_page_token) return td_fail_oom();
    td_shell_reply(c, call, td_steal(arena), &m->base);
    return TD_OK;
}

static void list_checkpoints(struct td_rpc_call *call, const ProtobufCMessage *request, void *ctx) {
    struct td_coordinator *c = TD_CAST(td_coordinator, ctx);
    td_status s = list(c, call, (const Traind__V1__ListCheckpointsRequest *)request);
    if (s) td_shell_fail(c, call, s);
}

static td_status find(struct td_coordinator *c, const char *job, const char *path,
                      const struct td_job **out_job, const struct td_checkpoint **out_checkpoint) {
    TD_TRY(td_core_find_job(c->core, job, out_job));
    const bool is_path = td_checkpoint_path_ok(path), is_best = strcmp(path, "best") == 0;
    if (path[0] && !is_path && !is_best && strcmp(path, "last") != 0) {
        return td_shell_bad_field("path", "last, best, or one like a1/step-2340; `trainctl "
                                          "checkpoint list JOB` shows them");
    }
    *out_checkpoint = is_best ? td_retain_best(td_core_job(c->core, (*out_job)->id))
                              : td_catalog_find(*out_job, is_path ? path : "");
    if (*out_checkpoint) return TD_OK;
    return td_status_with_reason(
        is_path ? td_fail(TD_NOT_FOUND, "job %s has no checkpoint %s", (*out_job)->id, path)
                : td_fail(TD_NOT_FOUND, "job %s has no checkpoint yet", (*out_job)->id),
        "CHECKPOINT_NOT_FOUND");
}

static td_status get(struct td_coordinator *c, struct td_rpc_call *call,
                     const Traind__V1__GetCheckpointRequest *q) {
    const struct td_job *j = NULL;
    const struct td_checkpoint *cp = NULL;
    TD_TRY(find(c, q->job, q->path, &j, &cp));
    TD_TRY(td_access_may_read_checkpoints(c, call, j));
    struct td_arena *arena = NULL;
    TD_TRY(td_shell_arena(&arena));
    const struct td_retain_marks marks = marks_of(c, j);
    Traind__V1__Checkpoint *m = view(arena, c, j, cp, &marks);
    td_shell_reply(c, call, arena, m ? &m->base : NULL);
    return TD_OK;
}

static void get_checkpoint(struct td_rpc_call *call, const ProtobufCMessage *request, void *ctx) {
    struct td_coordinator *c = TD_CAST(td_coordinator, ctx);
    td_status s = get(c, call, (const Traind__V1__GetCheckpointRequest *)request);
    if (s) td_shell_fail(c, call, s);
}

// ---- ReadShard ----------------------------------------------------------------------------------
struct reader {
    struct td_file_stream stream;
    struct td_coordinator *c;
    char path[TD_SHELL_PATH_MAX];
    size_t root_bytes; // of path: nothing below it may be a link
    int fd;            // -1: the first read opens it
    uint64_t offset, file_bytes;
};

static void reader_destroy(void *reader) {
    struct reader *r = reader;
    if (!r) return;
    td_auto_close(&r->fd);
    free(r);
}

static td_status send_chunk(void *reader, const void *data, size_t n, enum td_rpc_send *out_sent) {
    struct reader *r = reader;
    if (n == 0 && r->offset < r->file_bytes) {
        return td_status_with_reason(td_fail(TD_DATA_LOSS,
                                             "'%s' has %" PRIu64 " of %" PRIu64 " bytes", r->path,
                                             r->offset, r->file_bytes),
                                     "FILE_TRUNCATED");
    }
    Traind__V1__ReadShardResponse m = TRAIND__V1__READ_SHARD_RESPONSE__INIT;
    m.offset = r->offset;
    m.data.data = td_unconst(data);
    m.data.len = n;
    m.file_bytes = r->file_bytes;
    r->offset += n;
    *out_sent = td_rpc_call_send(r->stream.call, &m.base);
    return TD_OK;
}

static void next_chunk(void *reader) {
    struct reader *r = reader;
    if (r->offset >= r->file_bytes) {
        td_rpc_call_finish(r->stream.call, TD_OK);
        return;
    }
    size_t bytes = (size_t)TD_MIN(r->file_bytes - r->offset, CHUNK_BYTES);
    const struct td_disk_file file = {r->path, r->root_bytes, true, &r->fd};
    td_file_stream_read(&r->stream, r->c->reads, &file, r->offset, bytes);
}

static const struct td_file_stream_ops chunks = {
    .next = next_chunk, .send = send_chunk, .destroy = reader_destroy};

// What checkpoint.dir named, below which traind made "JOB/a1/step-5". A command's own directory is
// what it says; that one may be no link.
static size_t root_of(const char *directory, const char *job, const char *path) {
    char tail[TD_SHELL_PATH_MAX];
    const size_t n = (size_t)snprintf(tail, sizeof tail, "/%s/%s", job, path);
    const size_t len = strlen(directory);
    if (len > n && strcmp(directory + len - n, tail) == 0) return len - n;
    const char *slash = strrchr(directory, '/');
    return slash ? (size_t)(slash - directory) : 0;
}

// Where the coordinator can read it: its own store, or the state directory that it shares with an
// embedded node. A node elsewhere keeps its files to itself.
static td_status place(struct td_coordinator *c, const struct td_job *j,
                       const struct td_checkpoint *cp, const char *file, struct reader *r) {
    td_shell_checkpoint_path(c, j->id, cp->path, file, r->path);
    r->root_bytes = strlen(c->state_dir) + strlen("/checkpoints");
    if (cp->streamed) return TD_OK;
    if (cp->directory[0]) {
        snprintf(r->path, sizeof r->path, "%s/%s", cp->directory, file);
        r->root_bytes = root_of(cp->directory, j->id, cp->path);
    }
    if (access(r->path, R_OK) == 0) return TD_OK;
    return td_status_with_reason(
        td_fail(TD_FAILED_PRECONDITION,
                "%s is on node %s (store fs) where the coordinator cannot read it; copy it there, "
                "or use checkpoint.store=stream",
                cp->path, cp->node),
        "CHECKPOINT_ON_NODE");
}

static td_status open_shard(struct td_coordinator *c, const struct td_rpc_call *call,
                            const Traind__V1__ReadShardRequest *q, struct reader *r) {
    const struct td_job *j = NULL;
    const struct td_checkpoint *cp = NULL;
    TD_TRY(find(c, q->job, q->path, &j, &cp));
    TD_TRY(td_access_may_read_checkpoints(c, call, j));
    if (!td_checkpoint_file_ok(q->file)) {
        return td_shell_bad_field("file", "not one of the checkpoint's files");
    }
    if (!cp->committed) {
        return td_status_with_reason(
            td_fail(TD_FAILED_PRECONDITION, "%s is not committed yet", cp->path),
            "CHECKPOINT_PENDING");
    }
    const struct td_checkpoint_file *f = NULL;
    for (uint32_t i = 0; i < cp->n_files; i++) {
        if (strcmp(cp->files[i].name, q->file) == 0) f = &cp->files[i];
    }
    if (!f) {
        return td_status_with_reason(
            td_fail(TD_NOT_FOUND, "%s has no file '%s'", cp->path, q->file), "FILE_NOT_FOUND");
    }
    TD_TRY(place(c, j, cp, q->file, r));
    TD_TRY(td_disk_file_bytes(r->path, &r->file_bytes));
    if (q->offset > r->file_bytes) {
        td_status s = td_fail(TD_OUT_OF_RANGE, "offset %" PRIu64 " is past the end, %" PRIu64,
                              q->offset, r->file_bytes);
        return td_status_with_reason(s, "OFFSET_PAST_END");
    }
    r->offset = q->offset;
    return TD_OK;
}

static void read_shard(struct td_rpc_call *call, const ProtobufCMessage *request, void *ctx) {
    struct td_coordinator *c = TD_CAST(td_coordinator, ctx);
    struct reader *r = td_calloc(1, sizeof *r);
    if (r) r->fd = -1;
    td_status s =
        r ? open_shard(c, call, (const Traind__V1__ReadShardRequest *)request, r) : td_fail_oom();
    if (s) {
        reader_destroy(r);
        td_shell_fail(c, call, s);
        return;
    }
    r->c = c;
    td_file_stream_begin(&r->stream, &chunks, r, call);
    td_file_stream_pump(&r->stream);
}

static const struct td_rpc_method rows[] = {
    {.service = "traind.v1.CheckpointService",
     .method = "ListCheckpoints",
     .role = TD_ROLE_VIEWER,
     .kind = TD_RPC_UNARY,
     .request = &traind__v1__list_checkpoints_request__descriptor,
     .response = &traind__v1__list_checkpoints_response__descriptor,
     .on_call = list_checkpoints},
    {.service = "traind.v1.CheckpointService",
     .method = "GetCheckpoint",
     .role = TD_ROLE_VIEWER,
     .also = TD_ROLE_NODE,
     .kind = TD_RPC_UNARY,
     .request = &traind__v1__get_checkpoint_request__descriptor,
     .response = &traind__v1__checkpoint__descriptor,
     .on_call = get_checkpoint},
    {.service = "traind.v1.CheckpointService",
     .method = "ReadShard",
     .role = TD_ROLE_VIEWER,
     .also = TD_ROLE_NODE,
     .kind = TD_RPC_SERVER_STREAM,
     .request = &traind__v1__read_shard_request__descriptor,
     .response = &traind__v1__read_shard_response__descriptor,
     .on_call = read_shard,
     .on_writable = td_file_stream_on_writable,
     .on_done = td_file_stream_on_done},
};

td_status td_api_checkpoints_add(struct td_coordinator *c) {
    return td_access_add_rows(c, rows, TD_COUNTOF(rows));
}
