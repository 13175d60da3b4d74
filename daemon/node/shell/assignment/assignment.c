// See the header. The plan is parsed and built by lib/spec, as everywhere: a plan that is not valid
// here would fail in the worker, later and less clearly.

#include "daemon/node/shell/assignment/assignment.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/node/shell/assignment/given_plan.h"
#include "lib/attempt/checkpoint_name.h"

enum { PLAN_MAX = 4 << 20, FILE_MAX = 32 << 10, LAUNCHED_MAX = 4 << 10 };
#define ASSIGNMENT_FILE "assignment.json"

static td_status bad(td_status s) {
    return td_status_class(s) == TD_CLASS_NONE ? td_status_with_class(s, TD_CLASS_BAD_SPEC) : s;
}

td_status td_assignment_checkpoints(const char *dir, const char *state_dir, const char *job,
                                    char *out, size_t out_bytes) {
    int n = dir[0] ? snprintf(out, out_bytes, "%s/%s", dir, job)
                   : snprintf(out, out_bytes, "%s/checkpoints/%s", state_dir, job);
    if (n < (int)out_bytes) return TD_OK;
    return td_fail(TD_INVALID_ARGUMENT, "the checkpoint directory's path is too long");
}

static bool evaluates_best(const struct td_spec *s) {
    bool asked = !s->evaluate_from[0] || strcmp(s->evaluate_from, "best") == 0;
    bool trains = s->stages & TD_STAGE_FIT, evaluates = s->stages & ~(unsigned)TD_STAGE_FIT;
    return asked && trains && evaluates && s->checkpoint.monitor[0] &&
           s->checkpoint.save_top_k != 0;
}

static td_status take_spec(const char *plan_json, const char *state_dir, struct td_assignment *a) {
    TD_AUTO(td_arena) *arena = NULL;
    struct td_plan plan;
    TD_TRY(td_given_plan_parse(plan_json, &arena, &plan));
    a->stuck_timeout_s = (uint32_t)plan.spec.restart.stuck_timeout_s;
    a->evaluates_best = evaluates_best(&plan.spec);
    a->kind = plan.spec.kind;
    a->gpu_indexes = plan.spec.resources.gpu_indexes;
    const char *dir = plan.spec.checkpoint.dir;
    const struct td_json *predict = td_json_get(plan.spec.tree, "predict");
    a->place_is_given = dir[0] != '\0';
    a->writes_outside =
        dir[0] || td_json_string(td_json_get(predict, "output"), "")[0] || a->kind != TD_KIND_TRAIN;
    return td_assignment_checkpoints(dir, state_dir, a->job, a->checkpoints, sizeof a->checkpoints);
}

static td_status take_devices(const Traind__V1__Assign *m, struct td_assignment *a) {
    size_t len = 0;
    if (m->n_devices % a->n_ranks != 0 || m->n_devices > TD_LAUNCH_RANKS_MAX) {
        return td_fail(TD_INVALID_ARGUMENT, "%zu devices for %u ranks", m->n_devices, a->n_ranks);
    }
    for (size_t i = 0; i < m->n_devices; i++) {
        if (!td_device_uuid_ok(m->devices[i])) {
            return td_fail(TD_INVALID_ARGUMENT, "'%.64s' is no name of a device", m->devices[i]);
        }
        int n = snprintf(a->devices + len, sizeof a->devices - len, "%s%s", i ? "," : "",
                         m->devices[i]);
        len += (size_t)n;
    }
    return TD_OK;
}

td_status td_assignment_read(const Traind__V1__Assign *m, const char *state_dir,
                             struct td_assignment *out_assignment) {
    struct td_assignment a = {.attempt = m->id->attempt,
                              .epoch = m->id->epoch,
                              .world_size = m->world_size,
                              .first_rank = m->first_rank,
                              .n_ranks = m->n_ranks,
                              .slots = m->slots_per_rank * m->n_ranks,
                              .threads = m->threads_per_rank ? m->threads_per_rank : 1,
                              .shared_bytes = m->shared_bytes,
                              .memory_limit_bytes = m->memory_limit_bytes,
                              .master_port = m->master_port,
                              .stream_store = m->stream_store,
                              .trusted = m->trusted};
    snprintf(a.job, sizeof a.job, "%s", m->id->job);
    snprintf(a.master_address, sizeof a.master_address, "%s", m->master_address);
    if (!a.n_ranks || a.n_ranks > TD_LAUNCH_RANKS_MAX || a.first_rank + a.n_ranks > a.world_size) {
        return bad(td_fail(TD_INVALID_ARGUMENT, "ranks %u to %u of a world of %u", a.first_rank,
                           a.first_rank + a.n_ranks - 1, a.world_size));
    }
    for (size_t i = 0; i < m->n_resume && a.n_resume < TD_ASSIGNMENT_RESUME_MAX; i++) {
        if (!td_checkpoint_path_ok(m->resume[i]->path)) {
            return bad(td_fail(TD_INVALID_ARGUMENT, "'%.64s' is no path of a checkpoint",
                               m->resume[i]->path));
        }
        struct td_resume *r = &a.resume[a.n_resume++];
        snprintf(r->path, sizeof r->path, "%s", m->resume[i]->path);
        r->fetch = m->resume[i]->fetch;
    }
    td_status s = take_devices(m, &a);
    if (!s) s = take_spec(m->plan_json, state_dir, &a);
    if (s) return bad(s);
    *out_assignment = a;
    return TD_OK;
}

