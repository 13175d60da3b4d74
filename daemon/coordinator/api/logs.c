// LogService: logs of ranks by byte offset, and following them.
//
// A reader walks the streams of one attempt (rank by rank, out then err). It sends what is durable,
// one read of the readers' thread at a time, and waits where it is. It waits for its own client
// (the queue is full) or, following, for more bytes. It ends when the job has ended and everything
// is here. A follower of "the newest attempt" goes on with the next one, also when it was cut off
// and comes back with the positions that it had reached. When a node never delivers the rest of an
// ended attempt, followers are let go settle_ns after the job's end. So are others who read what an
// ended job left: they wait as long for a node that is connected. What is not here then is said in
// a last answer.

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/api/api.h"
#include "daemon/coordinator/api/file_stream.h"
#include "daemon/coordinator/core/attempt/awaited.h"
#include "daemon/coordinator/shell/access/access.h"
#include "daemon/coordinator/shell/disk/logs.h"
#include "traind/v1/log.pb-c.h"

enum { CHUNK_BYTES = 64 << 10 };
static const int64_t settle_ns = 10 * TD_NS_PER_S;

struct reader {
    struct td_file_stream stream;
    struct reader *next;
    struct td_coordinator *c;
    char job[TD_JOB_ID_MAX];
    uint32_t attempt; // 0: the job has none yet
    bool newest;      // goes on with the next attempt
    int32_t rank;     // -1: all
    bool out, err, follow;
    uint64_t first_offset;
    uint64_t tail_bytes; // of each stream of the first attempt; 0: all
    uint64_t *offsets;   // of 2 streams per rank
    uint32_t n_streams;
    uint32_t at; // stream being read
};

struct td_readers {
    struct reader *first;        // as many as caps.def says
    struct td_loop_timer *timer; // looks again at those that wait for an end
};

static void on_timer(void *arg) {
    struct td_readers *rs = arg;
    for (struct reader *r = rs->first; r; r = r->next) {
        td_file_stream_pump(&r->stream);
    }
}

td_status td_readers_create(struct td_coordinator *c, struct td_readers **out_readers) {
    struct td_readers *rs = td_calloc(1, sizeof *rs);
    if (!rs) return td_fail_oom();
    td_status s = td_loop_timer_create(c->loop, on_timer, rs, &rs->timer);
    if (s) {
        free(rs);
        return s;
    }
    *out_readers = rs;
    return TD_OK;
}

static void free_reader(void *reader) {
    struct reader *r = reader;
    free(r->offsets);
    free(r);
}

void td_readers_destroy(struct td_readers *rs) {
    if (!rs) return;
    td_loop_timer_destroy(rs->timer);
    while (rs->first) {
        struct reader *r = rs->first;
        rs->first = r->next;
        free_reader(r);
    }
    free(rs);
}

static void finish(struct reader *r, td_status take_status) {
    td_rpc_call_finish(r->stream.call, take_status); // its on_done frees the reader
}

// ---- one step -----------------------------------------------------------------------------------
static bool wants(const struct reader *r, uint32_t stream) {
    bool err = stream % 2;
    return (r->rank < 0 || (uint32_t)r->rank == stream / 2) && (err ? r->err : r->out);
}

static struct td_log_key key_of(const struct reader *r, uint32_t stream) {
    struct td_log_key key = {.attempt = r->attempt, .rank = stream / 2, .err = stream % 2};
    memcpy(key.job, r->job, sizeof key.job);
    return key;
}

