// See the header, and traind/spawn.h. In a rank the death signal comes first, then the check
// of the parent: one that died in between sent nothing. The process ends by exit(3), as a return
// from main would end it.

#include "fabric/spawn/main.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>

#include "fabric/attach.h"
#include "fabric/config.h"
#include "fabric/signals/fatal.h"
#include "fabric/spawn/result_frame.h"
#include "fabric/spawn/spawn_call.h"
#include "lib/attempt/exit_codes.h"
#include "lib/base/log.h"

struct td_spawned {
    int32_t rank, world_size;
    int results_fd;
    const char *dir;
};

static struct {
    _Atomic bool called;
    const char *const *argv;
    const struct td_spawn_function *functions; // (n)
    size_t n;
} program;

static const struct td_spawn_function *find(const char *name) {
    for (size_t i = 0; i < program.n; i++) {
        if (strcmp(program.functions[i].name, name) == 0) return &program.functions[i];
    }
    return NULL;
}

static td_status not_in_table(const char *name) {
    struct td_nearest near;
    td_nearest_init(&near, name);
    for (size_t i = 0; i < program.n; i++) {
        td_nearest_offer(&near, program.functions[i].name);
    }
    return td_fail(TD_NOT_FOUND, "the table of td_main has no function '%.64s'%s%s%s", name,
                   near.best ? "; did you mean '" : "", near.best ? near.best : "",
                   near.best ? "'?" : "");
}

td_status td_main_program(const char *function, const char *const **out_argv) {
    if (!atomic_load(&program.called)) {
        return td_fail(TD_FAILED_PRECONDITION,
                       "td_spawn needs td_main: call it first in main, so that the ranks find "
                       "their function");
    }
    if (!find(function)) return not_in_table(function);
    *out_argv = program.argv;
    return TD_OK;
}

// ---- a rank's results ---------------------------------------------------------------------------
int32_t td_spawned_rank(const struct td_spawned *self) {
    return self->rank;
}

int32_t td_spawned_world_size(const struct td_spawned *self) {
    return self->world_size;
}

const char *td_spawned_temp_dir(const struct td_spawned *self) {
    return self->dir;
}

static td_status give(struct td_spawned *self, enum td_result_kind kind, const char *name,
                      const void *body, size_t bytes) {
    if (self->rank != 0) {
        return td_fail(TD_FAILED_PRECONDITION,
                       "rank %d gives back a %s; rank 0 alone may: reduce or gather it there first",
                       self->rank, td_result_kind_name(kind));
    }
    return td_result_send(self->results_fd, kind, name, body, bytes);
}

static td_status give_named(struct td_spawned *self, enum td_result_kind kind, const char *name,
                            const void *body, size_t bytes) {
    if (!*name) {
        return td_fail(TD_INVALID_ARGUMENT, "a %s has an empty name", td_result_kind_name(kind));
    }
    return give(self, kind, name, body, bytes);
}

td_status td_spawned_put(struct td_spawned *self, const void *data, size_t bytes) {
    return give(self, TD_RESULT_BYTES, "", data, bytes);
}

td_status td_spawned_put_double(struct td_spawned *self, const char *name, double value) {
    return give_named(self, TD_RESULT_DOUBLE, name, &value, sizeof value);
}

td_status td_spawned_put_int(struct td_spawned *self, const char *name, int64_t value) {
    return give_named(self, TD_RESULT_INT, name, &value, sizeof value);
}

td_status td_spawned_put_best_path(struct td_spawned *self, const char *path) {
    size_t len = strlen(path);
    if (len == 0 || len >= TD_RESULT_PATH_BYTES) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "the path of the best checkpoint has %zu bytes; 1 to %d can be", len,
                       TD_RESULT_PATH_BYTES - 1);
    }
    return give(self, TD_RESULT_BEST_PATH, "", path, len);
}

td_status td_spawned_put_weights(struct td_spawned *self, const char *file_name) {
    return give_named(self, TD_RESULT_WEIGHTS, file_name, NULL, 0);
}

