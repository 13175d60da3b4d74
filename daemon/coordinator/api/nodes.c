// NodeService: the control streams of nodes, over gRPC or in process, and PutLog.
//
// A session is an id in the core and a way back to the node. Messages go straight to the core, but
// for bytes of logs, which go to the files and come back to the core as "committed". A session that
// cannot take a message (its queue is full) is ended: the node dials again and receives everything
// that still holds.
//
// What a turn of the loop sends to a node goes as one message, at its end, if the node reads that
// (Register.batches). What can wait goes with the next message, or when its time has come. In
// process there is nothing to gain: a message is handed over by a call.

#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/api/api.h"
#include "daemon/coordinator/api/link.h"
#include "daemon/coordinator/shell/access/access.h"
#include "daemon/coordinator/shell/access/members.h"
#include "daemon/coordinator/shell/disk/logs.h"
#include "lib/base/log.h"
#include "lib/rpc/codec.h"

enum {
    PUT_LOG_WINDOW = 8, // chunks with the disk
    BATCH_FIELD = 15,   // of CoordinatorMessage
};

struct session {
    struct session *next;
    struct session *next_unsent;
    bool unsent;       // it is in that list
    struct td_mono by; // when what waits for it must go
    uint64_t id;
    struct td_rpc_call *call; // one of the two
    struct td_coordinator_link *link;
};

struct td_sessions {
    struct session *first;
    struct session *unsent; // with messages that wait for a flush
};

struct td_coordinator_link {
    uint32_t magic;
    struct td_coordinator *c;
    void (*to_node)(const void *packed, size_t bytes, void *arg);
    void *arg;
    struct session *session;
};
enum { td_coordinator_link_magic = 0x54444c4b }; // "TDLK"

td_status td_sessions_create(struct td_sessions **out_sessions) {
    *out_sessions = td_calloc(1, sizeof **out_sessions);
    return *out_sessions ? TD_OK : td_fail_oom();
}

void td_sessions_destroy(struct td_sessions *s) {
    while (s && s->first) {
        struct session *gone = s->first;
        s->first = gone->next;
        free(gone);
    }
    free(s);
}

static struct session *find(struct td_coordinator *c, uint64_t id) {
    struct session *s = c->sessions->first;
    while (s && s->id != id) {
        s = s->next;
    }
    return s;
}

static td_status open_session(struct td_coordinator *c, struct td_rpc_call *call,
                              struct td_coordinator_link *link, struct session **out) {
    struct session *s = td_calloc(1, sizeof *s);
    if (!s) return td_fail_oom();
    s->id = td_core_session_open(c->core, td_shell_now(), link != NULL);
    s->call = call;
    s->link = link;
    if (!s->id) {
        free(s);
        return td_status_with_reason(td_fail(TD_RESOURCE_EXHAUSTED, "too many sessions"),
                                     "LIMIT_SESSIONS");
    }
    s->next = c->sessions->first;
    c->sessions->first = s;
    *out = s;
    return TD_OK;
}

static void close_session(struct td_coordinator *c, struct session *s) {
    struct session **at = &c->sessions->first;
    while (*at != s) {
        at = &(*at)->next;
    }
    *at = s->next;
    for (at = &c->sessions->unsent; s->unsent && *at; at = &(*at)->next_unsent) {
        if (*at != s) continue;
        *at = s->next_unsent;
        break;
    }
    td_core_session_close(c->core, td_shell_now(), s->id);
    free(s);
    td_shell_after(c);
}

// ---- to the node --------------------------------------------------------------------------------
static void send_link(struct td_coordinator_link *l, const Traind__V1__CoordinatorMessage *m) {
    size_t bytes = traind__v1__coordinator_message__get_packed_size(m);
    uint8_t *packed = malloc(bytes ? bytes : 1);
    TD_CHECK(packed && "out of memory: start again from the disk");
    traind__v1__coordinator_message__pack(m, packed);
    l->to_node(packed, bytes, l->arg);
    free(packed);
}

void td_sessions_send(struct td_coordinator *c, uint64_t session,
                      const Traind__V1__CoordinatorMessage *m, struct td_mono by) {
    struct session *s = find(c, session);
    if (!s) return; // it ended meanwhile; the next one begins with Register
    if (s->link) {
        send_link(s->link, m);
        return;
    }
    if (td_rpc_call_send(s->call, &m->base) == TD_RPC_SEND_REFUSED) {
        td_rpc_call_finish(s->call,
                           td_fail(TD_RESOURCE_EXHAUSTED, "the node reads too slowly; dial again"));
        return;
    }
    if (s->unsent) {
        s->by.ns = TD_MIN(s->by.ns, by.ns);
        return;
    }
    s->unsent = true;
    s->by = by;
    s->next_unsent = c->sessions->unsent;
    c->sessions->unsent = s;
}

