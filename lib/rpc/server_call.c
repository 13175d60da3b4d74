// One call, from its credential to on_done.
//
// A call has at most three batches with gRPC. `close` (RECV_CLOSE_ON_SERVER) is out from the start;
// it comes back when the call is over, whoever ended it. `recv` is one message. `send` is metadata,
// message, status, whatever goes together. When close is back and nothing else is out, the call is
// done: on_done runs, and the library's reference goes.
//
// Ending: `answered` is set by the first reply, finish, stall or drain; the status leaves after
// what is queued. A message that is NULL means that the client half-closed, unless gRPC says that
// the call failed before it. Only the first reaches on_half_close, because a broken upload must not
// look like a finished one.

#include "lib/rpc/call.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <grpc/support/alloc.h>
#include <grpc/support/time.h>

#include "lib/base/clock.h"
#include "lib/base/map.h"
#include "lib/base/utf8.h"
#include "lib/loop/loop.h"
#include "lib/rpc/buffer.h"
#include "lib/rpc/credential.h"
#include "lib/rpc/front/front.h"
#include "lib/rpc/call_room.h"
#include "lib/rpc/server_private.h"

// For the reader of a call that was cut to take what is in flight: its place is needed.
static const int64_t cut_ns = 1 * TD_NS_PER_S;

struct op_tag {
    struct td_pump_tag tag;
    struct td_rpc_call *call;
    bool pending;
};

struct td_rpc_call {
    uint32_t magic;
    uint32_t refs;
    struct td_rpc_server *server;
    struct td_rpc_call *next;
    struct td_rpc_call *prev;
    grpc_call *grpc;
    const struct td_rpc_method *row; // NULL until it is admitted
    void *ctx;
    char request_id[17];
    struct td_mono deadline;
    struct td_loop_timer *deadline_timer;
    struct td_rpc_message *request;
    struct op_tag close;
    struct op_tag recv;
    struct op_tag send;
    grpc_byte_buffer *received;
    int cancelled;
    bool called;      // on_call ran, so on_done must
    bool half_closed; // by the client
    bool paused;
    bool answered;
    bool closed;
    bool broken; // a send failed: nothing can be sent any more
    bool sent_metadata;
    bool sent_status;
    struct td_outbox outbox;
    struct td_wire_status status;
    void *user;
    const struct td_rpc_method *named; // the row that its path names, admitted or not
    uint64_t identity;
    struct td_peer_identity certificate; // of its connection
    char object[64];
    bool logged;               // td_rpc_call_set_logged
    struct td_rpc_place place; // of those that are counted; none until it is admitted
    char peer[TD_PEER_NAME_BYTES];
    char path[]; // "" if it is longer than any method's
};

static void pump_out(struct td_rpc_call *call);
static void start_recv(struct td_rpc_call *call);

static bool streams_in(const struct td_rpc_method *row) {
    return row->kind == TD_RPC_CLIENT_STREAM || row->kind == TD_RPC_BIDI;
}

static bool streams_out(const struct td_rpc_method *row) {
    return row->kind == TD_RPC_SERVER_STREAM || row->kind == TD_RPC_BIDI;
}

// ---- references and end -----------------------------------------------------------------------

void td_rpc_call_ref(struct td_rpc_call *call) {
    call->refs++;
}

void td_rpc_call_unref(struct td_rpc_call *call) {
    if (!call || --call->refs) return;
    td_rpc_message_destroy(call->request);
    call->magic = 0;
    free(call);
}

static void unlink_call(struct td_rpc_call *call) {
    struct td_rpc_server *server = call->server;
    if (call->prev) call->prev->next = call->next;
    if (!call->prev) server->calls = call->next;
    if (call->next) call->next->prev = call->prev;
    server->n_calls--;
    td_rpc_room_leave(server, call, &call->place);
}

static void report(const struct td_rpc_call *call, td_status borrow_status) {
    const struct td_rpc_server_options *o = &call->server->options;
    if (o->on_answered) o->on_answered(call, borrow_status, o->ctx);
}

static void report_cancelled(const struct td_rpc_call *call) {
    if (!call->server->options.on_answered) return;
    td_status s = td_fail(TD_CANCELLED, "the client ended the call");
    report(call, s);
    td_status_free(s);
}

// What a client does not take must not keep gRPC from ending its connection.
void td_rpc_calls_cancel(struct td_rpc_server *server) {
    grpc_server_cancel_all_calls(server->grpc);
    if (server->front) td_front_let_go(server->front);
}

