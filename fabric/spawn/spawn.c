// td_spawn (traind/spawn.h): checks, starts the ranks, waits and takes results until all are over.
//
// One loop in the caller's thread. It polls descriptors of processes and of results, and wakes a
// few times a second besides for what has no descriptor: deadlines and rings. The first failure
// sets the abort word of all pages, so that ranks leave their collectives. Then each step of the
// ladder (SIGTERM, SIGKILL) follows a grace later. Of all failures the first that is not of a
// collective is the call's: the others are mostly ranks that lost a peer.
//
// The room, in reading order:
//
//   main.h          the program, and its own side as a rank
//   spawn_call.h    what ranks are to do
//   spawn_rank.h    one of them
//   result_frame.h  what they answer
//   results.h       what remains of that
//   spawn.c         the parent

#include "traind/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "fabric/config.h"
#include "fabric/spawn/main.h"
#include "fabric/spawn/spawn_call.h"
#include "fabric/spawn/spawn_rank.h"
#include "lib/base/clip.h"
#include "lib/base/files/files.h"

enum { TICK_MS = 20 };
#define DEFAULT_GRACE_NS  (10 * TD_NS_PER_S)
#define DEFAULT_MAX_BYTES ((uint64_t)1 << 30)

enum step { RUNNING, LEAVING, TERMINATED, KILLED };

struct td_spawn {
    struct td_spawn_group group;
    struct td_spawn_rank *ranks; // (group.world_size)
    struct pollfd *polls;        // (2 * world_size)
    int64_t grace_ns;
    enum step step;
    struct td_mono next_at; // of the next step
    bool has_deadline;      // of the call, while RUNNING
    td_status failure;      // of the call: no rank's
    char dir[TD_SPAWN_DIR_BYTES];
};

static void td_spawn_finish(struct td_spawn *s) {
    for (int32_t i = 0; s->ranks && i < s->group.world_size; i++) {
        td_spawn_rank_finish(&s->ranks[i]);
    }
    free(s->ranks);
    free(s->polls);
    td_auto_close(&s->group.group_fd);
    td_auto_close(&s->group.call_fd);
    td_auto_close(&s->group.dir_fd);
    td_results_destroy(s->group.results);
    td_status_free(s->failure);
    if (s->dir[0]) td_status_free(td_fs_remove_tree(s->dir)); // removed and checked by td_spawn
}

// ---- options and what ranks share ---------------------------------------------------------------
static td_status check(const struct td_spawn_options *o) {
    if (!o->function) return td_fail(TD_INVALID_ARGUMENT, "td_spawn needs the name of a function");
    if (o->world_size < 1 || o->world_size > TD_SPAWN_RANKS_MAX) {
        return td_fail(TD_INVALID_ARGUMENT, "world_size is %d; 1 to %d ranks can be spawned",
                       o->world_size, TD_SPAWN_RANKS_MAX);
    }
    if ((o->args_bytes > 0 && !o->args) || o->args_bytes > INT64_MAX / 2) {
        return td_fail(TD_INVALID_ARGUMENT, "args_bytes is %zu without as many bytes of args",
                       o->args_bytes);
    }
    if (o->timeout_ns < 0 || o->grace_ns < 0) {
        return td_fail(TD_INVALID_ARGUMENT, "timeout_ns and grace_ns are 0 or more");
    }
    return TD_OK;
}

