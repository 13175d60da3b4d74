// See the header. Order inside an attempt: metrics and logs first, then events, so that what an
// event reports (a checkpoint's step, an end) comes after the points that led to it.

#include "daemon/node/shell/attempts/forward.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/node/shell/shards/gone_checkpoints.h"
#include "daemon/node/shell/shards/put.h"
#include "lib/attempt/events.h"
#include "lib/attempt/rank_page.h"
#include "lib/attempt/segments.h"
#include "lib/base/files/files.h"
#include "lib/base/log.h"
#include "lib/loop/loop.h"

enum { CHUNK_BYTES = 256 << 10, PUT_BYTES = 4 << 20, TAIL_BYTES = 1 << 20 };
static const int64_t put_retry_ns = TD_NS_PER_S;
enum { td_forward_magic = 0x46575231 };

struct stream {
    Traind__V1__Segment__Kind kind;
    uint32_t rank;
    uint64_t size;     // as last reported or seen
    uint64_t reported; // by its launcher
    uint64_t sent, committed;
    bool refused; // a log's bytes that were sent could not be written: they are sent again
};
struct drops {
    uint64_t bytes, points;
};

// Of the progress that people see; compared byte by byte.
struct shown {
    uint32_t epoch, step, total_steps, phase;
    float loss;
};

struct td_forward {
    uint32_t magic;
    struct td_forward_options o;
    char dir[TD_FS_PATH_BYTES - 64], job[64];
    struct stream *streams; // (1 + 3 n_ranks): events, then metrics, out, err of each rank
    size_t n_streams;
    struct drops *drops; // (n_ranks)
    bool active, gone, final_sent, in_pump;
    struct shown last;
    struct td_put *put;
    struct stream *put_stream;
    struct td_loop_timer *retry;
    uint8_t buffer[CHUNK_BYTES];
};

static void pump(struct td_forward *f);

// ---- streams ------------------------------------------------------------------------------------
static struct stream *stream_of(struct td_forward *f, Traind__V1__Segment__Kind kind,
                                uint32_t rank) {
    for (size_t i = 0; i < f->n_streams; i++) {
        struct stream *s = &f->streams[i];
        if (s->kind == kind && (i == 0 || s->rank == rank)) return s;
    }
    return NULL;
}

static void path_of(const struct td_forward *f, const struct stream *s,
                    char out[TD_FS_PATH_BYTES]) {
    char name[32] = TD_SEGMENT_EVENTS;
    if (s->kind == TRAIND__V1__SEGMENT__KIND__METRICS) {
        snprintf(name, sizeof name, TD_SEGMENT_METRICS, s->rank);
    } else if (s->kind == TRAIND__V1__SEGMENT__KIND__OUT) {
        snprintf(name, sizeof name, TD_SEGMENT_OUT, s->rank);
    } else if (s->kind == TRAIND__V1__SEGMENT__KIND__ERR) {
        snprintf(name, sizeof name, TD_SEGMENT_ERR, s->rank);
    }
    snprintf(out, TD_FS_PATH_BYTES, "%s/%s", f->dir, name);
}

static void look(struct td_forward *f) {
    for (size_t i = 0; i < f->n_streams; i++) {
        char path[TD_FS_PATH_BYTES];
        struct stat st;
        path_of(f, &f->streams[i], path);
        if (stat(path, &st) == 0) f->streams[i].size = (uint64_t)st.st_size;
    }
}

// Bytes at s->sent, at most CHUNK_BYTES; 0 when they cannot be read.
static size_t read_chunk(struct td_forward *f, const struct stream *s) {
    char path[TD_FS_PATH_BYTES];
    path_of(f, s, path);
    TD_AUTO_CLOSE int fd = -1;
    td_status_free(td_fs_open(path, &fd, NULL));
    ssize_t n = fd < 0
                    ? -1
                    : pread(fd, f->buffer, (size_t)TD_MIN(s->size - s->sent, (uint64_t)CHUNK_BYTES),
                            (off_t)s->sent);
    return n > 0 ? (size_t)n : 0;
}

static bool is_last_line(const char *line, size_t bytes) {
    return td_event_line_is(line, bytes, TD_EVENT_LAUNCHER_END) ||
           td_event_line_is(line, bytes, TD_EVENT_LAUNCHER_LOST);
}

