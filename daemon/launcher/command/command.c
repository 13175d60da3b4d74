// See the header. The plan was checked by the spec's tables (lib/spec); what is read here falls
// back on nothing, and says where the plan is not one.

#include "daemon/launcher/command/command.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/launcher/environment.h"
#include "daemon/launcher/command/gpu_memory.h"
#include "daemon/launcher/command/talk.h"
#include "lib/attempt/devices.h"
#include "lib/attempt/rank_env.h"
#include "lib/attempt/segments.h"
#include "lib/attempt/exit_codes.h"
#include "lib/base/files/files.h"
#include "lib/base/json.h"
#include "lib/job/command.h"

enum { ARENA_BYTES = 16 << 20, PLAN_MAX = 4 << 20, RANK_VARIABLES = 30 };

// ---- the plan -----------------------------------------------------------------------------------
static td_status bad(const char *what) {
    return td_status_with_class(td_fail(TD_INVALID_ARGUMENT, "the plan's %s", what),
                                TD_CLASS_BAD_SPEC);
}

static td_status read_argv(struct td_launch_command *c, const struct td_json *plan) {
    const struct td_json *list = td_json_get(plan, "command");
    if (!list || list->kind != TD_JSON_ARRAY || !list->first) {
        return bad("`command` is not a list of texts");
    }
    c->argv = td_arena_array(c->arena, list->n_children, sizeof *c->argv);
    if (!c->argv) return td_fail_oom();
    for (const struct td_json *v = list->first; v; v = v->next) {
        const char *text = td_json_string(v, NULL);
        if (!text) return bad("`command` holds something that is not text");
        c->argv[c->n_argv++] = text;
    }
    return TD_OK;
}

// The job's directory among the checkpoints: the plan names that of the attempt below it.
static td_status read_workdir(struct td_launch_command *c, const struct td_json *plan,
                              const struct td_launch_options *o) {
    c->workdir = td_json_string(td_json_get(plan, "workdir"), NULL);
    if (!c->workdir) {
        const char *own = td_json_string(td_json_path(plan, "run.checkpoint_dir"), o->dir);
        const char *end = strrchr(own, '/');
        c->workdir =
            end && end > own ? td_arena_printf(c->arena, "%.*s", (int)(end - own), own) : own;
        if (!c->workdir) return td_fail_oom();
    }
    TD_AUTO_CLOSE int fd = open(c->workdir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && faccessat(AT_FDCWD, c->workdir, X_OK, AT_EACCESS) == 0) return TD_OK;
    return td_status_with_class(
        td_fail_errno(TD_FAILED_PRECONDITION,
                      "workdir '%s' is not a directory that this node's traind can enter",
                      c->workdir),
        TD_CLASS_BAD_SPEC);
}

// Event files of TensorBoard: below the working directory, unless an absolute path is given.
static td_status read_board(struct td_launch_command *c, const struct td_json *plan) {
    c->board_dir = td_json_string(td_json_path(plan, "loggers_in.tensorboard"), NULL);
    if (!c->board_dir || *c->board_dir == '/') return TD_OK;
    c->board_dir = td_arena_printf(c->arena, "%s/%s", c->workdir, c->board_dir);
    return c->board_dir ? TD_OK : td_fail_oom();
}

static const char *count_of(struct td_launch_command *c, const struct td_json *plan,
                            const char *path) {
    int64_t n = td_json_int(td_json_path(plan, path), 0); // auto and null are 0
    return td_arena_printf(c->arena, "%lld", (long long)TD_MAX(n, 0));
}

// ---- the environment ----------------------------------------------------------------------------
static bool is_set(const struct td_launch_command *c, const char *variable) {
    size_t len = strcspn(variable, "=") + 1;
    for (size_t i = 0; i < c->n_env; i++) {
        if (strncmp(c->env[i], variable, len) == 0) return true;
    }
    return false;
}

