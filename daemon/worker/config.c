// The only getenv of the worker; contract in config.h.

#include "daemon/worker/config.h"

#include <stdlib.h>

const char *td_worker_config_cpu_level(void) {
    const char *level = getenv(TD_WORKER_CPU_LEVEL);
    return level ? level : "";
}
