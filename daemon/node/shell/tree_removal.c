// See the header. The loop reads what the thread wrote after it has joined it.

#include "daemon/node/shell/tree_removal.h"

#include <pthread.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/fsio.h"
#include "lib/base/log.h"
#include "lib/rpc/loop.h"

enum { JOIN_MS = 2000 };

struct td_tree_removal {
    struct td_loop_wakeup *wakeup;
    void (*on_over)(void *arg);
    void *arg;
    pthread_t thread;
    bool runs, is_over;
    td_status failed; // of one that is over
    char path[TD_FS_PATH_BYTES];
};

static void *run(void *arg) {
    struct td_tree_removal *t = arg;
    td_log_context("thread", "removal");
    t->failed = td_fs_remove_tree(t->path);
    td_loop_wakeup_send(t->wakeup);
    return NULL;
}

static void on_wakeup(void *arg) {
    struct td_tree_removal *t = arg;
    if (!t->runs) return;
    pthread_join(t->thread, NULL);
    t->runs = false;
    t->is_over = true;
    t->on_over(t->arg);
}

td_status td_tree_removal_create(struct td_loop *loop, void (*on_over)(void *arg), void *arg,
                                 struct td_tree_removal **out_removal) {
    struct td_tree_removal *t = td_calloc(1, sizeof *t);
    if (!t) return td_fail_oom();
    t->on_over = on_over;
    t->arg = arg;
    td_status s = td_loop_wakeup_create(loop, on_wakeup, t, &t->wakeup);
    if (s) {
        free(t);
        return s;
    }
    *out_removal = t;
    return TD_OK;
}

void td_tree_removal_destroy(struct td_tree_removal *t) {
    if (!t) return;
    if (t->runs && !td_clock_join(t->thread, JOIN_MS)) {
        td_log_warn("a directory is still being removed dir=\"%s\", continuing", t->path);
        return; // what the thread uses stays until the process ends
    }
    td_loop_wakeup_destroy(t->wakeup);
    td_status_free(t->failed);
    free(t);
}

static td_status start(struct td_tree_removal *t, const char *path) {
    TD_TRY(td_fs_path(t->path, "%s", path));
    int rc = pthread_create(&t->thread, NULL, run, t);
    if (rc != 0) return td_fail(TD_RESOURCE_EXHAUSTED, "thread 'removal': %s", strerror(rc));
    t->runs = true;
    return TD_OK;
}

bool td_tree_removal_done(struct td_tree_removal *t, const char *path, td_status *out_failed) {
    if (t->runs) return false;
    const bool mine = t->is_over && strcmp(t->path, path) == 0;
    td_status failed = t->failed;
    t->failed = TD_OK;
    t->is_over = false;
    if (!mine) { // of one whose session has gone: it is asked again
        td_status_free(failed);
        failed = start(t, path);
        if (!failed) return false;
    }
    *out_failed = failed;
    return true;
}
