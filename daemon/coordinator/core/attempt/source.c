// See the header.

#include "daemon/coordinator/core/attempt/source.h"

#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/core/attempt/transitions.h"
#include "daemon/coordinator/core/catalog/catalog.h"
#include "daemon/coordinator/core/catalog/retain.h"
#include "daemon/coordinator/core/model/changes.h"
#include "daemon/coordinator/core/model/effects.h"
#include "daemon/coordinator/core/model/model.h"
#include "daemon/coordinator/core/model/plan_asks.h"
#include "lib/attempt/checkpoint_name.h"
#include "lib/base/buf.h"
#include "lib/base/digest.h"

enum { SPEC_MAX_BYTES = 4 << 20, SOURCE_BYTES = TD_JOB_ID_MAX + TD_JOB_PATH_MAX };

// ---- names --------------------------------------------------------------------------------------
// The key of a spec that names a checkpoint of a job; NULL: none does.
static const char *find_name(const char *ckpt_path, const char *init_from,
                             struct td_checkpoint_of_job *out_name) {
    if (td_checkpoint_of_job_read(ckpt_path, out_name)) return "ckpt_path";
    return td_checkpoint_of_job_read(init_from, out_name) ? "init_from" : NULL;
}

static const char *name_of(const struct td_job *j, struct td_checkpoint_of_job *out_name) {
    return find_name(j->knobs.ckpt_path, j->knobs.init_from, out_name);
}

td_status td_source_pick(struct td_job *of, const char *which,
                         const struct td_checkpoint **out_checkpoint) {
    const bool is_path = td_checkpoint_path_ok(which);
    const struct td_checkpoint *c =
        strcmp(which, "best") == 0 ? td_retain_best(of) : td_catalog_find(of, is_path ? which : "");
    if (c && !c->committed) c = NULL;
    if (c && is_path && c->damage) {
        return td_fail(TD_FAILED_PRECONDITION, "%s of job %s is damaged: %s", which, of->id,
                       c->damage);
    }
    *out_checkpoint = c;
    if (c) return TD_OK;
    if (!is_path) {
        return td_fail(TD_FAILED_PRECONDITION, "job %s (%s) has no checkpoint yet", of->id,
                       of->name);
    }
    return td_fail(TD_NOT_FOUND,
                   "job %s (%s) has no checkpoint %s; `trainctl checkpoint list %s` shows them",
                   of->id, of->name, which, of->id);
}

static td_status pick(struct td_core *core, const struct td_checkpoint_of_job *name,
                      struct td_job **out_of, const struct td_checkpoint **out_checkpoint) {
    struct td_job *of = td_core_job(core, name->job);
    if (!of) return td_fail(TD_NOT_FOUND, "job %s was deleted", name->job);
    td_status s = td_source_pick(of, name->which, out_checkpoint);
    if (td_status_code(s) == TD_NOT_FOUND) {
        td_status_free(s);
        return td_fail(
            TD_NOT_FOUND,
            "checkpoint %s of job %s (%s) is not there any more, as its save_top_k keeps "
            "others; %s/last is its newest",
            name->which, of->id, of->name, of->id);
    }
    *out_of = of;
    return s;
}

// ---- places -------------------------------------------------------------------------------------
static bool only_the_embedded(const struct td_core *core) {
    const struct td_host *n;
    for (size_t cursor = 0; (n = td_map_each(core->nodes, &cursor));) {
        if (!n->embedded) return false;
    }
    return true;
}

// Where a rank reads it: where its rank wrote it. One that the coordinator keeps is there, if there
// are no nodes but its own.
static bool is_here(const struct td_core *core, const struct td_checkpoint *c) {
    return !c->directory[0] || (c->streamed && only_the_embedded(core));
}

// Its rank has removed it where others read it, and the next one is still on its way here:
// catalog.h keeps it until then.
static bool is_leaving(const struct td_core *core, const struct td_job *of,
                       const struct td_checkpoint *c) {
    const bool one_comes = td_catalog_pending(of) || !td_job_state_ended(of->state);
    return c->leaving && one_comes && !is_here(core, c);
}

static char *place_of(const struct td_core *core, const struct td_job *of,
                      const struct td_checkpoint *c) {
    if (!is_here(core, c)) return td_core_dup(c->directory);
    TD_AUTO_BUF text;
    td_buf_init(&text, SPEC_MAX_BYTES);
    TD_CHECK(!td_buf_printf(&text, "%s/%s/%s", core->checkpoint_dir, of->id, c->path));
    return td_core_dup(td_buf_cstr(&text));
}

static td_status with_place(const char *spec_json, const char *key, const char *place,
                            char **out_json) {
    TD_AUTO(td_arena) *arena = NULL;
    TD_AUTO_BUF text;
    struct td_json *tree = NULL;
    td_buf_init(&text, SPEC_MAX_BYTES);
    TD_TRY(td_arena_create(TD_SPEC_ARENA_BYTES, &arena));
    TD_TRY(td_json_parse(arena, spec_json, strlen(spec_json), &tree));
    if (!td_json_set(arena, tree, key, td_json_new_string(arena, place))) return td_fail_oom();
    TD_TRY(td_json_print(tree, false, &text));
    *out_json = td_buf_take_cstr(&text);
    return *out_json ? TD_OK : td_fail_oom();
}

