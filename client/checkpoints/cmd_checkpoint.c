// checkpoint list and download. A download goes file by file into a directory of the checkpoint's
// own name (or -O), through a temporary name. The digest of each file is checked before it appears,
// so that what is there is whole. Files that are there and are the same are not copied again. Where
// one is another, nothing is written, unless --force is given.

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "client/checkpoints/checkpoints.h"
#include "client/screen/format.h"
#include "client/screen/print.h"
#include "client/session/pages.h"
#include "client/screen/table.h"
#include "lib/base/digest.h"
#include "lib/base/files/named_output.h"
#include "traind/v1/checkpoint.pb-c.h"

static const char *state_name(Traind__V1__Checkpoint__State state) {
    return td_format_enum(&traind__v1__checkpoint__state__descriptor, (int)state);
}

static const char *mark_of(const Traind__V1__Checkpoint *c) {
    if (c->best && c->last) return "best, last";
    return c->best ? "best" : c->last ? "last" : "-";
}

// The column of the values is called what all of a job have: its monitor.
static const char *monitor_of(const struct td_pages *p) {
    const Traind__V1__Checkpoint *first = p->n_items ? p->item[0] : NULL;
    return first && first->monitor[0] ? first->monitor : "MONITORED";
}

static td_status show_table(const struct td_pages *p, bool wide) {
    TD_AUTO(td_arena) *arena = NULL;
    TD_TRY(td_arena_create((size_t)64 << 20, &arena));
    const struct td_column columns[] = {{"CHECKPOINT", 0},
                                        {"STATE", 0},
                                        {"MARK", TD_COLUMN_SPARE},
                                        {monitor_of(p), TD_COLUMN_SPARE},
                                        {"STEP", TD_COLUMN_MINOR},
                                        {"EPOCH", TD_COLUMN_MINOR},
                                        {"SIZE", TD_COLUMN_SPARE},
                                        {"WHERE", TD_COLUMN_TEXT | TD_COLUMN_MINOR},
                                        {wide ? "TIME" : "AGE", TD_COLUMN_MINOR},
                                        {"NOTE", TD_COLUMN_TEXT | TD_COLUMN_SPARE}};
    struct td_table t;
    td_table_init(&t, arena, TD_COUNTOF(columns), columns);
    for (size_t i = 0; i < p->n_items; i++) {
        const Traind__V1__Checkpoint *c = p->item[i];
        char size[32], age[32], value[TD_FORMAT_VALUE_BYTES];
        TD_TRY(td_table_add(&t, "%s", c->path));
        TD_TRY(td_table_add(&t, "%s", state_name(c->state)));
        TD_TRY(td_table_add(&t, "%s", mark_of(c)));
        const bool has = c->monitor[0] && !isnan(c->monitored);
        TD_TRY(td_table_add(&t, "%s", has ? td_format_value(c->monitored, value) : "-"));
        TD_TRY(td_table_add(&t, "%" PRIu32, c->step));
        TD_TRY(td_table_add(&t, "%" PRIu32, c->epoch));
        TD_TRY(td_table_add(&t, "%s", td_format_bytes(c->bytes, size)));
        TD_TRY(td_table_add(&t, "%s:%s", c->node[0] ? c->node : "coordinator", c->directory));
        TD_TRY(td_table_add(&t, "%s", wide ? c->time : td_format_age(c->time, age)));
        TD_TRY(td_table_add(&t, "%s", c->note));
    }
    return td_table_print(&t, wide);
}

static td_status show(struct td_session *s, enum td_output output, struct td_pages *p) {
    if (output == TD_OUTPUT_TABLE) return show_table(p, s->flags->wide);
    Traind__V1__ListCheckpointsResponse all = TRAIND__V1__LIST_CHECKPOINTS_RESPONSE__INIT;
    return td_pages_print(s, p, output, &all.base, "checkpoints", "path");
}

td_status td_cmd_checkpoint_list(struct td_session *s, const struct td_flags *f, int *out_exit) {
    (void)out_exit;
    Traind__V1__ListCheckpointsRequest request = TRAIND__V1__LIST_CHECKPOINTS_REQUEST__INIT;
    request.job = td_unconst(f->args[0]);
    struct td_pages pages = {0};
    td_status failed =
        td_pages_read(s, "/traind.v1.CheckpointService/ListCheckpoints", &request.base,
                      &traind__v1__list_checkpoints_response__descriptor, "checkpoints", &pages);
    if (!failed) failed = show(s, f->output, &pages);
    td_pages_finish(&pages);
    return failed;
}

// ---- download -----------------------------------------------------------------------------------
struct download {
    int fd;
    uint64_t offset;
    struct td_digest *digest;
    const char *name;
    td_status failed;
    bool over;
};

static td_status take_chunk(struct download *d, const Traind__V1__ReadShardResponse *r) {
    if (r->offset != d->offset) {
        return td_fail(TD_DATA_LOSS, "'%s': bytes at offset %" PRIu64 " came, %" PRIu64 " expected",
                       d->name, r->offset, d->offset);
    }
    td_digest_update(d->digest, r->data.data, r->data.len);
    d->offset += r->data.len;
    return td_fd_write_all(d->fd, r->data.data, r->data.len, d->name);
}

static void on_message(struct td_rpc_stream *stream, const ProtobufCMessage *message, void *arg) {
    struct download *d = arg;
    if (d->failed) return;
    d->failed = take_chunk(d, (const Traind__V1__ReadShardResponse *)message);
    if (d->failed) td_rpc_stream_cancel(stream);
}

static void on_done(struct td_rpc_stream *stream, td_status take_status, void *arg) {
    (void)stream;
    struct download *d = arg;
    d->over = true;
    if (d->failed) {
        td_status_free(take_status);
    } else {
        d->failed = take_status;
    }
}

