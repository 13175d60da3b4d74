// The prediction. Rejected: running the step once with memory of its own, which is exact and takes
// as much time and memory as the job, on a node that others use.

#include "engine/train/plan/estimate.h"

#include <string.h>

#include "lib/base/machine/proc.h"

// slow: by node, it runs on plain loops; NULL: none does.
static double program_seconds(const struct td_accelerator_ops *ops, const struct td_graph *g,
                              const bool *slow, const struct td_accel_rates *rates) {
    double seconds = 0;
    for (td_node n = 0; n < td_graph_n_nodes(g); n++) {
        if (ops->elides && ops->elides(g, n)) continue;
        seconds += ops->node_seconds(g, n, rates, slow && slow[n]);
    }
    return seconds;
}

// A program that trains on whole batches; NULL: another one. name: of its training step; NULL: any.
static const struct td_compiled *step_at(const struct td_rank *r, const char *name, size_t i) {
    const struct td_compiled *c = td_programs_at(r->programs, i);
    const struct td_program_key *k = &c->program.key;
    if (k->mode != TD_MODE_TRAIN || k->batch != r->config->batch_size) return NULL;
    return name && strcmp(name, k->step) != 0 ? NULL : c;
}

// An optimizer step of one training step: the last batch of a window, and those before it.
static double step_seconds(const struct td_rank *r, const char *name,
                           const struct td_accel_rates *rates) {
    double last = 0, before = 0;
    for (size_t i = 0; i < td_programs_count(r->programs); i++) {
        const struct td_compiled *c = step_at(r, name, i);
        if (!c) continue;
        double s =
            program_seconds(r->accel_ops, c->graph, td_programs_slow_nodes(r->programs, i), rates);
        if (c->program.key.apply) {
            last = TD_MAX(last, s);
        } else {
            before = TD_MAX(before, s);
        }
    }
    return last + before * (double)(r->config->limits.accumulate[0].batches - 1);
}

// What a step goes through: how fast that is depends on the caches that hold it.
static size_t bytes_of_step(const struct td_rank *r) {
    size_t bytes = 0, arena = 0;
    for (int role = 0; role < TD_ROLE_COUNT; role++) {
        bytes += td_state_region_bytes(r->state, (enum td_role)role);
    }
    for (size_t i = 0; i < td_programs_count(r->programs); i++) {
        const struct td_compiled *c = step_at(r, NULL, i);
        if (c) arena = TD_MAX(arena, c->program.arena_bytes);
    }
    return bytes + arena;
}

// ---- rates --------------------------------------------------------------------------------------
const char *td_rates_origin_name(enum td_rates_origin origin) {
    static const char *const names[] = {"none", "near", "measured", "kept"};
    return names[origin];
}

static td_status measure_rates(const struct td_rank *r, const struct td_rates_home *home,
                               struct td_rates_line *line) {
    TD_TRY(td_rates_measure(r->accel_ops, r->accel, TD_RATES_ENOUGH, line));
    if (!home->dir || line->rates.f32 <= 0) return TD_OK;
    // A plan is right without it.
    td_status_free(td_rates_add(home, line));
    return TD_OK;
}

static td_status look_up(const struct td_rank *r, const struct td_rates_home *home,
                         struct td_rates_line *line, enum td_rates_origin *out_origin) {
    const struct td_train_config *c = r->config;
    TD_AUTO_FREE struct td_rates *known = td_calloc(1, sizeof *known);
    if (!known) return td_fail_oom();
    if (home->dir) td_rates_read(home, known);
    const struct td_rates_line *l = td_rates_find(known, line->n_threads, line->bytes);
    if (l && (c->busy || l->moments >= TD_RATES_ENOUGH)) {
        line->rates = l->rates;
        *out_origin = TD_RATES_KEPT;
        return TD_OK;
    }
    *out_origin = TD_RATES_MEASURED;
    if (!c->busy) return measure_rates(r, home, line);
    bool any = td_rates_near(known, line->n_threads, line->bytes, &line->rates);
    *out_origin = any ? TD_RATES_NEAR : TD_RATES_NONE;
    return TD_OK;
}

static td_status find_rates(const struct td_rank *r, struct td_accel_rates *out,
                            enum td_rates_origin *out_origin) {
    char machine[TD_RATES_MACHINE], boot_id[37] = "";
    struct td_rates_line line = {.n_threads = r->config->n_threads,
                                 .bytes = td_rates_size(bytes_of_step(r))};
    td_rates_machine(r->accel_name, &r->accel_facts, machine);
    const struct td_train_config *c = r->config;
    struct td_rates_home home = {c->choices_dir ? c->choices_dir : c->cache_dir, machine, boot_id};
    if (home.dir) TD_TRY(td_proc_boot_id(boot_id));
    TD_TRY(look_up(r, &home, &line, out_origin));
    *out = line.rates;
    return TD_OK;
}

td_status td_estimate_step(const struct td_rank *r, struct td_estimate *out) {
    const struct td_accelerator_ops *ops = r->accel_ops;
    struct td_accel_rates rates;
    *out = (struct td_estimate){0};
    const bool known = ops->measure_peak && ops->node_seconds;
    if (!known || !(r->config->stages & TD_STAGE_FIT)) return TD_OK;
    TD_TRY(find_rates(r, &rates, &out->rates));
    if (out->rates != TD_RATES_KEPT) out->wants_threads = r->config->n_threads;
    if (rates.f32 <= 0 || rates.bandwidth <= 0) return TD_OK;
    for (int i = 0; i < r->steps.n; i++) {
        out->seconds += step_seconds(r, r->steps.step[i].name, &rates) / r->steps.n;
    }
    return TD_OK;
}