// How many of the n bytes may be sent: whole records only.
static size_t whole(const struct td_forward *f, const struct stream *s, size_t n) {
    if (s->kind == TRAIND__V1__SEGMENT__KIND__METRICS) {
        return n - n % sizeof(struct td_metric_record);
    }
    if (s->kind != TRAIND__V1__SEGMENT__KIND__EVENTS) return n;
    size_t len = 0;
    while (len < n) {
        const char *line = (const char *)f->buffer + len;
        const char *end = memchr(line, '\n', n - len);
        if (!end || (!f->final_sent && is_last_line(line, (size_t)(end - line)))) break;
        len += (size_t)(end - line) + 1;
    }
    return len;
}

static void fill_id(const struct td_forward *f, Traind__V1__AttemptId *id, char job[64]) {
    traind__v1__attempt_id__init(id);
    snprintf(job, 64, "%s", f->job);
    id->job = job;
    id->attempt = f->o.attempt;
    id->epoch = f->o.epoch;
}

// False: no room in the session.
static bool send_stream(struct td_forward *f, struct stream *s) {
    while (s->sent < s->size && s->sent - s->committed < TD_FORWARD_WINDOW) {
        size_t n = whole(f, s, read_chunk(f, s));
        if (n == 0) return true;
        char job[64];
        Traind__V1__AttemptId id;
        Traind__V1__Segment segment = TRAIND__V1__SEGMENT__INIT;
        Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
        fill_id(f, &id, job);
        segment.id = &id;
        segment.kind = s->kind;
        segment.rank = s->rank;
        segment.offset = s->sent;
        segment.data = (ProtobufCBinaryData){n, f->buffer};
        m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_SEGMENT;
        m.segment = &segment;
        if (!f->o.send(&m, f->o.arg)) return false;
        s->sent += n;
    }
    return true;
}

static bool is_log(const struct stream *s) {
    return s->kind == TRAIND__V1__SEGMENT__KIND__OUT || s->kind == TRAIND__V1__SEGMENT__KIND__ERR;
}

// ---- logs over gRPC -----------------------------------------------------------------------------
static const ProtobufCMessage *log_chunk(uint64_t offset, const uint8_t *data, size_t bytes,
                                         void *arg) {
    struct td_forward *f = TD_CAST(td_forward, arg);
    static Traind__V1__LogChunk chunk; // packed before the next one; one loop thread
    static Traind__V1__AttemptId id;
    static char job[64];
    traind__v1__log_chunk__init(&chunk);
    fill_id(f, &id, job);
    chunk.id = &id;
    chunk.rank = f->put_stream->rank;
    chunk.kind = f->put_stream->kind;
    chunk.offset = offset;
    chunk.key = td_unconst(f->o.key);
    chunk.data = (ProtobufCBinaryData){bytes, td_unconst(data)};
    return &chunk.base;
}

static void log_done(td_status take_status, uint64_t durable, void *arg) {
    struct td_forward *f = TD_CAST(td_forward, arg);
    struct stream *s = f->put_stream;
    f->put = NULL;
    bool moved = !take_status && durable > s->committed;
    if (moved) s->committed = s->sent = durable;
    if (take_status) td_log_debug("log not sent yet: %s", td_status_message(take_status));
    td_status_free(take_status);
    if (moved) {
        pump(f);
    } else {
        td_loop_timer_arm(f->retry, put_retry_ns);
    }
}

// The next stream after the last one, so that a loud rank does not silence the others.
static void put_logs(struct td_forward *f) {
    if (!f->o.channel || f->put || td_loop_timer_is_armed(f->retry)) return;
    size_t from = f->put_stream ? (size_t)(f->put_stream - f->streams) : 0;
    for (size_t i = 1; i <= f->n_streams; i++) {
        struct stream *s = &f->streams[(from + i) % f->n_streams];
        if (!is_log(s) || s->committed >= s->size) continue;
        char path[TD_FS_PATH_BYTES];
        path_of(f, s, path);
        struct td_put_options o = {.channel = f->o.channel,
                                   .method = "/traind.v1.NodeService/PutLog",
                                   .path = path,
                                   .root_bytes = strlen(f->o.dir),
                                   .from = s->committed,
                                   .to = TD_MIN(s->size, s->committed + PUT_BYTES),
                                   .chunk = log_chunk,
                                   .on_done = log_done,
                                   .arg = f};
        f->put_stream = s;
        td_status failed = td_put_start(&o, &f->put);
        if (!failed) return;
        td_log_debug("log not sent yet: %s", td_status_message(failed));
        td_status_free(failed);
        td_loop_timer_arm(f->retry, put_retry_ns);
        return;
    }
}