static td_status stream_file(struct td_session *s, const Traind__V1__Checkpoint *c,
                             const Traind__V1__CheckpointFile *file, struct download *d) {
    static const struct td_rpc_stream_ops ops = {.on_message = on_message, .on_done = on_done};
    struct td_rpc_stream *stream;
    TD_TRY(td_rpc_stream_open(s->channel, "/traind.v1.CheckpointService/ReadShard",
                              &traind__v1__read_shard_response__descriptor, s->flags->timeout_ns,
                              &ops, d, &stream));
    Traind__V1__ReadShardRequest request = TRAIND__V1__READ_SHARD_REQUEST__INIT;
    request.job = c->job;
    request.path = c->path;
    request.file = file->name;
    td_rpc_stream_send(stream, &request.base);
    td_rpc_stream_half_close(stream);
    td_status waited = td_session_run_until(s, &d->over, INT64_MAX);
    if (waited) {
        td_status_free(d->failed);
        return waited;
    }
    TD_TRY(d->failed);
    char hex[TD_DIGEST_HEX];
    td_digest_hex(d->digest, hex);
    if (d->offset != file->bytes || strcmp(hex, file->digest) != 0) {
        return td_fail(TD_DATA_LOSS,
                       "'%s' arrived with %" PRIu64
                       " bytes and digest %s; the manifest says %" PRIu64
                       " and %s. Try again, or take the checkpoint before it",
                       file->name, d->offset, hex, file->bytes, file->digest);
    }
    return TD_OK;
}

static td_status download_file(struct td_session *s, const Traind__V1__Checkpoint *c,
                               const Traind__V1__CheckpointFile *file, const char *dir) {
    if (strchr(file->name, '/') || file->name[0] == '.') {
        return td_fail(TD_DATA_LOSS, "the checkpoint names a file '%s' outside itself", file->name);
    }
    char path[TD_FS_PATH_BYTES];
    TD_TRY(td_fs_path(path, "%s/%s", dir, file->name));
    TD_AUTO(td_digest) *digest = NULL;
    TD_TRY(td_digest_create(&digest));
    TD_AUTO_NAMED_OUTPUT out = TD_NAMED_OUTPUT_NONE;
    TD_TRY(td_session_local(td_named_output_open(path, 0666, &out)));
    struct download d = {.fd = out.file.fd, .digest = digest, .name = file->name};
    TD_TRY(stream_file(s, c, file, &d));
    return td_session_local(td_named_output_finish(&out, TD_FS_WRITE_DURABLE));
}

// Is this file there as the checkpoint has it? One that cannot be read is another.
static bool is_there(const char *path, const Traind__V1__CheckpointFile *file) {
    struct stat st;
    char hex[TD_DIGEST_HEX];
    TD_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) return false;
    if ((uint64_t)st.st_size != file->bytes) return false;
    td_status failed = td_digest_fd(fd, path, hex);
    const bool is_same = !failed && strcmp(hex, file->digest) == 0;
    td_status_free(failed);
    return is_same;
}

// Marks the files that are there already; refused where others have their names.
static td_status look(const Traind__V1__Checkpoint *c, const char *dir, bool force, bool *out_has) {
    TD_AUTO_BUF found;
    td_buf_init(&found, 4096);
    for (size_t i = 0; i < c->n_files; i++) {
        char path[TD_FS_PATH_BYTES];
        TD_TRY(td_fs_path(path, "%s/%s", dir, c->files[i]->name));
        out_has[i] = is_there(path, c->files[i]);
        if (out_has[i] || force || !td_fs_exists(path)) continue;
        TD_TRY(td_buf_printf(&found, "%s%s", found.len ? ", " : "", c->files[i]->name));
    }
    if (!found.len) return TD_OK;
    return td_fail(TD_ALREADY_EXISTS,
                   "'%s' has another %s, and nothing was written; --force replaces what is there, "
                   "-O names another directory",
                   dir, td_buf_cstr(&found));
}

td_status td_cmd_checkpoint_download(struct td_session *s, const struct td_flags *f,
                                     int *out_exit) {
    (void)out_exit;
    Traind__V1__GetCheckpointRequest request = TRAIND__V1__GET_CHECKPOINT_REQUEST__INIT;
    request.job = td_unconst(f->args[0]);
    if (f->n_args > 1) request.path = td_unconst(f->args[1]);
    TD_AUTO(td_rpc_message) *answer = NULL;
    TD_TRY(td_session_call(s, "/traind.v1.CheckpointService/GetCheckpoint", &request.base,
                           &traind__v1__checkpoint__descriptor, &answer));
    const Traind__V1__Checkpoint *c = (const Traind__V1__Checkpoint *)td_rpc_message_get(answer);
    const char *slash = strrchr(c->path, '/');
    const char *dir = f->out_path ? f->out_path : slash ? slash + 1 : c->path;
    TD_AUTO_FREE bool *has = td_calloc(c->n_files + 1, sizeof *has);
    if (!has) return td_fail_oom();
    TD_TRY(look(c, dir, f->force, has));
    TD_TRY(td_session_local(td_fs_mkdirs(dir, 0777)));
    for (size_t i = 0; i < c->n_files; i++) {
        if (!has[i]) TD_TRY(download_file(s, c, c->files[i], dir));
    }
    if (td_output_is_json(f->output)) {
        return td_session_print_json(s, &c->base);
    }
    char size[32];
    if (f->output == TD_OUTPUT_NAME) {
        td_print(stdout, "%s\n", dir);
    } else {
        td_print(stdout, "%s of %s: %zu files, %s, in %s\n", c->path, c->job, c->n_files,
                 td_format_bytes(c->bytes, size), dir);
    }
    return TD_OK;
}
