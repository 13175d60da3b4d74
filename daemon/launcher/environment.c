// See the header. OMP_PROC_BIND=false: the rank is pinned by affinity, which OpenMP's threads
// inherit; binding again inside would put all threads of an unpinned rank on the same places.

#include "daemon/launcher/environment.h"

#include <string.h>

#include "lib/job/command.h"

static const char *const passed[] = {
    "PATH=",
    "HOME=",
    "LANG=",
    "LC_ALL=",
    "TZ=",
    "TMPDIR=",
    "LD_LIBRARY_PATH=",
    "ASAN_OPTIONS=",
    "LSAN_OPTIONS=",
    "UBSAN_OPTIONS=",
    "TSAN_OPTIONS=",
};

const char *const *td_environment_build(struct td_arena *arena, const char *const *from,
                                        int32_t threads, bool shared_cores, const char *gpus) {
    enum { ADDED = 4 };
    const char **env = td_arena_array(arena, TD_COUNTOF(passed) + ADDED + 1, sizeof *env);
    char *n_threads = td_arena_printf(arena, "OMP_NUM_THREADS=%d", threads);
    char *visible = gpus ? td_arena_printf(arena, TD_COMMAND_ENV_GPUS "=%s", gpus) : NULL;
    if (!env || !n_threads || (gpus && !visible)) return NULL;
    size_t n = 0;
    for (size_t i = 0; i < TD_COUNTOF(passed); i++) {
        for (const char *const *e = from; *e; e++) {
            if (strncmp(*e, passed[i], strlen(passed[i])) != 0) continue;
            env[n++] = *e;
            break;
        }
    }
    env[n++] = n_threads;
    if (visible) env[n++] = visible;
    env[n++] = "OMP_PROC_BIND=false";
    // How long a thread spins for the next parallel region. With the runtime's default
    // (milliseconds) a two-thread mlp fell to about 4k samples/s on a machine whose two cores had a
    // load of 9. With 1000 rounds it fell to 11-17k, sleeping at once (passive) to 36-45k. At
    // real-time priority, in the same hour, passive cost a third and 1000 rounds nothing that the
    // spread would show. Two or three runs each, the load was whatever else ran: an ordering, not
    // figures.
    env[n++] = shared_cores ? "OMP_WAIT_POLICY=passive" : "GOMP_SPINCOUNT=1000";
    return env;
}