static td_status begin_attempt(struct reader *r, const struct td_attempt *a) {
    if (r->rank >= 0 && (uint32_t)r->rank >= a->n_ranks) {
        return td_status_with_reason(
            td_fail(TD_NOT_FOUND, "attempt %u has ranks 0 to %u", a->number, a->n_ranks - 1),
            "RANK_NOT_FOUND");
    }
    free(r->offsets);
    r->n_streams = 2 * a->n_ranks;
    r->offsets = td_calloc(r->n_streams, sizeof *r->offsets);
    if (!r->offsets) return td_fail_oom();
    r->attempt = a->number;
    r->at = 0;
    for (uint32_t s = 0; s < r->n_streams; s++) {
        if (!wants(r, s)) continue;
        r->offsets[s] = r->first_offset;
        struct td_log_key key = key_of(r, s);
        uint64_t size = td_logs_size(r->c->logs, &key);
        if (r->tail_bytes && size > r->tail_bytes) r->offsets[s] = size - r->tail_bytes;
        if (r->first_offset <= size || r->follow) continue;
        td_status f = td_fail(TD_OUT_OF_RANGE, "offset %" PRIu64 " is past the end, %" PRIu64,
                              r->first_offset, size);
        return td_status_with_meta(td_status_with_reason(f, "OFFSET_PAST_END"), "latest",
                                   "%" PRIu64, size);
    }
    r->first_offset = r->tail_bytes = 0;
    return TD_OK;
}

static td_status send_chunk(void *reader, const void *data, size_t n, enum td_rpc_send *out_sent) {
    struct reader *r = reader;
    const struct td_job *j = NULL;
    td_status s = td_core_find_job(r->c->core, r->job, &j);
    const struct td_attempt *a = s ? NULL : td_job_attempt(j, r->attempt);
    td_status_free(s);
    Traind__V1__ReadLogsResponse m = TRAIND__V1__READ_LOGS_RESPONSE__INIT;
    m.attempt = r->attempt;
    m.rank = r->at / 2;
    m.err = r->at % 2;
    m.offset = r->offsets[r->at];
    m.data.data = td_unconst(data);
    m.data.len = n;
    if (a && m.rank < a->n_ranks) m.dropped_bytes = a->ranks[m.rank].dropped_bytes;
    r->offsets[r->at] += n;
    *out_sent = td_rpc_call_send(r->stream.call, &m.base);
    if (n) return TD_OK;
    return td_fail(TD_DATA_LOSS, "a log of job %s lost its end",
                   r->job); // it is shorter than it was
}

// True: a read was started (or failed, and the call is being ended).
static bool read_some(struct reader *r) {
    for (uint32_t n = 0; n < r->n_streams; n++) {
        uint32_t s = (r->at + n) % r->n_streams;
        if (!wants(r, s)) continue;
        struct td_log_key key = key_of(r, s);
        uint64_t size = td_logs_size(r->c->logs, &key);
        if (r->offsets[s] >= size) continue;
        char path[TD_SHELL_PATH_MAX];
        td_logs_path(r->c->logs, &key, path, sizeof path);
        r->at = s;
        size_t bytes = (size_t)TD_MIN(size - r->offsets[s], CHUNK_BYTES);
        const struct td_disk_file file = {path, (size_t)(strrchr(path, '/') - path), false, NULL};
        td_file_stream_read(&r->stream, r->c->reads, &file, r->offsets[s], bytes);
        return true;
    }
    return false;
}

// Nothing more will come of the attempt.
static bool settled(const struct td_job *j, const struct td_attempt *a) {
    if (td_attempt_live(a)) return false;
    if (td_attempt_over(a)) return true;
    if (td_job_state_ended(j->state) && td_real_now().ns - j->end_ns > settle_ns) return true;
    for (uint32_t r = 0; r < a->n_ranks; r++) {
        const struct td_rank_cursor *c = &a->ranks[r];
        if (!c->final || c->out < c->out_end || c->err < c->err_end) return false;
    }
    return true;
}

// True: a node that is connected has some of what is asked for, and just this moment sends it.
static bool is_coming(const struct reader *r, const struct td_job *j, const struct td_attempt *a) {
    const struct td_log_choice logs = {.rank = r->rank, .out = r->out, .err = r->err};
    struct td_awaited rest;
    if (!td_job_state_ended(j->state) || td_real_now().ns - j->end_ns > settle_ns) return false;
    for (uint32_t i = 0; i < a->n_parts; i++) {
        bool some = td_awaited_of(r->c->core, a, i, &logs, &rest);
        if (some && !rest.away && (rest.log_bytes || rest.unknown)) return true;
    }
    return false;
}

