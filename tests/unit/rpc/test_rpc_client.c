// Client and server of lib/rpc on one loop: statuses that travel, streams, pauses, ends.
// After every case as many calls were ended as were begun.
//
// Tags: tsan

#include "tests/unit/test.h"

#include "lib/base/clock.h"
#include "lib/loop/loop.h"
#include "lib/rpc/client.h"
#include "lib/rpc/server.h"
#include "traind/v1/job.pb-c.h"
#include "traind/v1/node.pb-c.h"

static struct td_loop *loop;
static struct td_rpc_server *server;
static struct td_rpc_channel *channel;
static unsigned n_called;
static unsigned n_done;
static unsigned n_joined; // messages of a session that came as one

// ---- the server ----

static td_status authorize(struct td_str token, const struct td_rpc_method *row, void *ctx,
                           uint64_t *out_identity) {
    (void)row;
    (void)ctx;
    *out_identity = 1;
    if (td_rpc_secret_equal(token, (struct td_str){"secret", 6})) return TD_OK;
    return td_status_with_reason(td_fail(TD_UNAUTHENTICATED, "wrong token"), "TOKEN_INVALID");
}

// What the front has to say shows in the test's output.
static void on_notice(const char *text, void *ctx) {
    (void)ctx;
    print_message("%s\n", text);
}

static void on_done(struct td_rpc_call *call, void *ctx) {
    (void)call;
    (void)ctx;
    n_done++;
}

static void on_get(struct td_rpc_call *call, const ProtobufCMessage *message, void *ctx) {
    (void)ctx;
    n_called++;
    const Traind__V1__GetJobRequest *r = (const void *)message;
    assert_ptr_equal(td_rpc_call_request(call), message);
    if (strcmp(r->id, "never") == 0) return;
    if (strcmp(r->id, "none") == 0) {
        td_status s = td_fail(TD_NOT_FOUND, "no job '%s'", r->id);
        s = td_status_with_reason(s, "JOB_UNKNOWN");
        s = td_status_with_class(s, TD_CLASS_BAD_SPEC);
        s = td_status_with_field(s, "id", "unknown");
        td_rpc_call_finish(call, td_status_with_meta(s, "known", "%d", 7));
        return;
    }
    Traind__V1__Job job = TRAIND__V1__JOB__INIT;
    job.id = r->id;
    td_rpc_call_reply(call, &job.base);
    td_rpc_call_finish(call, td_fail(TD_INTERNAL, "a second answer does nothing"));
}

static void on_open(struct td_rpc_call *call, const ProtobufCMessage *request, void *ctx) {
    (void)call;
    (void)ctx;
    assert_null(request);
    n_called++;
}

enum { BATCH_FIELD = 15 };

// Answers each of a batch, and gives the answers together.
static void echo_batch(struct td_rpc_call *call, const Traind__V1__NodeMessage *m) {
    td_rpc_call_set_batch(call, BATCH_FIELD);
    n_joined += (unsigned)m->n_batch;
    for (size_t i = 0; i < m->n_batch; i++) {
        struct td_rpc_message *one;
        assert_ok(td_rpc_message_decode(&traind__v1__node_message__descriptor, m->batch[i].data,
                                        m->batch[i].len, &one));
        Traind__V1__CoordinatorMessage echo = TRAIND__V1__COORDINATOR_MESSAGE__INIT;
        echo.incarnation = ((const Traind__V1__NodeMessage *)td_rpc_message_get(one))->incarnation;
        assert_int_not_equal(td_rpc_call_send(call, &echo.base), TD_RPC_SEND_REFUSED);
        td_rpc_message_destroy(one);
    }
    td_rpc_call_flush(call);
}

static void on_session(struct td_rpc_call *call, const ProtobufCMessage *message, void *ctx) {
    (void)ctx;
    const Traind__V1__NodeMessage *m = (const void *)message;
    if (m->n_batch) {
        echo_batch(call, m);
        return;
    }
    if (m->incarnation == 666) {
        td_rpc_call_pause(call); // and never resumes
        return;
    }
    Traind__V1__CoordinatorMessage echo = TRAIND__V1__COORDINATOR_MESSAGE__INIT;
    echo.incarnation = m->incarnation;
    if (td_rpc_call_send(call, &echo.base) == TD_RPC_SEND_FULL) td_rpc_call_pause(call);
}

