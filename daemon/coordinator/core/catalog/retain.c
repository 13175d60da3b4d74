// See the header.

#include "daemon/coordinator/core/catalog/retain.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/core/catalog/catalog.h"
#include "daemon/coordinator/core/catalog/reconcile.h"
#include "daemon/coordinator/core/model/changes.h"
#include "daemon/coordinator/core/model/effects.h"
#include "daemon/coordinator/core/model/job.h"
#include "daemon/coordinator/core/model/model.h"
#include "lib/attempt/retention.h"

enum { METRICS_ARENA_BYTES = 1 << 20, MONITOR_BYTES = 64 };

struct books {
    struct td_retention_rule rule;
    char monitor[MONITOR_BYTES]; // "": none
    struct td_checkpoint **row;  // (n), oldest first
    double *value;               // (n)
    size_t n;
};

bool td_retain_is_over(const struct td_job *j, uint32_t attempt) {
    const struct td_attempt *a = td_job_attempt(j, attempt);
    return !a || td_attempt_over(a);
}

// ---- what else needs it -------------------------------------------------------------------------
static bool is_name_end(char c) {
    return c == '\0' || c == '/';
}

// Is the checkpoint (NULL: any) of job `id` a part of this place of a spec?
static bool names(const char *place, const char *id, const char *path) {
    size_t len = strlen(id), n = path ? strlen(path) : 0;
    const char *at = place;
    while (at && (at = strstr(at, id))) {
        const char *rest = at + len;
        bool whole = (at == place || at[-1] == '/') && is_name_end(*rest);
        at = rest;
        if (!whole) continue;
        rest += strspn(rest, "/");
        if (!path || !*rest) return true;
        if (strncmp(rest, path, n) == 0 && is_name_end(rest[n])) return true;
    }
    return false;
}

bool td_retain_names(const struct td_job *k, const struct td_job *j) {
    return names(k->knobs.ckpt_path, j->id, NULL) || names(k->knobs.init_from, j->id, NULL);
}

bool td_retain_needs(const struct td_job *k, const struct td_job *j, const char *path) {
    return td_job_source_is(k, j, path) || names(k->knobs.ckpt_path, j->id, path) ||
           names(k->knobs.init_from, j->id, path);
}

const struct td_job *td_retain_user(const struct td_core *core, const struct td_job *j,
                                    const struct td_checkpoint *c) {
    for (uint32_t i = 0; i < core->n_pinning; i++) {
        const struct td_job *k = core->pinning[i];
        if (k == j || td_job_state_ended(k->state)) continue;
        if (c ? td_retain_needs(k, j, c->path) : td_retain_names(k, j)) return k;
    }
    return NULL;
}

// ---- the books ----------------------------------------------------------------------------------
static bool read_rule(struct td_job *j, struct books *b) {
    if (!td_job_has_knobs(j)) return false;
    const struct td_spec_checkpoint *s = &j->knobs.checkpoint;
    b->rule = (struct td_retention_rule){.top_k = s->save_top_k,
                                         .by_value = s->monitor[0] != '\0',
                                         .larger_is_better = strcmp(s->mode, "max") == 0};
    snprintf(b->monitor, sizeof b->monitor, "%s", s->monitor);
    return true;
}

double td_retain_value(const struct td_checkpoint *c, const char *monitor) {
    if (!monitor[0] || !c->metrics_json) return (double)NAN;
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *v = NULL;
    TD_CHECK(!td_arena_create(METRICS_ARENA_BYTES, &arena));
    td_status s = td_json_parse(arena, c->metrics_json, strlen(c->metrics_json), &v);
    char of_epoch[MONITOR_BYTES + 8]; // "train_loss" is "train_loss_epoch", as for a rank
    snprintf(of_epoch, sizeof of_epoch, "%s_epoch", monitor);
    const struct td_json *found = s ? NULL : td_json_get(v, monitor);
    if (!s && !found) found = td_json_get(v, of_epoch);
    double value = (double)NAN;
    (void)td_json_value(found, &value);
    td_status_free(s);
    return isfinite(value) ? value : (double)NAN; // as for a rank (td_manifest_metric)
}

static bool counts(const struct td_checkpoint *c) {
    return c->committed && !c->damage && !c->leaving && !c->registered; // no rule holds for those
}

static void fill(const struct td_job *j, struct books *b) {
    b->row = td_core_must(td_calloc(j->n_checkpoints + 1, sizeof(struct td_checkpoint *)));
    b->value = td_core_must(td_calloc(j->n_checkpoints + 1, sizeof *b->value));
    for (uint32_t i = 0; i < j->n_checkpoints; i++) {
        struct td_checkpoint *c = j->checkpoints[i];
        if (!counts(c)) continue;
        b->row[b->n] = c;
        b->value[b->n++] = td_retain_value(c, b->monitor);
    }
}

static void strike(struct books *b, size_t at) {
    memmove(b->row + at, b->row + at + 1, (b->n - at - 1) * sizeof(struct td_checkpoint *));
    memmove(b->value + at, b->value + at + 1, (b->n - at - 1) * sizeof *b->value);
    b->n--;
}

