// See the header. `struct work` is the thread's while `lane` runs it, else the loop's.
//
// Directories are opened one below the other with openat and O_NOFOLLOW, and names
// are built from numbers. Two texts of a message become a part of a path: the job's id, which is
// checked, and checkpoint.dir, which is where the job's ranks wrote.

#include "daemon/node/shell/shards/reconcile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/node/shell/assignment/assignment.h"
#include "daemon/node/shell/disk_work.h"
#include "lib/attempt/checkpoint_name.h"
#include "lib/base/log.h"
#include "lib/base/printable.h"
#include "lib/loop/loop.h"

enum { td_reconciler_magic = 0x5243434e, MAX_WAITING = 64, WHY_BYTES = 160, JOB_BYTES = 64 };

struct report {
    Traind__V1__MissingCheckpoint row;
    char why[WHY_BYTES];
};

struct work {
    struct work *next;
    Traind__V1__Reconcile *m;        // owned
    char dir[1024];                  // <checkpoint.dir>/<job>; "": there is none
    char attempts[TD_FS_PATH_BYTES]; // <state>/attempts/<job>
    uint32_t removed;
    bool is_done;            // by the thread
    bool answered;           // and the answer found no room
    bool forgotten;          // its session has gone, while the thread was at it
    char failure[WHY_BYTES]; // why something stays, or is not known; "": nothing does
    struct report *reports;  // owned, as the next
    Traind__V1__MissingCheckpoint **missing;
    size_t n_missing;
};

struct lane {
    struct td_disk_work *thread; // NULL: idle
    struct work *work;           // that it is at
};

// What is below checkpoint.dir of a spec waits for nobody's disk but that one's.
enum { OWN, GIVEN, N_LANES };

struct td_reconciler {
    uint32_t magic;
    struct td_reconciler_options o;
    struct td_loop_timer *timer;
    struct lane lanes[N_LANES];
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

static bool is_kept(const struct work *w, uint32_t attempt, int64_t step) {
    const struct td_checkpoint_name path = td_checkpoint_path_of(attempt, step);
    for (size_t i = 0; i < w->m->n_checkpoints; i++) {
        if (strcmp(w->m->checkpoints[i]->path, path.text) == 0) return true;
    }
    return false;
}

// ---- one attempt's directory --------------------------------------------------------------------
static void sweep_steps(struct work *w, int fd, uint32_t attempt, const char *label) {
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    DIR *dir = copy >= 0 ? fdopendir(copy) : NULL;
    if (!dir && copy >= 0) close(copy);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        const bool half = td_checkpoint_name_step(e->d_name, TD_CHECKPOINT_HALF) >= 0;
        const int64_t step = td_checkpoint_name_step(e->d_name, "");
        if (!half && (step < 0 || is_kept(w, attempt, step))) continue;
        w->removed += remove_step(w, fd, label, e->d_name, half);
    }
    if (dir) closedir(dir);
}

static void sweep_attempt(struct work *w, uint32_t attempt) {
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
    td_status s = td_fs_path(left, "%s/%s", w->attempts, label);
    if (!s) s = td_fs_remove_tree(left);
    td_status_log(TD_LOG_WARN, s, "attempt's directory stays, continuing");
}

// What loggers wrote beside the checkpoints (daemon/launcher/loggers/logger.h); other files stay.
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

static td_status look(struct work *w) {
    w->reports = td_calloc(w->m->n_checkpoints + 1, sizeof *w->reports);
    w->missing = td_calloc(w->m->n_checkpoints + 1, sizeof(Traind__V1__MissingCheckpoint *));
    if (!w->reports || !w->missing) return td_fail_oom();
    for (size_t i = 0; i < w->m->n_checkpoints; i++) {
        const Traind__V1__CatalogedCheckpoint *c = w->m->checkpoints[i];
        struct report *r = &w->reports[w->n_missing];
        if (!c->here || !td_checkpoint_path_ok(c->path) || look_at(w->dir, c, r->why)) continue;
        td_log_warn("checkpoint is missing job=%s path=%s why=\"%s\", continuing", w->m->job,
                    c->path, r->why);
        traind__v1__missing_checkpoint__init(&r->row);
        r->row.path = c->path;
        r->row.why = r->why;
        w->missing[w->n_missing++] = &r->row;
    }
    return TD_OK;
}

static td_status look_if_mounted(struct work *w) {
    int fd = open_dir(AT_FDCWD, w->dir);
    if (fd < 0 && errno != ENOENT && errno != ENOTDIR) {
        return td_fail_errno(TD_UNAVAILABLE, "open the job's checkpoints");
    }
    if (fd >= 0) close(fd);
    if (fd < 0 && w->m->directory[0] && w->dir[0] && w->m->n_checkpoints) {
        td_status s = td_assignment_find(w->dir);
        if (td_status_code(s) == TD_NOT_FOUND) {
            td_status_free(s);
            return td_fail(TD_NOT_FOUND, "the file system of checkpoint.dir may not be mounted; if "
                                         "the job's directory was removed, make it, empty");
        }
        if (s) return s;
    }
    return look(w);
}

