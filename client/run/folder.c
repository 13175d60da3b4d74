// The folder is refused before anything is planned, and made before that: a place that cannot be
// written is known in a moment. What was made for a job that then cannot be planned goes away
// again. Attempts are numbered by their logs, so no checkpoint is ever written over.

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/run/run.h"
#include "lib/attempt/checkpoint_name.h"

enum { CHECKPOINTS_MAX = 16, FOUND_MAX = 4096, DIR_MAX = TD_FS_PATH_BYTES - 300 };

struct found {
    int attempt;
    int64_t step;
};

// "a12" -> 12; 0 or less: another name.
static int number_of(const char *name) {
    int n = 0, end = 0;
    return sscanf(name, "a%9d%n", &n, &end) == 1 && !name[end] ? n : -1;
}

static int newest_first(const void *a, const void *b) {
    const struct found *x = a, *y = b;
    if (x->attempt != y->attempt) return x->attempt > y->attempt ? -1 : 1;
    return x->step > y->step ? -1 : x->step < y->step;
}

// A manifest is the last file of a checkpoint: with it the checkpoint is whole.
static void find_steps(const struct td_local_run *r, int attempt, struct found *list, size_t *n) {
    char dir[TD_FS_PATH_BYTES];
    snprintf(dir, sizeof dir, "%.*s/checkpoints/a%d", DIR_MAX, r->dir, attempt);
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (*n == FOUND_MAX) { // the newest stay
            qsort(list, *n, sizeof *list, newest_first);
            *n = FOUND_MAX / 2;
        }
        char manifest[TD_FS_PATH_BYTES + 280];
        const int64_t step = td_checkpoint_name_step(e->d_name, "");
        snprintf(manifest, sizeof manifest, "%s/%s/manifest.json", dir, e->d_name);
        if (step >= 0 && td_fs_exists(manifest)) list[(*n)++] = (struct found){attempt, step};
    }
    if (d) closedir(d);
}

static td_status find_checkpoints(struct td_local_run *r) {
    TD_AUTO_FREE struct found *list = td_calloc(FOUND_MAX, sizeof *list);
    size_t n = 0;
    if (!list) return td_fail_oom();
    for (int a = r->attempt - 1; a >= 1; a--) {
        find_steps(r, a, list, &n);
    }
    qsort(list, n, sizeof *list, newest_first);
    r->checkpoints = td_json_new(r->arena, TD_JSON_ARRAY);
    if (!r->checkpoints) return td_fail_oom();
    for (size_t i = 0; i < n && i < CHECKPOINTS_MAX; i++) {
        const char *path =
            td_arena_printf(r->arena, "%s/checkpoints/%s", r->dir,
                            td_checkpoint_path_of((uint32_t)list[i].attempt, list[i].step).text);
        if (!td_json_push(r->checkpoints, td_json_new_string(r->arena, path))) return td_fail_oom();
    }
    return TD_OK;
}

// Attempts are numbered by their logs.
static int32_t next_attempt(const struct td_local_run *r) {
    char dir[TD_FS_PATH_BYTES];
    snprintf(dir, sizeof dir, "%.*s/logs", DIR_MAX, r->dir);
    int32_t next = 1;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        next = TD_MAX(next, number_of(e->d_name) + 1);
    }
    if (d) closedir(d);
    return next;
}

// A place here that cannot be written is wrong usage.
static td_status refuse_place(td_status take_status) {
    td_status usage = td_fail(TD_INVALID_ARGUMENT, "%s; --output-path names another place",
                              td_status_message(take_status));
    td_status_free(take_status);
    return usage;
}

static td_status make_directory(const struct td_local_run *r, const char *name) {
    char path[TD_FS_PATH_BYTES];
    TD_TRY(td_fs_path(path, "%s/%s", r->dir, name));
    td_status s = td_fs_mkdirs(path, 0755);
    return s ? refuse_place(s) : TD_OK;
}

// The folder itself: only who made it may remove it again, so that of two runs at once one is
// refused and leaves the other's alone.
static td_status make_folder(struct td_local_run *r, const char *place) {
    char parent[TD_FS_PATH_BYTES];
    TD_TRY(td_fs_path(parent, "%s", r->dir));
    char *slash = strrchr(parent, '/');
    if (slash && slash > parent) {
        *slash = '\0';
        td_status s = td_fs_mkdirs(parent, 0755);
        if (s) return refuse_place(s);
    }
    r->made = mkdir(r->dir, 0755) == 0;
    if (r->made) return TD_OK;
    if (errno != EEXIST) return refuse_place(td_fs_fail("make directory", r->dir));
    return td_fail(TD_ALREADY_EXISTS,
                   "'%s' is there already: --resume goes on from its newest checkpoint, "
                   "--output-path names another place",
                   place);
}

static td_status make(struct td_local_run *r) {
    static const char *const parts[] = {"checkpoints", "logs", "cache"};
    char path[TD_FS_PATH_BYTES], own[48];
    for (size_t i = 0; i < TD_COUNTOF(parts); i++) {
        TD_TRY(make_directory(r, parts[i]));
    }
    TD_TRY(td_fs_path(path, "%s/lock", r->dir));
    TD_TRY(td_fs_lock(path, "trainctl run", &r->lock_fd));
    r->attempt = next_attempt(r);
    snprintf(own, sizeof own, "logs/a%d", r->attempt);
    TD_TRY(td_fs_path(r->log_dir, "%s/%s", r->dir, own));
    TD_TRY(make_directory(r, own));
    snprintf(own, sizeof own, "checkpoints/a%d", r->attempt);
    TD_TRY(make_directory(r, own));
    return find_checkpoints(r);
}

td_status td_local_run_open_folder(struct td_local_run *r) {
    const char *place = r->out_path ? r->out_path : r->spec.name;
    TD_TRY(td_fs_absolute(place, r->dir, sizeof r->dir));
    if (strlen(r->dir) > DIR_MAX) { // there must be room for what is in it
        return td_fail(TD_INVALID_ARGUMENT, "the folder's path has %zu bytes, %d are the most",
                       strlen(r->dir), DIR_MAX);
    }
    if (!r->resume) {
        TD_TRY(make_folder(r, place));
    } else if (!td_fs_exists(r->dir)) {
        return td_fail(TD_NOT_FOUND, "there is no '%s' to resume in; run without --resume first",
                       place);
    }
    return make(r);
}

void td_local_run_close_folder(struct td_local_run *r, bool keep) {
    if (r->made && !keep) td_status_free(td_fs_remove_tree(r->dir));
    td_auto_close(&r->lock_fd);
    r->lock_fd = -1;
}