// What is not here. The client's queue has room: it was pumped.
static void say_rest(struct reader *r, const struct td_attempt *a) {
    const struct td_log_choice logs = {.rank = r->rank, .out = r->out, .err = r->err};
    TD_AUTO(td_arena) *arena = NULL;
    td_status s = td_shell_arena(&arena);
    Traind__V1__ReadLogsResponse m = TRAIND__V1__READ_LOGS_RESPONSE__INIT;
    m.attempt = r->attempt;
    if (!s) m.awaited = td_arena_array(arena, a->n_parts, sizeof(void *));
    td_status_free(s);
    for (uint32_t i = 0; m.awaited && i < a->n_parts; i++) {
        struct td_awaited rest;
        if (!td_awaited_of(r->c->core, a, i, &logs, &rest)) continue;
        if (!rest.log_bytes && !rest.unknown) continue;
        Traind__V1__LogAwaited *one = td_arena_alloc(arena, sizeof *one);
        if (!one) break;
        traind__v1__log_awaited__init(one);
        one->node = td_unconst(rest.node);
        one->away = rest.away;
        one->bytes = rest.log_bytes;
        m.awaited[m.n_awaited++] = one;
    }
    if (m.n_awaited) (void)td_rpc_call_send(r->stream.call, &m.base);
}

static void end(struct reader *r, const struct td_attempt *a) {
    if (a) say_rest(r, a);
    finish(r, TD_OK);
}

static void at_end(struct reader *r, const struct td_job *j, const struct td_attempt *a) {
    if (!r->follow && a && is_coming(r, j, a)) {
        td_loop_timer_arm(r->c->readers->timer, TD_NS_PER_S);
    } else if (!r->follow) {
        end(r, a);
    } else if (a && !settled(j, a)) {
        if (!td_attempt_live(a)) td_loop_timer_arm(r->c->readers->timer, TD_NS_PER_S);
    } else if (r->newest && j->n_attempts > r->attempt) {
        td_status s = begin_attempt(r, td_job_attempt(j, r->attempt + 1));
        if (s) {
            finish(r, s);
        } else {
            td_file_stream_pump(&r->stream);
        }
    } else if (td_job_state_ended(j->state) || (a && !r->newest)) {
        end(r, a);
    }
}

static void next_chunk(void *reader) {
    struct reader *r = reader;
    const struct td_job *j = NULL;
    td_status s = td_core_find_job(r->c->core, r->job, &j);
    if (s) {
        finish(r, s);
        return;
    }
    if (r->n_streams && read_some(r)) return;
    at_end(r, j, td_job_attempt(j, r->attempt));
}

static const struct td_file_stream_ops chunks = {
    .next = next_chunk, .send = send_chunk, .destroy = free_reader};

bool td_readers_have(const struct td_coordinator *c, const char *job) {
    const struct reader *r = c->readers->first;
    while (r && strcmp(r->job, job) != 0) {
        r = r->next;
    }
    return r;
}

void td_readers_wake(struct td_coordinator *c, const char *job) {
    for (struct reader *r = c->readers->first, *next; r; r = next) {
        next = r->next;
        if (strcmp(r->job, job) == 0) td_file_stream_pump(&r->stream);
    }
}

void td_readers_end_all(struct td_coordinator *c) {
    for (struct reader *r = c->readers->first; r; r = r->next) {
        finish(r, td_status_with_reason(td_fail(TD_UNAVAILABLE, "the coordinator stops; read again "
                                                                "from the last offset"),
                                        "DRAINING"));
    }
}

