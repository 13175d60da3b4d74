#ifndef TRAIND_DAEMON_LAUNCHER_BOUNDARY_H
#define TRAIND_DAEMON_LAUNCHER_BOUNDARY_H

// Boundary: which metric points of the ranks are kept when one of them writes a checkpoint.
//
// All ranks save at the same boundaries of their loops and count them in their pages, whoever of
// them writes the files. What a rank pushed into its ring before is of the steps up to there. Once
// each rank has passed the boundary of a checkpoint, and the rings were drained after that, its
// points are kept. The writer waits for that (td_rank_page_ask_drain); a rank that is late holds it
// up. Where the spec has loggers, their files are to have these points, too: the next attempt does
// not make them again. A directory that hangs is waited for once, a second. Of ranks on other nodes
// nobody here knows. Where there are some, each boundary becomes a line of events.log, with the
// length of the rank's metrics file. The coordinator waits for all of them
// (daemon/coordinator/core/catalog/boundaries.h). Numbers in a page are the rank's word: a wrong
// one holds up its own job's checkpoints. Thread: the launcher's only one.

#include "daemon/launcher/state.h"

// Drains the rings of all ranks that live, writes lines, answers who waits. Call it often.
void td_launcher_drain_metrics(struct td_launcher *l);
// The ring of this rank was drained after its page said `passed`.
void td_launcher_note_boundary(struct td_launcher *l, int32_t idx, uint32_t passed);

#endif
