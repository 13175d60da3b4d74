#ifndef TRAIND_DAEMON_COORDINATOR_SHELL_WATCH_H
#define TRAIND_DAEMON_COORDINATOR_SHELL_WATCH_H

// Watchers of jobs (JobService/WatchJob).
//
// A watcher gets the job as it is, then each durable change in order, and between them the latest
// progress, at most ten times a second. A token is "<incarnation>:<event number>". A client that
// comes back with one gets the changes that were missed, from a ring of the last TD_WATCH_RING
// events of all jobs. What the ring has lost, or another incarnation made, is OUT_OF_RANGE
// TOKEN_EXPIRED: watch again without a token. The stream ends well after a terminal state. Bounds:
// as many watchers as caps.def says. One that stops reading is skipped for progress; when its queue
// cannot take a durable change either, it is ended; lib/rpc cuts it off by the age of a send.

#include "lib/base/base.h"

enum { TD_WATCH_RING = 1024 };

struct td_coordinator;
struct td_rpc_call;
struct td_watchers;

TD_MUST_USE td_status td_watchers_create(struct td_coordinator *c, struct td_watchers **out_w);
void td_watchers_destroy(struct td_watchers *w);
// A new call. token "" or NULL: from now.
TD_MUST_USE td_status td_watchers_add(struct td_watchers *w, struct td_rpc_call *call,
                                      const char *job, const char *token);
void td_watchers_remove(struct td_watchers *w, struct td_rpc_call *call);
// A durable change that is on disk now; packed: the Job as it was then.
void td_watchers_event(struct td_watchers *w, uint64_t event, const char *job, const char *packed,
                       size_t bytes);
void td_watchers_progress(struct td_watchers *w, const char *job);
// The queue moved: who watches a job that waits gets it again, once a second at most, if its reason
// differs or its position by a digit that counts (td_queue_reason_mark).
void td_watchers_queue(struct td_watchers *w);
// The job was deleted: NOT_FOUND JOB_DELETED for those that have not seen its end.
void td_watchers_forget(struct td_watchers *w, const char *job);
// UNAVAILABLE DRAINING for all.
void td_watchers_end_all(struct td_watchers *w);
size_t td_watchers_count(const struct td_watchers *w);
bool td_watchers_have(const struct td_watchers *w, const char *job);

#endif
