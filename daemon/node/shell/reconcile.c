// See the header. Directories are opened one below the other with openat and O_NOFOLLOW, and names
// are built from numbers. Two texts of a message become a part of a path: the job's id, which is
// checked, and checkpoint.dir, which is where the job's ranks wrote.

#include "daemon/node/shell/reconcile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/node/shell/assignment.h"
#include "daemon/node/shell/tree_removal.h"
#include "lib/attempt/checkpoint_name.h"
#include "lib/base/log.h"
#include "lib/base/printable.h"
#include "lib/rpc/loop.h"

enum { td_reconciler_magic = 0x5243434e, MAX_WAITING = 64, WHY_BYTES = 160, JOB_BYTES = 64 };

struct work {
    struct work *next;
    Traind__V1__Reconcile *m; // owned
    char dir[1024];           // <checkpoint.dir>/<job>; "": there is none
    size_t at;                // of m->over
    uint32_t removed;
    bool answered;           // and the answer found no room
    bool removing;           // its tree is going
    char failure[WHY_BYTES]; // why something stays; "": nothing does
};

struct td_reconciler {
    uint32_t magic;
    struct td_reconciler_options o;
    struct td_loop_timer *timer;
    struct td_tree_removal *tree;
    struct work *first;
    uint32_t n;
};

// ---- one step's directory -----------------------------------------------------------------------
static int open_dir(int at, const char *name) {
    return openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

typedef bool name_fn(const char *name);

static bool any(const char *name) {
    (void)name;
    return true;
}

// Regular files with names that `goes` takes.
static void clear_dir(int fd, name_fn *goes) {
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    DIR *dir = copy >= 0 ? fdopendir(copy) : NULL;
    if (!dir && copy >= 0) close(copy);
    if (dir) rewinddir(dir); // the copy is where fd was read to
    for (struct dirent *e; dir && (e = readdir(dir));) {
        struct stat st;
        if (!goes(e->d_name)) continue;
        if (fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode)) continue;
        (void)unlinkat(fd, e->d_name, 0); // its directory says if it stayed
    }
    if (dir) closedir(dir);
}

static bool remove_step(const struct work *w, int attempt_fd, const char *attempt, const char *name,
                        bool half) {
    int fd = open_dir(attempt_fd, name);
    if (fd < 0) return false;
    clear_dir(fd, half ? any : td_checkpoint_file_written); // a half one: nobody else knows it
    close(fd);
    if (unlinkat(attempt_fd, name, AT_REMOVEDIR) == 0) {
        td_log_info("checkpoint removed dir=\"%s/%s/%s\", the catalog does not have it", w->dir,
                    attempt, name);
        return true;
    }
    td_log_warn("directory of a checkpoint stays dir=\"%s/%s/%s\" why=\"%s\", continuing", w->dir,
                attempt, name,
                errno == ENOTEMPTY || errno == EEXIST
                    ? "it holds files that are not of a checkpoint"
                    : strerror(errno));
    return false;
}

static bool is_kept(const struct work *w, uint32_t attempt, unsigned step) {
    char path[64];
    snprintf(path, sizeof path, "a%u/step-%u", attempt, step);
    for (size_t i = 0; i < w->m->n_checkpoints; i++) {
        if (strcmp(w->m->checkpoints[i]->path, path) == 0) return true;
    }
    return false;
}

// ---- one attempt's directory --------------------------------------------------------------------
static void sweep_steps(struct work *w, int fd, uint32_t attempt, const char *label) {
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    DIR *dir = copy >= 0 ? fdopendir(copy) : NULL;
    if (!dir && copy >= 0) close(copy);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        unsigned step;
        int end = 0;
        if (sscanf(e->d_name, "step-%9u%n", &step, &end) != 1 || !end) continue;
        bool half = strcmp(e->d_name + end, ".tmp") == 0;
        if (!half && (e->d_name[end] || is_kept(w, attempt, step))) continue;
        w->removed += remove_step(w, fd, label, e->d_name, half);
    }
    if (dir) closedir(dir);
}