static td_status read_env(struct td_launch_command *c, const struct td_json *plan,
                          const struct td_launch_options *o, const char *const *from) {
    const struct td_json *given = td_json_get(plan, "env");
    const char *const *base =
        td_environment_build(c->arena, from, o->threads, o->shared_cores, NULL);
    if (!base) return td_fail_oom();
    size_t n = given ? given->n_children : 0;
    for (const char *const *e = base; *e; e++) {
        n++;
    }
    c->env = td_arena_array(c->arena, n + 2, sizeof *c->env);
    if (!c->env) return td_fail_oom();
    for (const struct td_json *v = given ? given->first : NULL; v; v = v->next) {
        const bool is_own =
            td_command_env_is_own(v->key) || (td_command_env_is_gpus(v->key) && !c->leaves_gpus);
        if (!td_command_env_name_ok(v->key) || is_own) {
            return bad("`env` sets a variable that it may not");
        }
        c->env[c->n_env] = td_arena_printf(c->arena, "%s=%s", v->key, td_json_string(v, ""));
        if (!c->env[c->n_env++]) return td_fail_oom();
    }
    for (const char *const *e = base; *e; e++) {
        if (!is_set(c, *e)) c->env[c->n_env++] = *e;
    }
    for (const char *const *e = from; *e && c->leaves_gpus; e++) {
        const bool is_gpus = strncmp(*e, TD_COMMAND_ENV_GPUS "=", sizeof TD_COMMAND_ENV_GPUS) == 0;
        if (is_gpus && !is_set(c, *e)) c->env[c->n_env++] = *e;
    }
    return TD_OK;
}

struct variables {
    struct td_arena *arena;
    const char **at;
    size_t n;
    bool full;
};

static void put(struct variables *v, const char *name, const char *value) {
    const char *text = td_arena_printf(v->arena, "%s=%s", name, value);
    v->at[v->n++] = text;
    v->full |= !text;
}

static void put_number(struct variables *v, const char *name, int64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)value);
    put(v, name, text);
}

// name ends in '='. Of a job over several nodes, unless its spec sets the variable.
static void put_interface(struct variables *v, const struct td_launch_command *c,
                          const char *name) {
    if (!c->collective_interface[0] || is_set(c, name)) return;
    const char *text = td_arena_printf(v->arena, "%s%s", name, c->collective_interface);
    v->at[v->n++] = text;
    v->full |= !text;
}

// Where a Trainer of Hugging Face reports by itself.
static void put_reports(struct variables *v, const struct td_launch_command *c,
                        const struct td_launch_options *o, int32_t rank) {
    char url[64], token[TD_FS_PATH_BYTES];
    if (!c->hf_port) return;
    snprintf(url, sizeof url, "http://127.0.0.1:%d/%d", c->hf_port, rank);
    const int n = snprintf(token, sizeof token, "%s/" TD_SEGMENT_TOKEN, o->dir, (unsigned)rank);
    TD_CHECK(n < (int)sizeof token); // it was written there
    put(v, "KUBEFLOW_TRAINER_SERVER_URL", url);
    put(v, "KUBEFLOW_TRAINER_SERVER_TOKEN", token);
}

// All GPUs of the node's ranks, in their order, so that torch's cuda:LOCAL_RANK is a rank's own; or
// its own alone. CUDA takes one instance of MIG at most, so those are always alone.
static void put_gpus(struct variables *v, const struct td_launch_command *c,
                     const struct td_launch_options *o, int32_t idx) {
    const uint32_t all = td_device_list_count(o->gpus), each = all / (uint32_t)o->n_ranks;
    const bool alone = c->isolates_gpus || strstr(o->gpus, "MIG-");
    const char *begin = o->gpus;
    if (c->leaves_gpus) return;
    for (uint32_t i = 0; alone && i < each * (uint32_t)idx; i++) {
        begin += strcspn(begin, ",") + 1;
    }
    const char *end = alone ? begin : begin + strlen(begin);
    for (uint32_t i = 0; alone && i < each; i++) {
        end += (i > 0) + strcspn(end + (i > 0), ",");
    }
    const char *text =
        td_arena_printf(v->arena, TD_COMMAND_ENV_GPUS "=%.*s", (int)(end - begin), begin);
    v->at[v->n++] = text;
    v->full |= !text;
    if (c->has_gpu_indexes) put(v, "CUDA_DEVICE_ORDER", "PCI_BUS_ID");
}

