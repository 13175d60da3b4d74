// rates: measures for a moment what the threads of this machine reach, in products and in memory of
// each size that a plan distinguishes, and keeps it (engine/train/plan/rates.h). A node runs it
// again and again, some time apart, while no rank runs; so a neighbour's busy seconds do not stay
// in the file. Some 200 ms at low priority. It may be killed at any time: a size that is measured
// is kept. Exit DONE: all sizes have been measured often enough; STOPPED: there is more to do.

#include <signal.h>
#include <sys/resource.h>

#include "fabric/plugins.h"
#include "daemon/worker/worker.h"
#include "engine/train/plan/rates.h"
#include "engine/train/rank/rank.h"
#include "lib/base/cpu_level.h"
#include "lib/base/log.h"
#include "lib/base/machine/proc.h"

enum { LOWEST_PRIORITY = 19 };

static void hold_term(bool holds) {
    sigset_t term;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    (void)pthread_sigmask(holds ? SIG_BLOCK : SIG_UNBLOCK, &term, NULL);
}

static td_status measure_size(const struct td_accelerator_ops *ops, struct td_accelerator *accel,
                              const struct td_rates_home *home, int32_t n_threads, size_t bytes,
                              bool *out_settled) {
    TD_AUTO_FREE struct td_rates *known = td_calloc(1, sizeof *known);
    if (!known) return td_fail_oom();
    td_rates_read(home, known);
    const struct td_rates_line *l = td_rates_find(known, n_threads, bytes);
    int32_t before = l ? l->moments : 0;
    *out_settled = before + 1 >= TD_RATES_SETTLED;
    if (before >= TD_RATES_SETTLED) return TD_OK;
    struct td_rates_line moment = {.n_threads = n_threads, .bytes = bytes};
    hold_term(false);
    td_status s = td_rates_measure(ops, accel, 1, &moment);
    hold_term(true);
    return s ? s : td_rates_add(home, &moment);
}

static td_status measure_all(const struct td_accelerator_ops *ops, const char *name,
                             const char *dir, int32_t n_threads, bool *out_settled) {
    char machine[TD_RATES_MACHINE], boot_id[37];
    struct td_accel_facts facts = {.struct_bytes = sizeof facts};
    const struct td_accel_config config = {.struct_bytes = sizeof config, .n_threads = n_threads};
    struct td_accelerator *accel = NULL;
    *out_settled = true;
    if (!ops->measure_peak) return TD_OK;
    TD_TRY(ops->probe(&facts));
    TD_TRY(td_proc_boot_id(boot_id));
    td_rates_machine(name, &facts, machine);
    const struct td_rates_home home = {dir, machine, boot_id};
    TD_TRY(ops->open(&config, &accel));
    td_status s = TD_OK;
    for (int i = 0; !s && i < TD_RATES_SIZES; i++) {
        bool settled = false;
        s = measure_size(ops, accel, &home, n_threads, td_rates_size_at(i), &settled);
        *out_settled &= !s && settled;
    }
    ops->close(accel);
    return s;
}

static td_status hold_level(const struct td_rank_args *args) {
    enum td_cpu_level level, most = td_cpu_level_of_machine(NULL);
    TD_TRY(td_cpu_level_read(args->cpu_level_from, args->cpu_level, most, &level));
    return td_cpu_level_hold(level);
}

static td_status measure(const struct td_rank_args *args, bool *out_settled) {
    char plugin_dir[4096];
    TD_AUTO(td_registry) *r = NULL;
    const struct td_plugin_desc *desc;
    if (!args->choices_dir) {
        return td_fail(TD_INVALID_ARGUMENT, "rates needs --choices-dir DIR, to keep them in");
    }
    TD_TRY(hold_level(args));
    TD_TRY(td_plugin_dir(plugin_dir, sizeof plugin_dir));
    TD_TRY(td_registry_create(plugin_dir, &r));
    TD_TRY(td_built_in_plugins(r));
    const char *name = args->accelerator ? args->accelerator : "cpu";
    TD_TRY(td_registry_find(r, TD_PLUGIN_ACCELERATOR, name, &desc));
    return measure_all(desc->ops, name, args->choices_dir, TD_MAX(args->n_threads, 1), out_settled);
}

int td_worker_rates(const struct td_rank_args *args) {
    bool settled = false;
    hold_term(true); // in the accelerator's threads, too: then this one alone decides
    (void)setpriority(PRIO_PROCESS, 0, LOWEST_PRIORITY);
    td_status s = measure(args, &settled);
    if (!s) return settled ? TD_EXIT_DONE : TD_EXIT_STOPPED;
    s = td_rank_classify(s);
    int code = td_exit_code_of(td_status_class(s));
    td_status_log(TD_LOG_ERROR, s, "rates cannot be measured");
    return code;
}
