// See the header.

#include "daemon/launcher/gpus.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/launcher/state.h"
#include "lib/base/clip.h"
#include "traind/v1/launcher.pb-c.h"

enum { UTILIZATION };
static const struct {
    const char *measured, *name;
} values[TD_GPU_VALUES] = {[UTILIZATION] = {"utilization", "utilization"},
                           {"used_bytes", "memory"},
                           {"power_w", "power"},
                           {"temperature_c", "temperature"},
                           {"throttled", "throttled"}};

void td_launch_gpus_destroy(struct td_launch_gpus *g) {
    free(g);
}

// Each rank has as many. NULL: there are none, or there is no memory.
static struct td_launch_gpus *make(const struct td_launcher *l, const char *devices) {
    const uint32_t n = td_device_list_count(devices), n_ranks = (uint32_t)l->o.n_ranks;
    if (!n || n % n_ranks) return NULL;
    struct td_launch_gpus *g = td_calloc(1, sizeof *g + n * sizeof *g->gpu);
    if (!g) return NULL;
    g->n = n;
    for (uint32_t i = 0; i < n; i++) {
        struct td_launch_gpu *d = &g->gpu[i];
        d->rank_idx = (int32_t)(i / (n / n_ranks));
        d->number = (uint32_t)l->o.first_rank * (n / n_ranks) + i;
        d->step = -1;
        (void)td_device_list_at(devices, i, d->uuid);
    }
    return g;
}

// ---- points -------------------------------------------------------------------------------------
static double measured(const Traind__V1__LauncherGpu *m, const char *name) {
    for (size_t i = 0; i < m->n_measured; i++) {
        if (strcmp(m->measured[i]->key, name) == 0) return m->measured[i]->value;
    }
    return (double)NAN;
}

static int32_t step_of(const struct td_launcher *l, struct td_launch_gpu *d) {
    const struct td_launch_rank *r = &l->ranks[d->rank_idx];
    const int32_t step = td_rank_page_progress(r->page).step;
    const bool names_none = step == 0 && !r->gives_steps && r->n_counted == 0;
    if (l->o.kind == TD_KIND_TRAIN || !names_none || d->n_counted == INT32_MAX) return step;
    return d->n_counted++;
}

static void add_points(struct td_launcher *l, struct td_launch_gpu *d,
                       const Traind__V1__LauncherGpu *m) {
    struct td_launch_rank *r = &l->ranks[d->rank_idx];
    struct td_metric_record records[TD_GPU_VALUES];
    size_t n = 0;
    td_launch_rank_drain_metrics(r); // the points of the rank up to this step are before it
    const int32_t step = step_of(l, d);
    if (step != d->step) {
        memset(d->sum, 0, sizeof d->sum);
        memset(d->count, 0, sizeof d->count);
    }
    d->step = step;
    for (size_t i = 0; i < TD_GPU_VALUES; i++) {
        const double value = measured(m, values[i].measured);
        if (!isfinite(value)) continue;
        d->sum[i] += value;
        d->count[i]++;
        records[n] = (struct td_metric_record){.step = step,
                                               .epoch = td_rank_page_progress(r->page).epoch,
                                               .sum = d->sum[i],
                                               .count = d->count[i],
                                               .real_ns = td_real_now().ns,
                                               .flags = TD_METRIC_DEVICE};
        snprintf(records[n].name, sizeof records[n].name, "gpu%u.%s", d->number, values[i].name);
        n++;
    }
    td_launch_rank_add_points(r, records, n);
}

// ---- idle ---------------------------------------------------------------------------------------
static void look_at_idle(struct td_launch_gpu *d, const Traind__V1__LauncherGpu *m,
                         struct td_mono now) {
    const bool is_late = now.ns - d->seen.ns > TD_GPU_GAP_S * TD_NS_PER_S;
    const bool was_idle = d->idle && !is_late;
    d->idle = measured(m, values[UTILIZATION].measured) == 0;
    d->seen = now;
    if (was_idle && d->idle) return;
    d->noted = false;
    d->idle_since = now;
    d->idle_from = td_real_now();
}

static bool is_due(const struct td_launcher *l, const struct td_launch_gpu *d, struct td_mono now) {
    return d->idle && !d->noted && now.ns - d->idle_since.ns >= l->o.gpu_idle_ns &&
           !l->ranks[d->rank_idx].exited;
}

// All that are due, with the time since when the first of them does nothing.
static void note_idle(struct td_launcher *l, const char *node, struct td_mono now) {
    struct td_launch_gpus *g = l->gpus;
    char list[1024], since[32], text[2048];
    struct td_clip_list names;
    struct td_real from = {INT64_MAX};
    uint32_t n = 0;
    td_clip_list_init(&names, list, sizeof list, ", ");
    for (uint32_t i = 0; i < g->n; i++) {
        struct td_launch_gpu *d = &g->gpu[i];
        if (!is_due(l, d, now)) continue;
        d->noted = true;
        from.ns = TD_MIN(from.ns, d->idle_from.ns);
        td_clip_list_add(&names, "gpu%u (%s)", d->number, d->uuid);
        n++;
    }
    if (!n || g->n_notes++ >= TD_GPU_NOTES) return;
    td_real_format(from, since, sizeof since);
    (void)td_clip(text, sizeof text, "%s of node %s %s done nothing since %s%s", list, node,
                  n > 1 ? "have" : "has", since,
                  g->n_notes == TD_GPU_NOTES ? "; no more such notes are written" : "");
    struct td_event_writer line;
    td_journal_begin(&l->journal, TD_EVENT_NOTE, &line);
    td_event_note_text(&line, text);
    td_journal_append(&l->journal, &line);
    l->news = true;
}

// ---- frames -------------------------------------------------------------------------------------
static struct td_launch_gpu *find(struct td_launch_gpus *g, const char *uuid) {
    for (uint32_t i = 0; i < g->n; i++) {
        if (strcmp(g->gpu[i].uuid, uuid) == 0) return &g->gpu[i];
    }
    return NULL;
}

void td_launch_gpus_take(struct td_launcher *l, const uint8_t *body, size_t bytes) {
    const struct td_mono now = td_mono_now();
    Traind__V1__LauncherGpus *m = traind__v1__launcher_gpus__unpack(NULL, bytes, body);
    if (m && !l->gpus) l->gpus = make(l, m->devices);
    for (size_t i = 0; l->gpus && m && i < m->n_gpus; i++) {
        struct td_launch_gpu *d = find(l->gpus, m->gpus[i]->uuid);
        if (!d || l->ranks[d->rank_idx].exited) continue;
        add_points(l, d, m->gpus[i]);
        look_at_idle(d, m->gpus[i], now);
    }
    if (l->gpus && m && l->o.gpu_idle_ns) note_idle(l, m->node, now);
    traind__v1__launcher_gpus__free_unpacked(m, NULL);
}
