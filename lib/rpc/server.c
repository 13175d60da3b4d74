// Listening, the table, accepting, draining.
//
// Calls come through grpc_server_request_call, the generic one: gRPC knows no method, so that the
// credential is judged before anything else. A few accepts are armed at any time; a call that finds
// none waits inside gRPC until one is armed again.
//
// gRPC binds and accepts nothing: connections come from the front, as descriptors.
//
// End: grpc_server_shutdown_and_notify refuses newcomers and comes back when the last connection is
// gone. Idle connections go only when they are asked to, so when no call is left, and at the latest
// GRACE_NS after the drain's deadline, everything still open is cancelled.

#include "lib/rpc/server.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include <grpc/grpc_posix.h>
#include <grpc/grpc_security.h>

#include "lib/base/map.h"
#include "lib/loop/loop.h"
#include "lib/rpc/codec.h"
#include "lib/rpc/descriptor_set.h"
#include "lib/rpc/descriptors.h"
#include "lib/rpc/dial.h"
#include "lib/rpc/front/front.h"
#include "lib/rpc/front/self_check.h"
#include "lib/rpc/server_private.h"
#include "lib/tls/context.h"

#define GRACE_NS (1 * TD_NS_PER_S)

// ---- listening --------------------------------------------------------------------------------

static grpc_arg int_arg(const char *key, int value) {
    return (grpc_arg){.type = GRPC_ARG_INTEGER, .key = td_unconst(key), .value.integer = value};
}

static grpc_server *create_grpc_server(const struct td_rpc_server_options *o) {
    // Above our own limit, so that the answer to a message that is a little too large is ours.
    int max_receive = (int)TD_MIN(o->max_message_bytes * 2, (size_t)INT32_MAX);
    grpc_arg args[] = {
        int_arg(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, max_receive),
        int_arg(GRPC_ARG_MAX_METADATA_SIZE, 16 << 10),
        int_arg(GRPC_ARG_MAX_CONCURRENT_STREAMS, (int)o->max_streams),
        int_arg(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, TD_RPC_KEEPALIVE_MS / 2),
        int_arg(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1),
        int_arg(GRPC_ARG_MAX_CONNECTION_IDLE_MS,
                (int)TD_MIN(o->idle_ns / TD_NS_PER_MS, (int64_t)INT32_MAX)),
        // Identity only: a small compressed message may be a very large one.
        int_arg(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1),
        int_arg(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0),
        int_arg(GRPC_ARG_ENABLE_PER_MESSAGE_COMPRESSION, 0),
        int_arg(GRPC_ARG_ENABLE_CHANNELZ, 0),
        int_arg(GRPC_ARG_MAX_CHANNEL_TRACE_EVENT_MEMORY_PER_NODE, 0),
    };
    grpc_channel_args all = {TD_COUNTOF(args), args};
    return grpc_server_create(&all, NULL);
}

// In the front's thread; gRPC's server is safe to call from any.
static void hand_over(int take_fd, void *ctx) {
    struct td_rpc_server *self = ctx;
    grpc_server_add_channel_from_fd(self->grpc, take_fd, self->plain);
}

static void on_notice(const char *text, void *ctx) {
    struct td_rpc_server *self = TD_CAST(td_rpc_server, ctx);
    if (self->options.on_notice) self->options.on_notice(text, self->options.ctx);
}

static td_status listen_on(struct td_rpc_server *self, const char *listen_address) {
    const struct td_rpc_server_options *o = &self->options;
    self->grpc = create_grpc_server(o);
    grpc_server_register_completion_queue(self->grpc, td_pump_queue(self->pump), NULL);
    self->plain = grpc_insecure_server_credentials_create();
    const struct td_front_options front = {.listen = listen_address,
                                           .max_connections = o->max_connections,
                                           .max_apart = o->max_own_connections,
                                           .max_per_source = o->max_per_source,
                                           .max_strangers = o->max_strangers,
                                           .max_streams = o->max_streams,
                                           .first_request_ns = o->first_request_ns,
                                           .stall_ns = o->stall_ns * 2, // a stream's is before
                                           .tls = o->tls,
                                           .guests = o->guests,
                                           .handshake_ns = o->handshake_ns,
                                           .hand_over = hand_over,
                                           .on_notice = on_notice,
                                           .ctx = self};
    return td_front_create(self->loop, &front, &self->front);
}

// ---- does it serve? ---------------------------------------------------------------------------

static void say_serving(struct td_rpc_server *server) {
    for (struct td_rpc_call *c = server->calls; c; c = td_rpc_call_next(c)) {
        td_rpc_call_serving(c);
    }
}

