// The frozen object has accelerator, strategy, collective, precision, threads_per_rank, "kernels"
// and "cpu". "kernels" is an object from the accelerator's keys to names. "cpu" is the part of the
// resume key that says which hardware, library and CPU level these were chosen on. Accelerators
// speak lines of text instead, because plugins should need no JSON.

#include "engine/train/plan/choices.h"

#include <string.h>

#include "engine/train/rank/group/group.h"
#include "lib/base/files/files.h"

// Announced in one event, so that is their bound (lib/attempt/segments.h).
enum { TEXT_MAX = TD_EVENT_MAX - 4096 };

// ---- lines <-> JSON -----------------------------------------------------------------------------
static td_status print_lines(const struct td_json *kernels, struct td_buf *out) {
    for (const struct td_json *k = kernels ? kernels->first : NULL; k; k = k->next) {
        TD_TRY(td_buf_printf(out, "%s=%s\n", k->key, td_json_string(k, "")));
    }
    return TD_OK;
}

static td_status read_lines(struct td_arena *a, const char *text, struct td_json **out_kernels) {
    struct td_json *o = td_json_new(a, TD_JSON_OBJECT);
    if (!o) return td_fail_oom();
    while (*text) {
        size_t len = strcspn(text, "\n");
        char *line = td_arena_strndup(a, text, len), *equals = line ? strrchr(line, '=') : NULL;
        if (!line) return td_fail_oom();
        if (!equals) return td_fail(TD_INTERNAL, "'%s' is no kernel choice", line);
        *equals = '\0';
        if (!td_json_set(a, o, line, td_json_new_string(a, equals + 1))) return td_fail_oom();
        text += len + (text[len] == '\n');
    }
    *out_kernels = o;
    return TD_OK;
}

// ---- kernels ------------------------------------------------------------------------------------
// What a race found on other hardware, or at another CPU level, is not taken: the bits differ there
// anyway, and another way may be the fastest here. Manifests of older builds name it in their
// resume key alone; "": nobody knows, so it is taken.
static const char *cpu_of(const struct td_json *frozen, const char *fallback) {
    return td_json_string(td_json_get(frozen, "cpu"), fallback);
}

static bool is_foreign(const struct td_rank *r, const char *cpu) {
    return *cpu && strcmp(cpu, r->key.cpu) != 0;
}

static td_status adopt(const struct td_rank *r, const struct td_json *frozen) {
    TD_AUTO_BUF text;
    td_buf_init(&text, TEXT_MAX);
    const struct td_json *k = td_json_get(frozen, "kernels");
    TD_TRY(print_lines(k && k->kind == TD_JSON_OBJECT ? k : NULL, &text));
    return r->accel_ops->adopt_choices(r->accel, td_buf_cstr(&text));
}

// Of the job's first start, or of the run that the checkpoint is from; NULL: none for this
// hardware.
static const struct td_json *frozen_for(struct td_rank *r) {
    const struct td_json *given = r->config->frozen;
    const struct td_manifest *m = r->resumed ? &r->restored.manifest : NULL;
    const struct td_json *found[] = {given, m ? m->frozen : NULL};
    const char *cpu[] = {cpu_of(given, ""), m ? cpu_of(m->frozen, m->key.cpu) : ""};
    const char *foreign = NULL;
    for (size_t i = 0; i < TD_COUNTOF(found); i++) {
        const struct td_json *kernels = td_json_get(found[i], "kernels");
        if (!kernels || !kernels->first) continue;
        if (!is_foreign(r, cpu[i])) return found[i];
        foreign = cpu[i];
    }
    if (foreign) {
        td_events_note(r->events, "kernels that were chosen on %s are chosen again for %s", foreign,
                       r->key.cpu);
    }
    return NULL;
}

static td_status bind_first(struct td_rank *r, const struct td_bindings *b, struct td_buf *text) {
    const char *chosen;
    TD_TRY(adopt(r, frozen_for(r)));
    TD_TRY(td_programs_bind(r->programs, r->accel_ops, r->accel, b, r->arena_memory));
    TD_TRY(r->accel_ops->choices(r->accel, &chosen));
    return td_buf_str(text, chosen);
}

static td_status share(struct td_rank *r, struct td_buf *text) {
    uint64_t bytes = text->len;
    TD_TRY(td_rank_broadcast(r, &bytes, sizeof bytes, 0));
    if (bytes > TEXT_MAX) return td_fail(TD_INTERNAL, "kernel choices of %zu bytes", (size_t)bytes);
    if (!r->facts.is_global_zero) TD_TRY(td_buf_reserve(text, (size_t)bytes));
    text->len = (size_t)bytes;
    if (!bytes) return TD_OK;
    TD_TRY(td_rank_broadcast(r, text->data, text->len, 0));
    text->data[text->len] = '\0'; // td_buf_reserve has room for it
    return TD_OK;
}

