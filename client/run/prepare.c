// The planner is the worker itself, under exec-held: it dies with this process.
// Limits are those of a node that is this machine, alone: all its cores, shared among the ranks,
// and all its memory.

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/jobs/place.h"
#include "client/run/run.h"
#include "client/jobs/spec_file.h"
#include "lib/attempt/segments.h"
#include "lib/attempt/exit_codes.h"
#include "lib/base/clock.h"
#include "lib/topology/topology.h"

enum { PLAN_MAX = 4 << 20, ANSWER_MAX = 2 << 20, WORDS_MAX = 4096 };

td_status td_local_run_read_spec(struct td_local_run *r) {
    TD_AUTO_BUF text;
    td_buf_init(&text, TD_SPEC_FILE_BUFFER);
    TD_TRY(td_arena_create((size_t)4 * TD_SPEC_ARENA_BYTES, &r->arena));
    TD_TRY(td_spec_file_read(r->file, &text));
    struct td_client_place here;
    TD_TRY(td_client_place_find(td_local_run_home(), &here));
    struct td_spec_place place = {.directory = here.directory, .home = here.home};
    TD_TRY(td_spec_parse_at(r->arena, td_buf_cstr(&text), text.len, r->sets, r->n_sets, &place,
                            &r->tree));
    for (const struct td_spec_resolved *p = place.first; p; p = p->next) {
        if (!p->is_output) TD_TRY(td_client_place_look(p->key, p->given, p->path));
    }
    td_spec_read(r->tree, &r->spec);
    if (r->spec.kind == TD_KIND_TRAIN) return TD_OK;
    const char *kind = td_job_kind_name(r->spec.kind);
    return td_fail(TD_FAILED_PRECONDITION,
                   "'%s' is of kind %s, which needs a daemon: start traind and use `trainctl "
                   "submit`, or run the %s itself",
                   r->file, kind, kind);
}

static td_status unsatisfiable(td_status take_status) {
    return td_status_with_reason(take_status, "UNSATISFIABLE");
}

static td_status share_cores(struct td_local_run *r) {
    struct td_topology here;
    TD_TRY(td_topology_read(NULL, &here));
    int32_t cores = here.n_cores, asked = r->spec.resources.threads;
    r->n_ranks = td_spec_ranks(&r->spec);
    r->threads = asked ? asked : TD_MAX(cores / r->n_ranks, 1);
    if ((int64_t)r->threads * r->n_ranks <= cores) return TD_OK;
    return unsatisfiable(td_fail(TD_FAILED_PRECONDITION,
                                 "%d ranks of %d thread%s need %" PRId64
                                 " cores, this machine gives %d; ask for fewer devices or threads",
                                 r->n_ranks, r->threads, r->threads == 1 ? "" : "s",
                                 (int64_t)r->threads * r->n_ranks, cores));
}

// Predictions go into the folder, unless the spec names a place.
static td_status place_predictions(struct td_local_run *r) {
    struct td_json *predict = td_json_get(r->tree, "predict");
    if (!predict || td_json_string(td_json_get(predict, "output"), NULL)) return TD_OK;
    const char *prompt = td_json_string(td_json_get(predict, "prompt"), NULL);
    const struct td_json *tokens = td_json_get(predict, "prompt_tokens");
    bool text = prompt || (tokens && tokens->n_children);
    const char *path =
        td_arena_printf(r->arena, "%s/%s", r->dir, text ? "sample.txt" : "predictions.npy");
    bool ok = td_json_set(r->arena, predict, "output", td_json_new_string(r->arena, path));
    return ok ? TD_OK : td_fail_oom();
}

static td_status write_plan(struct td_local_run *r, const char *precision) {
    struct td_plan_run run = {.attempt = r->attempt,
                              .world_size = r->n_ranks,
                              .threads_per_rank = r->threads,
                              .precision = precision};
    run.checkpoint_dir = td_arena_printf(r->arena, "%s/checkpoints/a%d", r->dir, r->attempt);
    run.cache_dir = td_arena_printf(r->arena, "%s/cache", r->dir);
    if (!run.checkpoint_dir || !run.cache_dir) return td_fail_oom();
    struct td_json *before = td_json_new(r->arena, TD_JSON_ARRAY);
    for (const struct td_json *v = r->checkpoints->first; v; v = v->next) {
        if (!run.resume_from) {
            run.resume_from = td_json_string(v, "");
        } else if (!td_json_push(before, td_json_copy(r->arena, v))) {
            return td_fail_oom();
        }
    }
    if (before && before->n_children) run.resume_before = before;
    struct td_plan plan;
    TD_TRY(td_plan_build(r->arena, r->tree, &run, &plan));
    TD_AUTO_BUF text;
    td_buf_init(&text, PLAN_MAX);
    TD_TRY(td_plan_print(&plan, &text));
    char path[TD_FS_PATH_BYTES];
    TD_TRY(td_fs_path(path, "%s/%s", r->log_dir, TD_SEGMENT_PLAN));
    return td_fs_write(path, text.data, text.len, 0644, 0);
}