static void sweep_attempt(struct work *w, const char *state_dir, uint32_t attempt) {
    char label[16];
    snprintf(label, sizeof label, "a%u", attempt);
    int job_fd = w->m->keep_checkpoints ? -1 : open_dir(AT_FDCWD, w->dir);
    int fd = job_fd >= 0 ? open_dir(job_fd, label) : -1;
    if (fd >= 0) {
        sweep_steps(w, fd, attempt, label);
        if (w->m->results) clear_dir(fd, td_checkpoint_result_written);
        close(fd);
        (void)unlinkat(job_fd, label, AT_REMOVEDIR); // unless something is kept in it
    }
    if (job_fd >= 0) close(job_fd);
    if (!w->m->forgotten) return;
    char left[TD_FS_PATH_BYTES]; // of one that could not be adopted
    td_status s = td_fs_path(left, "%s/attempts/%s/%s", state_dir, w->m->job, label);
    if (!s) s = td_fs_remove_tree(left);
    td_status_log(TD_LOG_WARN, s, "attempt's directory stays, continuing");
}

// What loggers wrote beside the checkpoints (daemon/launcher/logger.h); other files stay.
static void sweep_logs(const struct work *w) {
    int job_fd = open_dir(AT_FDCWD, w->dir), fd = job_fd >= 0 ? open_dir(job_fd, "logs") : -1;
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        bool ours = strncmp(e->d_name, "metrics.csv", strlen("metrics.csv")) == 0 ||
                    strncmp(e->d_name, "events.out.tfevents.", strlen("events.out.tfevents.")) == 0;
        if (ours) (void)unlinkat(fd, e->d_name, 0);
    }
    if (dir) {
        closedir(dir);
    } else if (fd >= 0) {
        close(fd);
    }
    if (job_fd < 0) return;
    (void)unlinkat(job_fd, "logs", AT_REMOVEDIR);
    close(job_fd);
}

// ---- what the catalog has, is it here? ----------------------------------------------------------
static bool look_at(const char *dir, const Traind__V1__CatalogedCheckpoint *c,
                    char why[WHY_BYTES]) {
    for (size_t i = 0; i < c->n_files; i++) {
        const Traind__V1__CatalogedFile *f = c->files[i];
        char path[TD_FS_PATH_BYTES];
        struct stat st;
        if (!td_checkpoint_file_ok(f->name)) continue;
        if (snprintf(path, sizeof path, "%s/%s/%s", dir, c->path, f->name) >= (int)sizeof path) {
            continue;
        }
        bool there = lstat(path, &st) == 0;
        if (!there && errno != ENOENT && errno != ENOTDIR) continue; // proves nothing
        if (!there || !S_ISREG(st.st_mode)) {
            snprintf(why, WHY_BYTES, "%s is gone", f->name);
            return false;
        }
        if (f->bytes && (uint64_t)st.st_size != f->bytes) {
            snprintf(why, WHY_BYTES, "%s has %jd bytes, expected %" PRIu64, f->name,
                     (intmax_t)st.st_size, f->bytes);
            return false;
        }
    }
    return true;
}

struct report {
    Traind__V1__MissingCheckpoint row;
    char why[WHY_BYTES];
};

static void look(const struct work *w, struct report *rows, Traind__V1__MissingCheckpoint **list,
                 Traind__V1__Reconciled *out) {
    for (size_t i = 0; i < w->m->n_checkpoints; i++) {
        const Traind__V1__CatalogedCheckpoint *c = w->m->checkpoints[i];
        struct report *r = &rows[out->n_missing];
        if (!c->here || !td_checkpoint_path_ok(c->path) || look_at(w->dir, c, r->why)) continue;
        td_log_warn("checkpoint is missing job=%s path=%s why=\"%s\", continuing", w->m->job,
                    c->path, r->why);
        traind__v1__missing_checkpoint__init(&r->row);
        r->row.path = c->path;
        r->row.why = r->why;
        list[out->n_missing++] = &r->row;
    }
    out->missing = list;
}

// ---- the queue ----------------------------------------------------------------------------------
static void free_work(struct work *w) {
    traind__v1__reconcile__free_unpacked(w->m, NULL);
    free(w);
}