// ---- of a job that was forgotten ----------------------------------------------------------------
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

// What is no attempt's.
static void sweep_job(struct work *w) {
    (void)rmdir(w->attempts);
    if (w->m->keep_checkpoints || !w->dir[0]) return;
    if (!w->m->own_directory) {
        sweep_logs(w);
        if (rmdir(w->dir) != 0 && errno == ENOTEMPTY) list_left(w);
        return;
    }
    td_status failed = td_fs_remove_tree(w->dir);
    if (failed) snprintf(w->failure, sizeof w->failure, "%s", td_status_message(failed));
    td_status_log(TD_LOG_WARN, failed, "the directory of a deleted program stays, continuing");
}

// ---- the thread ---------------------------------------------------------------------------------
static void free_work(void *work) {
    struct work *w = work;
    traind__v1__reconcile__free_unpacked(w->m, NULL);
    free(w->reports);
    free(w->missing);
    free(w);
}

static void carry_out(void *work) {
    struct work *w = work;
    for (size_t i = 0; i < w->m->n_over; i++) {
        sweep_attempt(w, w->m->over[i]);
    }
    if (w->m->forgotten) sweep_job(w);
    td_status s = look_if_mounted(w);
    if (s) snprintf(w->failure, sizeof w->failure, "%s", td_status_message(s));
    td_status_free(s);
}

// ---- the queue ----------------------------------------------------------------------------------
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
    Traind__V1__Reconciled m = TRAIND__V1__RECONCILED__INIT;
    m.request = w->m->request;
    m.job = w->m->job;
    m.removed = w->removed;
    m.failure = w->failure;
    m.missing = w->missing;
    m.n_missing = w->n_missing;
    Traind__V1__NodeMessage up = TRAIND__V1__NODE_MESSAGE__INIT;
    up.body_case = TRAIND__V1__NODE_MESSAGE__BODY_RECONCILED;
    up.reconciled = &m;
    return r->o.send(&up, r->o.arg);
}

static void on_over(void *work, void *owner) {
    struct td_reconciler *r = TD_CAST(td_reconciler, owner);
    struct work *w = work;
    for (int i = 0; i < N_LANES; i++) {
        if (r->lanes[i].work == w) r->lanes[i] = (struct lane){0};
    }
    w->is_done = true;
    if (w->forgotten) free_work(w);
    if (r->first) td_loop_timer_arm(r->timer, 0);
    if (r->o.on_over) r->o.on_over(r->o.arg);
}

static void start(struct td_reconciler *r, struct work *w) {
    static const struct td_disk_work_calls calls = {
        .run = carry_out, .on_over = on_over, .destroy = free_work};
    struct lane *lane = &r->lanes[w->m->directory[0] ? GIVEN : OWN];
    if (lane->thread || is_busy(r, w)) return;
    td_status s = td_disk_work_create(r->o.loop, &calls, w, r, &lane->thread);
    if (!s) {
        lane->work = w;
        return;
    }
    snprintf(w->failure, sizeof w->failure, "%s", td_status_message(s)); // it is asked again
    td_status_free(s);
    w->is_done = true;
}

static void on_timer(void *arg) {
    struct td_reconciler *r = TD_CAST(td_reconciler, arg);
    for (struct work **at = &r->first; *at;) {
        struct work *w = *at;
        if (!w->is_done) start(r, w);
        if (w->is_done && !w->answered) w->answered = !answer(r, w);
        if (w->is_done && !w->answered) {
            *at = w->next;
            r->n--;
            free_work(w);
        } else {
            at = &w->next;
        }
    }
}

void td_reconciler_poke(struct td_reconciler *r) {
    for (struct work *w = r->first; w; w = w->next) {
        w->answered = false;
    }
    if (r->first) td_loop_timer_arm(r->timer, 0);
}

bool td_reconciler_is_at(const struct td_reconciler *r, const char *job) {
    for (int i = 0; i < N_LANES; i++) {
        const struct work *w = r->lanes[i].work;
        if (w && strcmp(w->m->job, job) == 0) return true;
    }
    return false;
}

static bool is_run(const struct td_reconciler *r, const struct work *w) {
    return r->lanes[OWN].work == w || r->lanes[GIVEN].work == w;
}

// The threads go on: what they do is asked again, and is not done twice at a time.
void td_reconciler_clear(struct td_reconciler *r) {
    while (r->first) {
        struct work *w = r->first;
        r->first = w->next;
        w->forgotten = true;
        if (!is_run(r, w)) free_work(w);
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
    s = td_fs_path(w->attempts, "%s/attempts/%s", r->o.state_dir, m->job);
    td_status_free(s); // likewise
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
    for (int i = 0; i < N_LANES; i++) {
        td_disk_work_destroy(r->lanes[i].thread);
    }
    td_loop_timer_destroy(r->timer);
    r->magic = 0;
    free(r);
}