static void on_session_writable(struct td_rpc_call *call, void *ctx) {
    (void)ctx;
    td_rpc_call_resume(call);
}

static void on_session_end(struct td_rpc_call *call, void *ctx) {
    (void)ctx;
    td_rpc_call_finish(call, TD_OK);
}

static const struct td_rpc_method rows[] = {
    {.service = "traind.v1.JobService",
     .method = "GetJob",
     .kind = TD_RPC_UNARY,
     .request = &traind__v1__get_job_request__descriptor,
     .response = &traind__v1__job__descriptor,
     .on_call = on_get,
     .on_done = on_done},
    {.service = "traind.v1.NodeService",
     .method = "Session",
     .kind = TD_RPC_BIDI,
     .request = &traind__v1__node_message__descriptor,
     .response = &traind__v1__coordinator_message__descriptor,
     .on_call = on_open,
     .on_message = on_session,
     .on_half_close = on_session_end,
     .on_writable = on_session_writable,
     .on_done = on_done},
};

static const struct td_rpc_server_options server_options = {
    .listen = "127.0.0.1:0",
    .authorize = authorize,
    .on_notice = on_notice,
    .queue_bytes = 32 << 10,
};

static struct td_rpc_channel *dial(const char *token, int64_t stall_ns) {
    struct td_rpc_channel_options o = {.address = td_rpc_server_address(server),
                                       .token = token,
                                       .queue_bytes = 32 << 10,
                                       .stall_ns = stall_ns};
    struct td_rpc_channel *c;
    assert_true(td_rpc_channel_create(loop, &o, &c) == TD_OK);
    return c;
}

static int set_up(void **state) {
    (void)state;
    n_called = n_done = n_joined = 0;
    assert_true(td_loop_create(&loop) == TD_OK);
    assert_true(td_rpc_server_create(loop, &server_options, &server) == TD_OK);
    assert_true(td_rpc_server_add(server, rows, TD_COUNTOF(rows), NULL) == TD_OK);
    assert_true(td_rpc_server_start(server) == TD_OK);
    channel = dial("secret", 200 * TD_NS_PER_MS);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    td_rpc_channel_destroy(channel);
    td_rpc_server_destroy(server);
    td_loop_destroy(loop);
    assert_int_equal(n_called, n_done);
    return 0;
}

// ---- unary ----

static td_status get(struct td_rpc_channel *c, const char *id, int64_t timeout_ns,
                     struct td_rpc_message **out_response) {
    Traind__V1__GetJobRequest r = TRAIND__V1__GET_JOB_REQUEST__INIT;
    r.id = td_unconst(id);
    return td_rpc_unary_wait(c, "/traind.v1.JobService/GetJob", &r.base,
                             &traind__v1__job__descriptor, timeout_ns, out_response);
}

static void test_unary_returns_the_response_when_answered(void **state) {
    (void)state;
    struct td_rpc_message *m;
    assert_true(get(channel, "j-1", TD_TEST_WAIT_NS, &m) == TD_OK);
    assert_string_equal(((const Traind__V1__Job *)(const void *)td_rpc_message_get(m))->id, "j-1");
    td_rpc_message_destroy(m);
    assert_true(get(channel, "j-2", TD_TEST_WAIT_NS, NULL) == TD_OK);
}

static void test_unary_returns_the_servers_status_when_it_fails(void **state) {
    (void)state;
    td_status s = get(channel, "none", TD_TEST_WAIT_NS, NULL);
    assert_int_equal(td_status_code(s), TD_NOT_FOUND);
    assert_string_equal(td_status_message(s), "no job 'none'");
    assert_string_equal(td_status_reason(s), "JOB_UNKNOWN");
    assert_int_equal(td_status_class(s), TD_CLASS_BAD_SPEC);
    assert_int_equal(td_status_n_fields(s), 1);
    const char *key, *value;
    td_status_meta(s, 0, &key, &value);
    assert_string_equal(key, "request_id");
    assert_int_equal(strlen(value), 16);
    td_status_free(s);
}

static void test_unary_is_unauthenticated_when_the_token_is_wrong(void **state) {
    (void)state;
    const char *const tokens[] = {"wrong!", "secret1", NULL};
    for (size_t i = 0; i < TD_COUNTOF(tokens); i++) {
        struct td_rpc_channel *c = dial(tokens[i], 0);
        td_status s = get(c, "j-1", TD_TEST_WAIT_NS, NULL);
        assert_int_equal(td_status_code(s), TD_UNAUTHENTICATED);
        assert_string_equal(td_status_reason(s), "TOKEN_INVALID");
        td_status_free(s);
        td_rpc_channel_destroy(c);
    }
}