void td_sessions_flush(struct td_coordinator *c, struct td_mono now) {
    for (struct session **at = &c->sessions->unsent; *at;) {
        struct session *s = *at;
        if (s->by.ns > now.ns) {
            at = &s->next_unsent;
            continue;
        }
        *at = s->next_unsent;
        s->unsent = false;
        td_rpc_call_flush(s->call);
    }
}

struct td_mono td_sessions_wake(const struct td_coordinator *c) {
    struct td_mono wake = {INT64_MAX};
    for (const struct session *s = c->sessions->unsent; s; s = s->next_unsent) {
        wake.ns = TD_MIN(wake.ns, s->by.ns);
    }
    return wake;
}

void td_sessions_close(struct td_coordinator *c, uint64_t session, const char *why, bool denied,
                       td_status take_status) {
    struct session *s = find(c, session);
    if (s) td_log_warn("session ended why=%s", why);
    if (!s || !s->call) {
        td_status_free(take_status);
        return;
    }
    if (!take_status) {
        take_status = denied ? td_fail(TD_PERMISSION_DENIED, "session: %s", why)
                             : td_fail(TD_FAILED_PRECONDITION, "session: %s", why);
        take_status =
            td_status_with_reason(take_status, denied ? "NOT_THE_HOLDER" : "SESSION_ENDED");
    }
    td_rpc_call_finish(s->call, take_status);
}

void td_sessions_end_all(struct td_coordinator *c) {
    for (struct session *s = c->sessions->first; s; s = s->next) {
        if (!s->call) continue;
        td_rpc_call_finish(
            s->call,
            td_status_with_reason(td_fail(TD_UNAVAILABLE, "the coordinator stops"), "DRAINING"));
    }
}

// ---- from the node ------------------------------------------------------------------------------
static void log_written(td_status take_status, void *arg) {
    (void)arg;
    td_status_log(TD_LOG_WARN, take_status, "log bytes were not written, continuing");
}

// True: the bytes were a log's, and are taken care of.
static bool log_segment(struct td_coordinator *c, uint64_t session, const Traind__V1__Segment *s) {
    bool err = s->kind == TRAIND__V1__SEGMENT__KIND__ERR;
    if (!err && s->kind != TRAIND__V1__SEGMENT__KIND__OUT) return false;
    const struct td_job *j = NULL;
    bool pending = false;
    struct td_log_key key = {.rank = s->rank, .err = err};
    td_status failed = td_core_check_session(c->core, session, s->id, s->rank);
    if (!failed) failed = td_core_find_job(c->core, s->id->job, &j);
    if (!failed) {
        key.attempt = s->id->attempt;
        memcpy(key.job, j->id, sizeof key.job);
        failed = td_logs_append(c->logs, &key, s->offset, s->data.data, s->data.len, log_written,
                                NULL, &pending);
        if (!failed && !pending) { // report what is here
            td_core_log_committed(c->core, td_shell_now(), key.job, key.attempt, key.rank, s->kind,
                                  td_logs_size(c->logs, &key));
            td_shell_after(c);
        }
    }
    td_status_log(TD_LOG_DEBUG, failed, "log segment dropped, continuing");
    return true;
}

static void from_node(struct td_coordinator *c, const struct session *s,
                      const Traind__V1__NodeMessage *m) {
    if (m->body_case == TRAIND__V1__NODE_MESSAGE__BODY_SEGMENT &&
        log_segment(c, s->id, m->segment)) {
        return;
    }
    td_core_session_message(c->core, td_shell_now(), s->id, m);
    td_shell_after(c);
}

// ---- Session over gRPC --------------------------------------------------------------------------
static void session_call(struct td_rpc_call *call, const ProtobufCMessage *request, void *ctx) {
    struct td_coordinator *c = TD_CAST(td_coordinator, ctx);
    struct session *s = NULL;
    (void)request;
    td_status failed = open_session(c, call, NULL, &s);
    if (failed) {
        td_rpc_call_finish(call, failed);
        return;
    }
    struct td_caller who = td_access_caller(c, call);
    if (!who.is_owner) td_core_session_holder(c->core, s->id, who.name);
    td_core_session_from(c->core, s->id, td_rpc_call_peer(call));
    td_rpc_call_set_user(call, s);
    td_shell_after(c); // another one may have to end for it
}

// Once a session: whose node speaks is in the audit log when it begins, too.
static void note_register(struct td_coordinator *c, const struct session *s, const char *node) {
    if (td_rpc_call_object(s->call)[0]) return;
    td_rpc_call_set_object(s->call, node);
    td_access_note(c, s->call);
}

