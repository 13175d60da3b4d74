// A server of nothing but lib/rpc, for test_s01_rpc.py: real methods of traind.v1 with handlers
// that do what the test asks for. So a stock client meets each kind of call, each limit and each
// end.
//
//   rpc_server [stall_ms [deadline_ms [drain_ms]]]
// prints "HOST:PORT", serves the token "secret", and drains on SIGTERM. At the end it prints how
// often on_call and on_done ran, which must be the same.
//
//   CreateJob  spec "echo ..."  -> Job.name;  "fail N" -> an error with N violations;
//              "never"          -> no answer; "later" -> an answer in a later turn;
//              "peer"           -> Job.name is the client's address
//   GetJob     id "stats"       -> Job.name "reported=N done=N open=N"
//   WatchJob   id "COUNT BYTES" -> COUNT responses with a token of BYTES; "forever" -> none, open
//   PutLog     sums data;  Session echoes incarnation

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "lib/loop/loop.h"
#include "lib/rpc/health.h"
#include "lib/rpc/reflection.h"
#include "lib/rpc/server.h"
#include "traind/v1/job.pb-c.h"
#include "traind/v1/node.pb-c.h"

struct world {
    struct td_loop *loop;
    struct td_rpc_server *server;
    int64_t drain_ns;
    unsigned n_reported;
    unsigned n_done;
};

static struct world world;

static td_status authorize(struct td_str token, const struct td_rpc_method *row, void *ctx,
                           uint64_t *out_identity) {
    (void)row;
    (void)ctx;
    *out_identity = 1;
    if (td_rpc_secret_equal(token, (struct td_str){"secret", 6})) return TD_OK;
    return td_status_with_reason(td_fail(TD_UNAUTHENTICATED, "wrong token"), "TOKEN_INVALID");
}

static void on_notice(const char *text, void *ctx) {
    (void)ctx;
    fprintf(stderr, "%s\n", text);
}

static void on_done(struct td_rpc_call *call, void *ctx) {
    (void)ctx;
    free(td_rpc_call_user(call));
    world.n_done++;
}

static void reply_name(struct td_rpc_call *call, char *name) {
    Traind__V1__Job job = TRAIND__V1__JOB__INIT;
    job.name = name;
    td_rpc_call_reply(call, &job.base);
}

// ---- unary ------------------------------------------------------------------------------------

static td_status many_faults(int n) {
    td_status s = td_fail(TD_INVALID_ARGUMENT, "the spec has %d errors", n);
    s = td_status_with_reason(s, "FIELD_INVALID");
    s = td_status_with_meta(s, "file", "%s", "job.yaml");
    for (int i = 0; i < n; i++) {
        char path[32];
        snprintf(path, sizeof path, "trainer.key_%d", i);
        s = td_status_with_field(
            s, path,
            "line %d: unknown key of the trainer; did you mean another one? See the manual", i);
    }
    return s;
}

static void reply_later(void *arg) {
    struct td_rpc_call *call = arg;
    reply_name(call, (char[]){"later"}); // nothing happens if it is over
    td_rpc_call_unref(call);
}

static void on_create(struct td_rpc_call *call, const ProtobufCMessage *message, void *ctx) {
    (void)ctx;
    world.n_reported++;
    const Traind__V1__CreateJobRequest *r = (const void *)message;
    int n;
    if (sscanf(r->spec, "fail %d", &n) == 1) {
        td_rpc_call_finish(call, many_faults(n));
    } else if (strcmp(r->spec, "later") == 0) {
        td_rpc_call_ref(call);
        TD_CHECK(td_loop_post(world.loop, reply_later, call) == TD_OK);
    } else if (strcmp(r->spec, "peer") == 0) {
        char peer[64];
        snprintf(peer, sizeof peer, "%s", td_rpc_call_peer(call));
        reply_name(call, peer);
    } else if (strcmp(r->spec, "never") != 0) {
        reply_name(call, r->spec);
    }
}

static void on_get(struct td_rpc_call *call, const ProtobufCMessage *message, void *ctx) {
    (void)ctx;
    (void)message;
    char text[96];
    snprintf(text, sizeof text, "reported=%u done=%u open=%zu", world.n_reported, world.n_done,
             td_rpc_server_n_calls(world.server));
    reply_name(call, text);
}

// ---- streams ----------------------------------------------------------------------------------

struct burst {
    int n_left;
    int bytes;
};

static void send_burst(struct td_rpc_call *call, void *ctx) {
    (void)ctx;
    struct burst *b = td_rpc_call_user(call);
    Traind__V1__WatchJobResponse response = TRAIND__V1__WATCH_JOB_RESPONSE__INIT;
    char *text = td_calloc(1, (size_t)b->bytes + 1);
    TD_CHECK(text);
    memset(text, 'x', (size_t)b->bytes);
    response.token = text;
    enum td_rpc_send sent = TD_RPC_SEND_MORE;
    while (b->n_left && sent == TD_RPC_SEND_MORE) {
        sent = td_rpc_call_send(call, &response.base);
        if (sent != TD_RPC_SEND_REFUSED) b->n_left--;
    }
    free(text);
    if (!b->n_left) td_rpc_call_finish(call, TD_OK);
}

