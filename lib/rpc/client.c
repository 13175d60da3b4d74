// Channel, unary calls and streams. A unary call is a stream whose one batch sends and receives
// everything, so that it costs one event; the rest is shared.
//
// A stream has up to five batches with gRPC. `status` is out from the start and comes back when the
// call is over. `start` and `metadata` are ours and the server's. `recv` is one message, `send` is
// one message and the half-close. When status is back and nothing else is out, on_done runs and the
// stream is freed. What went wrong here (a message that does not decode, a stalled send) is kept in
// `local` and wins over what gRPC says of the cancelled call.

#include "lib/rpc/client.h"

#include <stdio.h>
#include <string.h>

#include <grpc/support/alloc.h>
#include <grpc/support/time.h>

#include "lib/loop/loop.h"
#include "lib/rpc/buffer.h"
#include "lib/rpc/dial.h"
#include "lib/rpc/outbox.h"
#include "lib/rpc/pump.h"
#include "lib/rpc/wire_status.h"

enum { td_rpc_stream_magic = 0x74647374, MAX_TOKEN = 1024 };

struct td_rpc_channel {
    struct td_loop *loop;
    struct td_pump *pump;
    grpc_channel *grpc;
    grpc_channel *before; // of calls that were open when the files were read again; NULL: none
    struct td_rpc_dial dial;
    char address[TD_RPC_ADDRESS_BYTES];
    char *authorization; // "Bearer ..."; NULL: none
    size_t max_message_bytes;
    size_t queue_bytes;
    int64_t stall_ns;
    struct td_rpc_stream *streams;
};

struct op_tag {
    struct td_pump_tag tag;
    struct td_rpc_stream *stream;
    bool pending;
};

struct td_rpc_stream {
    uint32_t magic;
    struct td_rpc_channel *channel;
    struct td_rpc_stream *next;
    struct td_rpc_stream *prev;
    grpc_call *grpc;
    const ProtobufCMessageDescriptor *response_type;
    td_rpc_unary_fn *unary; // NULL: a stream
    struct td_rpc_message **steal_response;
    const struct td_rpc_stream_ops *ops;
    void *arg;
    struct op_tag start;
    struct op_tag metadata;
    struct op_tag status;
    struct op_tag recv;
    struct op_tag send;
    grpc_metadata_array initial;
    grpc_metadata_array trailing;
    grpc_status_code code;
    grpc_slice details;
    grpc_byte_buffer *received;
    struct td_outbox outbox;
    td_status local;
    bool half_close_wanted;
    bool half_close_sent;
    bool read_all;
    bool over;   // status is back
    bool broken; // a send failed
};

// ---- channel ----------------------------------------------------------------------------------

static td_status set_token(struct td_rpc_channel *self, const char *token) {
    if (!token) return TD_OK;
    size_t len = strlen(token);
    for (size_t i = 0; i < len; i++) {
        if (token[i] > ' ' && token[i] < 0x7f) continue;
        return td_fail(TD_INVALID_ARGUMENT,
                       "the token holds a character that cannot be sent "
                       "(byte %zu); read it from its file again",
                       i);
    }
    if (len == 0 || len > MAX_TOKEN) {
        return td_fail(TD_INVALID_ARGUMENT, "a token has 1 to %d characters, this one %zu",
                       MAX_TOKEN, len);
    }
    size_t bytes = len + sizeof "Bearer ";
    self->authorization = td_calloc(1, bytes);
    if (!self->authorization) return td_fail_oom();
    snprintf(self->authorization, bytes, "Bearer %s", token);
    return TD_OK;
}

bool td_rpc_address_needs_tls(const char *address) {
    struct td_rpc_address a;
    td_status bad = td_rpc_address_parse(address, &a);
    bool needs = !bad && a.reach != TD_RPC_LOOPBACK;
    td_status_free(bad);
    return needs;
}

td_status td_rpc_channel_create(struct td_loop *loop, const struct td_rpc_channel_options *options,
                                struct td_rpc_channel **out_channel) {
    TD_ON_LOOP(loop);
    TD_AUTO(td_rpc_channel) *self = td_calloc(1, sizeof *self);
    if (!self) return td_fail_oom();
    self->loop = loop;
    self->max_message_bytes =
        options->max_message_bytes ? options->max_message_bytes : TD_RPC_MAX_MESSAGE_BYTES;
    self->queue_bytes = options->queue_bytes ? options->queue_bytes : TD_RPC_QUEUE_BYTES;
    self->stall_ns = options->stall_ns ? options->stall_ns : TD_RPC_STALL_NS;
    TD_TRY(td_rpc_address_parse(options->address, &self->dial.address));
    td_rpc_address_format(&self->dial.address, self->address, sizeof self->address);
    TD_TRY(td_rpc_dial_copy(&self->dial, options->address, options->ca, options->certificate,
                            options->key));
    TD_TRY(set_token(self, options->token));
    TD_TRY(td_pump_create(loop, &self->pump));
    TD_TRY(td_rpc_dial_open(&self->dial, self->max_message_bytes, &self->grpc));
    *out_channel = td_steal(self);
    return TD_OK;
}

