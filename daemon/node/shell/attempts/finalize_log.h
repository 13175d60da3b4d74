#ifndef TRAIND_DAEMON_NODE_SHELL_ATTEMPTS_FINALIZE_LOG_H
#define TRAIND_DAEMON_NODE_SHELL_ATTEMPTS_FINALIZE_LOG_H

// Finalize a log: an attempt whose launcher is surely gone, and with it every rank, is left in
// order. Its log gets the checkpoints that it does not name (unreported_checkpoints.h) and its last
// line, and what a killed rank had half written goes.
//
// The launcher's lock is tried once, because this runs on the loop. LOCK_HELD: somebody has it, for
// a moment or for longer; nothing is done, and the caller tries again. It is a second witness of
// the launcher's end: a caller that saw the process end itself may go on without it in the end.

#include "lib/base/base.h"

struct td_log_end {
    const char *dir;            // of the attempt
    const char *checkpoint_dir; // the attempt's own
    bool rebooted;              // the machine took it down
    uint64_t sent;              // bytes of events.log that the coordinator may have
    bool unlocked;              // do not take the launcher's lock
};
// If events.log ends with launcher_end or launcher_lost, nothing happens; else a half-written line
// is cut and the rest is appended, with fsync. A log is made again that was removed, that is
// shorter than what was sent of it, or of which its launcher said that it is lost. It gets blank
// lines up to what was sent, so that what is appended comes after it and is sent, too. The end
// names the file. out_own: where the lines that were appended begin; UINT64_MAX: there are none.
TD_MUST_USE td_status td_finalize_log(const struct td_log_end *s, uint64_t *out_own);
// The coordinator has committed more of the log than `own`, where the lines begin that were just
// appended. What came between is lost, with the power or because the file was cut. Blank lines take
// its place, so that the appended ones come after what is committed, and are sent.
TD_MUST_USE td_status td_finalize_log_after(const struct td_log_end *s, uint64_t own);
// Removes "step-<n>.tmp" in the attempt's checkpoint directory; an absent directory is fine.
void td_remove_unfinished_checkpoints(const char *checkpoint_dir);

#endif
