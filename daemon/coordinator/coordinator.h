#ifndef TRAIND_DAEMON_COORDINATOR_COORDINATOR_H
#define TRAIND_DAEMON_COORDINATOR_COORDINATOR_H

// The coordinator: jobs, nodes, catalog, metrics, and the API that people and nodes speak to.
//
//   core/      no I/O: (state, event, now) becomes records and actions. Begin with core.h
//   shell/     databases, files, clocks: gives the core its events. Begin with shell.h
//   api/       one file per service: decode, ask the core, encode; no policy. Begin with api.h
//   actions.h  carries out what the core asks for
//
// One loop thread owns everything here. Start order: databases, core loaded from them (the
// incarnation number counts up), server bound, then health says SERVING. Stop order: drain, then
// destroy. A coordinator that dies loses nothing that it acknowledged: ranks go on, nodes forward
// what happened meanwhile from the offsets it had committed.

#include "daemon/coordinator/api/link.h"
#include "lib/base/base.h"

struct td_coordinator;
struct td_loop;
struct td_tls_paths;

// Strings are copied. Zero means the default.
struct td_coordinator_options {
    const char *state_dir; // exists, locked by the caller
    const char *listen;    // "HOST:PORT"; port 0 picks one
    const char *token;     // the owner's bearer token
    // For a listen that is not loopback (lib/rpc/server_options.h); may be NULL.
    const struct td_tls_paths *tls;
    const char *version;         // of this build
    const char *role;            // "all" or "coordinator", shown in ClusterInfo
    int64_t heartbeat_ns;        // 3 s: how often a node must speak
    int64_t lease_ns;            // 10 s: silence after which a node counts as LOST
    int64_t lost_after_ns;       // 60 s: more silence after which its attempts are given up
    uint32_t retention_jobs;     // 10000: ended jobs that are kept
    int64_t retention_ns;        // how long after their end; 0: for ever
    int64_t stop_grace_ns;       // 60 s: for a stop with a checkpoint, then SIGKILL
    int64_t join_token_ns;       // 15 min: a join token's life
    int64_t node_certificate_ns; // 24 h: a node's certificate's
    int64_t renew_grace_ns;      // 7 d: after its end it can still be renewed; less than 1 s: never
    // Of the server (lib/rpc/server.h); 0: its defaults.
    uint32_t max_connections, max_per_source, max_strangers;
    int64_t first_request_ns, handshake_ns, idle_ns, check_ns;
    int64_t check_after_ms; // the databases are checked then, and each day; 0: never
    bool salvage;           // start with what is readable of state.db: salvage.h
};

// Serves when it returns. Errors: UNAVAILABLE (database, address), DATA_LOSS (a database that is
// not one, or of a newer schema), FAILED_PRECONDITION ADDRESS_NOT_LOOPBACK, RESOURCE_EXHAUSTED.
TD_MUST_USE td_status td_coordinator_create(struct td_loop *loop,
                                            const struct td_coordinator_options *options,
                                            struct td_coordinator **out_coordinator);
// Commits what is pending, closes everything. Links must be detached before. Accepts NULL.
void td_coordinator_destroy(struct td_coordinator *c);
TD_DEFINE_AUTO(td_coordinator, td_coordinator_destroy);

// "127.0.0.1:41234"; dies with the coordinator.
const char *td_coordinator_address(const struct td_coordinator *c);

enum td_coordinator_drain_flags {
    // Stop the attempts of the embedded node with a checkpoint; their jobs go back to QUEUED with
    // reason DAEMON_STOPPED. Without it ranks are left running.
    TD_DRAIN_STOP_ATTEMPTS = 1,
};
// Starts nothing more, then ends calls; on_drained comes once, from the loop: everything stopped
// and committed, or timeout_ns passed. The caller destroys after it.
void td_coordinator_drain(struct td_coordinator *c, int flags, int64_t timeout_ns,
                          void (*on_drained)(void *arg), void *arg);

#endif