void td_rpc_server_set_serving(struct td_rpc_server *server, bool serving) {
    if (server->serving == serving) return;
    server->serving = serving;
    say_serving(server);
}

bool td_rpc_server_is_serving(const struct td_rpc_server *server) {
    return server->serving && !server->deaf && !server->draining;
}

static void on_check(const char *trouble, void *ctx) {
    struct td_rpc_server *self = TD_CAST(td_rpc_server, ctx);
    if (self->draining) return;
    self->deaf = trouble != NULL;
    say_serving(self);
    on_notice(trouble ? trouble : "the listener answers again", self);
}

static td_status start_check(struct td_rpc_server *self, const struct td_tls_paths *tls) {
    const struct td_self_check_options o = {.address = td_rpc_server_address(self),
                                            .ca = td_front_has_tls(self->front) ? tls->ca : NULL,
                                            .every_ns = self->options.check_ns,
                                            .patience_ns =
                                                TD_MIN(self->options.check_ns, 10 * TD_NS_PER_S),
                                            .on_change = on_check,
                                            .ctx = self};
    return td_self_check_create(self->loop, &o, &self->check);
}

// ---- life -------------------------------------------------------------------------------------

static void on_drain_timer(void *arg);
static void on_stopped(struct td_pump_tag *tag, bool ok);
static void on_accept(struct td_pump_tag *tag, bool ok);

static void resolve_options(struct td_rpc_server_options *o) {
    TD_CHECK(o->authorize);
    if (!o->max_message_bytes) o->max_message_bytes = TD_RPC_MAX_MESSAGE_BYTES;
    if (!o->queue_bytes) o->queue_bytes = TD_RPC_QUEUE_BYTES;
    if (!o->stall_ns) o->stall_ns = TD_RPC_STALL_NS;
    if (!o->deadline_ns) o->deadline_ns = TD_RPC_DEADLINE_NS;
    if (!o->max_calls) o->max_calls = 1024;
    if (!o->max_open_calls) o->max_open_calls = 128;
    if (!o->max_streams) o->max_streams = 100;
    if (!o->max_connections) o->max_connections = 1024;
    if (!o->max_per_source) o->max_per_source = 768;
    if (!o->max_strangers) o->max_strangers = 256;
    if (!o->first_request_ns) o->first_request_ns = 10 * TD_NS_PER_S;
    if (!o->handshake_ns) o->handshake_ns = 10 * TD_NS_PER_S;
    if (!o->idle_ns) o->idle_ns = 600 * TD_NS_PER_S;
    if (!o->check_ns) o->check_ns = 30 * TD_NS_PER_S;
}

static void init_accepts(struct td_rpc_server *self) {
    for (int i = 0; i < TD_RPC_N_ACCEPTS; i++) {
        struct td_rpc_accept *a = &self->accepts[i];
        a->server = self;
        a->tag.done = on_accept;
        grpc_call_details_init(&a->details);
        grpc_metadata_array_init(&a->metadata);
    }
}

td_status td_rpc_server_create(struct td_loop *loop, const struct td_rpc_server_options *options,
                               struct td_rpc_server **out_server) {
    TD_ON_LOOP(loop);
    TD_AUTO(td_rpc_server) *self = td_calloc(1, sizeof *self);
    if (!self) return td_fail_oom();
    self->magic = td_rpc_server_magic;
    self->loop = loop;
    self->options = *options;
    resolve_options(&self->options);
    self->stop_tag.done = on_stopped;
    init_accepts(self);
    if (getrandom(&self->id_seed, sizeof self->id_seed, 0) != sizeof self->id_seed) {
        return td_fail_errno(TD_INTERNAL, "no random numbers for request ids");
    }
    struct td_str set = td_rpc_descriptors();
    TD_TRY(td_descriptor_set_create(set.data, set.len, &self->descriptors));
    TD_TRY(td_map_create(TD_RPC_MAX_ROUTES, &self->routes));
    TD_TRY(td_loop_timer_create(loop, on_drain_timer, self, &self->drain_timer));
    TD_TRY(td_pump_create(loop, &self->pump));
    TD_TRY(listen_on(self, options->listen));
    TD_TRY(start_check(self, options->tls));
    self->options.listen = NULL;
    self->options.tls = NULL;
    *out_server = td_steal(self);
    return TD_OK;
}

static void free_routes(struct td_map *routes) {
    void *route;
    for (size_t cursor = 0; routes && (route = td_map_each(routes, &cursor));) {
        free(route);
    }
    td_map_destroy(routes);
}