static void on_watch(struct td_rpc_call *call, const ProtobufCMessage *message, void *ctx) {
    world.n_reported++;
    const Traind__V1__WatchJobRequest *r = (const void *)message;
    if (strcmp(r->id, "forever") == 0) return;
    struct burst *b = td_calloc(1, sizeof *b);
    TD_CHECK(b);
    td_rpc_call_set_user(call, b);
    if (sscanf(r->id, "%d %d", &b->n_left, &b->bytes) == 2) {
        send_burst(call, ctx);
    } else {
        td_rpc_call_finish(call, td_fail(TD_NOT_FOUND, "no job '%s'", r->id));
    }
}

static void on_open(struct td_rpc_call *call, const ProtobufCMessage *message, void *ctx) {
    (void)message;
    (void)ctx;
    world.n_reported++;
    uint64_t *sum = td_calloc(1, sizeof *sum);
    TD_CHECK(sum);
    td_rpc_call_set_user(call, sum);
}

static void on_chunk(struct td_rpc_call *call, const ProtobufCMessage *message, void *ctx) {
    (void)ctx;
    uint64_t *sum = td_rpc_call_user(call);
    *sum += ((const Traind__V1__LogChunk *)(const void *)message)->data.len;
}

static void on_chunks_end(struct td_rpc_call *call, void *ctx) {
    (void)ctx;
    Traind__V1__PutReply reply = TRAIND__V1__PUT_REPLY__INIT;
    reply.offset = *(uint64_t *)td_rpc_call_user(call);
    td_rpc_call_reply(call, &reply.base);
}

static void on_session(struct td_rpc_call *call, const ProtobufCMessage *message, void *ctx) {
    (void)ctx;
    Traind__V1__CoordinatorMessage echo = TRAIND__V1__COORDINATOR_MESSAGE__INIT;
    echo.incarnation = ((const Traind__V1__NodeMessage *)(const void *)message)->incarnation;
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
     .method = "CreateJob",
     .kind = TD_RPC_UNARY,
     .request = &traind__v1__create_job_request__descriptor,
     .response = &traind__v1__job__descriptor,
     .on_call = on_create,
     .on_done = on_done},
    {.service = "traind.v1.JobService",
     .method = "GetJob",
     .kind = TD_RPC_UNARY,
     .request = &traind__v1__get_job_request__descriptor,
     .response = &traind__v1__job__descriptor,
     .on_call = on_get},
    {.service = "traind.v1.JobService",
     .method = "WatchJob",
     .kind = TD_RPC_SERVER_STREAM,
     .request = &traind__v1__watch_job_request__descriptor,
     .response = &traind__v1__watch_job_response__descriptor,
     .on_call = on_watch,
     .on_writable = send_burst,
     .on_done = on_done},
    {.service = "traind.v1.NodeService",
     .method = "PutLog",
     .kind = TD_RPC_CLIENT_STREAM,
     .request = &traind__v1__log_chunk__descriptor,
     .response = &traind__v1__put_reply__descriptor,
     .on_call = on_open,
     .on_message = on_chunk,
     .on_half_close = on_chunks_end,
     .on_done = on_done},
    {.service = "traind.v1.NodeService",
     .method = "Session",
     .kind = TD_RPC_BIDI,
     .own_calls = 32,
     .request = &traind__v1__node_message__descriptor,
     .response = &traind__v1__coordinator_message__descriptor,
     .on_call = on_open,
     .on_message = on_session,
     .on_half_close = on_session_end,
     .on_writable = on_session_writable,
     .on_done = on_done},
};

// ---- main -------------------------------------------------------------------------------------

static void on_drained(void *arg) {
    (void)arg;
    td_loop_stop(world.loop);
}

static void on_term(void *arg) {
    (void)arg;
    td_rpc_server_drain(world.server, world.drain_ns, on_drained, NULL);
}

static int64_t arg_ns(int argc, char **argv, int i, int64_t default_ns) {
    return i < argc ? strtol(argv[i], NULL, 10) * TD_NS_PER_MS : default_ns;
}

static td_status serve(int argc, char **argv) {
    struct td_rpc_server_options options = {
        .listen = "127.0.0.1:0",
        .authorize = authorize,
        .on_notice = on_notice,
        .queue_bytes = 64 << 10,
        .stall_ns = arg_ns(argc, argv, 1, 0),
        .deadline_ns = arg_ns(argc, argv, 2, 0),
        .max_calls = 64,
    };
    world.drain_ns = arg_ns(argc, argv, 3, 200 * TD_NS_PER_MS);
    TD_TRY(td_loop_create(&world.loop));
    struct td_loop_signal *term;
    TD_TRY(td_loop_signal_create(world.loop, SIGTERM, on_term, NULL, &term));
    TD_TRY(td_rpc_server_create(world.loop, &options, &world.server));
    TD_TRY(td_rpc_health_add(world.server));
    TD_TRY(td_rpc_reflection_add(world.server));
    TD_TRY(td_rpc_server_add(world.server, rows, TD_COUNTOF(rows), NULL));
    TD_TRY(td_rpc_server_start(world.server));
    td_rpc_server_set_serving(world.server, true);
    printf("%s\n", td_rpc_server_address(world.server));
    fflush(stdout);
    TD_TRY(td_loop_run(world.loop));
    td_rpc_server_destroy(world.server);
    td_loop_signal_destroy(term);
    td_loop_destroy(world.loop);
    return TD_OK;
}

int main(int argc, char **argv) {
    td_status s = serve(argc, argv);
    if (s) {
        fprintf(stderr, "%s\n", td_status_message(s));
        td_status_free(s);
        return 1;
    }
    printf("reported=%u done=%u\n", world.n_reported, world.n_done);
    return world.n_reported == world.n_done ? 0 : 1;
}
