// The health table of one server, and its watchers.
//
// A watcher is a call whose user pointer says what it was sent last. A change is sent to those
// whose service it concerns. One whose queue is full is brought up to date when it can be written
// again: latest value, no history.

#include "lib/rpc/health.h"

#include <stdio.h>
#include <string.h>

#include "grpc/health/v1/health.pb-c.h"
#include "lib/rpc/call.h"
#include "lib/rpc/server_private.h"

enum { MAX_SERVICES = 64, MAX_NAME = 128 };

typedef Grpc__Health__V1__HealthCheckRequest check_request;
typedef Grpc__Health__V1__HealthCheckResponse check_response;
typedef Grpc__Health__V1__HealthCheckResponse__ServingStatus serving_status;

#define SERVING         GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
#define NOT_SERVING     GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING
#define SERVICE_UNKNOWN GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN

struct known {
    char name[MAX_NAME];
    serving_status status;
};

struct watcher {
    struct watcher *next;
    struct watcher **link; // what points here
    struct td_rpc_call *call;
    serving_status reported;
    bool reported_any;
};

struct td_rpc_health {
    struct known known[MAX_SERVICES];
    size_t n_known;
    bool serving; // what the owner of the server says
    bool deaf;    // what the check of its listener says
    struct watcher *watchers;
};

static struct known *find(struct td_rpc_health *h, const char *service) {
    for (size_t i = 0; i < h->n_known; i++) {
        if (strcmp(h->known[i].name, service) == 0) return &h->known[i];
    }
    return NULL;
}

static void report(struct td_rpc_health *h, struct watcher *w) {
    const check_request *request = (const void *)td_rpc_call_request(w->call);
    const struct known *k = find(h, request->service);
    serving_status now = k ? k->status : SERVICE_UNKNOWN;
    if (w->reported_any && w->reported == now) return;
    check_response response = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    response.status = now;
    if (td_rpc_call_send(w->call, &response.base) == TD_RPC_SEND_REFUSED) return;
    w->reported = now;
    w->reported_any = true;
}

static void report_all(struct td_rpc_health *h) {
    for (struct watcher *w = h->watchers; w; w = w->next) {
        report(h, w);
    }
}

static bool set_one(struct td_rpc_health *h, const char *service, serving_status status) {
    struct known *k = find(h, service);
    if (!k) {
        if (h->n_known == MAX_SERVICES || strlen(service) >= MAX_NAME) return false;
        k = &h->known[h->n_known++];
        snprintf(k->name, sizeof k->name, "%s", service);
    } else if (k->status == status) {
        return false;
    }
    k->status = status;
    return true;
}

static void show(struct td_rpc_health *h) {
    for (size_t i = 0; i < h->n_known; i++) {
        h->known[i].status = h->serving && !h->deaf ? SERVING : NOT_SERVING;
    }
    report_all(h);
}

void td_rpc_health_set_all(struct td_rpc_server *server, bool serving) {
    server->health->serving = serving;
    show(server->health);
}

void td_rpc_health_set_deaf(struct td_rpc_server *server, bool deaf) {
    server->health->deaf = deaf;
    show(server->health);
}

bool td_rpc_health_is_serving(const struct td_rpc_server *server) {
    return find(server->health, "")->status == SERVING;
}

void td_rpc_health_know(struct td_rpc_server *server, const char *service) {
    struct td_rpc_health *h = server->health;
    if (h && !find(h, service)) set_one(h, service, NOT_SERVING);
}

bool td_rpc_health_knows(const struct td_rpc_server *server, const char *service) {
    return find(server->health, service) != NULL;
}

// ---- handlers ---------------------------------------------------------------------------------

static void on_check(struct td_rpc_call *call, const ProtobufCMessage *message, void *ctx) {
    const check_request *request = (const void *)message;
    const struct known *k = find(ctx, request->service);
    if (!k) {
        td_rpc_call_finish(
            call, td_status_with_reason(
                      td_fail(TD_NOT_FOUND, "there is no service '%.200s' here", request->service),
                      "SERVICE_UNKNOWN"));
        return;
    }
    check_response response = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    response.status = k->status;
    td_rpc_call_reply(call, &response.base);
}

static void on_list(struct td_rpc_call *call, const ProtobufCMessage *message, void *ctx) {
    (void)message;
    struct td_rpc_health *h = ctx;
    Grpc__Health__V1__HealthListResponse list = GRPC__HEALTH__V1__HEALTH_LIST_RESPONSE__INIT;
    Grpc__Health__V1__HealthListResponse__StatusesEntry entry[MAX_SERVICES];
    Grpc__Health__V1__HealthListResponse__StatusesEntry *entries[MAX_SERVICES];
    check_response value[MAX_SERVICES];
    for (size_t i = 0; i < h->n_known; i++) {
        grpc__health__v1__health_check_response__init(&value[i]);
        grpc__health__v1__health_list_response__statuses_entry__init(&entry[i]);
        value[i].status = h->known[i].status;
        entry[i].key = h->known[i].name;
        entry[i].value = &value[i];
        entries[i] = &entry[i];
    }
    list.statuses = entries;
    list.n_statuses = h->n_known;
    td_rpc_call_reply(call, &list.base);
}

static void on_watch(struct td_rpc_call *call, const ProtobufCMessage *message, void *ctx) {
    (void)message;
    struct td_rpc_health *h = ctx;
    struct watcher *w = td_calloc(1, sizeof *w);
    if (!w) {
        td_rpc_call_finish(call, td_fail_oom());
        return;
    }
    *w = (struct watcher){.next = h->watchers, .link = &h->watchers, .call = call};
    if (w->next) w->next->link = &w->next;
    h->watchers = w;
    td_rpc_call_set_user(call, w);
    report(h, w);
}

static void on_watch_writable(struct td_rpc_call *call, void *ctx) {
    report(ctx, td_rpc_call_user(call));
}

static void on_watch_done(struct td_rpc_call *call, void *ctx) {
    (void)ctx;
    struct watcher *w = td_rpc_call_user(call);
    if (!w) return;
    *w->link = w->next;
    if (w->next) w->next->link = w->link;
    free(w);
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
        .on_writable = on_watch_writable,
        .on_done = on_watch_done,
    },
};

td_status td_rpc_health_create(struct td_rpc_server *server, struct td_rpc_health **out_health) {
    struct td_rpc_health *self = td_calloc(1, sizeof *self);
    if (!self) return td_fail_oom();
    *out_health = self; // the server's: its destroy frees it, also after an error below
    set_one(self, "", NOT_SERVING);
    return td_rpc_server_add_rows(server, rows, TD_COUNTOF(rows), self, true);
}

void td_rpc_health_destroy(struct td_rpc_health *health) {
    if (!health) return;
    TD_CHECK(!health->watchers);
    free(health);
}