// Held: whatever it is doing, its end comes here first. One that is prepared may be fetching.
static bool is_busy(const struct td_reconciler *r, const struct work *w) {
    const struct td_node_attempt *a;
    for (size_t i = 0; (a = td_node_core_attempt(r->o.core, i)); i++) {
        if (strcmp(a->job, w->m->job) != 0) continue;
        if (a->state == TD_AT_PREPARING) return true;
        for (size_t k = 0; k < w->m->n_over; k++) {
            if (w->m->over[k] == a->attempt) return true;
        }
    }
    return false;
}

static bool answer(struct td_reconciler *r, struct work *w) {
    size_t n = w->m->n_checkpoints + 1;
    TD_AUTO_FREE struct report *rows = td_calloc(n, sizeof *rows);
    TD_AUTO_FREE Traind__V1__MissingCheckpoint **list =
        td_calloc(n, sizeof(Traind__V1__MissingCheckpoint *));
    char failure[WHY_BYTES];
    Traind__V1__Reconciled m = TRAIND__V1__RECONCILED__INIT;
    snprintf(failure, sizeof failure, "%s", w->failure);
    int fd = open_dir(AT_FDCWD, w->dir);
    if (fd < 0 && errno != ENOENT && errno != ENOTDIR) {
        snprintf(failure, sizeof failure, "open the job's checkpoints: %s", strerror(errno));
    } else if (w->m->directory[0] && w->dir[0] && w->m->n_checkpoints &&
               td_assignment_is_away(w->dir)) {
        snprintf(failure, sizeof failure, "the file system of checkpoint.dir may not be mounted");
    } else if (!rows || !list) {
        snprintf(failure, sizeof failure, "out of memory");
    } else {
        look(w, rows, list, &m);
    }
    if (fd >= 0) close(fd);
    m.request = w->m->request;
    m.job = w->m->job;
    m.removed = w->removed;
    m.failure = failure;
    Traind__V1__NodeMessage up = TRAIND__V1__NODE_MESSAGE__INIT;
    up.body_case = TRAIND__V1__NODE_MESSAGE__BODY_RECONCILED;
    up.reconciled = &m;
    return r->o.send(&up, r->o.arg);
}

// A quote would end the field of the log.
static td_status add_name(struct td_buf *names, const char *name) {
    for (;;) {
        size_t n = strcspn(name, "\"");
        TD_TRY(td_printable_add(names, name, n, ""));
        if (!name[n]) return TD_OK;
        TD_TRY(td_buf_str(names, "\\x22"));
        name += n + 1;
    }
}

// What is left in the directory of a forgotten job, which may be a million files: the first ones.
static void list_left(const struct work *w) {
    enum { NAMED = 10 };
    TD_AUTO_BUF names;
    td_buf_init(&names, 16 << 10);
    size_t n = 0;
    td_status s = TD_OK;
    int fd = open_dir(AT_FDCWD, w->dir);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir && fd >= 0) close(fd);
    for (struct dirent *e; dir && !s && n <= NAMED && (e = readdir(dir));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        if (n++ == NAMED) break;
        if (n > 1) s = td_buf_str(&names, ", ");
        if (!s) s = add_name(&names, e->d_name);
    }
    if (dir) closedir(dir);
    td_status_free(s);
    if (!n) return;
    td_log_info("files of a forgotten job stay job=%s dir=\"%s\" names=\"%s%s\"", w->m->job, w->dir,
                td_buf_cstr(&names), n > NAMED ? " and more" : "");
}

// Of a job that was forgotten: what is no attempt's. True: it is done.
static bool sweep_job(struct td_reconciler *r, struct work *w) {
    char attempts[TD_FS_PATH_BYTES];
    td_status failed = TD_OK;
    (void)snprintf(attempts, sizeof attempts, "%s/attempts/%s", r->o.state_dir, w->m->job);
    (void)rmdir(attempts);
    if (w->m->keep_checkpoints || !w->dir[0]) return true;
    if (!w->m->own_directory) {
        sweep_logs(w);
        if (rmdir(w->dir) != 0 && errno == ENOTEMPTY) list_left(w);
        return true;
    }
    w->removing = !td_tree_removal_done(r->tree, w->dir, &failed);
    if (failed) snprintf(w->failure, sizeof w->failure, "%s", td_status_message(failed));
    td_status_log(TD_LOG_WARN, failed, "the directory of a deleted program stays, continuing");
    return !w->removing;
}