td_status td_rpc_channel_reload(struct td_rpc_channel *channel) {
    TD_ON_LOOP(channel->loop);
    grpc_channel *fresh;
    TD_TRY(td_rpc_dial_open(&channel->dial, channel->max_message_bytes, &fresh));
    if (channel->before) grpc_channel_destroy(channel->before);
    channel->before = channel->grpc;
    channel->grpc = fresh;
    return TD_OK;
}

void td_rpc_channel_destroy(struct td_rpc_channel *channel) {
    if (!channel) return;
    TD_ON_LOOP(channel->loop);
    for (struct td_rpc_stream *s = channel->streams; s; s = s->next) {
        td_rpc_stream_cancel(s);
    }
    if (channel->pump) td_pump_close(channel->pump); // every stream has its on_done here
    TD_CHECK(!channel->streams);
    if (channel->grpc) grpc_channel_destroy(channel->grpc);
    if (channel->before) grpc_channel_destroy(channel->before);
    td_pump_destroy(channel->pump);
    free(channel->authorization);
    td_rpc_dial_finish(&channel->dial);
    free(channel);
}

// ---- the end of a stream ----------------------------------------------------------------------

// gRPC says so in text alone.
static bool blames_certificate(const char *message) {
    return strstr(message, "andshake failed") || strstr(message, "not in peer certificate");
}

// It did not come to an answer: what else may be at fault than a server that is not there.
static td_status blame(const struct td_rpc_channel *c, td_status take_status) {
    if (c->dial.ca && blames_certificate(td_status_message(take_status))) {
        return td_status_context(take_status,
                                 "the certificate of the other end was refused, or it speaks no "
                                 "TLS. Its certificate must be of the CA that is given (--ca), "
                                 "have the host that is dialled, and be valid by the clock here");
    }
    // TLS 1.3 refuses a client when this one thinks that the handshake is over.
    if (c->dial.certificate && td_status_code(take_status) == TD_UNAVAILABLE) {
        return td_status_context(take_status,
                                 "nothing answers, or the certificate '%s' was refused: it has "
                                 "expired, was revoked, or is of another CA (the other end's log "
                                 "says which)",
                                 c->dial.certificate);
    }
    return take_status;
}

static td_status final_status(struct td_rpc_stream *s) {
    if (s->local) return td_steal(s->local);
    struct td_str text = td_str_of_slice(&s->details);
    td_status status = td_wire_status_decode(
        (int)s->code, text, td_rpc_metadata_get(&s->trailing, "grpc-status-details-bin"));
    bool from_server = td_rpc_metadata_get(&s->trailing, "x-request-id").data;
    if (!status || from_server) return status;
    if (td_status_code(status) == TD_UNAVAILABLE) {
        status = td_status_with_reason(status, "UNREACHABLE");
    }
    return td_status_context(blame(s->channel, status), "call to %s", s->channel->address);
}

static void deliver_unary(struct td_rpc_stream *s) {
    struct td_rpc_message *m = NULL;
    td_status status = final_status(s);
    grpc_byte_buffer *buffer = td_steal(s->received);
    if (!status && buffer) {
        status = td_rpc_buffer_decode(s->response_type, td_steal(buffer),
                                      s->channel->max_message_bytes, &m);
    } else if (!status) {
        status = td_fail(TD_INTERNAL, "the server answered OK without a message");
    }
    if (buffer) grpc_byte_buffer_destroy(buffer);
    s->unary(status, m ? td_rpc_message_get(m) : NULL, s->arg);
    if (m && s->steal_response) *s->steal_response = td_steal(m);
    td_rpc_message_destroy(m);
}

static void free_stream(struct td_rpc_stream *s) {
    struct td_rpc_channel *channel = s->channel;
    if (s->prev) s->prev->next = s->next;
    if (channel->streams == s) channel->streams = s->next;
    if (s->next) s->next->prev = s->prev;
    td_outbox_finish(&s->outbox);
    td_status_free(s->local);
    if (s->received) grpc_byte_buffer_destroy(s->received);
    grpc_metadata_array_destroy(&s->initial);
    grpc_metadata_array_destroy(&s->trailing);
    grpc_slice_unref(s->details);
    if (s->grpc) grpc_call_unref(s->grpc);
    s->magic = 0;
    free(s);
}