// ---- files --------------------------------------------------------------------------------------
// Where a source is: among the job's checkpoints here; else, in the process of the coordinator,
// which fetches nothing from itself, with what was streamed to it. NULL: out of memory; "":
// nowhere.
static const char *place_of(const struct td_assignment *a, const struct td_resume *r,
                            const char *state_dir, struct td_arena *arena) {
    const char *here = td_arena_printf(arena, "%s/%s", a->checkpoints, r->path);
    if (!here || !r->fetch || td_fs_exists(here)) return here;
    here = td_arena_printf(arena, "%s/checkpoints/%s/%s", state_dir, a->job, r->path);
    return here && !td_fs_exists(here) ? "" : here;
}

static td_status add_sources(const struct td_assignment *a, const char *state_dir,
                             struct td_arena *arena, struct td_plan_run *run) {
    struct td_json *before = td_json_new(arena, TD_JSON_ARRAY);
    run->resume_from = "";
    for (size_t i = 0; i < a->n_resume; i++) {
        const char *path = place_of(a, &a->resume[i], state_dir, arena);
        if (!path) return td_fail_oom();
        if (!*path) continue; // was not fetched
        if (!*run->resume_from) {
            run->resume_from = path;
        } else if (!td_json_push(before, td_json_new_string(arena, path))) {
            return td_fail_oom();
        }
    }
    run->resume_before = before && before->n_children ? before : NULL;
    if (a->n_resume == 0 || *run->resume_from) return TD_OK;
    return td_status_with_class(
        td_fail(TD_DATA_LOSS, "none of the %zu checkpoints of %s is in '%s'; it would begin again",
                a->n_resume, a->job, a->checkpoints),
        TD_CLASS_DATA);
}

static td_status write_plan(const struct td_assignment *a, const char *plan_json, const char *dir,
                            const char *state_dir) {
    TD_AUTO(td_arena) *arena = NULL;
    struct td_plan plan, built;
    TD_TRY(td_given_plan_parse(plan_json, &arena, &plan));
    struct td_plan_run run = plan.run;
    run.job = a->job;
    run.attempt = (int32_t)a->attempt;
    run.world_size = (int32_t)a->world_size;
    run.threads_per_rank = (int32_t)a->threads;
    run.checkpoint_dir = td_arena_printf(arena, "%s/a%u", a->checkpoints, a->attempt);
    run.cache_dir = td_arena_printf(arena, "%s/cache", state_dir);
    if (a->n_ranks < a->world_size) {
        run.master_address = a->master_address;
        run.master_port = (int32_t)a->master_port;
        run.collective_interface = a->collective.name;
        run.collective_address = a->collective.address;
    }
    // A command's own are in the plan.
    if (a->kind != TD_KIND_COMMAND) TD_TRY(add_sources(a, state_dir, arena, &run));
    if (!run.checkpoint_dir || !run.cache_dir) return td_fail_oom();
    TD_TRY(td_plan_build(arena, plan.spec.tree, &run, &built));
    TD_AUTO_BUF text;
    td_buf_init(&text, PLAN_MAX);
    TD_TRY(td_plan_print(&built, &text));
    char path[TD_FS_PATH_BYTES];
    TD_TRY(td_fs_path(path, "%s/%s", dir, TD_SEGMENT_PLAN));
    return td_fs_write(path, text.data, text.len, 0600, 0); // td_assignment_sync follows
}

static td_status write_facts(const struct td_assignment *a, const char *dir) {
    TD_AUTO_BUF text;
    td_buf_init(&text, FILE_MAX);
    TD_TRY(td_buf_printf(&text,
                         "{\"format\":1,\"epoch\":%llu,\"slots\":%u,\"first_rank\":%u,"
                         "\"n_ranks\":%u,\"stream_store\":%s,\"checkpoints\":",
                         (unsigned long long)a->epoch, a->slots, a->first_rank, a->n_ranks,
                         a->stream_store ? "true" : "false"));
    TD_TRY(td_json_print_string(a->checkpoints, strlen(a->checkpoints), &text));
    TD_TRY(td_buf_printf(&text, ",\"devices\":\"%s\"}\n", a->devices)); // names have no quotes
    char path[TD_FS_PATH_BYTES];
    TD_TRY(td_fs_path(path, "%s/%s", dir, ASSIGNMENT_FILE));
    return td_fs_write(path, text.data, text.len, 0600, 0); // td_assignment_sync follows
}

