// The parts of a daemon. Coordinator and node never include each other; here is the only place that
// knows both, and joins them by two functions that pass packed messages (the local transport).

#include "daemon/roles.h"

#include "daemon/coordinator/coordinator.h"
#include "daemon/join.h"
#include "daemon/node/node.h"
#include "daemon/node/shell/planner/inventory.h"
#include "daemon/node/shell/transport.h"
#include "daemon/renewal.h"
#include "lib/base/files/files.h"
#include "lib/base/files/path_rules.h"
#include "lib/base/log.h"
#include "lib/base/machine/proc.h"
#include "lib/job/kind.h"
#include "lib/loop/loop.h"
#include "lib/rpc/client.h"
#include "lib/tls/context.h"
#include "lib/topology/topology.h"
#include "lib/version/version.h"

struct td_parts {
    enum td_daemon_role role;
    int64_t stop_grace_ns;
    struct td_loop *loop;
    struct td_coordinator *coordinator;
    struct td_rpc_channel *channel;
    struct td_renewal *renewal;
    struct td_node_daemon *node;
    void (*on_stopped)(void *arg);
    void *on_stopped_arg;
};

// ---- the local transport's other end ------------------------------------------------------------
static td_status peer_attach(void *ctx,
                             void (*to_node)(const void *packed, size_t bytes, void *arg),
                             void *arg, void **out_link) {
    struct td_coordinator_link *link;
    TD_TRY(td_coordinator_attach(ctx, to_node, arg, &link));
    *out_link = link;
    return TD_OK;
}

static td_status peer_send(void *link, const void *packed, size_t bytes) {
    return td_coordinator_link_send(link, packed, bytes);
}

static void peer_detach(void *link) {
    td_coordinator_detach(link);
}

// ---- start --------------------------------------------------------------------------------------
// Where `traind init` puts them.
static td_status find_certificates(const struct td_config *c, char ca[TD_FS_PATH_BYTES],
                                   char certificate[TD_FS_PATH_BYTES], char key[TD_FS_PATH_BYTES]) {
    TD_TRY(td_fs_path(ca, "%s/tls/ca.pem", c->state_dir));
    TD_TRY(td_fs_path(certificate, "%s/tls/server.pem", c->state_dir));
    TD_TRY(td_fs_path(key, "%s/tls/server.key", c->state_dir));
    bool there = td_fs_exists(ca) && td_fs_exists(certificate) && td_fs_exists(key);
    if (there || !td_rpc_address_needs_tls(c->listen)) return TD_OK;
    return td_status_with_reason(
        td_fail(TD_FAILED_PRECONDITION,
                "--listen %s is not loopback and needs certificates; make them with `traind init "
                "--state-dir %s --host NAME_OR_ADDRESS`, by which nodes and clients will dial it",
                c->listen, c->state_dir),
        "CERTIFICATES_MISSING");
}

static td_status start_coordinator(struct td_parts *p, const struct td_config *c,
                                   const struct td_home *h) {
    char ca[TD_FS_PATH_BYTES], certificate[TD_FS_PATH_BYTES], key[TD_FS_PATH_BYTES];
    TD_TRY(find_certificates(c, ca, certificate, key));
    const struct td_tls_paths tls = {ca, certificate, key};
    const struct td_coordinator_options options = {
        .state_dir = c->state_dir,
        .listen = c->listen,
        .token = h->token,
        .tls = &tls,
        .version = td_version,
        .role = c->role,
        .heartbeat_ns = c->heartbeat_ms * TD_NS_PER_MS,
        .lease_ns = c->lease_ms * TD_NS_PER_MS,
        .lost_after_ns = c->lost_after_ms * TD_NS_PER_MS,
        .stop_grace_ns = c->stop_grace_ms * TD_NS_PER_MS,
        .retention_jobs = (uint32_t)c->retention_jobs,
        .retention_ns = c->retention_days * 24 * 3600 * TD_NS_PER_S,
        .max_connections = (uint32_t)c->max_connections,
        .max_per_source = (uint32_t)c->max_source_connections,
        .max_strangers = (uint32_t)c->max_strangers,
        .first_request_ns = c->first_request_ms * TD_NS_PER_MS,
        .handshake_ns = c->handshake_ms * TD_NS_PER_MS,
        .idle_ns = c->idle_connection_ms * TD_NS_PER_MS,
        .check_ns = c->listener_check_ms * TD_NS_PER_MS,
        .check_after_ms = c->check_after_ms,
        .join_token_ns = c->join_token_s * TD_NS_PER_S,
        .node_certificate_ns = c->node_certificate_s * TD_NS_PER_S,
        .renew_grace_ns = c->renew_grace_s * TD_NS_PER_S,
        .salvage = c->salvage,
    };
    return td_coordinator_create(p->loop, &options, &p->coordinator);
}