// Last thing that a completion does; call may be gone afterwards.
static void end_if_over(struct td_rpc_call *call) {
    if (!call->closed || call->recv.pending || call->send.pending) return;
    struct td_rpc_server *server = call->server;
    if (!call->answered) report_cancelled(call);
    call->answered = true;
    td_loop_timer_destroy(call->deadline_timer);
    call->deadline_timer = NULL;
    td_outbox_finish(&call->outbox);
    td_wire_status_finish(&call->status);
    if (call->called && call->row->on_done) call->row->on_done(call, call->ctx);
    unlink_call(call);
    grpc_call_unref(call->grpc);
    call->grpc = NULL;
    call->server = NULL;
    td_rpc_call_unref(call);
    if (server->draining && server->n_calls == 0) td_rpc_calls_cancel(server);
}

// ---- sending ----------------------------------------------------------------------------------

static grpc_metadata text_metadata(const char *key, const char *value) {
    return (grpc_metadata){.key = grpc_slice_from_static_string(key),
                           .value = grpc_slice_from_copied_string(value)};
}

static size_t add_metadata_op(struct td_rpc_call *call, grpc_op *op, grpc_metadata *id) {
    if (call->sent_metadata) return 0;
    call->sent_metadata = true;
    *op = (grpc_op){.op = GRPC_OP_SEND_INITIAL_METADATA};
    op->data.send_initial_metadata.count = 1;
    op->data.send_initial_metadata.metadata = id;
    return 1;
}

static size_t add_status_op(struct td_rpc_call *call, grpc_op *op, grpc_metadata *trailing,
                            grpc_slice *message) {
    call->sent_status = true;
    *op = (grpc_op){.op = GRPC_OP_SEND_STATUS_FROM_SERVER};
    op->data.send_status_from_server.status = (grpc_status_code)call->status.code;
    op->data.send_status_from_server.status_details = message;
    op->data.send_status_from_server.trailing_metadata = trailing;
    op->data.send_status_from_server.trailing_metadata_count = call->status.details ? 2 : 1;
    return 1;
}

// Sends the next thing there is: a message, the last message with the status, or the status.
static void pump_out(struct td_rpc_call *call) {
    if (call->send.pending || call->broken || call->closed || call->sent_status) return;
    bool has_message = !td_outbox_is_empty(&call->outbox);
    bool has_status = call->answered && (!has_message || td_outbox_has_one(&call->outbox));
    if (!has_message && !has_status) return;

    grpc_op ops[3];
    size_t n_ops = 0;
    grpc_metadata id = text_metadata("x-request-id", call->request_id);
    grpc_metadata trailing[2] = {id,
                                 {.key = grpc_slice_from_static_string("grpc-status-details-bin")}};
    trailing[1].value =
        grpc_slice_from_copied_buffer(call->status.details, call->status.details_bytes);
    grpc_slice message = grpc_slice_from_copied_string(call->status.message);
    n_ops += add_metadata_op(call, &ops[n_ops], &id);
    if (has_message) {
        ops[n_ops] = (grpc_op){.op = GRPC_OP_SEND_MESSAGE};
        ops[n_ops++].data.send_message.send_message = td_outbox_begin(&call->outbox);
    }
    if (has_status) n_ops += add_status_op(call, &ops[n_ops], trailing, &message);
    call->send.pending = td_pump_start(call->server->pump, call->grpc, ops, n_ops, &call->send.tag);
    grpc_slice_unref(message);
    grpc_slice_unref(trailing[1].value);
    grpc_slice_unref(id.value);
}

static void on_sent(struct td_pump_tag *tag, bool ok) {
    struct td_rpc_call *call = ((struct op_tag *)(void *)tag)->call;
    call->send.pending = false;
    bool writable = td_outbox_end(&call->outbox);
    if (!ok) {
        call->broken = true;
        td_outbox_discard(&call->outbox);
    } else if (writable && !call->answered && !call->closed && call->row->on_writable) {
        call->row->on_writable(call, call->ctx);
    }
    pump_out(call);
    end_if_over(call);
}

static void answer(struct td_rpc_call *call, td_status take_status) {
    call->answered = true;
    report(call, take_status);
    td_wire_status_encode(take_status, call->request_id, &call->status);
    pump_out(call);
}

// For a reader that takes nothing: a status would wait after the message it does not take.
static void cancel(struct td_rpc_call *call, const char *why) {
    call->answered = true;
    call->broken = true;
    td_outbox_discard(&call->outbox);
    grpc_call_cancel_with_status(call->grpc, GRPC_STATUS_RESOURCE_EXHAUSTED, why, NULL);
}

