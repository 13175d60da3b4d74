// See the header. What may stay is copied from the catalog on the loop, before the disk thread
// begins; what arrives later is of later work.

#include "daemon/coordinator/shell/disk/sweep.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/core/catalog/catalog.h"
#include "daemon/coordinator/core/catalog/retain.h"
#include "daemon/coordinator/shell/disk/logs.h"
#include "daemon/coordinator/shell/shell.h"
#include "lib/attempt/checkpoint_name.h"
#include "lib/base/files/files.h"
#include "lib/base/log.h"

struct sweep {
    struct td_disk_job job;
    struct sweep *next; // done by the same job, after this one
    char dir[TD_SHELL_PATH_MAX];
    bool whole; // dir itself goes
    size_t n_keep;
    uint32_t keep[]; // steps
};

// ---- the disk's part ----------------------------------------------------------------------------
static bool remove_tree(const char *path) {
    td_status failed = td_fs_remove_tree(path);
    bool gone = !failed;
    td_status_log(TD_LOG_WARN, failed, "files stay, continuing");
    return gone;
}

static void remove_parts(const char *path) {
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        size_t len = strlen(e->d_name);
        char part[TD_SHELL_PATH_MAX];
        if (len < 6 || strcmp(e->d_name + len - 5, ".part") != 0) continue;
        if ((size_t)snprintf(part, sizeof part, "%s/%s", path, e->d_name) < sizeof part) {
            (void)remove_tree(part);
        }
    }
    if (dir) closedir(dir);
}

static bool keeps(const struct sweep *s, int64_t step) {
    for (size_t i = 0; i < s->n_keep; i++) {
        if (s->keep[i] == step) return true;
    }
    return false;
}

static void sweep_steps(const struct sweep *s) {
    DIR *dir = opendir(s->dir);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        const int64_t step = td_checkpoint_name_step(e->d_name, "");
        char path[TD_SHELL_PATH_MAX];
        if (step < 0) continue;
        if ((size_t)snprintf(path, sizeof path, "%s/%s", s->dir, e->d_name) >= sizeof path) {
            continue;
        }
        if (keeps(s, step)) {
            remove_parts(path);
        } else if (remove_tree(path)) {
            td_log_info("checkpoint files without a row removed dir=\"%s\"", path);
        }
    }
    if (dir) closedir(dir);
}

static void run(struct td_disk_job *job) {
    for (const struct sweep *s = (const struct sweep *)job; s; s = s->next) {
        char dir[TD_SHELL_PATH_MAX];
        if (s->whole) {
            (void)remove_tree(s->dir);
        } else {
            sweep_steps(s);
            (void)rmdir(s->dir); // not if it holds a checkpoint
        }
        snprintf(dir, sizeof dir, "%s", s->dir);
        for (int up = 0; up < 2 - !s->whole; up++) { // to the job's
            *strrchr(dir, '/') = '\0';
            (void)rmdir(dir);
        }
    }
}

static void done(struct td_disk_job *job) {
    struct sweep *s = (struct sweep *)job;
    while (s) {
        struct sweep *next = s->next;
        free(s);
        s = next;
    }
}

static void submit(struct td_coordinator *c, struct sweep *s) {
    if (!s) return;
    s->job = (struct td_disk_job){.run = run, .done = done};
    td_status failed = td_disk_submit(c->disk, &s->job);
    if (!failed) return;
    td_status_log(TD_LOG_WARN, failed, "checkpoint files stay until the next start, continuing");
    done(&s->job);
}

// ---- what may go --------------------------------------------------------------------------------
static struct sweep *make(struct td_coordinator *c, const struct td_job *j, const char *job,
                          uint32_t attempt) {
    size_t n = j ? j->n_checkpoints : 0;
    struct sweep *s = td_calloc(1, sizeof *s + n * sizeof s->keep[0]);
    if (!s) return NULL; // until the next start
    char name[16];
    snprintf(name, sizeof name, "a%u", attempt);
    td_shell_checkpoint_path(c, job, name, NULL, s->dir);
    for (size_t i = 0; i < n; i++) {
        if (j->checkpoints[i]->attempt == attempt) s->keep[s->n_keep++] = j->checkpoints[i]->step;
    }
    return s;
}

void td_sweep_checkpoint(struct td_coordinator *c, const char *job, const char *path) {
    (void)c->roof->end_uploads(job, 0, path);
    struct sweep *s = td_calloc(1, sizeof *s);
    if (!s) return;
    s->whole = true;
    td_shell_checkpoint_path(c, job, path, NULL, s->dir);
    submit(c, s);
}