// Its credential is its certificate, which it gets now or has since an earlier start.
static td_status join_cluster(struct td_parts *p, const struct td_config *c,
                              const struct td_home *h, struct td_transport **out_transport) {
    struct td_join_files files;
    struct td_inventory who;
    TD_TRY(td_join_find(c->state_dir, &files));
    TD_TRY(td_inventory_identify(c->state_dir, c->name, &who));
    if (!c->has_joined) {
        const struct td_join_options options = {
            .address = c->join, .token = h->token, .node_id = who.node_id, .name = who.name};
        TD_TRY_CTX(td_join(p->loop, &files, &options), "--join %s", c->join);
    }
    const struct td_rpc_channel_options options = {.address = c->coordinator,
                                                   .ca = files.ca,
                                                   .certificate = files.certificate,
                                                   .key = files.key};
    TD_TRY_CTX(td_rpc_channel_create(p->loop, &options, &p->channel), "--join");
    TD_TRY(td_renewal_create(p->loop, p->channel, &files, who.node_id, &p->renewal));
    return td_transport_rpc_create(p->loop, p->channel, out_transport);
}

static td_status make_transport(struct td_parts *p, const struct td_config *c,
                                const struct td_home *h, struct td_transport **out_transport) {
    if (p->coordinator) {
        const struct td_transport_peer peer = {peer_attach, peer_send, peer_detach, p->coordinator};
        return td_transport_local_create(p->loop, &peer, out_transport);
    }
    if (c->has_joined || c->join[0]) return join_cluster(p, c, h, out_transport);
    char ca[TD_FS_PATH_BYTES];
    TD_TRY(td_fs_path(ca, c->ca[0] ? "%s" : "%s/tls/ca.pem", c->ca[0] ? c->ca : c->state_dir));
    bool plain = !c->ca[0] && (!td_rpc_address_needs_tls(c->coordinator) || !td_fs_exists(ca));
    const struct td_rpc_channel_options options = {
        .address = c->coordinator, .token = h->token, .ca = plain ? NULL : ca};
    TD_TRY_CTX(td_rpc_channel_create(p->loop, &options, &p->channel), "--coordinator");
    return td_transport_rpc_create(p->loop, p->channel, out_transport);
}

static unsigned kinds_of(unsigned allowed) {
    return (allowed & TD_ALLOW_COMMANDS ? td_job_kind_bit(TD_KIND_COMMAND) : 0) |
           (allowed & TD_ALLOW_PROGRAMS ? td_job_kind_bit(TD_KIND_PROGRAM) : 0);
}

