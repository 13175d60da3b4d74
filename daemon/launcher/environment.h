#ifndef TRAIND_DAEMON_LAUNCHER_ENVIRONMENT_H
#define TRAIND_DAEMON_LAUNCHER_ENVIRONMENT_H

// The environment of a rank: a short list of names that pass, and what traind adds. Everything
// else of the daemon's surroundings stays outside, so that a job runs the same from a login shell,
// a unit file or a batch script.

#include "lib/base/arena.h"

// NULL-terminated, from the arena; NULL when it is full. shared_cores: idle threads give way. gpus:
// all that CUDA may use; NULL: the variable is left out.
const char *const *td_environment_build(struct td_arena *arena, const char *const *from,
                                        int32_t threads, bool shared_cores, const char *gpus);

#endif
