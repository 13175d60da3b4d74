#ifndef TRAIND_LIB_JOB_COMMAND_H
#define TRAIND_LIB_JOB_COMMAND_H

// What the spec's check and the launcher agree on about kinds command and program. Some variables
// of a rank's environment are the launcher's: `env` of a spec may not set them. And `env` has
// bounds.
// Constant data and pure functions; any thread.

#include <stdbool.h>
#include <string.h>

enum { TD_COMMAND_ENV_MAX = 256, TD_COMMAND_ENV_BYTES = 64 << 10, TD_COMMAND_ENV_NAME = 255 };

// torchrun's names, and the threads that resources.threads gives.
static const char *const td_command_own_env[] = {
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "NODE_RANK",
    "GROUP_WORLD_SIZE",
    "ROLE_RANK",
    "ROLE_NAME",
    "MASTER_ADDR",
    "ROLE_WORLD_SIZE",
    "MASTER_PORT",
    "OMP_NUM_THREADS",
};

static inline bool td_command_env_is_own(const char *name) {
    if (strncmp(name, "TRAIND_", 7) == 0 || strncmp(name, "TORCHELASTIC_", 13) == 0) return true;
    for (size_t i = 0; i < sizeof td_command_own_env / sizeof *td_command_own_env; i++) {
        if (strcmp(td_command_own_env[i], name) == 0) return true;
    }
    return false;
}

// The GPUs that a rank may use, as CUDA reads them.
#define TD_COMMAND_ENV_GPUS "CUDA_VISIBLE_DEVICES"
static inline bool td_command_env_is_gpus(const char *name) {
    return strcmp(name, TD_COMMAND_ENV_GPUS) == 0;
}

// Letters, digits and '_', no digit first.
static inline bool td_command_env_name_ok(const char *name) {
    size_t len = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789");
    return len > 0 && len <= TD_COMMAND_ENV_NAME && !name[len] && !(*name >= '0' && *name <= '9');
}

#endif
