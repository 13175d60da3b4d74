// See the header. Each file begins with an empty chunk that asks what is there: one round trip more
// than blind sending, and no byte twice.

#include "daemon/node/shell/shards/shards.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/node/shell/shards/put.h"
#include "lib/attempt/checkpoint_name.h"
#include "lib/attempt/events.h"
#include "lib/attempt/segments.h"
#include "lib/base/digest.h"
#include "lib/base/files/files.h"
#include "lib/base/log.h"
#include "lib/loop/loop.h"

enum { td_shards_magic = 0x53485244, READ_BYTES = 2 * TD_SEGMENT_LINE_MAX };
static const int64_t retry_ns = TD_NS_PER_S;

struct shard {
    char name[TD_CHECKPOINT_FILE_BYTES];
    uint64_t bytes;
    char digest[TD_DIGEST_HEX];
};

struct td_shards {
    uint32_t magic;
    struct td_rpc_channel *channel;
    const struct td_assignment *assigned;
    const char *key; // of the session
    const char *dir;
    bool up;
    uint64_t at; // of the next line of events.log
    char checkpoint[TD_ASSIGNMENT_PATH];
    struct shard files[TD_CHECKPOINT_MAX_FILES + 1]; // the manifest is the last
    size_t n_files, file;                            // file == n_files: nothing to send
    struct td_put *put;
    bool probed;
    struct td_loop_timer *retry;
};

static void pump(struct td_shards *s);

static void shard_path(const struct td_shards *s, const char *name, char out[TD_FS_PATH_BYTES]) {
    snprintf(out, TD_FS_PATH_BYTES, "%s/%s/%s", s->assigned->checkpoints, s->checkpoint, name);
}

// The manifest comes last, as on disk. Its digest is in the line; its length, of the file itself.
static void add_manifest(struct td_shards *s, const char *digest) {
    static const char name[] = "manifest.json";
    char path[TD_FS_PATH_BYTES];
    struct stat st;
    shard_path(s, name, path);
    if (stat(path, &st) != 0) return; // removed by retention meanwhile
    struct shard *shard = &s->files[s->n_files++];
    snprintf(shard->name, sizeof shard->name, "%s", name);
    snprintf(shard->digest, sizeof shard->digest, "%s", digest);
    shard->bytes = (uint64_t)st.st_size;
}

// ---- the log ------------------------------------------------------------------------------------
static void read_checkpoint(struct td_shards *s, const char *line, size_t len) {
    TD_AUTO(td_arena) *arena = NULL;
    struct td_event event;
    td_status failed = td_arena_create(1 << 20, &arena);
    if (!failed) failed = td_event_parse(arena, line, len, &event);
    if (failed) {
        td_status_log(TD_LOG_WARN, failed, "line of events.log passed over, continuing");
        return;
    }
    const struct td_event_checkpoint *e = &event.checkpoint;
    if (!td_checkpoint_path_ok(e->path)) return;
    snprintf(s->checkpoint, sizeof s->checkpoint, "%s", e->path);
    s->n_files = s->file = 0;
    s->probed = false;
    for (const struct td_json *v = e->files ? e->files->first : NULL; v; v = v->next) {
        struct td_event_file f = td_event_file_of(v);
        if (!td_checkpoint_file_ok(f.name) || f.bytes < 0 ||
            s->n_files == TD_CHECKPOINT_MAX_FILES) {
            continue;
        }
        struct shard *shard = &s->files[s->n_files++];
        snprintf(shard->name, sizeof shard->name, "%s", f.name);
        snprintf(shard->digest, sizeof shard->digest, "%s", f.digest);
        shard->bytes = (uint64_t)f.bytes;
    }
    add_manifest(s, e->manifest);
}