static void test_unary_ends_when_its_deadline_passes(void **state) {
    (void)state;
    td_status s = get(channel, "never", 50 * TD_NS_PER_MS, NULL);
    assert_int_equal(td_status_code(s), TD_DEADLINE_EXCEEDED);
    td_status_free(s);
}

static void test_unary_is_unreachable_when_nobody_listens(void **state) {
    (void)state;
    struct td_rpc_channel *c = dial("secret", 0);
    td_rpc_server_destroy(server);
    td_status s = get(c, "j-1", TD_TEST_WAIT_NS, NULL);
    assert_int_equal(td_status_code(s), TD_UNAVAILABLE);
    assert_string_equal(td_status_reason(s), "UNREACHABLE");
    td_status_free(s);
    td_rpc_channel_destroy(c);
    server = NULL;
}

static void test_channel_connects_again_when_the_server_is_back(void **state) {
    (void)state;
    assert_ok(get(channel, "j-1", TD_TEST_WAIT_NS, NULL));
    char address[64];
    snprintf(address, sizeof address, "%s", td_rpc_server_address(server));
    td_rpc_server_destroy(server);
    assert_fails(get(channel, "j-1", TD_TEST_WAIT_NS, NULL), TD_UNAVAILABLE, address);
    struct td_rpc_server_options o = server_options;
    o.listen = address;
    assert_ok(td_rpc_server_create(loop, &o, &server));
    assert_ok(td_rpc_server_add(server, rows, TD_COUNTOF(rows), NULL));
    assert_true(td_rpc_server_start(server) == TD_OK);
    struct td_mono end = td_mono_add(td_mono_now(), TD_TEST_WAIT_NS);
    enum td_code code = TD_UNAVAILABLE;
    while (code == TD_UNAVAILABLE && td_mono_now().ns < end.ns) {
        td_status s = get(channel, "j-1", TD_TEST_WAIT_NS, NULL);
        code = td_status_code(s);
        td_status_free(s);
        bool never = false; // let the channel's back-off pass
        td_status_free(td_loop_run_until(loop, &never, 20 * TD_NS_PER_MS));
    }
    assert_int_equal(code, TD_CODE_OK);
}

static void test_unary_is_refused_when_the_request_is_too_large(void **state) {
    (void)state;
    size_t bytes = TD_RPC_MAX_MESSAGE_BYTES;
    char *id = malloc(bytes + 1);
    assert_non_null(id);
    memset(id, 'x', bytes);
    id[bytes] = 0;
    td_status s = get(channel, id, TD_TEST_WAIT_NS, NULL);
    assert_int_equal(td_status_code(s), TD_RESOURCE_EXHAUSTED);
    assert_string_equal(td_status_reason(s), "MESSAGE_TOO_LARGE");
    td_status_free(s);
    free(id);
}

struct unary_result {
    unsigned n;
    enum td_code code;
    bool done;
};

static void on_answer(td_status take_status, const ProtobufCMessage *response, void *arg) {
    struct unary_result *r = arg;
    assert_true(!take_status == !!response);
    r->n++;
    r->code = td_status_code(take_status);
    r->done = true;
    td_status_free(take_status);
}

static void test_unary_callback_comes_once_when_the_channel_is_destroyed(void **state) {
    (void)state;
    Traind__V1__GetJobRequest r = TRAIND__V1__GET_JOB_REQUEST__INIT;
    r.id = (char[]){"never"};
    struct unary_result results[3] = {{0}};
    for (size_t i = 0; i < TD_COUNTOF(results); i++) {
        assert_true(td_rpc_unary(channel, "/traind.v1.JobService/GetJob", &r.base,
                                 &traind__v1__job__descriptor, TD_TEST_WAIT_NS, on_answer,
                                 &results[i], NULL) == TD_OK);
    }
    td_rpc_channel_destroy(channel);
    channel = NULL;
    for (size_t i = 0; i < TD_COUNTOF(results); i++) {
        assert_int_equal(results[i].n, 1);
        assert_int_equal(results[i].code, TD_CANCELLED);
    }
}