// ---- the planner --------------------------------------------------------------------------------
struct planner {
    struct td_proc child;
    int out_fd, err_fd;
    struct td_buf answer, words; // what it wrote to each
};

static td_status spawn_planner(const struct td_local_run *r, int out_fd, int err_fd,
                               struct td_proc *out_child) {
    struct td_arena *a = r->arena;
    const char *launcher = td_arena_printf(a, "%s/traind-launcher", r->bin_dir);
    const char *argv[] = {launcher,
                          "exec-held",
                          td_arena_printf(a, "%d", (int)getpid()),
                          "", // any core
                          "0",
                          "0", // any memory and processor time: it is the user's own machine
                          td_arena_printf(a, "%s/traind-worker", r->bin_dir),
                          "plan",
                          "--plan",
                          td_arena_printf(a, "%s/%s", r->log_dir, TD_SEGMENT_PLAN),
                          "--json",
                          "--choices-dir",
                          td_arena_printf(a, "%s/cache", r->dir),
                          "--plugin-dirs",
                          "any", // the user's own
                          "--cpu-level",
                          r->cpu_level,
                          NULL};
    const char *const env[] = {"PATH=/usr/bin:/bin", "OMP_WAIT_POLICY=passive", NULL};
    const struct td_proc_fd fds[] = {{out_fd, STDOUT_FILENO}, {err_fd, STDERR_FILENO}};
    const struct td_proc_options o = {
        .path = launcher, .argv = argv, .env = env, .fds = fds, .n_fds = 2, .new_session = true};
    return td_proc_spawn(&o, out_child);
}

// There is nothing to save yet.
static bool is_stop(struct td_local_run *r) {
    int sig = td_local_run_next_signal(r);
    return sig && sig != SIGUSR1;
}

// Until one of both has something to read, or is at its end. CANCELLED: Ctrl-C.
static td_status await(struct td_local_run *r, int one, int other, struct td_mono deadline,
                       int *out_ready) {
    struct pollfd fds[] = {{one, POLLIN, 0}, {other, POLLIN, 0}, {r->signal_fd, POLLIN, 0}};
    for (;;) {
        int64_t left_ns = deadline.ns - td_mono_now().ns;
        if (left_ns <= 0) {
            return td_fail(TD_DEADLINE_EXCEEDED,
                           "planning took more than %.9g s (--timeout) and was stopped; it opens "
                           "and checks the data, too: is that much, or on a slow disk?",
                           (double)r->plan_timeout_ns / TD_NS_PER_S);
        }
        int64_t ms = TD_MIN(left_ns / TD_NS_PER_MS + 1, (int64_t)INT_MAX);
        if (poll(fds, TD_COUNTOF(fds), (int)ms) <= 0) continue;
        if (fds[2].revents && is_stop(r)) {
            return td_fail(TD_CANCELLED, "interrupted before the first step");
        }
        if (!fds[0].revents && !fds[1].revents) continue;
        *out_ready = fds[0].revents ? one : other;
        return TD_OK;
    }
}

// False at its end.
static bool read_words(struct planner *p) {
    char chunk[1024];
    ssize_t n = read(p->err_fd, chunk, sizeof chunk);
    if (n > 0) td_status_free(td_buf_append(&p->words, chunk, (size_t)n)); // the first are enough
    return n > 0 || (n < 0 && errno == EINTR);
}

// Until it closes its output, and then until it ends. What a process of its own may hold open of
// its words is not waited for.
static td_status read_answer(struct td_local_run *r, struct planner *p) {
    struct td_mono deadline = td_mono_add(td_mono_now(), r->plan_timeout_ns);
    int awaited = p->out_fd, err = p->err_fd, ready = -1;
    for (;;) {
        char chunk[16384];
        TD_TRY(await(r, err, awaited, deadline, &ready));
        if (ready == err) {
            if (!read_words(p)) err = -1;
            continue;
        }
        if (ready == p->child.pidfd) break;
        ssize_t n = read(ready, chunk, sizeof chunk);
        if (n > 0) {
            TD_TRY(td_buf_append(&p->answer, chunk, (size_t)n));
        } else if (n == 0 || errno != EINTR) {
            awaited = p->child.pidfd;
        }
    }
    return TD_OK;
}

static td_status judge(const struct td_json *v, struct td_buf *words, int wait_status) {
    if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0 && v) return TD_OK;
    while (words->len && words->data[words->len - 1] == '\n') {
        words->data[--words->len] = '\0';
    }
    const char *said = words->len ? words->data : "it said nothing";
    const char *why = td_json_string(td_json_get(v, "message"), NULL);
    td_status s;
    if (!WIFEXITED(wait_status)) {
        s = td_fail(TD_FAILED_PRECONDITION, "the planner died of signal %d: %s",
                    WTERMSIG(wait_status), said);
    } else if (!v && WEXITSTATUS(wait_status) == TD_EXIT_USER_CODE) {
        s = td_fail(TD_FAILED_PRECONDITION, "a plugin crashed the planner: %s", said);
    } else if (why) {
        s = td_fail(TD_FAILED_PRECONDITION, "%s", why);
    } else {
        s = td_fail(TD_FAILED_PRECONDITION, "the planner ended with code %d and no answer: %s",
                    WEXITSTATUS(wait_status), said);
    }
    return td_status_with_reason(s, "PLAN_FAILED");
}