static void on_retry(void *arg) {
    struct td_forward *f = TD_CAST(td_forward, arg);
    for (size_t i = 0; i < f->n_streams; i++) {
        struct stream *s = &f->streams[i];
        if (s->refused) s->sent = s->committed;
        s->refused = false;
    }
    pump(f);
}

// ---- state of the logs --------------------------------------------------------------------------
// What is missing of a rank's segments, when the files are final; "": nothing.
static void say_lost(const struct td_forward *f, uint32_t i, char *out, size_t out_bytes) {
    out[0] = '\0';
    for (const struct stream *s = &f->streams[1 + 3 * i], *end = s + 3; s < end; s++) {
        if (s->size >= s->reported) continue;
        char path[TD_FS_PATH_BYTES];
        path_of(f, s, path);
        size_t len = strlen(out);
        snprintf(out + len, out_bytes - len,
                 "%s%s of the attempt was removed or cut: %" PRIu64 " of its %" PRIu64
                 " bytes were taken, the rest is lost",
                 len ? "; " : "", strrchr(path, '/') + 1, s->size, s->reported);
    }
}

static void add_gone(const struct td_forward *f, struct td_arena *a, Traind__V1__LogState *state) {
    td_status s = td_gone_checkpoints(f->dir, f->o.checkpoints, a, &state->gone, &state->n_gone);
    td_status_log(TD_LOG_WARN, s, "checkpoints of a log were not looked for, continuing");
}

static bool send_log_state(struct td_forward *f, uint32_t i, bool final) {
    TD_AUTO(td_arena) *arena = NULL;
    const struct stream *s = &f->streams[1 + 3 * i];
    char job[64];
    Traind__V1__AttemptId id;
    Traind__V1__LogState state = TRAIND__V1__LOG_STATE__INIT;
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    fill_id(f, &id, job);
    state.id = &id;
    state.rank = s->rank;
    state.metrics_bytes = s[0].size - s[0].size % sizeof(struct td_metric_record);
    state.out_bytes = s[1].size;
    state.err_bytes = s[2].size;
    state.dropped_bytes = f->drops[i].bytes;
    state.dropped_points = f->drops[i].points;
    state.final = final;
    char lost[512] = "";
    if (final) say_lost(f, i, lost, sizeof lost);
    td_status failed = final && i == 0 ? td_arena_create(1 << 20, &arena) : TD_OK;
    td_status_free(failed); // without memory the next session asks again
    if (arena) add_gone(f, arena, &state);
    state.lost = lost;
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_LOG_STATE;
    m.log_state = &state;
    return f->o.send(&m, f->o.arg);
}

static void take_lengths(struct stream *s, const struct td_event_rank_exit *e) {
    const int64_t bytes[] = {e->metrics_bytes, e->out_bytes, e->err_bytes};
    for (size_t i = 0; i < TD_COUNTOF(bytes); i++) { // absent (0): of an older launcher
        s[i].reported = TD_MAX(s[i].reported, (uint64_t)TD_MAX(bytes[i], 0));
    }
}

// rank_exit lines say what was dropped and how long the segments are; they are near the end of
// events.log.
static void read_exits(struct td_forward *f) {
    char path[TD_FS_PATH_BYTES];
    path_of(f, &f->streams[0], path);
    TD_AUTO_CLOSE int fd = -1;
    td_status_free(td_fs_open(path, &fd, NULL));
    uint64_t size = f->streams[0].size, from = size > TAIL_BYTES ? size - TAIL_BYTES : 0;
    TD_AUTO_FREE char *text = td_calloc(1, (size_t)(size - from) + 1);
    TD_AUTO(td_arena) *arena = NULL;
    TD_AUTO_STATUS td_status s = td_arena_create(1 << 20, &arena);
    if (fd < 0 || !text || s) return;
    if (pread(fd, text, (size_t)(size - from), (off_t)from) < 0) return;
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        struct td_event event;
        if (!td_event_line_is(line, (size_t)(end - line), TD_EVENT_RANK_EXIT)) continue;
        td_arena_reset(arena);
        td_status misfit = td_event_parse(arena, line, (size_t)(end - line), &event);
        if (misfit) {
            td_status_log(TD_LOG_WARN, misfit, "line of events.log passed over, continuing");
            continue;
        }
        int64_t rank = event.rank - f->o.first_rank;
        if (rank < 0 || rank >= f->o.n_ranks) continue;
        f->drops[rank].bytes = (uint64_t)event.rank_exit.dropped_bytes;
        f->drops[rank].points = (uint64_t)event.rank_exit.dropped_points;
        take_lengths(&f->streams[1 + 3 * rank], &event.rank_exit);
    }
}