td_status td_source_join(struct td_core *core, const char *spec_json, char **out_json) {
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *tree = NULL;
    struct td_checkpoint_of_job name;
    struct td_job *of = NULL;
    const struct td_checkpoint *c = NULL;
    TD_TRY(td_arena_create(TD_SPEC_ARENA_BYTES, &arena));
    TD_TRY(td_json_parse(arena, spec_json, strlen(spec_json), &tree));
    const char *key = find_name(td_json_string(td_json_get(tree, "ckpt_path"), ""),
                                td_json_string(td_json_get(tree, "init_from"), ""), &name);
    *out_json = NULL;
    if (!key) return TD_OK;
    TD_TRY_CTX(pick(core, &name, &of, &c), "%s", key);
    if (is_leaving(core, of, c)) {
        return td_fail(TD_UNAVAILABLE,
                       "%s: checkpoint %s of job %s (%s) was removed, and its next one is still on "
                       "its way to the coordinator; try again",
                       key, c->path, of->id, of->name);
    }
    TD_AUTO_FREE char *place = place_of(core, of, c);
    return with_place(spec_json, key, place, out_json);
}

// ---- a job --------------------------------------------------------------------------------------
static bool is_there(struct td_core *core, const struct td_job *j) {
    struct td_checkpoint_of_job name;
    struct td_job *of = NULL;
    const struct td_checkpoint *c = NULL;
    if (!td_checkpoint_of_job_read(j->source, &name)) return false;
    td_status s = pick(core, &name, &of, &c);
    const bool is = !s && !is_leaving(core, of, c);
    td_status_free(s);
    return is;
}

td_status td_source_restore(struct td_job *j) {
    struct td_checkpoint_of_job name;
    const char *key = j->source_place ? name_of(j, &name) : NULL;
    if (!key) return TD_OK;
    free(td_steal(j->plan_spec));
    TD_TRY(with_place(j->spec.text, key, j->source_place, &j->plan_spec));
    td_plan_digest(j->plan_spec, j->trusted, j->plan_digest);
    return TD_OK;
}

static td_status keep(struct td_core *core, struct td_job *j, struct td_job *of,
                      const struct td_checkpoint *c) {
    char source[SOURCE_BYTES];
    snprintf(source, sizeof source, "%s/%s", of->id, c->path);
    TD_AUTO_FREE char *place = place_of(core, of, c);
    const bool same_place = j->source_place && !strcmp(j->source_place, place);
    if (same_place && j->source && !strcmp(j->source, source)) return TD_OK;
    td_plan_asks_unused(core, td_job_plan_digest(j));
    free(j->source);
    free(j->source_place);
    j->source = td_core_dup(source);
    j->source_place = td_steal(place);
    td_core_touch(core, j);
    td_retain(core, of); // the one that it was settled on before may go
    return td_source_restore(j);
}

bool td_source_settle(struct td_core *core, struct td_job *j, bool starts) {
    struct td_checkpoint_of_job name;
    struct td_job *of = NULL;
    const struct td_checkpoint *c = NULL;
    const char *key = name_of(j, &name);
    if (!key || td_catalog_find(j, NULL)) return true; // it goes on from its own
    const bool first = starts && !j->source_firm && !j->n_attempts;
    j->source_firm = starts;
    j->source_waits = false;
    if (!first && j->source && is_there(core, j)) return true;
    td_status s = pick(core, &name, &of, &c);
    j->source_waits = !s && is_leaving(core, of, c);
    if (j->source_waits) return false; // the queue looks again when the next one is there
    if (!s) s = keep(core, j, of, c);
    if (!s) return true;
    char why[512];
    snprintf(why, sizeof why, "%s: %s", key, td_status_message(s));
    td_core_fail_job(core, j, TD_CLASS_DATA, td_status_code(s), why);
    td_status_free(s);
    return false;
}

void td_source_note(const struct td_core *core, struct td_job *j) {
    struct td_checkpoint_of_job name;
    const char *key = j->source ? name_of(j, &name) : NULL;
    const struct td_job *of = key ? td_core_job(core, name.job) : NULL;
    if (of) td_job_note(j, "%s is checkpoint %s (%s)", key, j->source, of->name);
}

// ---- what the other job does --------------------------------------------------------------------
static void say_removed(struct td_core *core, struct td_job *k, const struct td_job *of,
                        const char *path) {
    td_job_note(
        k,
        "checkpoint %s of job %s (%s), which this job names to begin from, was removed by "
        "that job, which keeps what its checkpoint.save_top_k says; %s/last names its newest",
        path, of->id, of->name, of->id);
    td_core_touch(core, k);
}

void td_source_removed(struct td_core *core, struct td_job *of, const char *path) {
    for (uint32_t i = 0; i < core->n_pinning; i++) {
        struct td_job *k = core->pinning[i];
        struct td_checkpoint_of_job name;
        if (k == of || !td_job_state_waits(k->state) || td_job_live(k) || k->n_attempts) continue;
        if (!td_retain_needs(k, of, path)) continue;
        if (!name_of(k, &name) || td_checkpoint_path_ok(name.which)) say_removed(core, k, of, path);
        core->queue_dirty = true; // another one is settled on, or there is none
    }
}

bool td_source_moved(struct td_core *core, struct td_job *j) {
    struct td_checkpoint_of_job name;
    struct td_job *of = NULL;
    const struct td_checkpoint *c = NULL;
    if (!j->source || !name_of(j, &name) || td_checkpoint_path_ok(name.which)) return false;
    if (td_catalog_find(j, NULL)) return false;
    const char *why = j->failure.message ? j->failure.message : "";
    if (!j->source_place || !strstr(why, j->source_place)) return false; // something else is wrong
    td_status s = pick(core, &name, &of, &c);
    const bool moved = !s && (is_leaving(core, of, c) || !td_job_source_is(j, of, c->path));
    td_status_free(s);
    if (!moved) return false;
    td_job_note(j, "attempt %u began from checkpoint %s, which was removed while it was read",
                j->n_attempts, j->source);
    free(td_steal(j->source)); // the next look settles on another
    return true;
}