// Last thing that a completion does; s may be gone afterwards.
static void end_if_over(struct td_rpc_stream *s) {
    if (!s->over || s->start.pending || s->metadata.pending) return;
    if (s->recv.pending || s->send.pending) return;
    if (s->unary) {
        deliver_unary(s);
    } else {
        s->ops->on_done(s, final_status(s), s->arg);
    }
    free_stream(s);
}

// Ends the call for a reason of ours.
static void fail(struct td_rpc_stream *s, td_status take_status) {
    if (s->local || s->over) {
        td_status_free(take_status);
        return;
    }
    s->local = take_status;
    grpc_call_cancel(s->grpc, NULL);
}

void td_rpc_stream_cancel(struct td_rpc_stream *s) {
    td_outbox_discard(&s->outbox);
    if (!s->over) grpc_call_cancel(s->grpc, NULL);
}

static void on_stall(void *owner) {
    struct td_rpc_stream *s = TD_CAST(td_rpc_stream, owner);
    fail(s, td_status_with_reason(td_fail(TD_UNAVAILABLE,
                                          "the server at %s has stopped reading the stream",
                                          s->channel->address),
                                  "PEER_STALLED"));
}

static void on_status(struct td_pump_tag *tag, bool ok) {
    (void)ok;
    struct td_rpc_stream *s = ((struct op_tag *)(void *)tag)->stream;
    s->status.pending = false;
    s->over = true;
    end_if_over(s);
}

// ---- sending and receiving --------------------------------------------------------------------

static void pump_out(struct td_rpc_stream *s) {
    if (s->start.pending || s->send.pending || s->broken || s->over || s->half_close_sent) return;
    grpc_op ops[2];
    size_t n_ops = 0;
    if (!td_outbox_is_empty(&s->outbox)) {
        bool is_last = s->half_close_wanted && td_outbox_has_one(&s->outbox);
        ops[n_ops] = (grpc_op){.op = GRPC_OP_SEND_MESSAGE};
        ops[n_ops++].data.send_message.send_message = td_outbox_begin(&s->outbox);
        s->half_close_sent = is_last;
    } else {
        s->half_close_sent = s->half_close_wanted;
    }
    if (s->half_close_sent) ops[n_ops++] = (grpc_op){.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT};
    if (n_ops == 0) return;
    s->send.pending = td_pump_start(s->channel->pump, s->grpc, ops, n_ops, &s->send.tag);
}

static void on_sent(struct td_pump_tag *tag, bool ok) {
    struct td_rpc_stream *s = ((struct op_tag *)(void *)tag)->stream;
    s->send.pending = false;
    bool writable = td_outbox_end(&s->outbox);
    if (!ok) {
        s->broken = true;
        td_outbox_discard(&s->outbox);
    } else if (writable && !s->over && !s->half_close_wanted && s->ops->on_writable) {
        s->ops->on_writable(s, s->arg);
    }
    pump_out(s);
    end_if_over(s);
}

static void start_recv(struct td_rpc_stream *s) {
    if (s->recv.pending || s->read_all || s->over) return;
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};
    op.data.recv_message.recv_message = &s->received;
    s->recv.pending = td_pump_start(s->channel->pump, s->grpc, &op, 1, &s->recv.tag);
}

static void on_received(struct td_pump_tag *tag, bool ok) {
    struct td_rpc_stream *s = ((struct op_tag *)(void *)tag)->stream;
    s->recv.pending = false;
    grpc_byte_buffer *buffer = td_steal(s->received);
    s->read_all = !buffer || !ok;
    struct td_rpc_message *m = NULL;
    if (buffer) {
        td_status bad =
            td_rpc_buffer_decode(s->response_type, buffer, s->channel->max_message_bytes, &m);
        if (bad) fail(s, bad);
    }
    if (m && !s->local) s->ops->on_message(s, td_rpc_message_get(m), s->arg);
    td_rpc_message_destroy(m);
    start_recv(s);
    end_if_over(s);
}

static void on_started(struct td_pump_tag *tag, bool ok) {
    struct td_rpc_stream *s = ((struct op_tag *)(void *)tag)->stream;
    s->start.pending = false;
    if (!ok) s->broken = true;
    pump_out(s);
    end_if_over(s);
}

static void on_metadata(struct td_pump_tag *tag, bool ok) {
    (void)ok;
    struct td_rpc_stream *s = ((struct op_tag *)(void *)tag)->stream;
    s->metadata.pending = false;
    end_if_over(s);
}