td_status td_choices_bind(struct td_rank *r, const struct td_bindings *b) {
    if (!r->accel_ops->choices) {
        return td_programs_bind(r->programs, r->accel_ops, r->accel, b, r->arena_memory);
    }
    TD_AUTO_BUF text;
    td_buf_init(&text, TEXT_MAX);
    if (r->facts.is_global_zero) TD_TRY(bind_first(r, b, &text));
    if (r->facts.world_size > 1) TD_TRY(share(r, &text));
    if (!r->facts.is_global_zero) {
        TD_TRY(r->accel_ops->adopt_choices(r->accel, td_buf_cstr(&text)));
        TD_TRY(td_programs_bind(r->programs, r->accel_ops, r->accel, b, r->arena_memory));
    }
    return read_lines(r->arena, td_buf_cstr(&text), &r->kernels);
}

// Of the first checkpoint whose manifest can be read here; NULL, and out_path, if there is none.
// Its files are not verified: that takes longer than a plan may.
static const struct td_json *frozen_before(struct td_rank *r, const char **out_path,
                                           const char **out_cpu) {
    const struct td_train_config *c = r->config;
    for (size_t i = 0; i < c->n_resume_from; i++) {
        char path[TD_FS_PATH_BYTES];
        struct td_manifest m;
        td_status s = td_fs_path(path, "%s/manifest.json", c->resume_from[i]);
        if (!s) s = td_manifest_read(r->arena, path, &m);
        if (!s) {
            *out_path = c->resume_from[i];
            *out_cpu = td_arena_printf(r->arena, "%s", cpu_of(m.frozen, m.key.cpu));
            return m.frozen;
        }
        td_status_free(s);
    }
    *out_path = NULL;
    return NULL;
}

td_status td_choices_preview(struct td_rank *r, const struct td_program *p, td_choice_fn *fn,
                             void *arg, struct td_choices_origin *out_origin) {
    const struct td_train_config *c = r->config;
    const struct td_json *frozen = c->frozen;
    const char *cpu = cpu_of(frozen, "");
    struct td_choices_origin o = {.frozen = frozen ? "the plan" : NULL};
    *out_origin = o;
    if (!r->accel_ops->list_choices || !r->accel_ops->adopt_choices) return TD_OK;
    if (!frozen || is_foreign(r, cpu)) {
        const char *path, *cpu_before = "";
        const struct td_json *before = frozen_before(r, &path, &cpu_before);
        if (!cpu_before) return td_fail_oom();
        if (before || !frozen) {
            frozen = before;
            cpu = cpu_before;
            o.frozen = path;
        }
    }
    o.is_foreign = is_foreign(r, cpu);
    *out_origin = o;
    TD_TRY(adopt(r, o.is_foreign ? NULL : frozen));
    return r->accel_ops->list_choices(r->accel, p, fn, arg);
}

// ---- all of them --------------------------------------------------------------------------------
td_status td_choices_freeze(struct td_rank *r) {
    struct td_arena *a = r->arena;
    const struct td_json *before = r->config->frozen;
    struct td_json *o = before ? td_json_copy(a, before) : td_json_new(a, TD_JSON_OBJECT);
    bool ok = o != NULL;
    if (!before) {
        ok = td_json_set(a, o, "accelerator", td_json_new_string(a, r->accel_name)) &&
             td_json_set(a, o, "strategy", td_json_new_string(a, r->strategy_name)) &&
             td_json_set(a, o, "collective", td_json_new_string(a, r->group_name)) &&
             td_json_set(a, o, "precision", td_json_new_string(a, r->config->precision)) &&
             td_json_set(a, o, "comm_hook", td_json_new_string(a, r->hook_name)) &&
             td_json_set(a, o, "threads_per_rank", td_json_new_int(a, r->config->n_threads));
    }
    if (ok && r->kernels) {
        ok = td_json_set(a, o, "kernels", r->kernels) &&
             td_json_set(a, o, "cpu", td_json_new_string(a, r->key.cpu));
    }
    if (!ok) return td_fail_oom();
    r->frozen = o;
    if (!before && r->facts.is_global_zero) td_events_frozen(r->events, o);
    return TD_OK;
}
