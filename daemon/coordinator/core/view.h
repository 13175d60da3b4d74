#ifndef TRAIND_DAEMON_COORDINATOR_CORE_VIEW_H
#define TRAIND_DAEMON_COORDINATOR_CORE_VIEW_H

// Jobs, nodes and checkpoints as the messages that clients read. Everything lives in the arena: an
// answer waits for a commit, and the core changes meanwhile. NULL: the arena is full.

#include "daemon/coordinator/core/core.h"
#include "daemon/coordinator/core/page.h"
#include "traind/v1/admin.pb-c.h"
#include "traind/v1/checkpoint.pb-c.h"
#include "traind/v1/job.pb-c.h"

enum td_view_flags { TD_VIEW_SPEC = 1 }; // with spec_json

Traind__V1__Job *td_view_job(struct td_arena *a, const struct td_core *core, const struct td_job *j,
                             struct td_now now, int flags);
Traind__V1__Checkpoint *td_view_checkpoint(struct td_arena *a, const struct td_core *core,
                                           const struct td_job *j, const struct td_checkpoint *c);
// The answer of DeleteJob: where something of it waits for a node.
Traind__V1__DeleteJobResponse *td_view_deleted(struct td_arena *a, const struct td_core *core,
                                               const char *id);
Traind__V1__Node *td_view_node(struct td_arena *a, const struct td_core *core,
                               const struct td_host *n, struct td_now now);
// A page, and the token of the next one. after: the id of the last node seen, which is known; "":
// from the first.
Traind__V1__ListNodesResponse *td_view_nodes(struct td_arena *a, const struct td_core *core,
                                             struct td_now now, struct td_page page,
                                             const char *after);
// Counts, timers and the core's counters; the shell adds what only it knows. Room for n_more
// counters of the shell is left in counters.
Traind__V1__ClusterInfo *td_view_cluster(struct td_arena *a, const struct td_core *core,
                                         size_t n_more);
Traind__V1__ClusterInfo__CountersEntry *td_view_counter(struct td_arena *a, const char *key,
                                                        uint32_t value);
// RFC 3339; "" for 0.
char *td_view_time(struct td_arena *a, int64_t real_ns);

#endif
