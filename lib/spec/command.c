// Rules of kinds command and program: a program is named, and `env` has only names that are free.
//
// A variable has the text that is in the spec, 007 as 007. Of JSON, where a number has no text of
// its own, integers are taken by their digits, and what else there is is refused with the remedy.
// Checked variables are put back as texts: the launcher finds nothing else.

#include <stdio.h>
#include <string.h>

#include "lib/job/command.h"
#include "lib/spec/check.h"

static void check_program(struct td_check *c, const struct td_json *list) {
    const struct td_json *first = list ? list->first : NULL;
    if (!first || td_json_string(first, "")[0]) return;
    td_check_violation(c, "command", list->line, "its first text names the program, and is empty");
}

// The variable as text; NULL after noting what is wrong.
static const char *value_of(struct td_check *c, const char *path, const struct td_json *v) {
    const struct td_json *text = td_check_as_text(c, v);
    if (!text) {
        const bool is_null = v->kind == TD_JSON_NULL;
        td_check_violation(c, path, v->line, "expected text, found %s; %s",
                           td_check_describe(c->arena, v),
                           is_null ? "\"\" is an empty one" : "put it in quotes");
        return NULL;
    }
    if (strlen(text->u.string.data) != text->u.string.len) {
        td_check_violation(c, path, v->line, "holds a zero byte, which no environment can");
        return NULL;
    }
    return text->u.string.data;
}

// What `resources` says of GPUs.
struct gpus {
    bool is_unmanaged, are_indexes;
};

static void check_variable(struct td_check *c, const struct gpus *gpus, const struct td_json *v,
                           struct td_json *out, size_t *inout_bytes) {
    const char *path = td_check_path(c, "env", v->key);
    if (!td_command_env_name_ok(v->key)) {
        td_check_violation(c, path, v->line,
                           "a variable's name has letters, digits and '_', no digit first, and at "
                           "most %d of them",
                           TD_COMMAND_ENV_NAME);
        return;
    }
    if (td_command_env_is_own(v->key)) {
        td_check_violation(c, path, v->line,
                           "is set by traind and cannot be changed; trainer.devices and "
                           "resources.threads say how many ranks and threads there are");
        return;
    }
    if (td_command_env_is_gpus(v->key) && !gpus->is_unmanaged) {
        td_check_violation(c, path, v->line,
                           "is set by traind, to the GPUs that resources.gpus_per_rank asks for; "
                           "with resources.unmanaged_gpus: true it is left alone");
        return;
    }
    if (strcmp(v->key, "CUDA_DEVICE_ORDER") == 0 && gpus->are_indexes) {
        td_check_violation(c, path, v->line,
                           "is set by traind with resources.gpu_names: index, which counts in PCI "
                           "order");
        return;
    }
    const char *text = value_of(c, path, v);
    if (!text) return;
    *inout_bytes += strlen(v->key) + strlen(text) + 2;
    struct td_json *made = td_json_new_string(c->arena, text);
    if (made) made->line = v->line;
    td_check_oom(c, td_json_set(c->arena, out, v->key, made) ? out : NULL);
}

static void check_env(struct td_check *c, struct td_json *canonical) {
    const struct td_json *env = td_json_get(canonical, "env");
    if (!env) return;
    struct td_json *out = td_json_new(c->arena, TD_JSON_OBJECT);
    if (td_check_oom(c, out)) return;
    out->line = env->line;
    size_t bytes = 0;
    const struct td_json *names = td_json_path(canonical, "resources.gpu_names");
    const struct gpus gpus = {
        td_json_bool(td_json_path(canonical, "resources.unmanaged_gpus"), false),
        strcmp(td_json_string(names, ""), "index") == 0};
    if (env->n_children > TD_COMMAND_ENV_MAX) {
        td_check_violation(c, "env", env->line, "has %zu variables, at most %d are taken",
                           env->n_children, TD_COMMAND_ENV_MAX);
        return;
    }
    for (const struct td_json *v = env->first; v; v = v->next) {
        check_variable(c, &gpus, v, out, &bytes);
    }
    if (bytes > TD_COMMAND_ENV_BYTES) {
        td_check_violation(c, "env", env->line, "has %zu bytes, at most %d are taken", bytes,
                           TD_COMMAND_ENV_BYTES);
    }
    td_check_oom(c, td_json_set(c->arena, canonical, "env", out) ? out : NULL);
}

void td_check_command(struct td_check *c, struct td_json *canonical) {
    check_program(c, td_json_get(canonical, "command"));
    check_env(c, canonical);
}
