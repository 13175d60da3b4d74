// AdminService and NodeAdminService: the cluster as operators see it, and what they decide about
// its nodes. Numbers come from the core and the process, and pass the gate like every answer, so
// nobody is shown a state that a crash could take back.

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/coordinator/api/api.h"
#include "daemon/coordinator/core/model/hosts.h"
#include "daemon/coordinator/core/plans/offers.h"
#include "daemon/coordinator/shell/access/access.h"
#include "daemon/coordinator/shell/watch.h"

// What a method answers, in the arena; NULL: the arena is full.
typedef const ProtobufCMessage *view_fn(struct td_arena *a, struct td_coordinator *c,
                                        const ProtobufCMessage *request);

// take_refused: what is wrong with the request.
static void answer(struct td_rpc_call *call, struct td_coordinator *c, td_status take_refused,
                   view_fn *view, const ProtobufCMessage *request) {
    struct td_arena *arena = NULL;
    td_status s = take_refused ? take_refused : td_shell_arena(&arena);
    if (s) {
        td_shell_fail(c, call, s);
    } else {
        td_shell_reply(c, call, arena, view(arena, c, request));
    }
}

// These lists are whole where no number of rows is asked for.
static struct td_page page_of(uint32_t rows, size_t all) {
    struct td_page page = td_page_of(rows);
    if (!rows) page.most = all;
    return page;
}

// What its certificate says of a node that joined.
static bool add_member(struct td_arena *a, struct td_coordinator *c, Traind__V1__Node *n) {
    const struct td_credential *m =
        td_credential_table_get(td_access_borrow_credentials(c), TD_CREDENTIAL_MEMBER, n->id);
    if (!m) return true;
    n->certificate_end_time = td_view_time(a, m->expire_ns);
    if (m->revoke_ns) n->state = TRAIND__V1__NODE__STATE__REVOKED;
    return n->certificate_end_time;
}

static const ProtobufCMessage *view_nodes(struct td_arena *a, struct td_coordinator *c,
                                          const ProtobufCMessage *request) {
    const Traind__V1__ListNodesRequest *r = (const Traind__V1__ListNodesRequest *)request;
    const struct td_page page = page_of(r->page_size, TD_CORE_MAX_NODES);
    Traind__V1__ListNodesResponse *m =
        td_view_nodes(a, c->core, td_shell_now(), page, r->page_token);
    for (size_t i = 0; m && i < m->n_nodes; i++) {
        if (!add_member(a, c, m->nodes[i])) return NULL;
    }
    return m ? &m->base : NULL;
}

static void list_nodes(struct td_rpc_call *call, const ProtobufCMessage *request, void *ctx) {
    struct td_coordinator *c = TD_CAST(td_coordinator, ctx);
    const Traind__V1__ListNodesRequest *r = (const Traind__V1__ListNodesRequest *)request;
    const bool is_known = !r->page_token[0] || td_nodes_find(c->core, r->page_token);
    answer(call, c, is_known ? TD_OK : td_page_bad_token(), view_nodes, request);
}

// "p<number of the first row>"; "": all of them. False: it is none.
static bool read_row(const char *token, size_t *out_first) {
    char rest;
    *out_first = 0;
    return !token[0] || sscanf(token, "p%zu%c", out_first, &rest) == 1;
}

// The page of them that begins at a row.
static const ProtobufCMessage *view_plugins(struct td_arena *a, struct td_coordinator *c,
                                            const ProtobufCMessage *request) {
    const Traind__V1__ListPluginsRequest *r = (const Traind__V1__ListPluginsRequest *)request;
    Traind__V1__ListPluginsResponse *m = td_view_plugins(a, c->core);
    size_t first;
    if (!m || !read_row(r->page_token, &first)) return NULL; // it was judged before
    struct td_page page = page_of(r->page_size, m->n_plugins);
    first = TD_MIN(first, m->n_plugins);
    size_t end = first;
    while (end < m->n_plugins && td_page_takes(&page, &m->plugins[end]->base)) {
        end++;
    }
    if (end < m->n_plugins) m->next_page_token = td_arena_printf(a, "p%zu", end);
    m->plugins += first;
    m->n_plugins = end - first;
    return m->next_page_token ? &m->base : NULL;
}

static void list_plugins(struct td_rpc_call *call, const ProtobufCMessage *request, void *ctx) {
    struct td_coordinator *c = TD_CAST(td_coordinator, ctx);
    const Traind__V1__ListPluginsRequest *r = (const Traind__V1__ListPluginsRequest *)request;
    size_t first;
    answer(call, c, read_row(r->page_token, &first) ? TD_OK : td_page_bad_token(), view_plugins,
           request);
}

enum { N_MORE = 9 };