// A certificate is of one node, and a name of the one that joined with it.
static td_status check_identity(struct td_coordinator *c, const struct session *s,
                                const Traind__V1__Register *r) {
    const struct td_credential *m = td_access_credential(c, s->call, TD_CREDENTIAL_MEMBER);
    if (!m || strcmp(m->id, r->node_id) == 0) {
        return td_members_may_name(td_access_borrow_credentials(c), td_real_now(),
                                   c->renew_grace_ns, r->node_id, r->name);
    }
    return td_status_with_reason(td_fail(TD_PERMISSION_DENIED,
                                         "this certificate is of node %s, not of '%.63s'", m->id,
                                         r->node_id),
                                 "NAME_DIFFERS");
}

static void take_one(struct td_coordinator *c, const struct session *s,
                     const Traind__V1__NodeMessage *m) {
    if (m->body_case == TRAIND__V1__NODE_MESSAGE__BODY_REGISTER) {
        td_status differs = check_identity(c, s, m->register_);
        if (differs) {
            td_rpc_call_finish(s->call, differs);
            return;
        }
        note_register(c, s, m->register_->node_id);
        if (m->register_->batches) td_rpc_call_set_batch(s->call, BATCH_FIELD);
    }
    from_node(c, s, m);
}

static td_status take_batch(struct td_coordinator *c, const struct session *s,
                            const Traind__V1__NodeMessage *m) {
    for (size_t i = 0; i < m->n_batch; i++) {
        TD_AUTO(td_rpc_message) *one = NULL;
        TD_TRY(td_rpc_message_decode(&traind__v1__node_message__descriptor, m->batch[i].data,
                                     m->batch[i].len, &one));
        take_one(c, s, (const Traind__V1__NodeMessage *)td_rpc_message_get(one));
    }
    return TD_OK;
}

static void session_message(struct td_rpc_call *call, const ProtobufCMessage *message, void *ctx) {
    struct td_coordinator *c = TD_CAST(td_coordinator, ctx);
    struct session *s = td_rpc_call_user(call);
    const Traind__V1__NodeMessage *m = (const Traind__V1__NodeMessage *)message;
    if (!s) return;
    if (!m->n_batch) {
        take_one(c, s, m);
        return;
    }
    td_status bad = take_batch(c, s, m);
    if (bad) td_rpc_call_finish(call, td_status_context(bad, "a message of the batch"));
}

static void session_half_close(struct td_rpc_call *call, void *ctx) {
    (void)ctx;
    td_rpc_call_finish(call, TD_OK);
}

static void session_done(struct td_rpc_call *call, void *ctx) {
    struct session *s = td_rpc_call_user(call);
    if (s) close_session(TD_CAST(td_coordinator, ctx), s);
}

// ---- Session in process -------------------------------------------------------------------------
td_status td_coordinator_attach(struct td_coordinator *c,
                                void (*to_node)(const void *packed, size_t bytes, void *arg),
                                void *arg, struct td_coordinator_link **out_link) {
    struct td_coordinator_link *l = td_calloc(1, sizeof *l);
    if (!l) return td_fail_oom();
    *l = (struct td_coordinator_link){
        .magic = td_coordinator_link_magic, .c = c, .to_node = to_node, .arg = arg};
    td_status s = open_session(c, NULL, l, &l->session);
    if (s) {
        free(l);
        return s;
    }
    *out_link = l;
    return TD_OK;
}

td_status td_coordinator_link_send(struct td_coordinator_link *link, const void *packed,
                                   size_t bytes) {
    struct td_coordinator_link *l = TD_CAST(td_coordinator_link, link);
    TD_AUTO(td_rpc_message) *m = NULL;
    TD_TRY(td_rpc_message_decode(&traind__v1__node_message__descriptor, packed, bytes, &m));
    from_node(l->c, l->session, (const Traind__V1__NodeMessage *)td_rpc_message_get(m));
    return TD_OK;
}

void td_coordinator_detach(struct td_coordinator_link *link) {
    if (!link) return;
    struct td_coordinator_link *l = TD_CAST(td_coordinator_link, link);
    close_session(l->c, l->session);
    l->magic = 0;
    free(l);
}

// ---- PutLog -------------------------------------------------------------------------------------
struct put_log {
    struct td_coordinator *c;
    struct td_rpc_call *call;
    struct td_log_key key;
    uint32_t n_pending;
    bool began, half_closed, gone;
};

