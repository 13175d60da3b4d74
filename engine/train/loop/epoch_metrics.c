// Sums of an epoch: added, logged, gathered for a checkpoint, and taken up again from one.

#include "engine/train/loop/epoch_metrics.h"

#include <stdio.h>
#include <string.h>

#include "engine/train/rank/group/group.h"

enum { SUMS = 2 * TD_TALLIES }; // of one rank: sum and count of each tally

static void pack(const struct td_tallies *t, double *out) {
    for (size_t i = 0; i < t->n; i++) {
        out[2 * i] = t->item[i].sum;
        out[2 * i + 1] = t->item[i].count;
    }
}

static void unpack(const double *sums, struct td_tallies *t) {
    for (size_t i = 0; i < t->n; i++) {
        t->item[i].sum += sums[2 * i];
        t->item[i].count += sums[2 * i + 1];
    }
}

// ---- after a resume ----------------------------------------------------------------------------

// What the rank that read the checkpoint says to all; n_ranks * SUMS numbers follow it.
struct found {
    bool known;
    int32_t n_ranks;
    struct td_tallies names; // without values
};

static struct found look(const struct td_rank *r) {
    const struct td_manifest_epoch *m = &r->restored.manifest.epoch_metrics;
    struct found f = {.known = m->known, .n_ranks = m->n_ranks, .names.n = m->n};
    for (size_t i = 0; i < m->n; i++) {
        memcpy(f.names.item[i].name, m->name[i], sizeof m->name[i]);
    }
    return f;
}

static void take_up(struct td_epoch_metrics *e, const struct found *f, const double *sums) {
    const struct td_rank *r = e->rank;
    e->own = f->names;
    if (f->n_ranks == r->facts.world_size) {
        unpack(sums + (size_t)r->facts.global_rank * SUMS, &e->own);
        return;
    }
    for (int32_t i = 0; r->facts.is_global_zero && i < f->n_ranks; i++) {
        unpack(sums + (size_t)i * SUMS, &e->own);
    }
}

static td_status restore(struct td_epoch_metrics *e) {
    struct td_rank *r = e->rank;
    struct found f = look(r);
    TD_TRY(td_rank_broadcast(r, &f, sizeof f, 0));
    e->incomplete = !f.known && r->start.epoch_offset > 0;
    if (e->incomplete && r->facts.is_global_zero) {
        td_events_note(r->events,
                       "the checkpoint of step %lld does not hold what was measured of epoch %lld "
                       "before it (an older traind wrote it), so that epoch has no train_*_epoch",
                       (long long)r->start.step, (long long)r->start.epoch);
    }
    if (!f.known || f.n_ranks == 0) return TD_OK;
    TD_AUTO_FREE double *sums = td_calloc((size_t)f.n_ranks, SUMS * sizeof *sums);
    if (!sums) return td_fail_oom();
    const size_t bytes = (size_t)f.n_ranks * SUMS * sizeof *sums;
    const double *read = r->restored.manifest.epoch_metrics.sums;
    if (read) memcpy(sums, read, bytes);
    TD_TRY(td_rank_broadcast(r, sums, bytes, 0));
    take_up(e, &f, sums);
    return TD_OK;
}

td_status td_epoch_metrics_begin(struct td_epoch_metrics *e, struct td_rank *r) {
    const size_t world = (size_t)r->facts.world_size;
    *e = (struct td_epoch_metrics){.rank = r};
    e->gathered = td_arena_array(r->arena, world * 2 * SUMS, sizeof *e->gathered);
    for (int i = 0; i < 2; i++) {
        e->saved[i] = td_arena_array(r->arena, world * SUMS, sizeof *e->saved[i]);
    }
    if (!e->gathered || !e->saved[0] || !e->saved[1]) return td_fail_oom();
    return r->resumed ? restore(e) : TD_OK;
}

// ---- in the epoch ------------------------------------------------------------------------------

void td_epoch_metrics_add(struct td_epoch_metrics *e, const struct td_tallies *window) {
    td_tallies_merge(&e->own, window);
}