static bool add_counters(struct td_arena *a, struct td_coordinator *c, Traind__V1__ClusterInfo *m) {
    struct td_rpc_connections connections = td_rpc_server_connections(c->server);
    const struct {
        const char *key;
        uint32_t value;
    } more[] = {
        {"rejected_calls", c->rejected_calls},
        {"watches", (uint32_t)td_watchers_count(c->watchers)},
        {"calls", (uint32_t)td_rpc_server_n_calls(c->server)},
        {"commit_us", (uint32_t)(td_databases_commit_ns(c->store) / 1000)},
        {"handshakes_failed", connections.handshakes_failed},
        {"handshakes_late", connections.handshakes_late},
        {"connections_refused", connections.refused},
        {"connections_replaced", connections.replaced},
        {"connections_cut", connections.cut},
    };
    _Static_assert(TD_COUNTOF(more) == N_MORE, "the message has room for these");
    for (size_t i = 0; i < TD_COUNTOF(more); i++) {
        m->counters[m->n_counters] = td_view_counter(a, more[i].key, more[i].value);
        if (!m->counters[m->n_counters++]) return false;
    }
    return true;
}

// False: the arena is full.
static bool add_certificate(struct td_arena *a, const struct td_coordinator *c,
                            Traind__V1__ClusterInfo *m) {
    int64_t until_s = td_rpc_server_certificate_until_s(c->server);
    int64_t left_s = until_s - td_real_now().ns / TD_NS_PER_S;
    if (until_s == INT64_MAX) return true;
    m->certificate_end_time = td_view_time(a, until_s * TD_NS_PER_S);
    if (left_s >= TD_RPC_CERTIFICATE_WARN_S || !m->certificate_end_time) {
        return m->certificate_end_time;
    }
    char *text =
        td_arena_printf(a, "the certificate of this address %s %s: run `traind init` again",
                        left_s < 0 ? "has ended on" : "ends on", m->certificate_end_time);
    if (text) m->troubles[m->n_troubles++] = text;
    return text;
}

static bool add_troubles(struct td_arena *a, const struct td_coordinator *c,
                         Traind__V1__ClusterInfo *m) {
    m->troubles = td_arena_array(a, c->n_damages + 1, sizeof *m->troubles);
    for (size_t i = 0; m->troubles && i < c->n_damages; i++) {
        m->troubles[m->n_troubles++] = c->damages[i];
    }
    return m->troubles && add_certificate(a, c, m);
}

static const ProtobufCMessage *view_cluster(struct td_arena *a, struct td_coordinator *c,
                                            const ProtobufCMessage *request) {
    (void)request;
    Traind__V1__ClusterInfo *m = td_view_cluster(a, c->core, N_MORE);
    if (!m || !add_counters(a, c, m) || !add_troubles(a, c, m)) return NULL;
    m->version = c->version;
    m->role = c->role;
    m->state_dir = c->state_dir;
    m->address = td_arena_strdup(a, td_rpc_server_address(c->server));
    m->pid = (uint32_t)getpid();
    m->uptime_s = (double)(td_mono_now().ns - c->started.ns) / 1e9;
    return m->address ? &m->base : NULL;
}

static void get_cluster_info(struct td_rpc_call *call, const ProtobufCMessage *request, void *ctx) {
    answer(call, TD_CAST(td_coordinator, ctx), TD_OK, view_cluster, request);
}

// ---- what operators decide ----------------------------------------------------------------------
enum { REASON_BYTES = TD_CORDON_REASON_BYTES - 1 };

static td_status reply_node(struct td_coordinator *c, struct td_rpc_call *call,
                            const struct td_host *n) {
    struct td_arena *arena = NULL;
    TD_TRY(td_shell_arena(&arena));
    Traind__V1__Node *m = td_view_node(arena, c->core, n, td_shell_now());
    const bool whole = m && add_member(arena, c, m);
    if (m) td_rpc_call_set_object(call, m->id);
    td_shell_reply_changed(c, call, arena, whole ? &m->base : NULL);
    return TD_OK;
}

static td_status check_reason(const char *reason) {
    if (strlen(reason) <= REASON_BYTES) return TD_OK;
    return td_shell_bad_field("reason", "it has %zu bytes, and may have %d", strlen(reason),
                              REASON_BYTES);
}

static td_status cordon(struct td_coordinator *c, struct td_rpc_call *call, const char *node,
                        const char *reason, bool drains) {
    const struct td_host *n = NULL;
    const struct td_core_cordon request = {
        .node = node, .by = td_access_caller(c, call).name, .reason = reason, .drains = drains};
    td_rpc_call_set_object(call, node);
    TD_TRY(td_shell_writable(c));
    TD_TRY(check_reason(reason));
    td_status s = td_core_cordon(c->core, td_shell_now(), &request, &n);
    td_shell_after(c);
    return s ? s : reply_node(c, call, n);
}

static void cordon_node(struct td_rpc_call *call, const ProtobufCMessage *request, void *ctx) {
    struct td_coordinator *c = TD_CAST(td_coordinator, ctx);
    const Traind__V1__CordonNodeRequest *r = (const Traind__V1__CordonNodeRequest *)request;
    td_status s = cordon(c, call, r->node, r->reason, false);
    if (s) td_shell_fail(c, call, s);
}

static void drain_node(struct td_rpc_call *call, const ProtobufCMessage *request, void *ctx) {
    struct td_coordinator *c = TD_CAST(td_coordinator, ctx);
    const Traind__V1__DrainNodeRequest *r = (const Traind__V1__DrainNodeRequest *)request;
    td_status s = cordon(c, call, r->node, r->reason, true);
    if (s) td_shell_fail(c, call, s);
}

