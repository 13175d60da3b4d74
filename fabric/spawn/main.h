#ifndef TRAIND_FABRIC_SPAWN_MAIN_H
#define TRAIND_FABRIC_SPAWN_MAIN_H

// Main: what td_main (traind/spawn.h) kept of the program, for the calls that spawn; and a rank's
// own side of its results. Constant after td_main, any thread.

#include "traind/spawn.h"

// The arguments of the program, NULL-terminated. FAILED_PRECONDITION: td_main was not called.
// NOT_FOUND: it has no function of that name.
TD_MUST_USE td_status td_main_program(const char *function, const char *const **out_argv);

#endif