void td_epoch_metrics_log(struct td_epoch_metrics *e, int64_t step, int64_t epoch) {
    char name[TD_METRIC_NAME_BYTES];
    for (size_t i = 0; i < e->own.n && !e->incomplete; i++) {
        const struct td_tally *t = &e->own.item[i];
        snprintf(name, sizeof name, "train_%s_epoch", t->name);
        td_metrics_mean(&e->rank->metrics, name, step, epoch, t->sum, t->count);
    }
}

static bool is_called(const struct td_tally *t, const char *name) {
    char short_name[TD_METRIC_NAME_BYTES], whole[TD_METRIC_NAME_BYTES];
    snprintf(short_name, sizeof short_name, "train_%s", t->name);
    snprintf(whole, sizeof whole, "train_%s_epoch", t->name);
    return strcmp(short_name, name) == 0 || strcmp(whole, name) == 0;
}

td_status td_epoch_metrics_mean(struct td_epoch_metrics *e, const char *name, bool *out_known,
                                double *out_mean) {
    double own[2] = {0}, sum = 0, count = 0;
    for (size_t i = 0; i < e->own.n; i++) {
        if (!is_called(&e->own.item[i], name)) continue;
        own[0] = e->own.item[i].sum;
        own[1] = e->own.item[i].count;
    }
    TD_TRY(td_rank_all_gather(e->rank, TD_GROUP_WORLD, own, sizeof own, e->gathered));
    for (int32_t i = 0; i < e->rank->facts.world_size; i++) {
        sum += e->gathered[2 * (size_t)i];
        count += e->gathered[2 * (size_t)i + 1];
    }
    *out_known = !e->incomplete && count > 0;
    *out_mean = *out_known ? sum / count : 0;
    return TD_OK;
}

void td_epoch_metrics_next(struct td_epoch_metrics *e) {
    e->own.n = 0;
    e->incomplete = false;
}

// ---- into a checkpoint -------------------------------------------------------------------------

// The sum over ranks of one tally, in the ranks' order.
static void add_metric(const struct td_epoch_metrics *e, size_t first, const char *name,
                       const char *suffix, struct td_manifest *m) {
    char text[TD_METRIC_NAME_BYTES];
    double sum = 0, count = 0;
    for (int32_t i = 0; i < e->rank->facts.world_size; i++) {
        sum += e->gathered[(size_t)i * 2 * SUMS + first];
        count += e->gathered[(size_t)i * 2 * SUMS + first + 1];
    }
    snprintf(text, sizeof text, "train_%s_%s", name, suffix);
    td_manifest_add_metric(m, text, sum, count);
}

td_status td_epoch_metrics_describe(struct td_epoch_metrics *e, const struct td_tallies *window,
                                    struct td_manifest *m) {
    struct td_rank *r = e->rank;
    struct td_manifest_epoch *to = &m->epoch_metrics;
    double own[2 * SUMS] = {0}, *sums = e->saved[e->spare];
    pack(window, own);
    pack(&e->own, own + SUMS);
    TD_TRY(td_rank_all_gather(r, TD_GROUP_WORLD, own, sizeof own, e->gathered));
    for (size_t i = 0; i < window->n; i++) {
        add_metric(e, 2 * i, window->item[i].name, "step", m);
    }
    if (e->incomplete) return TD_OK;
    *to = (struct td_manifest_epoch){
        .known = true, .n_ranks = r->facts.world_size, .n = e->own.n, .sums = sums};
    for (int32_t i = 0; i < to->n_ranks; i++) {
        memcpy(sums + (size_t)i * SUMS, e->gathered + (size_t)i * 2 * SUMS + SUMS,
               SUMS * sizeof *sums);
    }
    for (size_t i = 0; i < e->own.n; i++) {
        snprintf(to->name[i], sizeof to->name[i], "%s", e->own.item[i].name);
        add_metric(e, SUMS + 2 * i, e->own.item[i].name, "epoch", m);
    }
    return TD_OK;
}

void td_epoch_metrics_taken(struct td_epoch_metrics *e) {
    e->spare = !e->spare;
}