static void uncordon_node(struct td_rpc_call *call, const ProtobufCMessage *request, void *ctx) {
    struct td_coordinator *c = TD_CAST(td_coordinator, ctx);
    const Traind__V1__UncordonNodeRequest *r = (const Traind__V1__UncordonNodeRequest *)request;
    const struct td_host *n = NULL;
    td_rpc_call_set_object(call, r->node);
    td_status s = td_shell_writable(c);
    if (!s) s = td_core_uncordon(c->core, td_shell_now(), r->node, &n);
    td_shell_after(c);
    if (!s) s = reply_node(c, call, n);
    if (s) td_shell_fail(c, call, s);
}

static void label_node(struct td_rpc_call *call, const ProtobufCMessage *request, void *ctx) {
    struct td_coordinator *c = TD_CAST(td_coordinator, ctx);
    const Traind__V1__LabelNodeRequest *r = (const Traind__V1__LabelNodeRequest *)request;
    const struct td_host *n = NULL;
    td_rpc_call_set_object(call, r->node);
    td_status s = td_shell_writable(c);
    if (!s) {
        s = td_core_label_node(c->core, td_shell_now(), r->node, r->changes, r->n_changes, &n);
    }
    td_shell_after(c);
    if (!s) s = reply_node(c, call, n);
    if (s) td_shell_fail(c, call, s);
}

static void disable_device(struct td_rpc_call *call, const ProtobufCMessage *request, void *ctx) {
    struct td_coordinator *c = TD_CAST(td_coordinator, ctx);
    const Traind__V1__DisableDeviceRequest *r = (const Traind__V1__DisableDeviceRequest *)request;
    const struct td_host *n = NULL;
    const struct td_core_device wanted = {.node = r->node,
                                          .device = r->device,
                                          .by = td_access_caller(c, call).name,
                                          .reason = r->reason};
    td_rpc_call_set_object(call, r->node);
    td_status s = td_shell_writable(c);
    if (!s) s = check_reason(r->reason);
    if (!s) s = td_core_disable_device(c->core, td_shell_now(), &wanted, &n);
    td_shell_after(c);
    if (!s) s = reply_node(c, call, n);
    if (s) td_shell_fail(c, call, s);
}

static void enable_device(struct td_rpc_call *call, const ProtobufCMessage *request, void *ctx) {
    struct td_coordinator *c = TD_CAST(td_coordinator, ctx);
    const Traind__V1__EnableDeviceRequest *r = (const Traind__V1__EnableDeviceRequest *)request;
    const struct td_host *n = NULL;
    td_rpc_call_set_object(call, r->node);
    td_status s = td_shell_writable(c);
    if (!s) s = td_core_enable_device(c->core, td_shell_now(), r->node, r->device, &n);
    td_shell_after(c);
    if (!s) s = reply_node(c, call, n);
    if (s) td_shell_fail(c, call, s);
}

#define DECIDES(name, request_type, fn)                                                            \
    {                                                                                              \
        .service = "traind.v1.NodeAdminService", .method = name, .role = TD_ROLE_OPERATOR,         \
        .changes = true, .kind = TD_RPC_UNARY,                                                     \
        .request = &traind__v1__##request_type##__descriptor,                                      \
        .response = &traind__v1__node__descriptor, .on_call = fn                                   \
    }

static const struct td_rpc_method rows[] = {
    {.service = "traind.v1.NodeAdminService",
     .method = "ListNodes",
     .role = TD_ROLE_VIEWER,
     .kind = TD_RPC_UNARY,
     .request = &traind__v1__list_nodes_request__descriptor,
     .response = &traind__v1__list_nodes_response__descriptor,
     .on_call = list_nodes},
    {.service = "traind.v1.NodeAdminService",
     .method = "ListPlugins",
     .role = TD_ROLE_VIEWER,
     .kind = TD_RPC_UNARY,
     .request = &traind__v1__list_plugins_request__descriptor,
     .response = &traind__v1__list_plugins_response__descriptor,
     .on_call = list_plugins},
    DECIDES("CordonNode", cordon_node_request, cordon_node),
    DECIDES("UncordonNode", uncordon_node_request, uncordon_node),
    DECIDES("DrainNode", drain_node_request, drain_node),
    DECIDES("LabelNode", label_node_request, label_node),
    DECIDES("DisableDevice", disable_device_request, disable_device),
    DECIDES("EnableDevice", enable_device_request, enable_device),
    {.service = "traind.v1.AdminService",
     .method = "GetClusterInfo",
     .role = TD_ROLE_VIEWER,
     .kind = TD_RPC_UNARY,
     .request = &traind__v1__get_cluster_info_request__descriptor,
     .response = &traind__v1__cluster_info__descriptor,
     .on_call = get_cluster_info},
};

td_status td_api_admin_add(struct td_coordinator *c) {
    return td_access_add_rows(c, rows, TD_COUNTOF(rows));
}