const struct td_checkpoint *td_retain_best(struct td_job *j) {
    struct books b = {0};
    const struct td_checkpoint *last = td_catalog_find(j, "");
    if (!last) return NULL; // who asks many jobs of a name reads no spec in vain
    if (!read_rule(j, &b) || !b.rule.by_value) return last;
    fill(j, &b);
    size_t at;
    const struct td_checkpoint *best =
        td_retention_best(&b.rule, b.value, b.n, &at) ? b.row[at] : last;
    free(b.row);
    free(b.value);
    return best;
}

struct td_retain_marks td_retain_mark(struct td_job *j) {
    struct td_retain_marks m = {.monitor = "", .last = td_catalog_find(j, "")};
    if (!td_job_has_knobs(j)) return m;
    m.monitor = j->knobs.checkpoint.monitor;
    const struct td_checkpoint *best = td_retain_best(j);
    if (best && !isnan(td_retain_value(best, m.monitor))) m.best = best;
    return m;
}

// ---- the rule, carried out ----------------------------------------------------------------------
static void take(struct td_core *core, struct td_job *j, const struct td_checkpoint *c,
                 int32_t top_k) {
    uint32_t at = 0;
    while (j->checkpoints[at] != c) {
        at++;
    }
    td_core_log(core, "checkpoint removed job=%s path=%s why=\"save_top_k is %d\"", j->id, c->path,
                top_k);
    td_catalog_remove(core, j, at);
}

// A live attempt may be reading any of them, until it has one of its own.
static bool is_being_read(const struct td_job *j) {
    const struct td_attempt *a = td_job_live(j);
    for (uint32_t i = 0; a && i < j->n_checkpoints; i++) {
        if (j->checkpoints[i]->attempt == a->number && counts(j->checkpoints[i])) return false;
    }
    return a != NULL;
}

static bool is_free(const struct td_core *core, const struct td_job *j,
                    const struct td_checkpoint *c) {
    return td_retain_is_over(j, c->attempt) && !td_retain_user(core, j, c);
}

// Would the rule take it, too, if it were one of those that stay?
static bool is_superseded(const struct books *b, const struct td_job *j, uint32_t missing) {
    double *value = td_core_must(td_calloc(b->n + 1, sizeof *value));
    size_t n = 0, k = 0, own = 0, worst;
    for (uint32_t i = 0; i < j->n_checkpoints; i++) {
        if (i == missing) {
            own = n;
            value[n++] = td_retain_value(j->checkpoints[i], b->monitor);
        } else if (k < b->n && b->row[k] == j->checkpoints[i]) {
            value[n++] = b->value[k++];
        }
    }
    bool goes = td_retention_worst(&b->rule, value, n, &worst) && worst == own;
    free(value);
    return goes;
}

static bool take_missing(struct td_core *core, struct td_job *j, const struct books *b) {
    bool any = false;
    for (uint32_t i = j->n_checkpoints; i-- > 0;) {
        const struct td_checkpoint *c = j->checkpoints[i];
        if (!c->missing || c->leaving || !is_free(core, j, c) || !is_superseded(b, j, i)) continue;
        take(core, j, c, b->rule.top_k);
        any = true;
    }
    return any;
}

void td_retain(struct td_core *core, struct td_job *j) {
    struct books b = {0};
    if (j->n_checkpoints < 2 || is_being_read(j) || !read_rule(j, &b)) return;
    fill(j, &b);
    size_t at;
    bool any = false;
    while (td_retention_worst(&b.rule, b.value, b.n, &at)) {
        const struct td_checkpoint *c = b.row[at];
        if (is_free(core, j, c)) {
            take(core, j, c, b.rule.top_k);
            any = true;
        }
        strike(&b, at);
    }
    any |= take_missing(core, j, &b);
    free(b.row);
    free(b.value);
    if (!any) return;
    td_core_touch(core, j);
    td_reconcile_due(core, j);
}

// A rank has judged what is of one attempt alone.
void td_retain_all(struct td_core *core) {
    for (uint32_t i = 0; i < core->n_jobs; i++) {
        struct td_job *j = core->order[i];
        uint32_t n = j->n_checkpoints;
        if (n && j->checkpoints[0]->attempt != j->checkpoints[n - 1]->attempt) td_retain(core, j);
    }
}

static void released(struct td_core *core, const struct td_job *ended, const char *place) {
    char part[TD_JOB_ID_MAX];
    for (const char *at = place; at && *at; at += strspn(at, "/")) {
        size_t len = strcspn(at, "/");
        snprintf(part, sizeof part, "%.*s", (int)TD_MIN(len, sizeof part - 1), at);
        struct td_job *j = len < sizeof part ? td_core_job(core, part) : NULL;
        if (j && j != ended) td_retain(core, j);
        at += len;
    }
}

void td_retain_released(struct td_core *core, const struct td_job *ended) {
    released(core, ended, ended->knobs.ckpt_path);
    released(core, ended, ended->knobs.init_from);
}