// A place that the spec names. The planner found it good, so what is missing or refused now is the
// disk's trouble, and another attempt may find it better. A command was not planned: of its first
// attempt the place may be wrong. A file that is in the way is the spec's mistake either way.
static td_status wrong_place(const struct td_assignment *a, td_status s) {
    if (td_status_class(s) == TD_CLASS_DISK) return s;
    bool is_gone = td_fs_is_gone(s);
    if (!is_gone && td_status_code(s) != TD_FAILED_PRECONDITION) return s;
    bool was_good = a->kind == TD_KIND_TRAIN || a->attempt > 1;
    s = td_status_context(s, "checkpoint.dir must be a directory that traind on this node can "
                             "make or write; change it or its permissions");
    return td_status_with_class(s, is_gone && was_good ? TD_CLASS_DISK : TD_CLASS_BAD_SPEC);
}

td_status td_assignment_find(const char *checkpoints) {
    char parent[TD_FS_PATH_BYTES];
    const char *slash = strrchr(checkpoints, '/');
    if (!slash || td_fs_exists(checkpoints)) return TD_OK;
    TD_TRY(td_fs_path(parent, "%.*s", (int)(slash - checkpoints), checkpoints));
    DIR *dir = opendir(parent);
    if (!dir && errno != ENOENT && errno != ENOTDIR) return td_fs_fail("open", parent);
    int n = 0;
    while (dir && n <= 2 && readdir(dir)) { // "." and ".."
        n++;
    }
    if (dir) closedir(dir);
    if (n > 2) return TD_OK;
    return td_fail(TD_NOT_FOUND,
                   "'%s' is not there any more; mount the file system of checkpoint.dir on this "
                   "node; or, if the files were removed, make this directory, empty",
                   checkpoints);
}

// The job has saved there, so that the directory is not to be made again below a mount point.
static td_status check_mounted(const struct td_assignment *a) {
    bool saved_here = false;
    for (size_t i = 0; i < a->n_resume; i++) {
        saved_here |= !a->resume[i].fetch;
    }
    td_status s = saved_here ? td_assignment_find(a->checkpoints) : TD_OK;
    return td_status_code(s) == TD_NOT_FOUND ? td_status_with_class(s, TD_CLASS_DISK) : s;
}

// Ranks write there, under the umask of jobs. The node's own is the node's trouble.
td_status td_assignment_make_dir(const struct td_assignment *a, mode_t mode) {
    char path[TD_FS_PATH_BYTES];
    TD_TRY(td_fs_path(path, "%s/a%u", a->checkpoints, a->attempt));
    if (!a->place_is_given) return td_fs_mkdirs_exact(path, mode);
    td_status s = check_mounted(a);
    return wrong_place(a, s ? s : td_fs_mkdirs_exact(path, mode));
}

td_status td_assignment_write(const struct td_assignment *a, const char *plan_json, const char *dir,
                              const char *state_dir, mode_t checkpoints_mode) {
    char path[TD_FS_PATH_BYTES];
    TD_TRY(td_fs_mkdirs(dir, 0700));
    if (!a->place_is_given) TD_TRY(td_assignment_make_dir(a, checkpoints_mode));
    TD_TRY(td_fs_path(path, "%s/cache", state_dir));
    TD_TRY(td_fs_mkdirs(path, 0700));
    TD_TRY(write_facts(a, dir));
    return write_plan(a, plan_json, dir, state_dir);
}

td_status td_assignment_sync(const char *dir) {
    const char *const names[] = {ASSIGNMENT_FILE, TD_SEGMENT_PLAN};
    for (size_t i = 0; i < TD_COUNTOF(names); i++) {
        char path[TD_FS_PATH_BYTES];
        TD_TRY(td_fs_path(path, "%s/%s", dir, names[i]));
        TD_AUTO_CLOSE int fd = -1;
        TD_TRY(td_fs_open(path, &fd, NULL));
        if (fsync(fd) != 0) return td_fs_fail("sync", path);
    }
    return td_fs_fsync_dir(dir);
}

