#ifndef TRAIND_DAEMON_NODE_SHELL_ATTEMPTS_ATTEMPTS_H
#define TRAIND_DAEMON_NODE_SHELL_ATTEMPTS_ATTEMPTS_H

// The attempts of this node, between the core and attempt.h: what the core wants of one is done to
// it, and what happens to it is given to the core.
//
// An attempt that is assigned is prepared (its files, its streams upward, a checkpoint to resume
// from) and launched on cores of its own where there are some. One that was found is made the same
// way, without a launch (adopt.h). Loop thread.
//
// The room, in reading order:
//
//   forward.h        segment files upward, from the offset that was committed
//   rendezvous.h     the rendezvous store, between launchers and coordinator
//   launcher_link.h  the frames to and from one launcher
//   finalize_log.h   completes the log of a launcher that was killed
//   attempt.h        one attempt: its directory, its launcher (started, found, adopted)
//   gpu_samples.c    samples of GPUs, to the launchers of the jobs that have them
//   fence.h          what this daemon does not run must not go on
//   adopt.h          attempts that are here when the node starts

#include "daemon/node/shell/shell.h"

// Nothing is started; assigned is copied.
TD_MUST_USE td_status td_attempts_make(struct td_node_daemon *n,
                                       const struct td_assignment *assigned,
                                       struct td_local_attempt **out_attempt);
// What flows upward; once the assignment is known for sure.
TD_MUST_USE td_status td_attempts_open_streams(struct td_node_daemon *n,
                                               struct td_local_attempt *a);

// START: an action's attempt and assignment. STARTED or FAILED follows, FAILED also from here.
void td_attempts_start(struct td_node_daemon *n, const struct td_node_action *action);
// The reconciler has let go of a job's files: attempts that waited for it go on.
void td_attempts_files_are_free(struct td_node_daemon *n);
void td_attempts_abandon(struct td_node_attempt *a);
// The coordinator holds it, too: it is forwarded from these offsets.
void td_attempts_adopt(struct td_node_attempt *row, const Traind__V1__AttemptCursor *cursor);
// With its files.
void td_attempts_remove(struct td_node_attempt *a);

// New samples of this node's GPUs, for the launchers whose ranks have some of them.
void td_attempts_gpus(const struct td_node_daemon *n, const Traind__V1__GpuList *list);

void td_attempts_down(const struct td_node_daemon *n); // the session is gone
void td_attempts_poke(const struct td_node_daemon *n); // there is room in it again

#endif
