// See the header.

#include "daemon/node/shell/attempts/adopt.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/node/shell/attempts/attempts.h"
#include "lib/base/files/files.h"
#include "lib/base/log.h"

static td_status recover(struct td_node_daemon *n, const char *job, uint32_t attempt) {
    struct td_assignment assigned = {.attempt = attempt};
    snprintf(assigned.job, sizeof assigned.job, "%s", job);
    TD_AUTO(td_local_attempt) *a = NULL;
    TD_TRY(td_attempts_make(n, &assigned, &a));
    td_status s = td_local_attempt_recover(a, n->inventory.boot_id, n->runtime_dir);
    if (td_status_code(s) == TD_NOT_FOUND) { // a start that never came to a launcher
        td_status_free(s);
        td_local_attempt_remove_files(a);
        return TD_OK;
    }
    TD_TRY(s);
    TD_TRY(td_attempts_open_streams(n, a));
    struct td_node_attempt row = {.attempt = attempt,
                                  .epoch = a->assigned.epoch,
                                  .state = a->ended ? TD_AT_ENDED : TD_AT_RUNNING,
                                  .slots = a->assigned.slots,
                                  .n_ranks = a->assigned.n_ranks,
                                  .major = a->major};
    snprintf(row.job, sizeof row.job, "%s", job);
    snprintf(row.build, sizeof row.build, "%s", a->build);
    TD_TRY(td_node_core_found(n->core, &row, &a->core));
    td_log_info("attempt found job=%s attempt=%u state=%s build=%s", job, attempt,
                td_node_attempt_state_name(row.state), row.build);
    a->core->shell = a;
    td_steal(a);
    return TD_OK;
}

static void scan_job(struct td_node_daemon *n, const char *job) {
    char path[TD_FS_PATH_BYTES];
    snprintf(path, sizeof path, "%s/attempts/%s", n->state_dir, job);
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        unsigned attempt;
        int end = 0;
        if (sscanf(e->d_name, "a%9u%n", &attempt, &end) != 1 || e->d_name[end]) continue;
        td_status failed = recover(n, job, attempt);
        if (!failed) continue;
        td_log_error("attempt left as it is dir=%s/%s why=\"%s\", continuing", path, e->d_name,
                     td_status_message(failed));
        td_status_free(failed);
    }
    if (dir) closedir(dir);
    (void)rmdir(path); // empty where a removal was killed after the job's last attempt
}

td_status td_scan(struct td_node_daemon *n) {
    char path[TD_FS_PATH_BYTES];
    TD_TRY(td_fs_path(path, "%s/attempts", n->state_dir));
    TD_TRY(td_fs_mkdirs(path, 0700));
    DIR *dir = opendir(path);
    if (!dir) return td_fs_fail("read directory", path);
    for (struct dirent *e; (e = readdir(dir));) {
        if (e->d_name[0] == '.' || strlen(e->d_name) >= TD_NODE_JOB_MAX) continue;
        scan_job(n, e->d_name);
    }
    closedir(dir);
    return TD_OK;
}