static void test_unary_ends_when_cancelled(void **state) {
    (void)state;
    Traind__V1__GetJobRequest r = TRAIND__V1__GET_JOB_REQUEST__INIT;
    r.id = (char[]){"never"};
    struct unary_result result = {0};
    struct td_rpc_stream *s;
    assert_true(td_rpc_unary(channel, "/traind.v1.JobService/GetJob", &r.base,
                             &traind__v1__job__descriptor, TD_TEST_WAIT_NS, on_answer, &result,
                             &s) == TD_OK);
    td_rpc_stream_cancel(s);
    assert_true(td_loop_run_until(loop, &result.done, TD_TEST_WAIT_NS) == TD_OK);
    assert_int_equal(result.code, TD_CANCELLED);
}

// ---- streams ----

struct session {
    struct td_rpc_stream *stream;
    uint64_t n_sent;
    uint64_t n_to_send;
    uint64_t n_received;
    bool done;
    enum td_code code;
    char reason[32];
};

static void send_more(struct td_rpc_stream *stream, void *arg) {
    struct session *s = arg;
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    enum td_rpc_send sent = TD_RPC_SEND_MORE;
    while (sent == TD_RPC_SEND_MORE && s->n_sent < s->n_to_send) {
        m.incarnation = 1000 + s->n_sent;
        sent = td_rpc_stream_send(stream, &m.base);
        assert_int_not_equal(sent, TD_RPC_SEND_REFUSED);
        s->n_sent++;
    }
    if (s->n_sent == s->n_to_send) td_rpc_stream_half_close(stream);
}

static void on_echo(struct td_rpc_stream *stream, const ProtobufCMessage *message, void *arg) {
    (void)stream;
    struct session *s = arg;
    const Traind__V1__CoordinatorMessage *m = (const void *)message;
    assert_int_equal(m->incarnation, 1000 + s->n_received);
    s->n_received++;
}

static void on_stream_done(struct td_rpc_stream *stream, td_status take_status, void *arg) {
    struct session *s = arg;
    assert_ptr_equal(stream, s->stream);
    assert_false(s->done);
    s->done = true;
    s->code = td_status_code(take_status);
    snprintf(s->reason, sizeof s->reason, "%s", td_status_reason(take_status));
    td_status_free(take_status);
}

static const struct td_rpc_stream_ops session_ops = {on_echo, send_more, on_stream_done};

static const struct td_rpc_stream_ops bulk_ops = {on_echo, NULL, on_stream_done};

static void open_session(struct session *s, const struct td_rpc_stream_ops *ops) {
    assert_true(td_rpc_stream_open(channel, "/traind.v1.NodeService/Session",
                                   &traind__v1__coordinator_message__descriptor, 0, ops, s,
                                   &s->stream) == TD_OK);
}

static void test_stream_keeps_order_when_both_queues_fill_up(void **state) {
    (void)state;
    struct session s = {.n_to_send = 20000};
    open_session(&s, &session_ops);
    send_more(s.stream, &s);
    assert_true(s.n_sent < s.n_to_send); // the queue pushed back
    assert_true(td_loop_run_until(loop, &s.done, TD_TEST_WAIT_NS) == TD_OK);
    assert_int_equal(s.code, TD_CODE_OK);
    assert_int_equal(s.n_received, s.n_to_send);
}

static void on_echoes(struct td_rpc_stream *stream, const ProtobufCMessage *message, void *arg) {
    const Traind__V1__CoordinatorMessage *m = (const void *)message;
    if (!m->n_batch) on_echo(stream, message, arg);
    for (size_t i = 0; i < m->n_batch; i++) {
        struct td_rpc_message *one;
        assert_ok(td_rpc_message_decode(&traind__v1__coordinator_message__descriptor,
                                        m->batch[i].data, m->batch[i].len, &one));
        on_echo(stream, td_rpc_message_get(one), arg);
        td_rpc_message_destroy(one);
    }
    n_joined += (unsigned)m->n_batch;
}

static void send_numbered(struct session *s, unsigned n, size_t bytes) {
    static uint8_t bulk[300000];
    Traind__V1__Segment segment = TRAIND__V1__SEGMENT__INIT;
    segment.data = (ProtobufCBinaryData){bytes, bulk};
    for (unsigned i = 0; i < n; i++) {
        Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
        m.incarnation = 1000 + s->n_sent++;
        if (bytes) {
            m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_SEGMENT;
            m.segment = &segment;
        }
        assert_int_not_equal(td_rpc_stream_send(s->stream, &m.base), TD_RPC_SEND_REFUSED);
    }
}