void td_sweep_attempt(struct td_coordinator *c, const char *job, uint32_t attempt) {
    const struct td_job *j = NULL;
    bool busy = c->roof->end_uploads(job, attempt, NULL);
    td_status_free(td_core_find_job(c->core, job, &j));
    if (!j || j->unlisted) return; // forgotten: td_sweep_job; or more than the catalog can name
    struct sweep *s = make(c, j, job, attempt);
    if (s && !busy && !td_fs_exists(s->dir)) { // nothing was ever streamed: no work for the thread
        free(s);
        return;
    }
    submit(c, s);
}

void td_sweep_all(struct td_coordinator *c) {
    struct sweep *all = NULL;
    uint64_t before = UINT64_MAX;
    const struct td_job *j;
    while ((j = td_core_job_before(c->core, before))) {
        before = j->seq;
        for (uint32_t i = 1; i <= j->n_attempts; i++) {
            const struct td_attempt *a = td_job_attempt(j, i);
            bool over = td_retain_is_over(j, i) && !j->unlisted;
            struct sweep *s = a->stream && over ? make(c, j, j->id, i) : NULL;
            if (s && !td_fs_exists(s->dir)) {
                free(s);
                s = NULL;
            }
            if (!s) continue;
            s->next = all;
            all = s;
        }
    }
    submit(c, all);
}

// ---- a whole job --------------------------------------------------------------------------------
struct leaving {
    struct td_disk_job job;
    struct td_coordinator *c;
    char id[TD_JOB_ID_MAX];
    char logs[TD_SHELL_PATH_MAX];
    char checkpoints[TD_SHELL_PATH_MAX]; // of the job
    bool failed;
    size_t n_streamed;
    uint32_t streamed[]; // attempts
};

static void remove_part(struct leaving *l, const char *path) {
    td_status s = td_fs_exists(path) ? td_fs_remove_tree(path) : TD_OK;
    l->failed |= s != TD_OK;
    td_status_log(TD_LOG_WARN, s, "files of a forgotten job stay, trying again later, continuing");
}

static void leaving_run(struct td_disk_job *job) {
    struct leaving *l = (struct leaving *)job;
    remove_part(l, l->logs);
    for (size_t i = 0; i < l->n_streamed; i++) {
        char path[TD_SHELL_PATH_MAX + 16];
        snprintf(path, sizeof path, "%s/a%u", l->checkpoints, l->streamed[i]);
        remove_part(l, path);
    }
    (void)rmdir(l->checkpoints); // not if an embedded node wrote into it
}

static void leaving_done(struct td_disk_job *job) {
    struct leaving *l = (struct leaving *)job;
    struct td_coordinator *c = l->c;
    if (l->failed) {
        td_core_forgotten(c->core, td_shell_now(), l->id, false);
        td_shell_after(c);
    } else {
        td_databases_forget(c->store, l->id); // on_forgotten follows
    }
    free(l);
}

static td_status make_leaving(struct td_coordinator *c, const char *job, const char *parts,
                              struct leaving **out_leaving) {
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *v = NULL;
    TD_TRY(td_shell_arena(&arena));
    TD_TRY(td_json_parse(arena, parts, strlen(parts), &v));
    const struct td_json *list = td_json_get(v, "streamed");
    size_t n = list ? list->n_children : 0;
    struct leaving *l = td_calloc(1, sizeof *l + n * sizeof l->streamed[0]);
    if (!l) return td_fail_oom();
    l->job = (struct td_disk_job){.run = leaving_run, .done = leaving_done};
    l->c = c;
    snprintf(l->id, sizeof l->id, "%s", job);
    snprintf(l->logs, sizeof l->logs, "%s/logs/%s", c->state_dir, job);
    snprintf(l->checkpoints, sizeof l->checkpoints, "%s/checkpoints/%s", c->state_dir, job);
    for (const struct td_json *e = list ? list->first : NULL; e; e = e->next) {
        l->streamed[l->n_streamed++] = (uint32_t)td_json_int(e, 0);
    }
    *out_leaving = l;
    return TD_OK;
}

void td_sweep_job(struct td_coordinator *c, const char *job, const char *parts) {
    struct leaving *l = NULL;
    td_status s = make_leaving(c, job, parts, &l);
    for (size_t i = 0; !s && i < l->n_streamed; i++) {
        (void)c->roof->end_uploads(job, l->streamed[i], NULL);
    }
    if (!s) s = td_disk_submit(c->disk, &l->job);
    if (!s) return;
    td_status_log(TD_LOG_WARN, s, "what a forgotten job owned stays, trying again, continuing");
    free(l);
    td_core_forgotten(c->core, td_shell_now(), job, false);
    td_shell_after(c);
}
