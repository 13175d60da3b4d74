#ifndef TRAIND_DAEMON_COORDINATOR_CORE_CATALOG_BOUNDARIES_H
#define TRAIND_DAEMON_COORDINATOR_CORE_CATALOG_BOUNDARIES_H

// Boundaries: whether all metric points up to a checkpoint are kept, those of other nodes, too.
//
// An attempt that goes on from a checkpoint makes no points before it again. On its own node the
// writer of the checkpoint waits for them (daemon/launcher/boundary.h). An attempt over several
// nodes may lose one of them for good, with points that had not come. So its checkpoint is
// committed when metrics.db has what every rank recorded before it. All ranks save at the same
// boundaries, and count them. A launcher writes a line for each that one of its ranks has passed,
// with the length of the rank's metrics then. A part that is slow delays the commit, and nothing
// else. One that is over and did not say that it passed the boundary makes the checkpoint void: the
// job goes on from the one before, and no step lacks points.
//
// Of the lines of a rank two are remembered: the one that is waited for, and the newest. So what
// is remembered is bounded, and a rank that saves faster than points are stored does not put off
// the first for ever. Pure; plain data of an attempt, durable in its record.
//
// Three are not judged. Of checkpoints in a directory that the nodes share (store: fs) the rank has
// removed the one before by itself. Those that commands register have no boundary. Launchers of
// older builds write no such lines.

#include "daemon/coordinator/core/model/job.h"

enum td_kept {
    TD_KEPT,       // all that was recorded before it is committed
    TD_KEPT_LATER, // it is on its way
    TD_KEPT_NEVER, // some of it is lost
};

// The rank has passed that boundary, when its metrics had so many bytes.
void td_boundary_passed(struct td_rank_cursor *c, uint32_t number, uint64_t metrics);
// Points of the attempt were committed, or their ends are known.
void td_boundaries_look(struct td_attempt *a);
// Of what the ranks recorded before a boundary. *out_part: the one that lacks some, or is slow.
enum td_kept td_boundaries_kept(const struct td_attempt *a, uint32_t number,
                                const struct td_attempt_part **out_part);
// Points are on their way that a boundary waits for.
bool td_boundaries_wait(const struct td_attempt *a);

#endif
