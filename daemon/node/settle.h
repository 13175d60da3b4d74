#ifndef TRAIND_DAEMON_NODE_SETTLE_H
#define TRAIND_DAEMON_NODE_SETTLE_H

// Settle: an attempt whose launcher is surely gone, and with it every rank, is left in order: its
// log gets the checkpoints that it does not name (untold.h) and its last line, and what a killed
// rank had half written goes.

#include "lib/base/base.h"

// If events.log in dir ends with launcher_end or launcher_lost, nothing happens; else a
// half-written line is cut and the rest is appended, with fsync. checkpoint_dir: the attempt's own.
// rebooted: the machine took it down. out_own: where the lines that were appended begin;
// UINT64_MAX: there are none.
TD_MUST_USE td_status td_settle(const char *dir, const char *checkpoint_dir, bool rebooted,
                                uint64_t *out_own);
// The coordinator has committed more of the log than `own`, where the lines begin that were just
// appended: the disk has lost what came between, because the power failed before it was written.
// Blank lines take its place, so that the appended ones come behind what is committed, and are
// sent.
TD_MUST_USE td_status td_settle_behind(const char *dir, uint64_t own, uint64_t committed);
// Removes "step-<n>.tmp" in the attempt's checkpoint directory; an absent directory is fine.
void td_settle_checkpoints(const char *checkpoint_dir);

#endif