static void put_log_call(struct td_rpc_call *call, const ProtobufCMessage *request, void *ctx) {
    struct put_log *p = td_calloc(1, sizeof *p);
    (void)request;
    if (!p) {
        td_rpc_call_finish(call, td_fail_oom());
        return;
    }
    p->c = TD_CAST(td_coordinator, ctx);
    p->call = call;
    td_rpc_call_set_user(call, p);
}

static void put_log_reply(struct put_log *p) {
    struct td_arena *arena = NULL;
    td_status s = td_shell_arena(&arena);
    if (s) {
        td_shell_fail(p->c, p->call, s);
        return;
    }
    Traind__V1__PutReply *m = td_arena_alloc(arena, sizeof *m);
    if (m) {
        traind__v1__put_reply__init(m);
        m->offset = p->began ? td_logs_size(p->c->logs, &p->key) : 0;
    }
    td_shell_reply_held(p->c, p->call, arena, m ? &m->base : NULL);
}

static void put_log_written(td_status take_status, void *arg) {
    struct put_log *p = arg;
    p->n_pending--;
    if (p->gone) {
        td_status_free(take_status);
        if (!p->n_pending) free(p);
        return;
    }
    if (take_status) {
        td_shell_fail(p->c, p->call, take_status);
        return;
    }
    if (p->n_pending < PUT_LOG_WINDOW / 2) td_rpc_call_resume(p->call);
    if (p->half_closed && !p->n_pending) put_log_reply(p);
}

static td_status put_log_begin(struct put_log *p, const Traind__V1__LogChunk *m) {
    const struct td_job *j = NULL;
    TD_TRY(td_core_check_key(p->c->core, m->id, m->key, m->rank));
    TD_TRY(td_core_find_job(p->c->core, m->id->job, &j));
    bool err = m->kind == TRAIND__V1__SEGMENT__KIND__ERR;
    if (!err && m->kind != TRAIND__V1__SEGMENT__KIND__OUT) {
        return td_shell_bad_field("kind", "OUT or ERR");
    }
    struct td_log_key key = {.attempt = m->id->attempt, .rank = m->rank, .err = err};
    memcpy(key.job, j->id, sizeof key.job);
    if (p->began && memcmp(&p->key, &key, sizeof key) != 0) {
        return td_shell_bad_field("id", "one call carries one log");
    }
    p->key = key;
    p->began = true;
    return TD_OK;
}

static void put_log_message(struct td_rpc_call *call, const ProtobufCMessage *message, void *ctx) {
    struct put_log *p = td_rpc_call_user(call);
    const Traind__V1__LogChunk *m = (const Traind__V1__LogChunk *)message;
    bool pending = false;
    (void)ctx;
    if (!p || !td_rpc_call_is_live(call)) return;
    td_status s = put_log_begin(p, m);
    if (!s) {
        s = td_logs_append(p->c->logs, &p->key, m->offset, m->data.data, m->data.len,
                           put_log_written, p, &pending);
    }
    if (s) {
        td_shell_fail(p->c, call, s);
        return;
    }
    if (pending && ++p->n_pending >= PUT_LOG_WINDOW) td_rpc_call_pause(call);
}

static void put_log_half_close(struct td_rpc_call *call, void *ctx) {
    struct put_log *p = td_rpc_call_user(call);
    (void)ctx;
    if (!p) return;
    p->half_closed = true;
    if (!p->n_pending) put_log_reply(p);
}

static void put_log_done(struct td_rpc_call *call, void *ctx) {
    struct put_log *p = td_rpc_call_user(call);
    (void)ctx;
    if (!p) return;
    p->gone = true;
    if (!p->n_pending) free(p);
}

static const struct td_rpc_method rows[] = {
    {.service = "traind.v1.NodeService",
     .method = "Session",
     .role = TD_ROLE_NODE,
     .changes = true,
     .kind = TD_RPC_BIDI,
     .own_calls = TD_SHELL_NODE_CALLS,
     .request = &traind__v1__node_message__descriptor,
     .response = &traind__v1__coordinator_message__descriptor,
     .on_call = session_call,
     .on_message = session_message,
     .on_half_close = session_half_close,
     .on_done = session_done},
    {.service = "traind.v1.NodeService",
     .method = "PutLog",
     .role = TD_ROLE_NODE,
     .kind = TD_RPC_CLIENT_STREAM,
     .own_calls = TD_SHELL_NODE_CALLS,
     .request = &traind__v1__log_chunk__descriptor,
     .response = &traind__v1__put_reply__descriptor,
     .on_call = put_log_call,
     .on_message = put_log_message,
     .on_half_close = put_log_half_close,
     .on_done = put_log_done},
};

td_status td_api_nodes_add(struct td_coordinator *c) {
    return td_access_add_rows(c, rows, TD_COUNTOF(rows));
}