// ---- a rank -------------------------------------------------------------------------------------
static td_status run(struct td_spawned *self, const struct td_spawn_call *call, const void *args,
                     const struct td_rank_env *e, struct td_rank_io *io) {
    const struct td_rank_args launched = {.rank = e->rank,
                                          .world_size = e->world_size,
                                          .page_fd = e->page_fd,
                                          .events_fd = -1,
                                          .group_fd = e->group_fd,
                                          .store_fd = e->store_fd};
    TD_TRY(td_rank_attach(&launched, io));
    TD_TRY(td_fatal_install(io->train.page));
    const struct td_spawn_function *f = find(call->function);
    if (!f) return not_in_table(call->function);
    return f->fn(self, args, call->args_bytes);
}

// What a function returned without a class is the fault of the user's own code.
static int exit_code_of(td_status s) {
    if (!s) return TD_EXIT_DONE;
    enum td_class cls = td_status_class(s);
    return td_exit_code_of(cls == TD_CLASS_NONE ? TD_CLASS_USER_CODE : cls);
}

static _Noreturn void be_rank(const struct td_rank_env *e, const struct td_spawn_call *call,
                              const void *args) {
    // The page stays mapped: handlers of exit may crash, too.
    struct td_rank_io io = {0};
    struct td_spawned self = {e->rank, e->world_size, e->results_fd, call->dir};
    td_status s = run(&self, call, args, e, &io);
    int code = exit_code_of(s);
    if (s && io.train.page) td_fatal_last_words(io.train.page, td_status_message(s));
    td_status failed = s ? td_result_send_status(e->results_fd, s)
                         : td_result_send(e->results_fd, TD_RESULT_DONE, "", NULL, 0);
    td_status_free(s);
    if (failed) {
        td_status_log(TD_LOG_ERROR, failed, "a rank could not say how it ended");
        code = TD_EXIT_BUG;
    }
    exit(code);
}

// ---- td_main ------------------------------------------------------------------------------------
static td_status check_table(const struct td_spawn_function *functions, size_t n) {
    if (n > TD_SPAWN_FUNCTIONS_MAX) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "the table of td_main has %zu functions, at most %d can be", n,
                       TD_SPAWN_FUNCTIONS_MAX);
    }
    for (size_t i = 0; i < n; i++) {
        const char *name = functions[i].name;
        size_t len = name ? strlen(name) : 0;
        if (len == 0 || len >= TD_SPAWN_NAME_BYTES || !functions[i].fn) {
            return td_fail(
                TD_INVALID_ARGUMENT,
                "row %zu of the table of td_main, '%.32s', needs a name of 1 to %d bytes "
                "and a function",
                i, name ? name : "", TD_SPAWN_NAME_BYTES - 1);
        }
        for (size_t k = 0; k < i; k++) {
            if (strcmp(functions[k].name, name) != 0) continue;
            return td_fail(TD_INVALID_ARGUMENT, "the table of td_main has the name '%s' twice",
                           name);
        }
    }
    return TD_OK;
}

td_status td_main(int argc, char **argv, const struct td_spawn_function *functions, size_t n) {
    if (argc < 1) return td_fail(TD_INVALID_ARGUMENT, "td_main needs the program's argv");
    TD_TRY(check_table(functions, n));
    if (atomic_exchange(&program.called, true)) {
        return td_fail(TD_FAILED_PRECONDITION,
                       "td_main is called twice: once, first in main, with all functions");
    }
    program.argv = (const char *const *)argv;
    program.functions = functions;
    program.n = n;
    const struct td_rank_env *e;
    int call_fd = -1;
    TD_TRY(td_fabric_env(&e));
    TD_TRY(td_fabric_call_fd(&call_fd));
    if (call_fd < 0) return TD_OK;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
        return td_fail_errno(TD_INTERNAL, "set the death signal of a rank");
    }
    const struct td_spawn_call *call;
    const void *args;
    TD_TRY(td_spawn_call_read(call_fd, &call, &args));
    if (getppid() != (pid_t)call->parent) _exit(TD_EXIT_BUG); // orphaned already
    be_rank(e, call, args);
}
