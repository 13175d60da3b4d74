// See the header.

#include "daemon/coordinator/core/attempt/expiry.h"

#include <inttypes.h>

#include "daemon/coordinator/core/attempt/forget.h"
#include "daemon/coordinator/core/catalog/removals.h"
#include "daemon/coordinator/core/model/changes.h"
#include "daemon/coordinator/core/model/effects.h"
#include "daemon/coordinator/core/model/model.h"

static const int64_t delay_ns = TD_NS_PER_S;
static const int64_t again_ns = 100 * TD_NS_PER_MS;

static void at(struct td_core *core, struct td_mono t) {
    if (t.ns < core->retention_at.ns) core->retention_at = t;
    td_core_wake_at(core, core->retention_at);
}

static bool many(const struct td_core *core, uint32_t older) {
    return core->n_ended > core->options.retention_jobs &&
           older < core->n_ended - core->options.retention_jobs;
}

static bool old(const struct td_core *core, const struct td_job *j) {
    int64_t keep_ns = core->options.retention_ns;
    return keep_ns && core->now.real.ns - j->end_ns > keep_ns;
}

void td_expiry_ended(struct td_core *core, struct td_job *j) {
    td_forget_ended(core, j);
    if (core->started && core->n_ended > core->options.retention_jobs) {
        at(core, td_mono_add(core->now.mono, delay_ns));
    }
}

void td_expiry_start(struct td_core *core) {
    if (core->n_ended > core->options.retention_jobs) {
        td_core_log(core,
                    "state.db holds more ended jobs than are kept, those that ended "
                    "longest ago go n=%u retention_jobs=%u",
                    core->n_ended, core->options.retention_jobs);
    }
    core->retention_at = core->now.mono;
    td_core_wake_at(core, core->now.mono);
}

void td_expiry_due(struct td_core *core) {
    core->retention_at = core->now.mono;
}

void td_expiry_tick(struct td_core *core) {
    td_forget_tick(core);
    if (core->now.mono.ns < core->retention_at.ns) {
        td_core_wake_at(core, core->retention_at);
        return;
    }
    core->retention_at.ns = INT64_MAX;
    uint32_t older = 0, n = 0;
    bool full = false;
    while (older < core->n_ended && !full) {
        struct td_job *j = core->ended[older];
        if (!many(core, older) && !old(core, j)) break;
        full = core->n_forgetting >= TD_FORGET_AT_ONCE;
        td_status kept = full ? TD_OK : td_forget_check(core, j);
        if (!full && !kept) kept = td_removals_check(core, j);
        if (kept || j->listed) {
            td_status_free(kept);
            older++;
        } else if (!full) {
            td_forget_job(core, j, TD_FORGET_OLD);
            n++;
        }
    }
    if (full) at(core, td_mono_add(core->now.mono, again_ns));
    if (!n) return;
    td_core_log(core,
                "jobs forgotten by retention n=%u retention_jobs=%u "
                "retention_days=%" PRId64,
                n, core->options.retention_jobs,
                core->options.retention_ns / (24 * 3600 * TD_NS_PER_S));
}