// Both ways, in order: what waited for a flush goes as one, up to the bounds of the outbox; one
// that waits alone goes as it is.
static void test_stream_sends_as_one_what_waits_when_in_batches(void **state) {
    (void)state;
    static const struct td_rpc_stream_ops ops = {on_echoes, NULL, on_stream_done};
    struct session s = {0};
    td_rpc_channel_destroy(channel);
    struct td_rpc_channel_options o = {
        .address = td_rpc_server_address(server), .token = "secret", .queue_bytes = 4 << 20};
    assert_ok(td_rpc_channel_create(loop, &o, &channel));
    open_session(&s, &ops);
    td_rpc_stream_set_batch(s.stream, BATCH_FIELD);
    send_numbered(&s, 1, 0);
    td_rpc_stream_flush(s.stream);
    assert_ok(get(channel, "j-1", TD_TEST_WAIT_NS, NULL)); // it has left alone by then
    send_numbered(&s, 100, 0);
    send_numbered(&s, 5, 300000); // three of them fit beside the others
    td_rpc_stream_flush(s.stream);
    td_rpc_stream_half_close(s.stream);
    assert_ok(td_loop_run_until(loop, &s.done, TD_TEST_WAIT_NS));
    assert_int_equal(s.code, TD_CODE_OK);
    assert_int_equal(s.n_received, 106);
    assert_in_range(n_joined, 2 * 103, 2 * 105);
}

static void test_stream_ends_when_cancelled(void **state) {
    (void)state;
    struct session s = {0};
    open_session(&s, &session_ops);
    td_rpc_stream_cancel(s.stream);
    assert_true(td_loop_run_until(loop, &s.done, TD_TEST_WAIT_NS) == TD_OK);
    assert_int_equal(s.code, TD_CANCELLED);
}

static void test_stream_ends_when_its_peer_stops_reading(void **state) {
    (void)state;
    struct session s = {0};
    open_session(&s, &bulk_ops);
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    m.incarnation = 666;
    assert_int_equal(td_rpc_stream_send(s.stream, &m.base), TD_RPC_SEND_MORE);
    static uint8_t bulk[200000];
    Traind__V1__Segment segment = TRAIND__V1__SEGMENT__INIT;
    segment.data = (ProtobufCBinaryData){sizeof bulk, bulk};
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_SEGMENT;
    m.segment = &segment;
    bool never = false;
    for (int i = 0; i < 200 && !s.done; i++) {
        (void)td_rpc_stream_send(s.stream, &m.base); // refused while the queue is full
        td_status_free(td_loop_run_until(loop, &never, 5 * TD_NS_PER_MS));
    }
    assert_true(td_loop_run_until(loop, &s.done, TD_TEST_WAIT_NS) == TD_OK);
    assert_int_equal(s.code, TD_UNAVAILABLE);
    assert_string_equal(s.reason, "PEER_STALLED");
}

static void test_stream_ends_when_the_server_is_destroyed(void **state) {
    (void)state;
    struct session s = {.n_to_send = 10};
    open_session(&s, &session_ops);
    assert_true(get(channel, "j-1", TD_TEST_WAIT_NS, NULL) == TD_OK);
    td_rpc_server_destroy(server);
    server = NULL;
    assert_int_equal(n_called, n_done);
    assert_true(td_loop_run_until(loop, &s.done, TD_TEST_WAIT_NS) == TD_OK);
    assert_int_equal(s.code, TD_UNAVAILABLE);
}

static void set_true(void *arg) {
    *(bool *)arg = true;
}

static void test_stream_gets_draining_when_the_server_drains(void **state) {
    (void)state;
    struct session s = {.n_to_send = 10};
    open_session(&s, &session_ops);
    assert_true(get(channel, "j-1", TD_TEST_WAIT_NS, NULL) == TD_OK);
    bool drained = false;
    td_rpc_server_drain(server, 20 * TD_NS_PER_MS, set_true, &drained);
    assert_true(td_loop_run_until(loop, &drained, TD_TEST_WAIT_NS) == TD_OK);
    assert_true(td_loop_run_until(loop, &s.done, TD_TEST_WAIT_NS) == TD_OK);
    assert_string_equal(s.reason, "DRAINING");
}