static void on_stall(void *owner) {
    cancel(TD_CAST(td_rpc_call, owner),
           "cut off: the reader has stopped reading; open the stream again and read faster");
}

void td_rpc_call_reply(struct td_rpc_call *call, const ProtobufCMessage *response) {
    TD_CHECK(!call->row || !streams_out(call->row));
    if (!td_rpc_call_is_live(call)) return;
    TD_CHECK(response->descriptor == call->row->response);
    enum td_rpc_send sent;
    answer(call,
           td_outbox_push(&call->outbox, response, call->server->options.max_message_bytes, &sent));
}

enum td_rpc_send td_rpc_call_send(struct td_rpc_call *call, const ProtobufCMessage *message) {
    TD_CHECK(!call->row || streams_out(call->row));
    if (!td_rpc_call_is_live(call)) return TD_RPC_SEND_REFUSED;
    TD_CHECK(message->descriptor == call->row->response);
    enum td_rpc_send sent;
    td_status s =
        td_outbox_push(&call->outbox, message, call->server->options.max_message_bytes, &sent);
    if (s) {
        answer(call, s);
        return TD_RPC_SEND_REFUSED;
    }
    if (!call->outbox.batch_field) pump_out(call);
    return sent;
}

void td_rpc_call_set_batch(struct td_rpc_call *call, uint32_t field) {
    TD_CHECK(streams_out(call->row));
    call->outbox.batch_field = field;
}

void td_rpc_call_flush(struct td_rpc_call *call) {
    pump_out(call);
}

void td_rpc_call_finish(struct td_rpc_call *call, td_status take_status) {
    if (!td_rpc_call_is_live(call)) {
        td_status_free(take_status);
        return;
    }
    TD_CHECK(take_status || streams_out(call->row)); // OK without a response is no answer
    answer(call, take_status);
}

void td_rpc_call_cut(struct td_rpc_call *call, td_status take_status) {
    td_outbox_discard(&call->outbox);
    td_outbox_hurry(&call->outbox, cut_ns);
    answer(call, take_status);
}

static td_status draining(void) {
    return td_status_with_reason(
        td_fail(TD_UNAVAILABLE, "the server is shutting down; try again when it is back"),
        "DRAINING");
}

void td_rpc_call_drain(struct td_rpc_call *call) {
    td_outbox_discard(&call->outbox);
    if (!td_rpc_call_is_live(call)) return;
    answer(call, draining());
}

void td_rpc_call_serving(struct td_rpc_call *call) {
    if (call->called && call->row->on_serving) call->row->on_serving(call, call->ctx);
}

// ---- receiving --------------------------------------------------------------------------------

static void start_recv(struct td_rpc_call *call) {
    if (call->recv.pending || call->half_closed || call->paused || call->answered || call->closed) {
        return;
    }
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};
    op.data.recv_message.recv_message = &call->received;
    call->recv.pending = td_pump_start(call->server->pump, call->grpc, &op, 1, &call->recv.tag);
}

static void on_deadline(void *arg) {
    struct td_rpc_call *call = TD_CAST(td_rpc_call, arg);
    td_rpc_call_finish(call,
                       td_fail(TD_DEADLINE_EXCEEDED, "no answer within the server's %" PRId64 " s",
                               call->server->options.deadline_ns / TD_NS_PER_S));
}

// A unary call without a deadline gets the server's, once it is not answered at once.
static void watch_deadline(struct td_rpc_call *call) {
    if (call->row->kind != TD_RPC_UNARY || call->answered || call->deadline.ns != INT64_MAX) {
        return;
    }
    td_status s =
        td_loop_timer_create(call->server->loop, on_deadline, call, &call->deadline_timer);
    if (s) {
        answer(call, s);
        return;
    }
    td_loop_timer_arm(call->deadline_timer, call->server->options.deadline_ns);
}

static void call_handler(struct td_rpc_call *call, const ProtobufCMessage *request) {
    call->called = true;
    call->row->on_call(call, request, call->ctx);
    watch_deadline(call);
}