static td_status make_dir(struct td_spawn *s, const char *parent) {
    char path[TD_SPAWN_DIR_BYTES];
    if (!td_clip(path, sizeof path, "%s/traind-spawn-XXXXXX", parent)) {
        return td_fail(TD_INVALID_ARGUMENT, "temp_dir '%.64s...' is over %d bytes", parent,
                       TD_SPAWN_DIR_BYTES - 32);
    }
    if (!mkdtemp(path)) return td_fs_fail("make a temporary directory in", parent);
    memcpy(s->dir, path, sizeof path);
    s->group.dir_fd = open(s->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return s->group.dir_fd < 0 ? td_fs_fail("open", s->dir) : TD_OK;
}

static td_status make_group(struct td_spawn_group *g) {
    g->group_fd = memfd_create("traind-group", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (g->group_fd < 0 || ftruncate(g->group_fd, TD_GROUP_HEADER_BYTES) != 0) {
        return td_fail_errno(TD_RESOURCE_EXHAUSTED, "make the memory of the group");
    }
    return TD_OK;
}

static td_status prepare(struct td_spawn *s, const struct td_spawn_options *o) {
    size_t n = (size_t)o->world_size;
    const char *dir = o->temp_dir ? o->temp_dir : td_fabric_temp_dir();
    TD_TRY(td_results_create(&s->group.results));
    s->ranks = td_calloc(n, sizeof *s->ranks);
    s->polls = td_calloc(2 * n, sizeof *s->polls);
    if (!s->ranks || !s->polls) {
        free(s->ranks);
        s->ranks = NULL; // nothing in it is set yet
        return td_fail_oom();
    }
    for (int32_t i = 0; i < o->world_size; i++) {
        td_spawn_rank_init(&s->ranks[i], i);
    }
    char absolute[TD_SPAWN_DIR_BYTES];
    TD_TRY(td_fs_absolute(dir, absolute, sizeof absolute));
    TD_TRY(make_dir(s, absolute));
    TD_TRY(make_group(&s->group));
    struct td_spawn_call call = {.magic = TD_SPAWN_CALL_MAGIC,
                                 .version = TD_SPAWN_CALL_VERSION,
                                 .parent = (int32_t)getpid(),
                                 .args_bytes = o->args_bytes};
    snprintf(call.function, sizeof call.function, "%s", o->function); // it is in the table
    memcpy(call.dir, s->dir, sizeof call.dir);
    return td_spawn_call_make(&call, o->args, &s->group.call_fd);
}

// ---- the ladder ---------------------------------------------------------------------------------
static void signal_all(struct td_spawn *s, int sig) {
    for (int32_t i = 0; i < s->group.world_size; i++) {
        td_spawn_rank_signal(&s->ranks[i], sig);
    }
}

static void go_to(struct td_spawn *s, enum step step) {
    s->step = step;
    s->next_at = td_mono_add(td_mono_now(), s->grace_ns);
    for (int32_t i = 0; i < s->group.world_size; i++) {
        atomic_store(&s->ranks[i].page->abort, 1);
    }
    if (step == TERMINATED) signal_all(s, SIGTERM);
    if (step == KILLED) signal_all(s, SIGKILL);
}

static void say_who_runs(struct td_spawn *s, const struct td_spawn_options *o) {
    char who[256];
    struct td_clip_list list;
    td_clip_list_init(&list, who, sizeof who, ", ");
    for (int32_t i = 0; i < s->group.world_size; i++) {
        if (td_spawn_rank_runs(&s->ranks[i])) td_clip_list_add(&list, "rank %d", i);
    }
    td_status f =
        td_fail(TD_DEADLINE_EXCEEDED, "'%s' ran for more than %.3f s and was ended, in: %s",
                o->function, (double)o->timeout_ns / TD_NS_PER_S, who);
    s->failure = td_status_with_class(f, TD_CLASS_STUCK);
}

// A rank whose function returned has a grace to end; then it is as dead as the others.
static void look_at_returned(struct td_spawn *s, struct td_mono now) {
    for (int32_t i = 0; i < s->group.world_size && s->step == RUNNING; i++) {
        struct td_spawn_rank *r = &s->ranks[i];
        if (!r->done || !td_spawn_rank_runs(r)) continue;
        if (now.ns - r->done_at.ns < s->grace_ns) continue;
        td_status f = td_fail(TD_DEADLINE_EXCEEDED,
                              "rank %d did not end within %.3f s after its function returned", i,
                              (double)s->grace_ns / TD_NS_PER_S);
        s->failure = td_status_with_class(f, TD_CLASS_STUCK);
        go_to(s, TERMINATED);
    }
}

static void advance(struct td_spawn *s, const struct td_spawn_options *o) {
    struct td_mono now = td_mono_now();
    bool failed = false;
    for (int32_t i = 0; i < s->group.world_size; i++) {
        failed |= s->ranks[i].failure != TD_OK;
    }
    look_at_returned(s, now);
    if (s->step == RUNNING && failed) {
        go_to(s, LEAVING);
    } else if (s->step == RUNNING && s->has_deadline && now.ns >= s->next_at.ns) {
        say_who_runs(s, o);
        go_to(s, TERMINATED);
    } else if (s->step != RUNNING && s->step != KILLED && now.ns >= s->next_at.ns) {
        go_to(s, s->step == LEAVING ? TERMINATED : KILLED);
    }
}

// ---- the loop -----------------------------------------------------------------------------------
// False: all are over.
static bool wait_once(struct td_spawn *s) {
    nfds_t n = 0;
    for (int32_t i = 0; i < s->group.world_size; i++) {
        struct td_spawn_rank *r = &s->ranks[i];
        if (!td_spawn_rank_runs(r)) continue;
        s->polls[n++] = (struct pollfd){.fd = r->proc.pidfd, .events = POLLIN};
        if (r->results_fd >= 0) {
            s->polls[n++] = (struct pollfd){.fd = r->results_fd, .events = POLLIN};
        }
    }
    if (n == 0) return false;
    // How many are ready does not matter: each rank is asked. An error is noticed there, too.
    (void)poll(s->polls, n, TICK_MS);
    for (int32_t i = 0; i < s->group.world_size; i++) {
        td_spawn_rank_read(&s->ranks[i], &s->group);
        td_spawn_rank_reap(&s->ranks[i], &s->group);
        td_spawn_rank_drain_points(&s->ranks[i]);
    }
    return true;
}

static td_status start(struct td_spawn *s) {
    for (int32_t i = 0; i < s->group.world_size; i++) {
        TD_TRY_CTX(td_spawn_rank_start(&s->ranks[i], &s->group), "start rank %d", i);
    }
    return TD_OK;
}

// The call's failure, taken from its owner. A rank that this parent ended is no cause.
static td_status first_failure(struct td_spawn *s) {
    if (s->failure) return td_steal(s->failure);
    struct td_spawn_rank *best = NULL;
    for (int pass = 0; pass < 3 && !best; pass++) {
        for (int32_t i = 0; i < s->group.world_size; i++) {
            struct td_spawn_rank *r = &s->ranks[i];
            bool collective = td_status_class(r->failure) == TD_CLASS_COLLECTIVE;
            bool fits = pass == 2 || (!r->signalled && (pass == 1 || !collective));
            bool first = !best || r->failed_at.ns < best->failed_at.ns;
            if (r->failure && fits && first) best = r;
        }
    }
    return best ? td_steal(best->failure) : TD_OK;
}

static td_status spawn(struct td_spawn *s, const struct td_spawn_options *o,
                       struct td_results *results) {
    TD_TRY(prepare(s, o));
    s->has_deadline = o->timeout_ns > 0;
    struct td_mono from = td_mono_now();
    if (s->has_deadline) {
        s->next_at.ns = from.ns > INT64_MAX - o->timeout_ns ? INT64_MAX : from.ns + o->timeout_ns;
    }
    TD_TRY(start(s));
    while (wait_once(s)) {
        advance(s, o);
    }
    TD_TRY(first_failure(s));
    char dir[TD_SPAWN_DIR_BYTES];
    memcpy(dir, s->dir, sizeof dir);
    s->dir[0] = '\0';
    TD_TRY_CTX(td_fs_remove_tree(dir), "remove the temporary directory");
    return td_results_merge(results, s->group.results);
}

td_status td_spawn(const struct td_spawn_options *options, struct td_results *results) {
    struct td_spawn s = {
        .group = {.world_size = options->world_size,
                  .group_fd = -1,
                  .call_fd = -1,
                  .dir_fd = -1,
                  .max_bytes = options->max_bytes ? options->max_bytes : DEFAULT_MAX_BYTES},
        .grace_ns = options->grace_ns ? options->grace_ns : DEFAULT_GRACE_NS};
    TD_TRY(check(options));
    TD_TRY(td_main_program(options->function, &s.group.argv));
    td_status failed = spawn(&s, options, results);
    td_spawn_finish(&s);
    return failed;
}