// How a program learns which rank it is.
static td_status put_rank(struct variables *v, const struct td_launch_options *o, int32_t idx,
                          const struct td_launch_shared *shared) {
    char text[TD_RANK_ENV_BYTES];
    const struct td_rank_env e = {.rank = o->first_rank + idx,
                                  .world_size = o->world_size,
                                  .page_fd = TD_PROGRAM_PAGE_FD,
                                  .events_fd = TD_PROGRAM_EVENTS_FD,
                                  .group_fd = shared->group_fd < 0 ? -1 : TD_PROGRAM_GROUP_FD,
                                  .results_fd = -1,
                                  .store_fd = shared->store_fd < 0 ? -1 : TD_PROGRAM_STORE_FD,
                                  .plan = o->plan};
    TD_TRY(td_rank_env_write(&e, text));
    put(v, TD_RANK_ENV, text);
    return TD_OK;
}

// torchrun's names: a rank is one process of one node, and all are of one role.
static td_status make_env(struct td_launch_command *c, const struct td_launch_options *o,
                          int32_t idx, const struct td_launch_shared *shared,
                          const char *const **out_env) {
    struct variables v = {.arena = c->arena};
    v.at = td_arena_array(c->arena, c->n_env + RANK_VARIABLES + 1, sizeof *v.at);
    if (!v.at) return td_fail_oom();
    memcpy(v.at, c->env, c->n_env * sizeof *v.at);
    v.n = c->n_env;
    int32_t rank = o->first_rank + idx, node = o->first_rank / o->n_ranks;
    put_number(&v, "RANK", rank);
    put_number(&v, "ROLE_RANK", rank);
    put_number(&v, "LOCAL_RANK", idx);
    put_number(&v, "WORLD_SIZE", o->world_size);
    put_number(&v, "ROLE_WORLD_SIZE", o->world_size);
    put_number(&v, "LOCAL_WORLD_SIZE", o->n_ranks);
    put_number(&v, "GROUP_RANK", node);
    put_number(&v, "NODE_RANK", node);
    put_number(&v, "GROUP_WORLD_SIZE", o->world_size / o->n_ranks);
    put(&v, "ROLE_NAME", "default");
    put(&v, "MASTER_ADDR", c->master_address);
    put_interface(&v, c, "GLOO_SOCKET_IFNAME=");
    put_interface(&v, c, "NCCL_SOCKET_IFNAME=");
    put_number(&v, "MASTER_PORT", c->port);
    put_number(&v, "TORCHELASTIC_RESTART_COUNT", (int64_t)o->attempt - 1);
    put(&v, "TORCHELASTIC_MAX_RESTARTS", c->max_restarts);
    put(&v, "TORCHELASTIC_RUN_ID", o->job);
    put(&v, "TORCHELASTIC_USE_AGENT_STORE", "False");
    put(&v, "TRAIND_JOB", o->job);
    put_number(&v, "TRAIND_ATTEMPT", o->attempt);
    if (o->kind == TD_KIND_PROGRAM) {
        TD_TRY(put_rank(&v, o, idx, shared));
        if (o->cpu_level[0]) put(&v, "TRAIND_CPU_ISA", o->cpu_level);
    } else {
        put_number(&v, "TRAIND_FD", TD_COMMAND_TALK_FD);
    }
    if (c->resume_from[0]) put(&v, "TRAIND_RESUME_FROM", c->resume_from);
    put_reports(&v, c, o, rank);
    put_gpus(&v, c, o, idx);
    TD_CHECK(v.n <= c->n_env + RANK_VARIABLES);
    if (v.full) return td_fail_oom();
    *out_env = v.at;
    return TD_OK;
}