static void take_message(struct td_rpc_call *call, grpc_byte_buffer *take_buffer) {
    struct td_rpc_message *m = NULL;
    td_status s = td_rpc_buffer_decode(call->row->request, take_buffer,
                                       call->server->options.max_message_bytes, &m);
    if (s) {
        if (!call->answered) {
            answer(call, s);
        } else {
            td_status_free(s);
        }
        return;
    }
    if (streams_in(call->row)) {
        if (!call->answered) call->row->on_message(call, td_rpc_message_get(m), call->ctx);
        td_rpc_message_destroy(m);
        start_recv(call);
        return;
    }
    call->request = m;
    call->half_closed = true; // a second message is not read
    if (!call->answered) call_handler(call, td_rpc_message_get(m));
}

static void take_half_close(struct td_rpc_call *call) {
    call->half_closed = true;
    if (call->answered) return;
    if (streams_in(call->row)) {
        call->row->on_half_close(call, call->ctx);
        return;
    }
    answer(call, td_status_with_reason(
                     td_fail(TD_INVALID_ARGUMENT, "the call brought no request message"),
                     "MALFORMED_MESSAGE"));
}

static void on_received(struct td_pump_tag *tag, bool ok) {
    struct td_rpc_call *call = ((struct op_tag *)(void *)tag)->call;
    call->recv.pending = false;
    grpc_byte_buffer *buffer = td_steal(call->received);
    bool is_end =
        ok && !buffer && !call->closed && !grpc_call_failed_before_recv_message(call->grpc);
    if (buffer && (call->closed || !ok)) {
        grpc_byte_buffer_destroy(buffer);
    } else if (buffer) {
        take_message(call, buffer);
    } else if (is_end) {
        take_half_close(call);
    }
    end_if_over(call);
}

void td_rpc_call_pause(struct td_rpc_call *call) {
    call->paused = true;
}

void td_rpc_call_resume(struct td_rpc_call *call) {
    if (!call->paused) return;
    call->paused = false;
    if (td_rpc_call_is_live(call)) start_recv(call);
}

// ---- beginning --------------------------------------------------------------------------------

static void on_closed(struct td_pump_tag *tag, bool ok) {
    (void)ok;
    struct td_rpc_call *call = ((struct op_tag *)(void *)tag)->call;
    call->close.pending = false;
    call->closed = true;
    end_if_over(call);
}

// The oldest that has a place in that count, be it that its answer waits for a reader.
static void end_oldest(struct td_rpc_server *server, const uint32_t *count) {
    static const char why[] = "this call made room for a newer one; call again";
    struct td_rpc_call *oldest = NULL;
    for (struct td_rpc_call *c = server->calls; c; c = c->next) { // newest first
        if (c->place.count == count) oldest = c;
    }
    if (!oldest) return;
    td_rpc_room_leave(server, oldest, &oldest->place);
    if (!td_rpc_call_is_live(oldest)) {
        cancel(oldest, why);
        return;
    }
    td_rpc_call_cut(
        oldest, td_status_with_reason(td_fail(TD_RESOURCE_EXHAUSTED, "%s", why), "LIMIT_CALLS"));
}

// After the credential: whether there is such a method, and room for one more call.
static td_status admit(struct td_rpc_call *call, struct td_rpc_route *route) {
    struct td_rpc_server *server = call->server;
    if (server->draining) return draining();
    if (!route) {
        return td_status_with_reason(td_fail(TD_UNIMPLEMENTED,
                                             "there is no method %.200s here; client and server "
                                             "may be of different versions",
                                             call->path[0] ? call->path : "with this name"),
                                     "METHOD_UNKNOWN");
    }
    bool yield = false;
    TD_TRY(td_rpc_room_take(server, call, route, &call->place, &yield));
    if (yield) end_oldest(server, &route->n_own);
    call->row = route->row;
    call->ctx = route->ctx;
    return TD_OK;
}

// gRPC's name for a connection that was handed to it as a descriptor, "fd:N"; -1 for any other.
static int number_of(grpc_call *grpc) {
    int number = -1;
    char *peer = grpc_call_get_peer(grpc);
    if (peer && sscanf(peer, "fd:%d", &number) != 1) number = -1;
    gpr_free(peer);
    return number;
}

