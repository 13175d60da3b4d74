#ifndef TRAIND_LIB_ATTEMPT_EXIT_CODES_H
#define TRAIND_LIB_ATTEMPT_EXIT_CODES_H

// Exit codes of a rank's process and their failure classes. The codes are API.
//
// A rank says why it failed in its last event; where no event came, its exit code is all there is.
// A code that is in no row (a signal, a foreign program) is INTERNAL: that class is retried, and
// its message carries the code. Pure functions, any thread.

#include "lib/base/base.h"

enum td_exit_code {
    TD_EXIT_DONE = 0,
    TD_EXIT_STOPPED = 10,  // agreed stop
    TD_EXIT_BAD_SPEC = 20, // never retried
    TD_EXIT_ABI = 21,
    TD_EXIT_RESOURCE = 30,   // memory
    TD_EXIT_COLLECTIVE = 31, // a peer is gone
    TD_EXIT_DISK = 32,       // no space for a checkpoint
    TD_EXIT_DATA = 40,
    TD_EXIT_NUMERIC = 41,
    TD_EXIT_USER_CODE = 42,
    TD_EXIT_BUG = 70,
};
enum td_class td_exit_code_class(int exit_code); // any other code or a signal: INTERNAL
bool td_exit_code_is_failure(int exit_code);     // it is one of ours, and says that it failed
int td_exit_code_of(enum td_class cls);          // of a failure: never TD_EXIT_DONE, NONE is a bug

#endif