static td_status start_node(struct td_parts *p, const struct td_config *c, const struct td_home *h,
                            struct td_topology_reading *reading) {
    char bin_dir[4096];
    struct td_transport *transport;
    struct td_topology topology;
    TD_TRY(td_proc_self_dir(bin_dir, sizeof bin_dir));
    TD_TRY(td_topology_reading_await(reading, &topology));
    TD_TRY(make_transport(p, c, h, &transport));
    const struct td_node_options options = {
        .state_dir = c->state_dir,
        .runtime_dir = c->runtime_dir,
        .bin_dir = bin_dir,
        .plugin_dirs = c->plugin_dirs,
        .read_roots = c->read_roots,
        .write_roots = c->write_roots,
        .token_file = c->token_file,
        .kinds = kinds_of(c->allowed),
        .ports = c->ports,
        .collective_interface = c->collective_interface,
        .version = td_version,
        .name = c->name[0] ? c->name : NULL,
        .topology = &topology,
        .slots = (int32_t)c->slots,
        .take_transport = transport,
        .channel = p->channel,
        .orphan_timeout_ns = c->orphan_timeout_s * TD_NS_PER_S,
        .silent_after_ns = c->silent_after_ms * TD_NS_PER_MS,
        .plan_timeout_ns = c->plan_timeout_s * TD_NS_PER_S,
        .measure_after_ns = c->measure_after_ms * TD_NS_PER_MS,
        .gpus = c->gpus,
        .visible_gpus = c->visible_gpus,
        .shares_busy_gpus = strcmp(c->busy_devices, "use") == 0,
        .gpu_timeout_ns = c->gpu_timeout_ms * TD_NS_PER_MS,
        .gpu_idle_ns = c->gpu_idle_after_ms * TD_NS_PER_MS,
        .user_umask = h->user_umask,
    };
    return td_node_daemon_create(p->loop, &options, &p->node);
}

// What this process opens for people, files of checkpoints, whoever asks. A job's processes have
// their own (node/node.c).
static td_status take_path_rules(const struct td_config *c) {
    TD_AUTO_BUF text;
    td_buf_init(&text, TD_PATH_RULES_BYTES);
    const struct td_path_rules rules = {
        .is_owner = true, .state_dir = c->state_dir, .token_file = c->token_file};
    TD_TRY(td_path_rules_print(&rules, &text));
    return td_path_rules_take(td_buf_cstr(&text));
}

td_status td_parts_start(struct td_loop *loop, const struct td_config *c, const struct td_home *h,
                         struct td_parts **out_parts) {
    TD_AUTO(td_parts) *p = td_calloc(1, sizeof *p);
    if (!p) return td_fail_oom();
    p->loop = loop;
    p->role = c->daemon_role;
    p->stop_grace_ns = c->stop_grace_ms * TD_NS_PER_MS;
    bool coordinates = p->role != TD_DAEMON_NODE, trains = p->role != TD_DAEMON_COORDINATOR;
    TD_TRY(take_path_rules(c));
    TD_AUTO(td_topology_reading) *reading = NULL;
    if (trains) TD_TRY_CTX(td_topology_reading_create(&reading), "start the node");
    if (coordinates) TD_TRY_CTX(start_coordinator(p, c, h), "start the coordinator");
    if (trains) TD_TRY_CTX(start_node(p, c, h, reading), "start the node");
    *out_parts = td_steal(p);
    return TD_OK;
}

const char *td_parts_address(const struct td_parts *p) {
    return p->coordinator ? td_coordinator_address(p->coordinator) : NULL;
}

void td_parts_save(struct td_parts *p) {
    if (p->node) {
        td_node_daemon_save(p->node);
    } else {
        td_log_info("asked to save, but a coordinator has no ranks: `trainctl checkpoint create "
                    "JOB` asks those of a job");
    }
}

// ---- stop ---------------------------------------------------------------------------------------
static void stopped(void *arg) {
    struct td_parts *p = arg;
    p->on_stopped(p->on_stopped_arg);
}

void td_parts_stop(struct td_parts *p, void (*on_stopped)(void *arg), void *arg) {
    p->on_stopped = on_stopped;
    p->on_stopped_arg = arg;
    if (p->coordinator) {
        int flags = p->role == TD_DAEMON_ALL ? TD_DRAIN_STOP_ATTEMPTS : 0;
        td_coordinator_drain(p->coordinator, flags, p->stop_grace_ns + 10 * TD_NS_PER_S, stopped,
                             p);
        return;
    }
    td_status failed = td_loop_post(p->loop, stopped, p); // a node leaves its ranks running
    if (failed) {
        td_status_free(failed);
        stopped(p);
    }
}

void td_parts_destroy(struct td_parts *p) {
    if (!p) return;
    td_node_daemon_destroy(p->node); // with its transport, so that the link is detached first
    td_renewal_destroy(p->renewal);
    td_rpc_channel_destroy(p->channel);
    td_coordinator_destroy(p->coordinator);
    free(p);
}