// A part of it; true: it is done.
static bool advance(struct td_reconciler *r, struct work *w) {
    if (w->at < w->m->n_over) {
        sweep_attempt(w, r->o.state_dir, w->m->over[w->at++]);
        return false;
    }
    if (w->m->forgotten && !w->failure[0] && !sweep_job(r, w)) return false;
    w->answered = !answer(r, w);
    return !w->answered;
}

static void on_timer(void *arg) {
    struct td_reconciler *r = TD_CAST(td_reconciler, arg);
    for (struct work **at = &r->first; *at; at = &(*at)->next) {
        struct work *w = *at;
        if (w->answered || w->removing || is_busy(r, w)) continue;
        if (advance(r, w)) {
            *at = w->next;
            r->n--;
            free_work(w);
        }
        if (r->first) td_loop_timer_arm(r->timer, 0);
        return;
    }
}

// One of them goes on, and the next that waits for the thread.
static void on_removed(void *arg) {
    struct td_reconciler *r = TD_CAST(td_reconciler, arg);
    for (struct work *w = r->first; w; w = w->next) {
        w->removing = false;
    }
    if (r->first) td_loop_timer_arm(r->timer, 0);
}

void td_reconciler_poke(struct td_reconciler *r) {
    for (struct work *w = r->first; w; w = w->next) {
        w->answered = false;
    }
    if (r->first) td_loop_timer_arm(r->timer, 0);
}

void td_reconciler_clear(struct td_reconciler *r) {
    while (r->first) {
        struct work *w = r->first;
        r->first = w->next;
        free_work(w);
    }
    r->n = 0;
}

// ---- in -----------------------------------------------------------------------------------------
static bool job_ok(const char *job) {
    return job[0] && job[0] != '.' && strlen(job) < JOB_BYTES && !strchr(job, '/');
}

static Traind__V1__Reconcile *copy(const Traind__V1__Reconcile *m) {
    size_t bytes = traind__v1__reconcile__get_packed_size(m);
    TD_AUTO_FREE uint8_t *packed = malloc(bytes + 1);
    if (!packed) return NULL;
    traind__v1__reconcile__pack(m, packed);
    return traind__v1__reconcile__unpack(NULL, bytes, packed);
}

void td_reconciler_submit(struct td_reconciler *r, const Traind__V1__Reconcile *m) {
    if (!job_ok(m->job)) return;
    struct work *w = r->n < MAX_WAITING ? td_calloc(1, sizeof *w) : NULL;
    if (!w) return;
    td_status s =
        td_assignment_checkpoints(m->directory, r->o.state_dir, m->job, w->dir, sizeof w->dir);
    if (s) w->dir[0] = '\0'; // too long: no attempt was taken, so nothing is there
    td_status_free(s);
    w->m = copy(m);
    if (!w->m) { // no memory: the next session asks again
        free(w);
        return;
    }
    struct work **at = &r->first;
    while (*at) {
        at = &(*at)->next;
    }
    *at = w;
    r->n++;
    td_loop_timer_arm(r->timer, 0);
}

td_status td_reconciler_create(const struct td_reconciler_options *o,
                               struct td_reconciler **out_reconciler) {
    struct td_reconciler *r = td_calloc(1, sizeof *r);
    if (!r) return td_fail_oom();
    r->magic = td_reconciler_magic;
    r->o = *o;
    td_status s = td_loop_timer_create(o->loop, on_timer, r, &r->timer);
    if (!s) s = td_tree_removal_create(o->loop, on_removed, r, &r->tree);
    if (s) {
        td_reconciler_destroy(r);
        return s;
    }
    *out_reconciler = r;
    return TD_OK;
}

void td_reconciler_destroy(struct td_reconciler *r) {
    if (!r) return;
    td_reconciler_clear(r);
    td_tree_removal_destroy(r->tree);
    td_loop_timer_destroy(r->timer);
    r->magic = 0;
    free(r);
}
