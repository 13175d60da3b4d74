// The health table of a server. It keeps nothing: what there is to show is asked of the server each
// time, and what a watcher was sent last is its call's user pointer. One whose queue is full is
// brought up to date when it can be written again: latest value, no history.

#include "lib/rpc/health.h"

#include "grpc/health/v1/health.pb-c.h"
#include "lib/rpc/call.h"
#include "lib/rpc/descriptor_set.h"
#include "lib/rpc/server.h"

enum { MAX_SERVICES = 64 };

typedef Grpc__Health__V1__HealthCheckRequest check_request;
typedef Grpc__Health__V1__HealthCheckResponse check_response;
typedef Grpc__Health__V1__HealthCheckResponse__ServingStatus serving_status;

static const serving_status
    serving = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING,
    not_serving = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING,
    service_unknown = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN;

static const serving_status *status_of(const struct td_rpc_server *server, const char *service) {
    if (service[0] && !td_rpc_server_has_service(server, service)) return &service_unknown;
    return td_rpc_server_is_serving(server) ? &serving : &not_serving;
}

static void on_check(struct td_rpc_call *call, const ProtobufCMessage *message, void *ctx) {
    const check_request *request = (const void *)message;
    check_response response = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    response.status = *status_of(ctx, request->service);
    if (response.status == service_unknown) {
        td_rpc_call_finish(
            call, td_status_with_reason(
                      td_fail(TD_NOT_FOUND, "there is no service '%.200s' here", request->service),
                      "SERVICE_UNKNOWN"));
        return;
    }
    td_rpc_call_reply(call, &response.base);
}

static void on_list(struct td_rpc_call *call, const ProtobufCMessage *message, void *ctx) {
    (void)message;
    const struct td_descriptor_set *set = td_rpc_server_borrow_descriptors(ctx);
    Grpc__Health__V1__HealthListResponse list = GRPC__HEALTH__V1__HEALTH_LIST_RESPONSE__INIT;
    Grpc__Health__V1__HealthListResponse__StatusesEntry entry[MAX_SERVICES];
    Grpc__Health__V1__HealthListResponse__StatusesEntry *entries[MAX_SERVICES];
    check_response value = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    value.status = *status_of(ctx, "");
    size_t n_all = TD_MIN(td_descriptor_set_n_services(set), (size_t)MAX_SERVICES - 1);
    list.statuses = entries;
    for (size_t i = 0; i <= n_all; i++) {
        const char *name = i ? td_descriptor_set_service(set, i - 1) : "";
        if (i && !td_rpc_server_has_service(ctx, name)) continue; // of another role
        size_t n = list.n_statuses++;
        grpc__health__v1__health_list_response__statuses_entry__init(&entry[n]);
        entry[n].key = td_unconst(name);
        entry[n].value = &value;
        entries[n] = &entry[n];
    }
    td_rpc_call_reply(call, &list.base);
}

// To a call of Watch, if it was not the last that this one was sent.
static void report(struct td_rpc_call *call, void *ctx) {
    const check_request *request = (const void *)td_rpc_call_request(call);
    const serving_status *now = status_of(ctx, request->service);
    if (td_rpc_call_user(call) == now) return;
    check_response response = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    response.status = *now;
    if (td_rpc_call_send(call, &response.base) == TD_RPC_SEND_REFUSED) return;
    td_rpc_call_set_user(call, td_unconst(now));
}

static void on_watch(struct td_rpc_call *call, const ProtobufCMessage *message, void *ctx) {
    (void)message;
    report(call, ctx);
}

static const struct td_rpc_method rows[] = {
    {
        .service = "grpc.health.v1.Health",
        .method = "Check",
        .kind = TD_RPC_UNARY,
        .open = true,
        .own_calls = 64, // whose message has not come, or whose answer is not taken
        .yields = true,
        .request = &grpc__health__v1__health_check_request__descriptor,
        .response = &grpc__health__v1__health_check_response__descriptor,
        .on_call = on_check,
    },
    {
        .service = "grpc.health.v1.Health",
        .method = "List",
        .kind = TD_RPC_UNARY,
        .request = &grpc__health__v1__health_list_request__descriptor,
        .response = &grpc__health__v1__health_list_response__descriptor,
        .on_call = on_list,
    },
    {
        .service = "grpc.health.v1.Health",
        .method = "Watch",
        .kind = TD_RPC_SERVER_STREAM,
        .open = true,
        .request = &grpc__health__v1__health_check_request__descriptor,
        .response = &grpc__health__v1__health_check_response__descriptor,
        .on_call = on_watch,
        .on_writable = report,
        .on_serving = report,
    },
};

td_status td_rpc_health_add(struct td_rpc_server *server) {
    return td_rpc_server_add(server, rows, TD_COUNTOF(rows), server);
}