td_status td_assignment_load(const char *dir, struct td_assignment *inout_assignment) {
    char path[TD_FS_PATH_BYTES];
    TD_TRY(td_fs_path(path, "%s/%s", dir, ASSIGNMENT_FILE));
    TD_AUTO_BUF text;
    td_buf_init(&text, FILE_MAX);
    TD_TRY(td_fs_read(path, FILE_MAX, &text));
    TD_AUTO(td_arena) *arena = NULL;
    TD_TRY(td_arena_create(1 << 20, &arena));
    struct td_json *v;
    TD_TRY_CTX(td_json_parse(arena, text.data, text.len, &v), "'%s'", path);
    struct td_assignment *a = inout_assignment;
    a->epoch = (uint64_t)td_json_int(td_json_get(v, "epoch"), 0);
    a->slots = (uint32_t)td_json_int(td_json_get(v, "slots"), 0);
    a->first_rank = (uint32_t)td_json_int(td_json_get(v, "first_rank"), 0);
    a->n_ranks = (uint32_t)td_json_int(td_json_get(v, "n_ranks"), 0);
    a->stream_store = td_json_bool(td_json_get(v, "stream_store"), false);
    snprintf(a->checkpoints, sizeof a->checkpoints, "%s",
             td_json_string(td_json_get(v, "checkpoints"), ""));
    snprintf(a->devices, sizeof a->devices, "%s", td_json_string(td_json_get(v, "devices"), ""));
    if (td_json_int(td_json_get(v, "format"), 0) != 1 || a->n_ranks == 0 ||
        a->n_ranks > TD_LAUNCH_RANKS_MAX || !a->checkpoints[0]) {
        return td_fail(TD_DATA_LOSS, "'%s' is not what a node of this version writes", path);
    }
    return TD_OK;
}

// ---- without the file ---------------------------------------------------------------------------
static td_status rebuild_from_log(const char *dir, struct td_assignment *a) {
    char path[TD_FS_PATH_BYTES], line[LAUNCHED_MAX];
    TD_TRY(td_fs_path(path, "%s/%s", dir, TD_SEGMENT_EVENTS));
    TD_AUTO_CLOSE int fd = -1;
    TD_TRY(td_fs_open(path, &fd, NULL));
    ssize_t n = read(fd, line, sizeof line);
    const char *end = n > 0 ? memchr(line, '\n', (size_t)n) : NULL;
    if (!end) return td_fail(TD_DATA_LOSS, "'%s' has no first line", path);
    TD_AUTO(td_arena) *arena = NULL;
    TD_TRY(td_arena_create(1 << 20, &arena));
    struct td_json *v;
    TD_TRY_CTX(td_json_parse(arena, line, (size_t)(end - line), &v), "'%s'", path);
    a->epoch = (uint64_t)td_json_int(td_json_get(v, "epoch"), 0);
    a->first_rank = (uint32_t)td_json_int(td_json_get(v, "first_rank"), 0);
    a->n_ranks = (uint32_t)td_json_int(td_json_get(v, "n_ranks"), 0);
    if (a->n_ranks == 0 || a->n_ranks > TD_LAUNCH_RANKS_MAX) {
        return td_fail(TD_DATA_LOSS, "the first line of '%s' does not name its ranks", path);
    }
    return TD_OK;
}

static td_status rebuild_from_plan(const char *dir, struct td_assignment *a) {
    char path[TD_FS_PATH_BYTES], own[16];
    TD_TRY(td_fs_path(path, "%s/%s", dir, TD_SEGMENT_PLAN));
    TD_AUTO_BUF text;
    td_buf_init(&text, PLAN_MAX);
    TD_TRY(td_fs_read(path, PLAN_MAX, &text));
    TD_AUTO(td_arena) *arena = NULL;
    struct td_plan plan;
    TD_TRY(td_arena_create(TD_SPEC_ARENA_BYTES, &arena));
    TD_TRY_CTX(td_plan_parse(arena, td_buf_cstr(&text), text.len, &plan),
               "'%s', which another build of this node may have written", path);
    const char *checkpoints = plan.run.checkpoint_dir;
    size_t len = strlen(checkpoints);
    size_t end = (size_t)snprintf(own, sizeof own, "/a%u", a->attempt);
    if (len <= end || len - end >= sizeof a->checkpoints ||
        strcmp(checkpoints + len - end, own) != 0) {
        return td_fail(TD_DATA_LOSS, "'%s' does not say where checkpoints are", path);
    }
    snprintf(a->checkpoints, sizeof a->checkpoints, "%.*s", (int)(len - end), checkpoints);
    a->stream_store = strcmp(plan.spec.checkpoint.store, "fs") != 0; // as the coordinator decides
    return TD_OK;
}

td_status td_assignment_rebuild(const char *dir, struct td_assignment *inout_assignment) {
    TD_TRY(rebuild_from_log(dir, inout_assignment));
    return rebuild_from_plan(dir, inout_assignment);
}
