// See the header.

#include "daemon/coordinator/core/catalog/removals.h"

#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/core/catalog/reconcile.h"
#include "daemon/coordinator/core/model/effects.h"
#include "daemon/coordinator/core/model/hosts.h"
#include "daemon/coordinator/core/model/job.h"
#include "daemon/coordinator/core/model/model.h"
#include "lib/base/buf.h"

enum { ROW_MAX_BYTES = 16 << 10, KEY_BYTES = TD_JOB_ID_MAX + 64 };

// ---- rows of what is left -----------------------------------------------------------------------
void td_removal_destroy(struct td_removal *r) {
    if (!r) return;
    free(r->directory);
    free(r);
}

static void key_of(const char *job, const char *node, char out[KEY_BYTES]) {
    snprintf(out, KEY_BYTES, "%.15s%s%.63s", job, node[0] ? "/" : "", node);
}

struct td_removal *td_core_removal(const struct td_core *core, const char *job, const char *node) {
    char key[KEY_BYTES];
    key_of(job, node, key);
    return td_map_get(core->removals, key);
}

void td_core_drop_removal(struct td_core *core, struct td_removal *r) {
    char key[KEY_BYTES];
    key_of(r->job, r->node, key);
    struct td_host *n = td_nodes_find(core, r->node);
    if (n && n->n_removals) n->n_removals--;
    td_core_record(core, TD_RECORD_REMOVAL, key, NULL);
    td_map_remove(core->removals, key);
    td_removal_destroy(r);
}

static void add_removal(struct td_core *core, struct td_job *j, const char *node,
                        const char *directory, enum td_forget how) {
    char key[KEY_BYTES];
    struct td_removal *r = td_core_must(td_calloc(1, sizeof *r));
    snprintf(r->job, sizeof r->job, "%s", j->id);
    snprintf(r->node, sizeof r->node, "%s", node);
    r->directory = td_core_dup(directory);
    r->n_attempts = j->n_attempts;
    r->keep_checkpoints = how == TD_FORGET_KEEP_CHECKPOINTS;
    bool deleted = how == TD_FORGET_DELETED && td_job_has_knobs(j);
    r->own_directory = deleted && j->knobs.own_directory;
    r->results = deleted && j->knobs.kind == TD_KIND_TRAIN;
    key_of(r->job, r->node, key);
    TD_CHECK(!td_map_put(core->removals, key, r, NULL));
    struct td_host *n = td_nodes_find(core, node);
    if (n) n->n_removals++;
    TD_AUTO_BUF body;
    td_buf_init(&body, ROW_MAX_BYTES);
    TD_CHECK(!td_buf_printf(&body,
                            "{\"attempts\":%u,\"keep\":%d,\"own\":%d,\"results\":%d,"
                            "\"directory\":",
                            r->n_attempts, r->keep_checkpoints, r->own_directory, r->results));
    TD_CHECK(!td_json_print_string(directory, strlen(directory), &body));
    TD_CHECK(!td_buf_str(&body, "}"));
    td_core_record(core, TD_RECORD_REMOVAL, key, td_buf_cstr(&body));
}

td_status td_core_load_removal(struct td_core *core, const char *key, const struct td_json *v) {
    TD_AUTO(td_removal) *r = td_calloc(1, sizeof *r);
    if (!r) return td_fail_oom();
    size_t len = strcspn(key, "/");
    snprintf(r->job, sizeof r->job, "%.*s", (int)len, key);
    snprintf(r->node, sizeof r->node, "%s", key[len] ? key + len + 1 : "");
    r->directory = td_strdup(td_json_string(td_json_get(v, "directory"), ""));
    if (!r->directory) return td_fail_oom();
    int64_t n = td_json_int(td_json_get(v, "attempts"), 0);
    r->n_attempts = n < 0 || n > TD_JOB_MAX_ATTEMPTS ? TD_JOB_MAX_ATTEMPTS : (uint32_t)n;
    r->keep_checkpoints = td_json_int(td_json_get(v, "keep"), 0) != 0;
    r->own_directory = td_json_int(td_json_get(v, "own"), 0) != 0;
    r->results = td_json_int(td_json_get(v, "results"), 0) != 0;
    TD_TRY(td_map_put(core->removals, key, r, NULL));
    (void)td_steal(r);
    return TD_OK;
}

// ---- planning ---------------------------------------------------------------------------------
void td_removals_plan(struct td_core *core, struct td_job *j, enum td_forget how) {
    char *directory = td_core_dup(td_job_has_knobs(j) ? j->knobs.checkpoint.dir : "");
    for (uint32_t i = 1; i <= j->n_attempts; i++) {
        const struct td_attempt *a = td_job_attempt(j, i);
        for (uint32_t k = 0; k < a->n_parts; k++) {
            const char *node = a->parts[k].node;
            if (!node[0] || td_core_removal(core, j->id, node)) continue;
            add_removal(core, j, node, directory, how);
        }
    }
    free(directory);
}

// At most one for each part.
td_status td_removals_check(const struct td_core *core, const struct td_job *j) {
    size_t n = td_map_count(core->removals), n_parts = 0;
    for (uint32_t i = 1; i <= j->n_attempts; i++) {
        n_parts += td_job_attempt(j, i)->n_parts;
    }
    if (n + n_parts <= TD_CORE_MAX_REMOVALS) return TD_OK;
    return td_status_with_reason(td_fail(TD_RESOURCE_EXHAUSTED,
                                         "files of deleted jobs wait on %zu nodes that are away; "
                                         "start these",
                                         n),
                                 "LIMIT_REMOVALS");
}

void td_removals_pump(struct td_core *core, const char *job) {
    size_t cursor = 0;
    const struct td_removal *part;
    while (td_core_is_leaving(core, job, &cursor, &part)) {
        struct td_host *n = td_nodes_find(core, part->node);
        if (n) td_reconcile_pump(core, n);
    }
}

bool td_core_is_leaving(const struct td_core *core, const char *job, size_t *inout_cursor,
                        const struct td_removal **out_part) {
    const char *key;
    void *value;
    while (td_map_next(core->removals, inout_cursor, &key, &value)) {
        *out_part = value;
        if (strcmp((*out_part)->job, job) == 0) return true;
    }
    return false;
}
