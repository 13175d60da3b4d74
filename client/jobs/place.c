// See the header.

#include "client/jobs/place.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/machine/proc.h"

td_status td_client_place_find(const char *home, struct td_client_place *out_place) {
    struct td_client_place p = {0};
    TD_TRY(td_proc_boot_id(p.boot_id));
    if (!getcwd(p.directory, sizeof p.directory) || p.directory[0] != '/') p.directory[0] = '\0';
    if (home && home[0] == '/' && strlen(home) < sizeof p.home) {
        snprintf(p.home, sizeof p.home, "%s", home);
    }
    *out_place = p;
    return TD_OK;
}

// "data.npz:x" is an array of a file.
static bool is_there(const char *path) {
    char file[TD_FS_PATH_BYTES];
    static const char end[] = ".npz";
    if (access(path, F_OK) == 0) return true;
    const int whole = errno;
    const char *colon = strrchr(path, ':');
    const size_t len = colon ? (size_t)(colon - path) : 0;
    const bool is_array = len >= sizeof end && len < sizeof file &&
                          strncmp(colon - (sizeof end - 1), end, sizeof end - 1) == 0;
    if (is_array) {
        snprintf(file, sizeof file, "%.*s", (int)len, path);
        if (access(file, F_OK) == 0) return true;
    }
    errno = whole;
    return false;
}

td_status td_client_place_look(const char *key, const char *given, const char *path) {
    if (is_there(path)) return TD_OK;
    const bool may_be_job = strcmp(key, "init_from") == 0 || strcmp(key, "ckpt_path") == 0;
    if (may_be_job && !strchr("/.~", given[0])) {
        return td_fail_errno(
            TD_INVALID_ARGUMENT,
            "%s: '%s' is no checkpoint of a job, which is JOB, JOB/best, JOB/last or "
            "JOB/a1/step-N; as a path it is '%s' here",
            key, given, path);
    }
    return td_fail_errno(TD_INVALID_ARGUMENT, "%s: '%s' is '%s' here", key, given, path);
}