// Moves on to the next checkpoint line; false: there is none yet.
static bool next_checkpoint(struct td_shards *s) {
    char path[TD_FS_PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", s->dir, TD_SEGMENT_EVENTS);
    TD_AUTO_CLOSE int fd = -1;
    td_status_free(td_fs_open(path, &fd, NULL));
    TD_AUTO_FREE char *text = fd >= 0 ? td_calloc(1, READ_BYTES + 1) : NULL;
    if (!text) return false;
    for (;;) {
        ssize_t n = pread(fd, text, READ_BYTES, (off_t)s->at);
        char *end = n > 0 ? memchr(text, '\n', (size_t)n) : NULL;
        if (!end) return false;
        for (char *line = text; end; end = memchr(line, '\n', (size_t)(text + n - line))) {
            s->at += (uint64_t)(end - line) + 1;
            if (td_event_line_is(line, (size_t)(end - line), TD_EVENT_CHECKPOINT)) {
                read_checkpoint(s, line, (size_t)(end - line));
                if (s->n_files > 0) return true;
            }
            line = end + 1;
        }
    }
}

// ---- sending ------------------------------------------------------------------------------------
static const ProtobufCMessage *chunk(uint64_t offset, const uint8_t *data, size_t bytes,
                                     void *arg) {
    struct td_shards *s = TD_CAST(td_shards, arg);
    static Traind__V1__ShardChunk m; // packed before the next one; one loop thread
    static Traind__V1__AttemptId id;
    static char job[64];
    traind__v1__shard_chunk__init(&m);
    traind__v1__attempt_id__init(&id);
    snprintf(job, sizeof job, "%s", s->assigned->job);
    id.job = job;
    id.attempt = s->assigned->attempt;
    id.epoch = s->assigned->epoch;
    struct shard *shard = &s->files[s->file];
    m.id = &id;
    m.checkpoint = s->checkpoint;
    m.file = shard->name;
    m.key = td_unconst(s->key);
    m.file_bytes = shard->bytes;
    m.digest = shard->digest;
    m.offset = offset;
    m.data = (ProtobufCBinaryData){bytes, td_unconst(data)};
    return &m.base;
}

static void pass(struct td_shards *s) {
    s->file++;
    s->probed = false;
}

static bool is_final(td_status s) {
    switch (td_status_code(s)) {
    case TD_NOT_FOUND:
    case TD_FAILED_PRECONDITION:
    case TD_INVALID_ARGUMENT:
    case TD_OUT_OF_RANGE:
    case TD_DATA_LOSS:
        return true;
    default:
        return false;
    }
}

static void on_put(td_status take_status, uint64_t durable, void *arg);

// False: the file is not there any more.
static bool send_from(struct td_shards *s, uint64_t from, uint64_t to) {
    char path[TD_FS_PATH_BYTES];
    shard_path(s, s->files[s->file].name, path);
    struct td_put_options o = {.channel = s->channel,
                               .method = "/traind.v1.NodeService/PutShard",
                               .path = path,
                               .root_bytes = strlen(s->assigned->checkpoints),
                               .from = from,
                               .to = to,
                               .chunk = chunk,
                               .on_done = on_put,
                               .arg = s};
    td_status failed = td_put_start(&o, &s->put);
    if (!failed) return true;
    bool gone = td_status_code(failed) == TD_NOT_FOUND; // removed by retention meanwhile
    if (!gone) td_loop_timer_arm(s->retry, retry_ns);
    td_status_log(gone ? TD_LOG_DEBUG : TD_LOG_WARN, failed, "checkpoint file not sent");
    return !gone;
}

static void on_put(td_status take_status, uint64_t durable, void *arg) {
    struct td_shards *s = TD_CAST(td_shards, arg);
    const struct shard *shard = &s->files[s->file];
    s->put = NULL;
    if (take_status && is_final(take_status)) {
        td_log_warn("checkpoint file not wanted job=%s path=%s file=%s why=\"%s\", continuing",
                    s->assigned->job, s->checkpoint, shard->name, td_status_message(take_status));
        td_status_free(take_status);
        pass(s);
        pump(s);
    } else if (take_status) {
        td_log_debug("checkpoint file not sent yet: %s", td_status_message(take_status));
        td_status_free(take_status);
        s->probed = false;
        td_loop_timer_arm(s->retry, retry_ns);
    } else if (durable >= shard->bytes) {
        pass(s);
        pump(s);
    } else if (!s->probed) {
        s->probed = true;
        if (send_from(s, durable, shard->bytes)) return;
        pass(s);
        pump(s);
    } else { // it took less than all
        s->probed = false;
        td_loop_timer_arm(s->retry, retry_ns);
    }
}

static void pump(struct td_shards *s) {
    if (!s->up || s->put || td_loop_timer_is_armed(s->retry)) return;
    while (s->file < s->n_files || next_checkpoint(s)) {
        if (send_from(s, 0, 0)) return;
        pass(s);
    }
}

static void on_retry(void *arg) {
    pump(TD_CAST(td_shards, arg));
}

void td_shards_poke(struct td_shards *s) {
    pump(s);
}

void td_shards_up(struct td_shards *s, bool up) {
    s->up = up;
    if (!up) {
        td_put_cancel(td_steal(s->put));
        td_loop_timer_disarm(s->retry);
        s->probed = false;
    }
    pump(s);
}

// ---- life ---------------------------------------------------------------------------------------
td_status td_shards_create(struct td_loop *loop, struct td_rpc_channel *channel,
                           const struct td_assignment *assigned, const char *dir, const char *key,
                           struct td_shards **out_shards) {
    struct td_shards *s = td_calloc(1, sizeof *s);
    if (!s) return td_fail_oom();
    s->magic = td_shards_magic;
    s->channel = channel;
    s->assigned = assigned;
    s->dir = dir;
    s->key = key;
    td_status failed = td_loop_timer_create(loop, on_retry, s, &s->retry);
    if (failed) {
        td_shards_destroy(s);
        return failed;
    }
    *out_shards = s;
    return TD_OK;
}

void td_shards_destroy(struct td_shards *s) {
    if (!s) return;
    td_put_cancel(s->put);
    td_loop_timer_destroy(s->retry);
    s->magic = 0;
    free(s);
}