// ---- the table and the address ----

static void test_table_is_refused_when_it_differs_from_the_proto(void **state) {
    (void)state;
    struct td_rpc_server *other;
    struct td_rpc_method bad[4] = {rows[0], rows[0], rows[0], rows[1]};
    bad[0].kind = TD_RPC_SERVER_STREAM;
    bad[1].request = &traind__v1__job__descriptor;
    bad[2].method = "Nonsense";
    bad[3].on_half_close = NULL;
    assert_true(td_rpc_server_create(loop, &server_options, &other) == TD_OK);
    for (size_t i = 0; i < TD_COUNTOF(bad); i++) {
        td_status s = td_rpc_server_add(other, &bad[i], 1, NULL);
        assert_int_equal(td_status_code(s), TD_INTERNAL);
        td_status_free(s);
    }
    td_rpc_server_destroy(other); // never started
}

static void test_server_is_refused_when_the_port_is_taken(void **state) {
    (void)state;
    struct td_rpc_server_options o = server_options;
    o.listen = td_rpc_server_address(server);
    struct td_rpc_server *other;
    td_status s = td_rpc_server_create(loop, &o, &other);
    assert_int_equal(td_status_code(s), TD_UNAVAILABLE);
    assert_string_equal(td_status_reason(s), "ADDRESS_IN_USE");
    char holder[32];
    snprintf(holder, sizeof holder, "pid %d (", (int)getpid());
    assert_non_null(strstr(td_status_message(s), holder));
    td_status_free(s);
    o.listen = "0.0.0.0:0";
    s = td_rpc_server_create(loop, &o, &other);
    assert_string_equal(td_status_reason(s), "ADDRESS_NOT_LOOPBACK");
    td_status_free(s);
}

static td_status make_server(void *arg) {
    (void)arg;
    TD_AUTO(td_rpc_server) *other = NULL;
    TD_TRY(td_rpc_server_create(loop, &server_options, &other));
    return td_rpc_server_add(other, rows, TD_COUNTOF(rows), NULL);
}

static td_status make_channel(void *arg) {
    (void)arg;
    struct td_rpc_channel_options o = {.address = "127.0.0.1:1", .token = "t"};
    TD_AUTO(td_rpc_channel) *other = NULL;
    return td_rpc_channel_create(loop, &o, &other);
}

static void test_server_and_channel_fail_cleanly_when_memory_is_out(void **state) {
    (void)state;
    td_test_failing_allocations(make_server, NULL);
    td_test_failing_allocations(make_channel, NULL);
}

static td_status call_once(void *arg) {
    (void)arg;
    return get(channel, "j-1", TD_NS_PER_S, NULL);
}

// Whichever allocation of client or server fails, the call ends with RESOURCE_EXHAUSTED.
static void test_call_fails_cleanly_when_memory_is_out(void **state) {
    (void)state;
    assert_ok(call_once(NULL));
    td_test_failing_allocations(call_once, NULL);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(test_unary_returns_the_response_when_answered),
        CASE(test_unary_returns_the_servers_status_when_it_fails),
        CASE(test_unary_is_unauthenticated_when_the_token_is_wrong),
        CASE(test_unary_ends_when_its_deadline_passes),
        CASE(test_unary_is_unreachable_when_nobody_listens),
        CASE(test_channel_connects_again_when_the_server_is_back),
        CASE(test_unary_is_refused_when_the_request_is_too_large),
        CASE(test_unary_callback_comes_once_when_the_channel_is_destroyed),
        CASE(test_unary_ends_when_cancelled),
        CASE(test_stream_keeps_order_when_both_queues_fill_up),
        CASE(test_stream_sends_as_one_what_waits_when_in_batches),
        CASE(test_stream_ends_when_cancelled),
        CASE(test_stream_ends_when_its_peer_stops_reading),
        CASE(test_stream_ends_when_the_server_is_destroyed),
        CASE(test_stream_gets_draining_when_the_server_drains),
        CASE(test_table_is_refused_when_it_differs_from_the_proto),
        CASE(test_server_and_channel_fail_cleanly_when_memory_is_out),
        CASE(test_call_fails_cleanly_when_memory_is_out),
        CASE(test_server_is_refused_when_the_port_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
