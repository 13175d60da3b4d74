// The only getenv of fabric, the worker and libtraind's programs; contract in config.h. A status
// has one owner, so what failed is kept as code and text, and made again for each caller.

#include "fabric/config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clip.h"

static struct {
    char text[TD_RANK_ENV_BYTES]; // the plan's path is within it
    bool is_rank;
    struct td_rank_env env;
    int call_fd;
    enum td_code failed;
    char why[512];
} here = {.call_fd = -1};
static pthread_once_t once = PTHREAD_ONCE_INIT;

// A variable that was copied to another process names what is not open there, or another's.
static td_status keep_descriptors(const struct td_rank_env *e) {
    const struct {
        const char *name;
        int fd;
    } fds[] = {{"page_fd", e->page_fd},
               {"events_fd", e->events_fd},
               {"group_fd", e->group_fd},
               {"store_fd", e->store_fd},
               {"results_fd", e->results_fd}};
    for (size_t i = 0; i < TD_COUNTOF(fds); i++) {
        if (fds[i].fd < 0 || fcntl(fds[i].fd, F_SETFD, FD_CLOEXEC) == 0) continue;
        return td_fail_errno(TD_FAILED_PRECONDITION,
                             TD_RANK_ENV " names descriptor %d as %s, which was handed to another "
                                         "process: unset " TD_RANK_ENV,
                             fds[i].fd, fds[i].name);
    }
    return TD_OK;
}

static td_status take(void) {
    const char *value = getenv(TD_RANK_ENV);
    if (!value) return TD_OK;
    size_t len = strlen(value);
    if (len >= sizeof here.text) {
        return td_fail(TD_RESOURCE_EXHAUSTED, TD_RANK_ENV " has %zu bytes, at most %zu can be", len,
                       sizeof here.text - 1);
    }
    memcpy(here.text, value, len + 1);
    if (unsetenv(TD_RANK_ENV) != 0) return td_fail_errno(TD_INTERNAL, "unset " TD_RANK_ENV);
    TD_TRY(td_rank_env_parse(here.text, &here.env));
    TD_TRY(keep_descriptors(&here.env));
    here.is_rank = true;
    return TD_OK;
}

static td_status take_call(void) {
    const char *value = getenv(TD_SPAWN_ENV);
    if (!value) return TD_OK;
    char *end;
    errno = 0;
    long fd = strtol(value, &end, 10);
    if (errno || end == value || *end || fd < 0 || fd > INT_MAX) {
        return td_fail(TD_INVALID_ARGUMENT,
                       TD_SPAWN_ENV " is '%.32s', not a descriptor; td_spawn sets it, so unset it",
                       value);
    }
    if (unsetenv(TD_SPAWN_ENV) != 0) return td_fail_errno(TD_INTERNAL, "unset " TD_SPAWN_ENV);
    if (!here.is_rank || fcntl((int)fd, F_SETFD, FD_CLOEXEC) != 0) {
        return td_fail(TD_FAILED_PRECONDITION,
                       TD_SPAWN_ENV " was handed to another process: unset it");
    }
    here.call_fd = (int)fd;
    return TD_OK;
}

static void take_once(void) {
    td_status s = take();
    if (!s) s = take_call();
    here.failed = td_status_code(s);
    if (s) (void)td_clip(here.why, sizeof here.why, "%s", td_status_message(s));
    td_status_free(s);
}

td_status td_fabric_env(const struct td_rank_env **out_env) {
    (void)pthread_once(&once, take_once);
    if (here.failed) return td_fail(here.failed, "%s", here.why);
    *out_env = here.is_rank ? &here.env : NULL;
    return TD_OK;
}

const char *td_fabric_cpu_level(void) {
    const char *level = getenv(TD_CPU_LEVEL_ENV);
    return level ? level : "";
}

const char *td_fabric_nvml_file(void) {
    const char *file = getenv("TRAIND_NVML");
    return file ? file : "";
}

td_status td_fabric_check_launcher(void) {
    static const struct {
        const char *variable, *launcher;
    } others[] = {{"TORCHELASTIC_RUN_ID", "torchrun"},
                  {"SLURM_STEP_NUM_TASKS", "srun"},
                  {"OMPI_COMM_WORLD_SIZE", "mpirun"},
                  {"PMI_SIZE", "mpiexec"}};
    for (size_t i = 0; i < TD_COUNTOF(others); i++) {
        const char *value = getenv(others[i].variable);
        const bool is_alone = !value || (i > 0 && strcmp(value, "1") == 0);
        if (is_alone) continue;
        return td_status_with_class(
            td_fail(
                TD_FAILED_PRECONDITION,
                "%s started this process as one of several ranks (%s=%s), which libtraind cannot "
                "join; start it once and let it start its ranks by td_spawn (traind/spawn.h), or "
                "submit it "
                "as a job of kind: program",
                others[i].launcher, others[i].variable, value),
            TD_CLASS_BAD_SPEC);
    }
    return TD_OK;
}

td_status td_fabric_call_fd(int *out_fd) {
    const struct td_rank_env *e;
    TD_TRY(td_fabric_env(&e));
    *out_fd = here.call_fd;
    return TD_OK;
}

const char *td_fabric_temp_dir(void) {
    const char *dir = getenv("TMPDIR");
    return dir && *dir == '/' ? dir : "/tmp";
}