// What the coordinator has in the end: the file, or where that is lost, what was sent of it. What
// was sent in this session is taken, if its acknowledgement is still to come; a new one says how
// much.
static void look_last(struct td_forward *f) {
    for (size_t i = 1; i < f->n_streams; i++) {
        struct stream *s = &f->streams[i];
        char path[TD_FS_PATH_BYTES];
        struct stat st;
        path_of(f, s, path);
        s->size = TD_MAX(stat(path, &st) == 0 ? (uint64_t)st.st_size : 0, s->sent);
    }
}

static bool send_finals(struct td_forward *f) {
    if (!f->gone || f->final_sent) return true;
    for (uint32_t i = 0; i < f->o.n_ranks; i++) {
        if (!send_log_state(f, i, true)) return false; // all again with the next poke
    }
    f->final_sent = true;
    return true;
}

// ---- sending ------------------------------------------------------------------------------------
static void pump(struct td_forward *f) {
    if (!f->active || f->in_pump) return;
    f->in_pump = true;
    bool room = send_finals(f);
    for (size_t i = 1; i < f->n_streams && room; i++) {
        bool metrics = f->streams[i].kind == TRAIND__V1__SEGMENT__KIND__METRICS;
        if (metrics || !f->o.channel) room = send_stream(f, &f->streams[i]);
    }
    if (room) (void)send_stream(f, &f->streams[0]);
    put_logs(f);
    f->in_pump = false;
}

void td_forward_poke(struct td_forward *f) {
    look(f);
    pump(f);
}

void td_forward_adopt(struct td_forward *f, const Traind__V1__AttemptCursor *cursor) {
    for (size_t i = 0; i < f->n_streams; i++) {
        f->streams[i].sent = f->streams[i].committed = 0;
    }
    for (size_t i = 0; cursor && i < cursor->n_offsets; i++) {
        const Traind__V1__SegmentOffset *o = cursor->offsets[i];
        struct stream *s = stream_of(f, o->kind, o->rank);
        if (s) s->sent = s->committed = o->offset;
    }
    f->active = true;
    f->final_sent = false;
    f->last.phase = UINT32_MAX; // no phase: what comes is new
    td_forward_poke(f);
}

uint64_t td_forward_events_of(const Traind__V1__AttemptCursor *cursor) {
    for (size_t i = 0; i < cursor->n_offsets; i++) {
        const Traind__V1__SegmentOffset *o = cursor->offsets[i];
        if (o->kind == TRAIND__V1__SEGMENT__KIND__EVENTS) return o->offset;
    }
    return 0;
}

bool td_forward_is_active(const struct td_forward *f, uint64_t *out_events) {
    *out_events = f->active ? f->streams[0].sent : 0;
    return f->active;
}

void td_forward_down(struct td_forward *f) {
    f->active = false;
    td_put_cancel(td_steal(f->put));
    td_loop_timer_disarm(f->retry);
}

void td_forward_ack(struct td_forward *f, const Traind__V1__SegmentAck *ack) {
    struct stream *s = stream_of(f, ack->kind, ack->rank);
    if (!s || ack->offset > s->size) return;
    if (is_log(s) && ack->offset == s->committed && s->sent > s->committed) {
        s->refused = true; // the coordinator's disk refuses, or a write before this one failed
        if (!td_loop_timer_is_armed(f->retry)) td_loop_timer_arm(f->retry, put_retry_ns);
    }
    s->committed = TD_MAX(s->committed, ack->offset);
    s->sent = TD_MAX(s->sent, s->committed);
    pump(f);
}