enum td_rpc_send td_rpc_stream_send(struct td_rpc_stream *s, const ProtobufCMessage *message) {
    TD_CHECK(!s->unary);
    if (s->half_close_wanted || s->broken || s->over || s->local) return TD_RPC_SEND_REFUSED;
    enum td_rpc_send sent;
    td_status bad = td_outbox_push(&s->outbox, message, s->channel->max_message_bytes, &sent);
    if (bad) {
        fail(s, bad);
        return TD_RPC_SEND_REFUSED;
    }
    if (!s->outbox.batch_field) pump_out(s);
    return sent;
}

void td_rpc_stream_set_batch(struct td_rpc_stream *s, uint32_t field) {
    TD_CHECK(!s->unary);
    s->outbox.batch_field = field;
}

void td_rpc_stream_flush(struct td_rpc_stream *s) {
    pump_out(s);
}

void td_rpc_stream_half_close(struct td_rpc_stream *s) {
    TD_CHECK(!s->unary);
    s->half_close_wanted = true;
    pump_out(s);
}

// ---- starting ---------------------------------------------------------------------------------

static void init_tags(struct td_rpc_stream *s) {
    s->start = (struct op_tag){.tag.done = on_started, .stream = s};
    s->metadata = (struct op_tag){.tag.done = on_metadata, .stream = s};
    s->status = (struct op_tag){.tag.done = on_status, .stream = s};
    s->recv = (struct op_tag){.tag.done = on_received, .stream = s};
    s->send = (struct op_tag){.tag.done = on_sent, .stream = s};
}

static gpr_timespec deadline_after(int64_t timeout_ns) {
    if (timeout_ns <= 0) return gpr_inf_future(GPR_CLOCK_MONOTONIC);
    return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                        gpr_time_from_nanos(timeout_ns, GPR_TIMESPAN));
}

static td_status create_stream(struct td_rpc_channel *channel, const char *method,
                               const ProtobufCMessageDescriptor *response_type, int64_t timeout_ns,
                               void *arg, struct td_rpc_stream **out_stream) {
    TD_ON_LOOP(channel->loop);
    if (td_pump_is_closed(channel->pump)) {
        return td_fail(TD_CANCELLED, "call to %s: the channel is being closed", channel->address);
    }
    struct td_rpc_stream *s = td_calloc(1, sizeof *s);
    if (!s) return td_fail_oom();
    s->magic = td_rpc_stream_magic;
    s->channel = channel;
    s->response_type = response_type;
    s->arg = arg;
    s->details = grpc_empty_slice();
    grpc_metadata_array_init(&s->initial);
    grpc_metadata_array_init(&s->trailing);
    init_tags(s);
    grpc_slice path = grpc_slice_from_copied_string(method);
    s->grpc = grpc_channel_create_call(channel->grpc, NULL, GRPC_PROPAGATE_DEFAULTS,
                                       td_pump_queue(channel->pump), path, NULL,
                                       deadline_after(timeout_ns), NULL);
    grpc_slice_unref(path);
    s->next = channel->streams;
    if (s->next) s->next->prev = s;
    channel->streams = s;
    *out_stream = s;
    return TD_OK;
}

static grpc_op status_op(struct td_rpc_stream *s) {
    grpc_op op = {.op = GRPC_OP_RECV_STATUS_ON_CLIENT};
    op.data.recv_status_on_client.trailing_metadata = &s->trailing;
    op.data.recv_status_on_client.status = &s->code;
    op.data.recv_status_on_client.status_details = &s->details;
    return op;
}

static grpc_op receive_metadata_op(struct td_rpc_stream *s) {
    grpc_op op = {.op = GRPC_OP_RECV_INITIAL_METADATA};
    op.data.recv_initial_metadata.recv_initial_metadata = &s->initial;
    return op;
}

// out_metadata must live until the batch was started.
static grpc_op send_metadata_op(const struct td_rpc_stream *s, grpc_metadata *out_metadata) {
    grpc_op op = {.op = GRPC_OP_SEND_INITIAL_METADATA};
    if (!s->channel->authorization) return op;
    *out_metadata = (grpc_metadata){
        .key = grpc_slice_from_static_string("authorization"),
        .value = grpc_slice_from_copied_string(s->channel->authorization),
    };
    op.data.send_initial_metadata.count = 1;
    op.data.send_initial_metadata.metadata = out_metadata;
    return op;
}

