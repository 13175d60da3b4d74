#ifndef TRAIND_DAEMON_LAUNCHER_ENDING_H
#define TRAIND_DAEMON_LAUNCHER_ENDING_H

// Ending: what it means that a rank has exited, and that all have. Classes are decided here, once:
// what the rank said in its last event counts first, then the signal, then the exit code.
//
// A worker that exits with code 0 has said before that it is done, by its last event or by the
// phase in its page. One that has closed its socket still has the page. Otherwise code of a plugin
// ended the process in the middle, which is a failure of that code. Code 10 may also follow a stop
// word. Programs and commands say all this with their exit code.

#include "daemon/launcher/state.h"

struct td_rank_ending {
    enum td_class cls; // NONE: as it should
    char code[24];     // "DATA_LOSS"; "" if NONE
    char message[TD_EVENT_TEXT_BYTES];
};
// because: what it was killed for, where why alone does not say it; else "".
void td_rank_ending(const struct td_launch_rank *r, enum td_launch_kill why, const char *because,
                    struct td_rank_ending *out);
// Writes rank_exit (fsync) and remembers the first to blame. True: the rank failed.
bool td_launcher_note_exit(struct td_launcher *l, int32_t idx);
// Writes launcher_end (fsync).
void td_launcher_note_end(struct td_launcher *l);

#endif