static void stop_grpc(struct td_rpc_server *server) {
    if (server->stopped) return;
    server->stopped = true;
    if (server->front) td_front_stop_listening(server->front);
    grpc_server_shutdown_and_notify(server->grpc, td_pump_queue(server->pump), &server->stop_tag);
}

void td_rpc_server_destroy(struct td_rpc_server *server) {
    if (!server) return;
    TD_ON_LOOP(server->loop);
    server->on_drained = NULL;
    if (server->grpc) {
        stop_grpc(server);
        td_rpc_calls_cancel(server);
    }
    td_self_check_destroy(server->check);
    if (server->pump) td_pump_close(server->pump); // every call has its on_done here
    TD_CHECK(server->n_calls == 0);
    for (int i = 0; i < TD_RPC_N_ACCEPTS; i++) {
        grpc_metadata_array_destroy(&server->accepts[i].metadata);
        grpc_call_details_destroy(&server->accepts[i].details);
    }
    td_front_destroy(server->front); // before the server that it hands connections to
    if (server->grpc) grpc_server_destroy(server->grpc);
    if (server->plain) grpc_server_credentials_release(server->plain);
    td_pump_destroy(server->pump);
    td_loop_timer_destroy(server->drain_timer);
    free_routes(server->routes);
    td_descriptor_set_destroy(server->descriptors);
    server->magic = 0;
    free(server);
}

const char *td_rpc_server_address(const struct td_rpc_server *server) {
    return td_front_address(server->front);
}

struct td_rpc_connections td_rpc_server_connections(const struct td_rpc_server *server) {
    return td_front_counts(server->front);
}

int64_t td_rpc_server_certificate_until_s(const struct td_rpc_server *server) {
    return td_front_certificate_until_s(server->front);
}

size_t td_rpc_server_n_calls(const struct td_rpc_server *server) {
    return server->n_calls;
}

// ---- the table --------------------------------------------------------------------------------

static bool same_name(struct td_str a, const char *b) {
    return a.len == strlen(b) && memcmp(a.data, b, a.len) == 0;
}

static td_status check_row(struct td_rpc_server *server, const struct td_rpc_method *row) {
    struct td_descriptor_method d;
    if (!td_descriptor_set_method(server->descriptors, row->service, row->method, &d)) {
        return td_fail(TD_INTERNAL, "method table: no proto declares /%s/%s", row->service,
                       row->method);
    }
    enum td_rpc_kind kind = d.client_streaming
                                ? (d.server_streaming ? TD_RPC_BIDI : TD_RPC_CLIENT_STREAM)
                            : d.server_streaming ? TD_RPC_SERVER_STREAM
                                                 : TD_RPC_UNARY;
    if (kind != row->kind) {
        return td_fail(TD_INTERNAL, "method table: /%s/%s is %s in its proto, %s in the table",
                       row->service, row->method, td_rpc_kind_name(kind),
                       td_rpc_kind_name(row->kind));
    }
    if (!row->renamed &&
        !(same_name(d.input, row->request->name) && same_name(d.output, row->response->name))) {
        return td_fail(TD_INTERNAL,
                       "method table: /%s/%s takes %.*s and returns %.*s in its proto, not %s, %s",
                       row->service, row->method, (int)d.input.len, d.input.data, (int)d.output.len,
                       d.output.data, row->request->name, row->response->name);
    }
    bool streams_in = kind == TD_RPC_CLIENT_STREAM || kind == TD_RPC_BIDI;
    if (!row->on_call || (streams_in && !(row->on_message && row->on_half_close))) {
        return td_fail(TD_INTERNAL, "method table: /%s/%s lacks a handler", row->service,
                       row->method);
    }
    TD_TRY(td_rpc_type_check(row->request));
    return td_rpc_type_check(row->response);
}

static td_status add_route(struct td_rpc_server *server, const struct td_rpc_method *row,
                           void *ctx) {
    char path[512];
    snprintf(path, sizeof path, "/%s/%s", row->service, row->method);
    if (td_map_get(server->routes, path)) {
        return td_fail(TD_INTERNAL, "method table: %s is there twice", path);
    }
    struct td_rpc_route *route = td_calloc(1, sizeof *route);
    if (!route) return td_fail_oom();
    *route = (struct td_rpc_route){.row = row, .ctx = ctx};
    td_status s = td_map_put(server->routes, path, route, NULL);
    if (s) free(route);
    return s;
}