static td_status make_pipe(int *out_read, int *out_write) {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) return td_fail_errno(TD_RESOURCE_EXHAUSTED, "make a pipe");
    *out_read = fds[0];
    *out_write = fds[1];
    return TD_OK;
}

static td_status start_planner(const struct td_local_run *r, struct planner *p) {
    TD_AUTO_CLOSE int out_write = -1, err_write = -1;
    TD_TRY(make_pipe(&p->out_fd, &out_write));
    TD_TRY(make_pipe(&p->err_fd, &err_write));
    fcntl(p->err_fd, F_SETFL, O_NONBLOCK);
    return spawn_planner(r, out_write, err_write, &p->child);
}

static td_status run_planner(struct td_local_run *r, struct planner *p,
                             struct td_json **out_sizes) {
    TD_TRY(start_planner(r, p));
    td_status s = read_answer(r, p);
    if (s) kill(p->child.pid, SIGTERM);
    int wait_status = 0;
    while (waitpid(p->child.pid, &wait_status, 0) < 0 && errno == EINTR) {}
    TD_TRY(s);
    while (read_words(p)) {}
    *out_sizes = NULL;
    td_status_free(td_json_parse(r->arena, td_buf_cstr(&p->answer), p->answer.len, out_sizes));
    return judge(*out_sizes, &p->words, wait_status);
}

static td_status ask_planner(struct td_local_run *r, struct td_json **out_sizes) {
    struct planner p = {.child.pidfd = -1, .out_fd = -1, .err_fd = -1};
    td_buf_init(&p.answer, ANSWER_MAX);
    td_buf_init(&p.words, WORDS_MAX);
    td_status s = run_planner(r, &p, out_sizes);
    td_auto_close(&p.child.pidfd);
    td_auto_close(&p.out_fd);
    td_auto_close(&p.err_fd);
    td_buf_finish(&p.answer);
    td_buf_finish(&p.words);
    return s;
}

static td_status check_memory(const struct td_local_run *r, const struct td_json *sizes) {
    uint64_t each = (uint64_t)td_json_int(td_json_get(sizes, "memory_bytes"), 0);
    uint64_t needed = each * (uint64_t)r->n_ranks, has = td_proc_memory_bytes();
    if (needed <= has) return TD_OK;
    return unsatisfiable(td_fail(
        TD_FAILED_PRECONDITION,
        "UNSATISFIABLE: %d %s %" PRIu64 " MiB, this machine has %" PRIu64
        " MiB; lower trainer.devices, data.batch_size or the model's sizes",
        r->n_ranks, r->n_ranks == 1 ? "rank needs" : "ranks need", needed >> 20, has >> 20));
}

// The first devices, one a rank: nobody else is known to use them.
static td_status take_devices(struct td_local_run *r, const struct td_json *sizes) {
    const struct td_json *list = td_json_get(sizes, "devices"), *v = list ? list->first : NULL;
    if (!v) return TD_OK;
    if ((int64_t)list->n_children < r->n_ranks) {
        return unsatisfiable(td_fail(TD_FAILED_PRECONDITION,
                                     "UNSATISFIABLE: %d ranks need a device of '%s' each, this "
                                     "machine has %zu; lower trainer.devices",
                                     r->n_ranks, r->spec.trainer.accelerator.name,
                                     list->n_children));
    }
    for (int32_t i = 0; i < r->n_ranks; i++, v = v->next) {
        const char *uuid = td_json_string(td_json_get(v, "uuid"), "");
        r->devices = i ? td_arena_printf(r->arena, "%s,%s", r->devices, uuid) : uuid;
        if (!r->devices) return td_fail_oom();
    }
    return TD_OK;
}

static td_status settle_precision(struct td_local_run *r, const struct td_json *sizes) {
    const char *chosen = td_json_string(td_json_get(sizes, "precision"), "");
    if (strcmp(r->spec.trainer.precision.name, "auto") != 0) return TD_OK;
    if (!r->checkpoints->first) { // one to resume from has a choice of its own
        td_plan_say_precision(chosen, td_json_real(td_json_get(sizes, "step_seconds"), 0),
                              td_json_string(td_json_get(sizes, "other_precision"), ""),
                              td_json_real(td_json_get(sizes, "other_step_seconds"), 0),
                              r->precision_note);
    }
    return write_plan(r, chosen);
}

td_status td_local_run_prepare(struct td_local_run *r) {
    struct td_json *sizes;
    TD_TRY(share_cores(r));
    TD_TRY(place_predictions(r));
    TD_TRY(write_plan(r, NULL));
    TD_TRY(ask_planner(r, &sizes));
    TD_TRY(check_memory(r, sizes));
    TD_TRY(take_devices(r, sizes));
    r->shared_bytes = (uint64_t)td_json_int(td_json_get(sizes, "shared_bytes"), 0);
    r->total_steps = (uint32_t)td_json_int(td_json_get(sizes, "total_steps"), 0);
    return settle_precision(r, sizes);
}