// ---- the port -----------------------------------------------------------------------------------
// A server of the program would listen as this one does: on every address, past connections that
// are still fading away.
static bool can_listen(int port) {
    const struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    const struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const int on = 1, off = 0;
    TD_AUTO_CLOSE int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool is_six = fd >= 0;
    if (!is_six) fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (is_six) (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    int failed = is_six ? bind(fd, (const struct sockaddr *)&six, sizeof six)
                        : bind(fd, (const struct sockaddr *)&four, sizeof four);
    return failed == 0 && listen(fd, 1) == 0;
}

static td_status find_port(struct td_launch_command *c, const struct td_launch_options *o) {
    int n = o->ports.last - o->ports.first + 1;
    uint32_t place = (uint32_t)getpid() * UINT32_C(2654435761) + o->attempt;
    for (const char *p = o->job; *p; p++) {
        place = place * 31 + (unsigned char)*p;
    }
    for (int i = 0; i < n; i++) {
        c->port = o->ports.first + (int)((place + (uint32_t)i) % (uint32_t)n);
        if (can_listen(c->port)) return TD_OK;
    }
    return td_status_with_class(
        td_fail(TD_RESOURCE_EXHAUSTED,
                "every port from %d to %d is in use, and MASTER_PORT must be one of them; give the "
                "node a larger --port-range",
                o->ports.first, o->ports.last),
        TD_CLASS_INTERNAL);
}

// Of a job over several nodes all launchers have the same, which the coordinator drew from the
// range of the node of rank 0. Where it is taken another attempt has another one.
static td_status take_port(struct td_launch_command *c, const struct td_launch_options *o,
                           int64_t port) {
    c->port = (int)port;
    if (o->first_rank > 0 || can_listen(c->port)) return TD_OK;
    return td_status_with_class(
        td_fail(TD_UNAVAILABLE, "port %d of this node, drawn for MASTER_PORT, is taken", c->port),
        TD_CLASS_PREEMPTED);
}

// ---- life ---------------------------------------------------------------------------------------
static td_status fill(struct td_launch_command *c, const struct td_launch_options *o,
                      const char *const *from) {
    TD_AUTO_BUF text;
    td_buf_init(&text, PLAN_MAX);
    TD_TRY(td_fs_read(o->plan, PLAN_MAX, &text));
    struct td_json *plan;
    TD_TRY_CTX(td_json_parse(c->arena, text.data, text.len, &plan), "'%s'", o->plan);
    TD_TRY(read_argv(c, plan));
    TD_TRY(read_workdir(c, plan, o));
    TD_TRY(read_board(c, plan));
    c->leaves_gpus = td_json_bool(td_json_path(plan, "resources.unmanaged_gpus"), false);
    c->isolates_gpus = td_json_bool(td_json_path(plan, "resources.isolate_gpus"), false);
    const char *names = td_json_string(td_json_path(plan, "resources.gpu_names"), "");
    c->has_gpu_indexes = strcmp(names, "index") == 0;
    TD_TRY(read_env(c, plan, o, from));
    c->resume_from = td_json_string(td_json_path(plan, "run.resume_from"), "");
    c->stdout_pattern = td_json_string(td_json_path(plan, "metrics_from.stdout"), NULL);
    c->transformers = td_json_string(td_json_path(plan, "metrics_from.transformers"), "auto");
    c->max_restarts = count_of(c, plan, "restart.max");
    c->processes = count_of(c, plan, "resources.processes");
    c->open_files = count_of(c, plan, "resources.open_files");
    if (!c->max_restarts || !c->processes || !c->open_files) return td_fail_oom();
    c->master_address = td_json_string(td_json_path(plan, "run.master_address"), "127.0.0.1");
    c->collective_interface = td_json_string(td_json_path(plan, "run.collective_interface"), "");
    const int64_t port = td_json_int(td_json_path(plan, "run.master_port"), 0);
    return port ? take_port(c, o, port) : find_port(c, o);
}

td_status td_launch_command_create(const struct td_launch_options *o,
                                   struct td_launch_command **out_command) {
    struct td_arena *arena;
    TD_TRY(td_arena_create(ARENA_BYTES, &arena));
    struct td_launch_command *c = td_arena_alloc(arena, sizeof *c);
    td_status s = c ? TD_OK : td_fail_oom();
    if (!s) {
        *c = (struct td_launch_command){.arena = arena};
        s = fill(c, o, (const char *const *)environ);
    }
    if (s) {
        td_arena_destroy(arena);
        return s;
    }
    *out_command = c;
    return TD_OK;
}

void td_launch_command_destroy(struct td_launch_command *c) {
    if (c) td_arena_destroy(c->arena); // it is in there itself
}

td_status td_launch_command_start(struct td_launch_command *c, struct td_launch_rank *r,
                                  int32_t idx, const struct td_launch_options *o, const char *self,
                                  const struct td_launch_shared *shared) {
    enum { BEFORE = 8 };
    const bool is_program = o->kind == TD_KIND_PROGRAM;
    const int answer_at = is_program ? TD_PROGRAM_ANSWER_FD : TD_COMMAND_ANSWER_FD;
    char parent[16], answer[16], memory[TD_LAUNCH_NUMBER], cores[TD_LAUNCH_CORES];
    snprintf(parent, sizeof parent, "%d", (int)getpid());
    snprintf(answer, sizeof answer, "%d", answer_at);
    td_launch_rank_limits(o, idx, memory, cores);
    const char *const before[BEFORE] = {self,   "exec-command", parent,        cores,
                                        memory, c->processes,   c->open_files, answer};
    const char **argv = td_arena_array(c->arena, BEFORE + c->n_argv + 1, sizeof *argv);
    const char *const *env = NULL;
    if (!argv) return td_fail_oom();
    TD_TRY(make_env(c, o, idx, shared, &env));
    memcpy(argv, before, sizeof before);
    memcpy(argv + BEFORE, c->argv, c->n_argv * sizeof *argv);
    TD_AUTO_CLOSE int theirs = -1;
    int p[2];
    if (pipe2(p, O_CLOEXEC | O_NONBLOCK) != 0) {
        return td_fail_errno(TD_RESOURCE_EXHAUSTED, "make a pipe");
    }
    r->answer_fd = p[0];
    theirs = p[1];
    struct td_launch_spawn s = {.argv = argv,
                                .env = env,
                                .cwd = c->workdir,
                                .events_at = is_program ? TD_PROGRAM_EVENTS_FD : TD_COMMAND_TALK_FD,
                                .more = {{theirs, answer_at}},
                                .n_more = 1};
    if (is_program) s.more[s.n_more++] = (struct td_proc_fd){r->page_fd, TD_PROGRAM_PAGE_FD};
    if (shared->group_fd >= 0) {
        s.more[s.n_more++] = (struct td_proc_fd){shared->group_fd, TD_PROGRAM_GROUP_FD};
    }
    if (shared->store_fd >= 0) {
        s.more[s.n_more++] = (struct td_proc_fd){shared->store_fd, TD_PROGRAM_STORE_FD};
    }
    return td_launch_rank_spawn(r, &s);
}

// ---- stopping -----------------------------------------------------------------------------------
void td_launch_command_terminate(struct td_launcher *l) {
    l->term_at.ns = INT64_MAX;
    for (int32_t i = 0; i < l->o.n_ranks; i++) {
        struct td_launch_rank *r = &l->ranks[i];
        if (!td_launch_rank_runs(r) || r->terminated) continue;
        (void)kill(-r->proc.pid, SIGTERM);
        r->terminated = true;
    }
}

void td_launch_command_stop(struct td_launcher *l, int mode, struct td_mono term_at) {
    bool attached = false;
    for (int32_t i = 0; i < l->o.n_ranks; i++) {
        attached = attached || l->ranks[i].speaks;
    }
    if (td_launcher_talks(l)) td_talk_stop(l, mode);
    if (term_at.ns < l->term_at.ns) l->term_at = term_at;
    if (td_launcher_talks(l) || !attached) td_launch_command_terminate(l);
}

// ---- the end ------------------------------------------------------------------------------------
enum { TAIL_BYTES = 64 << 10 };

// What the rank wrote last to its stderr, as text; until the next call.
static const char *read_tail(const struct td_launcher *l, const struct td_launch_rank *r) {
    static char tail[TAIL_BYTES + 1]; // one thread
    char path[TD_FS_PATH_BYTES];
    snprintf(path, sizeof path, "%s/" TD_SEGMENT_ERR, l->o.dir, (unsigned)r->rank);
    TD_AUTO_CLOSE int fd = -1;
    td_status_free(td_fs_open(path, &fd, NULL));
    uint64_t from = r->err.file_bytes > TAIL_BYTES ? r->err.file_bytes - TAIL_BYTES : 0;
    ssize_t n = fd >= 0 ? pread(fd, tail, TAIL_BYTES, (off_t)from) : 0;
    for (ssize_t i = 0; i < n; i++) {
        if (!tail[i]) tail[i] = ' ';
    }
    tail[TD_MAX(n, (ssize_t)0)] = '\0';
    return tail;
}

// Its address was taken.
static bool says_in_use(const struct td_launcher *l, const char *tail) {
    char port[16];
    snprintf(port, sizeof port, "%d", l->command->port);
    bool text = strstr(tail, "EADDRINUSE") || strcasestr(tail, "address already in use");
    return text && (strstr(tail, port) || !can_listen(l->command->port));
}

static void fail_as(struct td_launch_rank *r, enum td_class cls, enum td_code code) {
    r->said_failed = true;
    snprintf(r->end_class, sizeof r->end_class, "%s", td_class_name(cls));
    snprintf(r->end_code, sizeof r->end_code, "%s", td_code_name(code));
}
#define fail_with(r, cls, code, ...)                                                               \
    do {                                                                                           \
        fail_as(r, cls, code);                                                                     \
        snprintf((r)->end_message, sizeof(r)->end_message, __VA_ARGS__);                           \
    } while (0)

static bool is_program_error(int signal) {
    return signal == SIGSEGV || signal == SIGBUS || signal == SIGILL || signal == SIGFPE ||
           signal == SIGABRT || signal == SIGSYS || signal == SIGTRAP;
}

static void judge_signal(struct td_launch_rank *r, int signal, const char *how) {
    const char *name = sigabbrev_np(signal);
    bool own = is_program_error(signal);
    if (signal == SIGKILL) {
        const bool is_memory = r->killed.cls == TD_CLASS_OUT_OF_MEMORY;
        fail_with(r, r->killed.cls, is_memory ? TD_RESOURCE_EXHAUSTED : TD_ABORTED, "rank %d %s %s",
                  r->rank, how, r->killed.text);
        return;
    }
    fail_with(r, own ? TD_CLASS_USER_CODE : TD_CLASS_INTERNAL,
              own ? TD_FAILED_PRECONDITION : TD_INTERNAL, "rank %d %s signal %d (%s)%s", r->rank,
              how, signal, name ? name : "?", own ? "; see its stderr" : ", not sent by traind");
}

static void judge_code(const struct td_launcher *l, struct td_launch_rank *r) {
    const int code = r->exit_code;
    const char *tail = read_tail(l, r);
    if (code == TD_COMMAND_EXIT_IN_USE || (r->rank == 0 && says_in_use(l, tail))) {
        fail_with(r, TD_CLASS_PREEMPTED, TD_UNAVAILABLE,
                  "rank %d found its MASTER_PORT, %d, in use (exit code %d); another attempt has "
                  "another one",
                  r->rank, l->command->port, code);
    } else if (code == TD_COMMAND_EXIT_AGAIN) {
        fail_with(r, TD_CLASS_INTERNAL, TD_UNAVAILABLE,
                  "rank %d ended with exit code %d, which asks for another attempt", r->rank, code);
    } else if (td_gpu_memory_ran_out(tail)) {
        fail_with(r, TD_CLASS_OUT_OF_MEMORY, TD_RESOURCE_EXHAUSTED,
                  "rank %d ended with exit code %d, as the memory of its GPU ran out; see its "
                  "stderr",
                  r->rank, code);
    } else if (code > 128 && code < 128 + 65) {
        judge_signal(r, code - 128, "ended as a shell says of");
    } else {
        fail_with(r, TD_CLASS_USER_CODE, TD_FAILED_PRECONDITION,
                  "rank %d ended with exit code %d; see its stderr", r->rank, code);
    }
}

static bool is_stop(const struct td_launcher *l, const struct td_launch_rank *r) {
    if (r->signal) return r->signal == SIGTERM || r->signal == SIGINT;
    if (!td_launcher_talks(l) && r->exit_code == TD_EXIT_STOPPED) return true;
    return r->exit_code == 0 || r->exit_code == 128 + SIGTERM || r->exit_code == 128 + SIGINT;
}

// A program that said how it ended, or ended with a code of traind-worker's, is judged as one.
static bool is_worker_end(const struct td_launch_rank *r) {
    if (r->said_failed) return true;
    if (r->signal) return false;
    return td_exit_code_is_failure(r->exit_code) ||
           (r->said_end && r->exit_code == TD_EXIT_STOPPED);
}

bool td_launch_command_find_dead(const struct td_launcher *l, siginfo_t *out_info) {
    for (int32_t i = 0; l->command && i < l->o.n_ranks; i++) {
        siginfo_t info = {0};
        if (!td_launch_rank_runs(&l->ranks[i])) continue;
        int failed = waitid(P_PID, (id_t)l->ranks[i].proc.pid, &info, WEXITED | WNOHANG | WNOWAIT);
        if (failed || info.si_pid == 0 || info.si_code == CLD_EXITED) continue;
        *out_info = info;
        return true;
    }
    *out_info = (siginfo_t){0};
    return waitid(P_ALL, 0, out_info, WEXITED | WNOHANG | WNOWAIT) == 0 && out_info->si_pid != 0;
}

void td_launch_command_judge(const struct td_launcher *l, struct td_launch_rank *r) {
    if (r->exec_errno) {
        fail_with(r, TD_CLASS_BAD_SPEC, TD_INVALID_ARGUMENT,
                  "command '%.256s' cannot be run on this node: %s; command[0] is looked for in "
                  "PATH unless it has a '/', and relative to the working directory '%.512s'",
                  l->command->argv[0], strerror(r->exec_errno), l->command->workdir);
        return;
    }
    if (r->kill_sent && r->signal == SIGKILL) return;      // ending.c says why
    if (!td_launcher_talks(l) && is_worker_end(r)) return; // likewise
    if (l->stop_mode != TD_STOP_NONE && is_stop(l, r)) {
        r->stopped = true;
    } else if (l->first_failed >= 0 && (r->signal || r->exit_code)) {
        fail_with(r, TD_CLASS_COLLECTIVE, TD_ABORTED, "rank %d ended (%s %d) after rank %d failed",
                  r->rank, r->signal ? "signal" : "exit code", r->signal ? r->signal : r->exit_code,
                  l->ranks[l->first_failed].rank);
    } else if (r->signal) {
        judge_signal(r, r->signal, "died of");
    } else if (r->exit_code) {
        judge_code(l, r);
    }
}