// ---- the call -----------------------------------------------------------------------------------
static td_status check(const Traind__V1__ReadLogsRequest *q) {
    if (q->rank < -1) return td_shell_bad_field("rank", "a rank, or -1 for all");
    if (q->err_only && q->out_only) {
        return td_shell_bad_field("err_only", "not together with out_only");
    }
    if (q->offset && (q->rank < 0 || !(q->err_only || q->out_only))) {
        return td_shell_bad_field("offset", "only with one rank and one stream");
    }
    if (q->tail_bytes && (q->offset || q->n_positions)) {
        return td_shell_bad_field("tail_bytes", "not together with offset or positions");
    }
    if (q->n_positions && (q->attempt == 0 || !q->follow)) {
        return td_shell_bad_field("positions", "only to follow an attempt by its number");
    }
    return TD_OK;
}

static td_status go_back_to(struct reader *r, const Traind__V1__ReadLogsRequest *q) {
    for (size_t i = 0; i < q->n_positions; i++) {
        const Traind__V1__LogPosition *p = q->positions[i];
        if (p->rank >= r->n_streams / 2) {
            return td_shell_bad_field("positions", "of ranks that the attempt has");
        }
        r->offsets[2 * p->rank + (p->err ? 1 : 0)] = p->offset;
    }
    return TD_OK;
}

static td_status start(struct td_coordinator *c, const Traind__V1__ReadLogsRequest *q,
                       struct reader **out_reader) {
    const struct td_job *j = NULL;
    TD_TRY(check(q));
    TD_TRY(td_core_find_job(c->core, q->job, &j));
    if (q->attempt > j->n_attempts) {
        return td_status_with_reason(td_fail(TD_NOT_FOUND,
                                             "job %s has no attempt %u; it has had %u so far",
                                             j->id, q->attempt, j->n_attempts),
                                     "ATTEMPT_NOT_FOUND");
    }
    struct reader *r = td_calloc(1, sizeof *r);
    if (!r) return td_fail_oom();
    *r = (struct reader){.c = c,
                         .newest = q->attempt == 0 || q->later,
                         .rank = q->rank,
                         .out = !q->err_only,
                         .err = !q->out_only,
                         .follow = q->follow,
                         .first_offset = q->offset,
                         .tail_bytes = q->tail_bytes};
    memcpy(r->job, j->id, sizeof r->job);
    uint32_t number = q->attempt ? q->attempt : j->n_attempts;
    td_status s = number ? begin_attempt(r, td_job_attempt(j, number)) : TD_OK;
    if (!s) s = go_back_to(r, q);
    if (s) {
        free_reader(r);
        return s;
    }
    *out_reader = r;
    return TD_OK;
}

static void read_logs(struct td_rpc_call *call, const ProtobufCMessage *request, void *ctx) {
    struct td_coordinator *c = TD_CAST(td_coordinator, ctx);
    struct reader *r = NULL;
    td_status s = start(c, (const Traind__V1__ReadLogsRequest *)request, &r);
    if (s) {
        td_shell_fail(c, call, s);
        return;
    }
    r->next = c->readers->first;
    c->readers->first = r;
    td_file_stream_begin(&r->stream, &chunks, r, call);
    td_file_stream_pump(&r->stream);
}

static void on_done(struct td_rpc_call *call, void *ctx) {
    struct td_coordinator *c = TD_CAST(td_coordinator, ctx);
    struct td_file_stream *s = td_rpc_call_user(call);
    if (!s) return;
    struct reader *r = s->reader, **at = &c->readers->first;
    while (*at != r) {
        at = &(*at)->next;
    }
    *at = r->next;
    td_file_stream_on_done(call, ctx);
}

static const struct td_rpc_method rows[] = {
    {.service = "traind.v1.LogService",
     .method = "ReadLogs",
     .role = TD_ROLE_VIEWER,
     .kind = TD_RPC_SERVER_STREAM,
     .request = &traind__v1__read_logs_request__descriptor,
     .response = &traind__v1__read_logs_response__descriptor,
     .on_call = read_logs,
     .on_writable = td_file_stream_on_writable,
     .on_done = on_done},
};

td_status td_api_logs_add(struct td_coordinator *c) {
    return td_access_add_rows(c, rows, TD_COUNTOF(rows));
}
