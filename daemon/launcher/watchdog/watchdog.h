#ifndef TRAIND_DAEMON_LAUNCHER_WATCHDOG_WATCHDOG_H
#define TRAIND_DAEMON_LAUNCHER_WATCHDOG_WATCHDOG_H

// Watchdog: reads the heartbeat of each rank (silence.h), and says in events.log which one is
// silent and when it beats again. Ranks wait for each other, so all of a group fall silent
// together. The one to blame is one whose process is stopped. Else it is the one that entered the
// fewest collectives, or of these the one that has been silent longest.
//
// A rank that stays silent for the stuck timeout ends the attempt, class stuck. Every rank is asked
// for its stack (SIGQUIT, if it has a handler: fabric/signals/fatal.c), which goes into its log.
// All are killed TD_WATCHDOG_STACKS_S later unless it beats by then. A stopped process cannot
// answer, and the message says so. Thread: the launcher's.
//
// The room:
//
//   silence.h   whether a rank beats
//   lost.h      files that were removed, replaced or cut, by file.h, whether a file is still the
//               one that was opened
//   killed.h    who sent a SIGKILL that is not ours

#include "lib/base/base.h"

enum { TD_WATCHDOG_STACKS_S = 2, TD_WATCHDOG_START_S = 20 * 60 };

struct td_launcher;
// At each look of the launcher.
void td_watchdog_look(struct td_launcher *l, struct td_mono now);

#endif
