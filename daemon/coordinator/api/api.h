#ifndef TRAIND_DAEMON_COORDINATOR_API_API_H
#define TRAIND_DAEMON_COORDINATOR_API_API_H

// daemon/coordinator/api: the services, one file each. Each handler decodes and checks, asks the
// core, encodes; no policy (shell.h shows the shape of all of them). The loop thread owns all of
// it.
//
// In reading order:
//
//   jobs.c         what people submit, watch and steer
//   job_wanted.h   which jobs a list is of
//   job_place.h    relative paths of a spec, and checkpoints of jobs that it names
//   file_stream.h  bytes of files to a client
//   checkpoints.c  what the catalog holds, and the bytes
//   logs.c         what ranks print, and followers of it
//   metrics.c      points
//   nodes.c        the sessions of nodes, over gRPC or in process (link.h)
//   shards.c       files of checkpoints that nodes send
//   admin.c        the cluster as operators see it
//   issue.h        certificates for requests
//   tokens.c       credentials of people and nodes
//   join.c         how a machine becomes a node, and stays one

#include "daemon/coordinator/shell/shell.h"

struct td_credential;

// ---- api/: each adds its service to the server --------------------------------------------------
TD_MUST_USE td_status td_api_jobs_add(struct td_coordinator *c);
TD_MUST_USE td_status td_api_nodes_add(struct td_coordinator *c);
TD_MUST_USE td_status td_api_shards_add(struct td_coordinator *c);
TD_MUST_USE td_status td_api_metrics_add(struct td_coordinator *c);
TD_MUST_USE td_status td_api_logs_add(struct td_coordinator *c);
TD_MUST_USE td_status td_api_checkpoints_add(struct td_coordinator *c);
TD_MUST_USE td_status td_api_admin_add(struct td_coordinator *c);
TD_MUST_USE td_status td_api_tokens_add(struct td_coordinator *c);
TD_MUST_USE td_status td_api_join_add(struct td_coordinator *c);

// ---- api/tokens.c -------------------------------------------------------------------------------
// NULL: the arena is full.
Traind__V1__Token *td_view_token(struct td_arena *a, const struct td_credential *k);

// ---- api/shards.c -------------------------------------------------------------------------------
// Ends uploads into a checkpoint, or (path NULL) into all of an attempt. True: there was one, and
// the disk may be at it still.
bool td_uploads_end(const char *job, uint32_t attempt, const char *path);

// ---- api/jobs.c ---------------------------------------------------------------------------------
TD_MUST_USE td_status td_planners_create(struct td_planners **out_planners);
void td_planners_destroy(struct td_planners *p);
void td_planners_on_plan(struct td_coordinator *c, uint64_t token, const char *json,
                         td_status take_failure);

// ---- api/logs.c ---------------------------------------------------------------------------------
TD_MUST_USE td_status td_readers_create(struct td_coordinator *c, struct td_readers **out_readers);
void td_readers_destroy(struct td_readers *r);
// Bytes came, or the job moved: who follows it looks again.
void td_readers_wake(struct td_coordinator *c, const char *job);
void td_readers_end_all(struct td_coordinator *c);
// Somebody reads logs of the job.
bool td_readers_have(const struct td_coordinator *c, const char *job);

// ---- api/nodes.c --------------------------------------------------------------------------------
TD_MUST_USE td_status td_sessions_create(struct td_sessions **out_sessions);
void td_sessions_destroy(struct td_sessions *s);
// by: when it must go at the latest. It goes with what else is for that node.
void td_sessions_send(struct td_coordinator *c, uint64_t session,
                      const Traind__V1__CoordinatorMessage *m, struct td_mono by);
// Sends what must go by now.
void td_sessions_flush(struct td_coordinator *c, struct td_mono now);
// When there is something to flush; INT64_MAX: nothing waits.
struct td_mono td_sessions_wake(const struct td_coordinator *c);
// denied: whoever speaks in it may not say what it said. take_status: what its client gets; NULL:
// made of why and denied.
void td_sessions_close(struct td_coordinator *c, uint64_t session, const char *why, bool denied,
                       td_status take_status);
void td_sessions_end_all(struct td_coordinator *c);

#endif