static td_status start_unary(struct td_rpc_channel *channel, const char *method,
                             const ProtobufCMessage *request,
                             const ProtobufCMessageDescriptor *response_type, int64_t timeout_ns,
                             td_rpc_unary_fn *fn, void *arg, struct td_rpc_stream **out_stream) {
    TD_CHECK(timeout_ns > 0);
    grpc_byte_buffer *buffer;
    size_t bytes;
    TD_TRY(td_rpc_buffer_pack(request, channel->max_message_bytes, &buffer, &bytes));
    struct td_rpc_stream *s;
    td_status bad = create_stream(channel, method, response_type, timeout_ns, arg, &s);
    if (bad) {
        grpc_byte_buffer_destroy(buffer);
        return bad;
    }
    s->unary = fn;
    grpc_metadata metadata = {.value = grpc_empty_slice()};
    grpc_op send_message = {.op = GRPC_OP_SEND_MESSAGE};
    send_message.data.send_message.send_message = buffer;
    grpc_op recv_message = {.op = GRPC_OP_RECV_MESSAGE};
    recv_message.data.recv_message.recv_message = &s->received;
    grpc_op ops[] = {
        send_metadata_op(s, &metadata), send_message, {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT},
        receive_metadata_op(s),         recv_message, status_op(s),
    };
    s->status.pending = td_pump_start(channel->pump, s->grpc, ops, TD_COUNTOF(ops), &s->status.tag);
    grpc_slice_unref(metadata.value);
    grpc_byte_buffer_destroy(buffer);
    *out_stream = s;
    return TD_OK;
}

td_status td_rpc_unary(struct td_rpc_channel *channel, const char *method,
                       const ProtobufCMessage *request,
                       const ProtobufCMessageDescriptor *response_type, int64_t timeout_ns,
                       td_rpc_unary_fn *fn, void *arg, struct td_rpc_stream **out_stream) {
    struct td_rpc_stream *s;
    TD_TRY(start_unary(channel, method, request, response_type, timeout_ns, fn, arg, &s));
    if (out_stream) *out_stream = s;
    return TD_OK;
}

td_status td_rpc_stream_open(struct td_rpc_channel *channel, const char *method,
                             const ProtobufCMessageDescriptor *response_type, int64_t timeout_ns,
                             const struct td_rpc_stream_ops *ops, void *arg,
                             struct td_rpc_stream **out_stream) {
    struct td_rpc_stream *s;
    TD_TRY(create_stream(channel, method, response_type, timeout_ns, arg, &s));
    s->ops = ops;
    td_outbox_init(&s->outbox, channel->loop, channel->queue_bytes, channel->stall_ns, on_stall, s);
    grpc_metadata metadata = {.value = grpc_empty_slice()};
    grpc_op status = status_op(s);
    grpc_op start = send_metadata_op(s, &metadata);
    grpc_op receive = receive_metadata_op(s);
    s->status.pending = td_pump_start(channel->pump, s->grpc, &status, 1, &s->status.tag);
    s->start.pending = td_pump_start(channel->pump, s->grpc, &start, 1, &s->start.tag);
    grpc_slice_unref(metadata.value);
    s->metadata.pending = td_pump_start(channel->pump, s->grpc, &receive, 1, &s->metadata.tag);
    start_recv(s);
    *out_stream = s;
    return TD_OK;
}

// ---- blocking ---------------------------------------------------------------------------------

struct waiting {
    bool done;
    td_status status;
};

static void on_answer(td_status take_status, const ProtobufCMessage *response, void *arg) {
    (void)response;
    struct waiting *w = arg;
    w->status = take_status;
    w->done = true;
}

td_status td_rpc_unary_wait(struct td_rpc_channel *channel, const char *method,
                            const ProtobufCMessage *request,
                            const ProtobufCMessageDescriptor *response_type, int64_t timeout_ns,
                            struct td_rpc_message **out_response) {
    struct waiting w = {0};
    struct td_rpc_message *response = NULL;
    struct td_rpc_stream *s;
    TD_TRY(start_unary(channel, method, request, response_type, timeout_ns, on_answer, &w, &s));
    s->steal_response = &response;
    // gRPC ends the call at its deadline; the loop's own is for the case that it does not.
    td_status stopped = td_loop_run_until(channel->loop, &w.done, timeout_ns + 5 * TD_NS_PER_S);
    if (stopped) {
        td_rpc_stream_cancel(s);
        td_status again = td_loop_run_until(channel->loop, &w.done, 10 * TD_NS_PER_S);
        td_status_free(again);
        TD_CHECK(w.done); // a cancelled call comes back
        td_status_free(w.status);
        td_rpc_message_destroy(response);
        return stopped;
    }
    if (out_response && response) {
        *out_response = td_steal(response);
    }
    td_rpc_message_destroy(response);
    return w.status;
}