static uint64_t mix(uint64_t x) { // splitmix64
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static struct td_mono deadline_of(gpr_timespec deadline) {
    if (gpr_time_cmp(deadline, gpr_inf_future(deadline.clock_type)) == 0) {
        return (struct td_mono){INT64_MAX};
    }
    gpr_timespec left = gpr_time_sub(deadline, gpr_now(deadline.clock_type));
    if (left.tv_sec > INT32_MAX) return (struct td_mono){INT64_MAX};
    return td_mono_add(td_mono_now(), left.tv_sec * TD_NS_PER_S + left.tv_nsec);
}

static void init_tags(struct td_rpc_call *call) {
    call->close = (struct op_tag){.tag.done = on_closed, .call = call};
    call->recv = (struct op_tag){.tag.done = on_received, .call = call};
    call->send = (struct op_tag){.tag.done = on_sent, .call = call};
}

static struct td_rpc_call *create_call(struct td_rpc_accept *accept) {
    struct td_rpc_server *server = accept->server;
    struct td_str path = td_str_of_slice(&accept->details.method);
    if (path.len >= 512) path.len = 0;
    struct td_rpc_call *call = td_calloc(1, sizeof *call + path.len + 1);
    if (!call) return NULL;
    memcpy(call->path, path.data, path.len);
    call->magic = td_rpc_call_magic;
    call->refs = 1;
    call->server = server;
    call->grpc = accept->call;
    call->deadline = deadline_of(accept->details.deadline);
    snprintf(call->request_id, sizeof call->request_id, "%016" PRIx64,
             mix(server->id_seed + UINT64_C(0x9e3779b97f4a7c15) * ++server->n_ids));
    init_tags(call);
    td_outbox_init(&call->outbox, server->loop, server->options.queue_bytes,
                   server->options.stall_ns, on_stall, call);
    call->next = server->calls;
    if (call->next) call->next->prev = call;
    server->calls = call;
    server->n_calls++;
    return call;
}

void td_rpc_call_begin(struct td_rpc_accept *accept) {
    struct td_rpc_server *server = accept->server;
    struct td_rpc_call *call = td_pump_is_closed(server->pump) ? NULL : create_call(accept);
    struct td_peers *peers = td_front_borrow_peers(server->front);
    int number = number_of(accept->call);
    if (!call) { // closing, or no memory
        char peer[TD_PEER_NAME_BYTES];
        td_peers_begin(peers, number, TD_PEER_STRANGER, peer);
        grpc_call_cancel_with_status(accept->call, GRPC_STATUS_RESOURCE_EXHAUSTED,
                                     "no memory for another call", NULL);
        grpc_call_unref(accept->call);
        return;
    }
    grpc_op op = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};
    op.data.recv_close_on_server.cancelled = &call->cancelled;
    call->close.pending = td_pump_start(server->pump, call->grpc, &op, 1, &call->close.tag);
    struct td_rpc_route *route = td_map_get(server->routes, call->path);
    call->named = route ? route->row : NULL;
    call->certificate = td_peers_identity(peers, number); // while the number is surely its own
    td_status s = td_peers_is_over(peers, number)
                      ? td_rpc_connection_over()
                      : td_rpc_authorize(&server->options, call->named, &accept->metadata,
                                         &call->certificate, &call->identity);
    td_peers_begin(peers, number, td_rpc_room_kind(route, s), call->peer);
    if (!s) s = admit(call, route);
    if (s) {
        answer(call, s);
        return;
    }
    if (streams_in(call->row)) call_handler(call, NULL);
    start_recv(call);
}

// ---- readers ----------------------------------------------------------------------------------

struct td_rpc_call *td_rpc_call_next(struct td_rpc_call *call) {
    return call->next;
}

bool td_rpc_call_is_live(const struct td_rpc_call *call) {
    return !call->answered && !call->closed;
}

const char *td_rpc_call_peer(const struct td_rpc_call *call) {
    return call->peer;
}

uint64_t td_rpc_call_identity(const struct td_rpc_call *call) {
    return call->identity;
}

const struct td_peer_identity *td_rpc_call_certificate(const struct td_rpc_call *call) {
    return &call->certificate;
}

const struct td_rpc_method *td_rpc_call_row(const struct td_rpc_call *call) {
    return call->named;
}

void td_rpc_call_set_object(struct td_rpc_call *call, const char *object) {
    snprintf(call->object, sizeof call->object, "%s", object);
    td_utf8_scrub(call->object);
}

void td_rpc_call_set_logged(struct td_rpc_call *call) {
    call->logged = true;
}

bool td_rpc_call_is_logged(const struct td_rpc_call *call) {
    return call->logged;
}

const char *td_rpc_call_object(const struct td_rpc_call *call) {
    return call->object;
}

const ProtobufCMessage *td_rpc_call_request(const struct td_rpc_call *call) {
    return call->request ? td_rpc_message_get(call->request) : NULL;
}

void td_rpc_call_set_user(struct td_rpc_call *call, void *user) {
    call->user = user;
}

void *td_rpc_call_user(const struct td_rpc_call *call) {
    return call->user;
}