td_status td_rpc_server_add(struct td_rpc_server *server, const struct td_rpc_method *rows,
                            size_t n_rows, void *ctx) {
    TD_ON_LOOP(server->loop);
    TD_CHECK(!server->started);
    for (size_t i = 0; i < n_rows; i++) {
        TD_TRY(check_row(server, &rows[i]));
        TD_TRY(add_route(server, &rows[i], ctx));
    }
    return TD_OK;
}

bool td_rpc_server_has_service(const struct td_rpc_server *server, const char *service) {
    void *route;
    for (size_t cursor = 0; (route = td_map_each(server->routes, &cursor));) {
        if (strcmp(((const struct td_rpc_route *)route)->row->service, service) == 0) return true;
    }
    return false;
}

const struct td_descriptor_set *
td_rpc_server_borrow_descriptors(const struct td_rpc_server *server) {
    return server->descriptors;
}

// ---- accepting --------------------------------------------------------------------------------

static void arm_accept(struct td_rpc_accept *a) {
    struct td_rpc_server *server = a->server;
    if (server->stopped) return;
    grpc_completion_queue *queue = td_pump_queue(server->pump);
    TD_CHECK(grpc_server_request_call(server->grpc, &a->call, &a->details, &a->metadata, queue,
                                      queue, &a->tag) == GRPC_CALL_OK);
}

static void clear_accept(struct td_rpc_accept *a) {
    grpc_metadata_array_destroy(&a->metadata);
    grpc_call_details_destroy(&a->details);
    grpc_metadata_array_init(&a->metadata);
    grpc_call_details_init(&a->details);
    a->call = NULL;
}

static void on_accept(struct td_pump_tag *tag, bool ok) {
    struct td_rpc_accept *a = (struct td_rpc_accept *)(void *)tag;
    if (!ok) return; // shut down
    td_rpc_call_begin(a);
    clear_accept(a);
    arm_accept(a);
}

td_status td_rpc_server_start(struct td_rpc_server *server) {
    TD_ON_LOOP(server->loop);
    TD_CHECK(!server->started);
    server->started = true;
    grpc_server_start(server->grpc);
    for (int i = 0; i < TD_RPC_N_ACCEPTS; i++) {
        arm_accept(&server->accepts[i]);
    }
    return td_front_start(server->front);
}

void td_rpc_server_end_calls(struct td_rpc_server *server, uint64_t identity,
                             const struct td_rpc_call *except, td_status (*why)(void *arg),
                             void *arg) {
    TD_ON_LOOP(server->loop);
    for (struct td_rpc_call *c = server->calls; c; c = td_rpc_call_next(c)) {
        if (c == except || td_rpc_call_identity(c) != identity || !td_rpc_call_is_live(c)) continue;
        td_rpc_call_cut(c, why(arg));
    }
}

// ---- draining ---------------------------------------------------------------------------------

static void on_stopped(struct td_pump_tag *tag, bool ok) {
    (void)ok;
    struct td_rpc_server *server = (void *)((char *)tag - offsetof(struct td_rpc_server, stop_tag));
    if (!server->draining) return; // destroyed without a drain
    server->drain = TD_RPC_DRAINED;
    td_loop_timer_arm(server->drain_timer, 0); // a turn of its own: the callee may destroy us
}

static void on_drain_timer(void *arg) {
    struct td_rpc_server *server = TD_CAST(td_rpc_server, arg);
    void (*fn)(void *) = server->on_drained;
    switch (server->drain) {
    case TD_RPC_DRAIN_WAITING:
        for (struct td_rpc_call *c = server->calls; c; c = td_rpc_call_next(c)) {
            td_rpc_call_drain(c);
        }
        server->drain = TD_RPC_DRAIN_EXPIRED;
        td_loop_timer_arm(server->drain_timer, GRACE_NS);
        return;
    case TD_RPC_DRAIN_EXPIRED:
        td_rpc_calls_cancel(server);
        return;
    case TD_RPC_DRAINED:
        server->on_drained = NULL;
        if (fn) fn(server->drained_arg);
        return;
    }
}

void td_rpc_server_drain(struct td_rpc_server *server, int64_t timeout_ns,
                         void (*on_drained)(void *arg), void *arg) {
    TD_ON_LOOP(server->loop);
    TD_CHECK(!server->draining);
    server->draining = true;
    say_serving(server);
    server->on_drained = on_drained;
    server->drained_arg = arg;
    stop_grpc(server);
    td_loop_timer_arm(server->drain_timer, timeout_ns);
    if (!server->n_calls) td_rpc_calls_cancel(server);
}
