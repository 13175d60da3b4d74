// See the header.

#include "daemon/node/shell/assignment/given_dir.h"

#include <string.h>

#include "daemon/node/shell/disk_work.h"
#include "lib/loop/loop.h"

enum { td_given_dir_magic = 0x504c4143 };

struct search { // the thread's
    struct td_assignment assigned;
    mode_t mode;
    td_status failed;
};

struct td_given_dir {
    uint32_t magic;
    int64_t limit_ns;
    struct td_disk_work *search;
    struct td_loop_timer *timer;
    char checkpoints[sizeof(((struct td_assignment *)0)->checkpoints)];
    td_given_dir_fn *fn;
    void *arg;
};

static void run(void *work) {
    struct search *s = work;
    s->failed = td_assignment_make_dir(&s->assigned, s->mode);
}

static void destroy(void *work) {
    struct search *s = work;
    td_status_free(s->failed);
    free(s);
}

static void on_over(void *work, void *owner) {
    struct td_given_dir *p = TD_CAST(td_given_dir, owner);
    struct search *s = work;
    td_status failed = td_steal(s->failed);
    destroy(s);
    p->search = NULL;
    td_loop_timer_disarm(p->timer);
    p->fn(failed, p->arg); // may destroy p
}

static void on_late(void *arg) {
    struct td_given_dir *p = TD_CAST(td_given_dir, arg);
    td_disk_work_destroy(td_steal(p->search));
    p->fn(td_status_with_class(
              td_fail(TD_DEADLINE_EXCEEDED,
                      "the file system of '%s' does not answer for %jd s; look at the server of "
                      "checkpoint.dir",
                      p->checkpoints, (intmax_t)(p->limit_ns / TD_NS_PER_S)),
              TD_CLASS_DISK),
          p->arg);
}

td_status td_given_dir_create(struct td_loop *loop, const struct td_assignment *assigned,
                              mode_t mode, int64_t limit_ns, td_given_dir_fn *fn, void *arg,
                              struct td_given_dir **out_dir) {
    static const struct td_disk_work_calls calls = {
        .run = run, .on_over = on_over, .destroy = destroy};
    struct td_given_dir *p = td_calloc(1, sizeof *p);
    struct search *search = td_calloc(1, sizeof *search);
    if (p) {
        *p = (struct td_given_dir){
            .magic = td_given_dir_magic, .limit_ns = limit_ns, .fn = fn, .arg = arg};
    }
    if (p) memcpy(p->checkpoints, assigned->checkpoints, sizeof p->checkpoints);
    if (search) *search = (struct search){.assigned = *assigned, .mode = mode};
    td_status s = p && search ? td_loop_timer_create(loop, on_late, p, &p->timer) : td_fail_oom();
    if (!s) s = td_disk_work_create(loop, &calls, search, p, &p->search);
    if (s) {
        free(search);
        td_given_dir_destroy(p);
        return s;
    }
    td_loop_timer_arm(p->timer, limit_ns);
    *out_dir = p;
    return TD_OK;
}

void td_given_dir_destroy(struct td_given_dir *p) {
    if (!p) return;
    td_disk_work_destroy(p->search);
    td_loop_timer_destroy(p->timer);
    p->magic = 0;
    free(p);
}