static void send_progress(struct td_forward *f, const Traind__V1__LauncherStatus *status) {
    if (status->n_ranks == 0) return;
    const Traind__V1__RankStatus *first = status->ranks[0];
    const struct shown now = {.epoch = first->epoch,
                              .step = first->step,
                              .total_steps = first->total_steps,
                              .phase = first->phase,
                              .loss = first->loss};
    if (memcmp(&now, &f->last, sizeof now) == 0) return;
    char job[64];
    Traind__V1__AttemptId id;
    Traind__V1__AttemptProgress p = TRAIND__V1__ATTEMPT_PROGRESS__INIT;
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    fill_id(f, &id, job);
    p.id = &id;
    p.epoch = now.epoch;
    p.step = now.step;
    p.total_steps = now.total_steps;
    p.loss = now.loss;
    p.phase = now.phase;
    for (size_t i = 0; i < status->n_ranks; i++) {
        p.samples_per_s += status->ranks[i]->samples_per_s;
    }
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_PROGRESS;
    m.progress = &p;
    if (!f->o.send(&m, f->o.arg)) return;
    f->last = now;
}

void td_forward_status(struct td_forward *f, const Traind__V1__LauncherStatus *status) {
    f->streams[0].size = TD_MAX(f->streams[0].size, status->events_bytes);
    for (size_t i = 0; i < status->n_ranks; i++) {
        const Traind__V1__RankStatus *r = status->ranks[i];
        uint32_t idx = r->rank - f->o.first_rank;
        if (idx >= f->o.n_ranks) continue;
        struct stream *s = &f->streams[1 + 3 * idx];
        const uint64_t reported[] = {r->metrics_bytes, r->out_bytes, r->err_bytes};
        for (size_t k = 0; k < TD_COUNTOF(reported); k++) {
            s[k].reported = TD_MAX(s[k].reported, reported[k]);
            s[k].size = TD_MAX(s[k].size, reported[k]);
        }
        bool dropped =
            f->drops[idx].bytes != r->dropped_bytes || f->drops[idx].points != r->dropped_points;
        f->drops[idx] = (struct drops){r->dropped_bytes, r->dropped_points};
        if (dropped && f->active) (void)send_log_state(f, idx, false);
    }
    if (f->active) send_progress(f, status);
    pump(f);
}

void td_forward_final(struct td_forward *f) {
    f->gone = true;
    look(f);
    read_exits(f);
    look_last(f);
    pump(f);
}

// ---- life ---------------------------------------------------------------------------------------
void td_forward_destroy(struct td_forward *f) {
    if (!f) return;
    td_put_cancel(f->put);
    td_loop_timer_destroy(f->retry);
    free(f->streams);
    free(f->drops);
    f->magic = 0;
    free(f);
}

td_status td_forward_create(const struct td_forward_options *o, struct td_forward **out_forward) {
    TD_AUTO(td_forward) *f = td_calloc(1, sizeof *f);
    if (!f) return td_fail_oom();
    f->magic = td_forward_magic;
    f->o = *o;
    if (snprintf(f->dir, sizeof f->dir, "%s", o->dir) >= (int)sizeof f->dir) {
        return td_fail(TD_INVALID_ARGUMENT, "the path '%.64s...' is too long", o->dir);
    }
    snprintf(f->job, sizeof f->job, "%s", o->job);
    f->o.dir = f->dir;
    f->o.job = f->job;
    f->n_streams = 1 + 3 * (size_t)o->n_ranks;
    f->streams = td_calloc(f->n_streams, sizeof *f->streams);
    f->drops = td_calloc(o->n_ranks, sizeof *f->drops);
    if (!f->streams || !f->drops) return td_fail_oom();
    static const Traind__V1__Segment__Kind kinds[] = {TRAIND__V1__SEGMENT__KIND__METRICS,
                                                      TRAIND__V1__SEGMENT__KIND__OUT,
                                                      TRAIND__V1__SEGMENT__KIND__ERR};
    f->streams[0].kind = TRAIND__V1__SEGMENT__KIND__EVENTS;
    for (size_t i = 1; i < f->n_streams; i++) {
        f->streams[i].kind = kinds[(i - 1) % 3];
        f->streams[i].rank = o->first_rank + (uint32_t)((i - 1) / 3);
    }
    TD_TRY(td_loop_timer_create(o->loop, on_retry, f, &f->retry));
    *out_forward = td_steal(f);
    return TD_OK;
}
