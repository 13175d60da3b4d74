// What running ahead is worth: steps of a device that takes 2 ms for each, while the host needs 2
// ms to collate the next batch. One after the other they are 4 ms. Where the next run is queued
// before the last one is read, the longer of both remains. One JSON line each, milliseconds a step;
// the time of a whole run of STEPS, less that of a run of FEW.
#include <stdio.h>

#include "lib/base/clock.h"
#include "tests/unit/train/rank/train_rig.h"

enum { STEPS = 240, FEW = 40, ROUNDS = 5, BATCH = 4, COLLATE_US = 2000 };

// ---- a dataset that computes --------------------------------------------------------------------
static td_status slow_gather(struct td_dataset *d, enum td_split split, const int64_t *index,
                             int64_t n, void *const *out) {
    const int64_t end = td_mono_now().ns + COLLATE_US * (TD_NS_PER_MS / 1000);
    while (td_mono_now().ns < end) {}
    return ((const struct td_dataset_ops *)td_dataset_synthetic.ops)
        ->gather(d, split, index, n, out);
}

// ---- a device that does not run ahead -----------------------------------------------------------
static td_status probe_behind(struct td_accel_facts *out_facts) {
    TD_TRY(((const struct td_accelerator_ops *)td_accelerator_far.ops)->probe(out_facts));
    out_facts->run_ahead = 0;
    return TD_OK;
}

static struct td_dataset_ops dataset_ops;
static struct td_accelerator_ops behind_ops;
static struct td_plugin_desc dataset, behind;

static double seconds_of(int64_t steps, const char *accelerator) {
    struct run r;
    struct td_train_result result;
    char text[128];
    prepare_run(&r, &dataset, "single_device", NULL);
    assert_ok(td_registry_add(r.registry, &behind));
    snprintf(text, sizeof text, "{\"samples\":%lld,\"features\":8,\"classes\":4,\"batch_size\":%d}",
             (long long)steps * BATCH, (int)BATCH);
    r.config.data.name = "slow";
    r.config.data.knobs = knobs(&r, &td_dataset_synthetic, text);
    r.config.accelerator = accelerator;
    r.config.accelerator_knobs =
        knobs(&r, &td_accelerator_far,
              "{\"delay_us\":2000,\"fail_at\":0,\"copy_delay_us\":0,\"by_tensor\":false}");
    r.config.limits.accumulate[0].batches = 1;
    r.config.limits.val_batches = (struct td_amount){0};
    const int64_t start = td_mono_now().ns;
    td_status s = td_train(&r.config, &r.io, &r.events, &result);
    const double seconds = (double)(td_mono_now().ns - start) / 1e9;
    assert_ok(s);
    assert_true(result.step == steps);
    dispose(&r);
    return seconds;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(void) {
    static const char *const names[] = {"far", "behind"};
    double ms[2][ROUNDS];
    dataset_ops = *(const struct td_dataset_ops *)td_dataset_synthetic.ops;
    dataset_ops.gather = slow_gather;
    dataset = td_dataset_synthetic;
    dataset.name = "slow";
    dataset.ops = &dataset_ops;
    behind_ops = *(const struct td_accelerator_ops *)td_accelerator_far.ops;
    behind_ops.probe = probe_behind;
    behind = td_accelerator_far;
    behind.name = "behind";
    behind.ops = &behind_ops;
    for (int i = 0; i < ROUNDS; i++) {
        for (int k = 0; k < 2; k++) {
            const double whole = seconds_of(STEPS, names[k]), few = seconds_of(FEW, names[k]);
            ms[k][i] = (whole - few) * 1e3 / (STEPS - FEW);
        }
    }
    for (int k = 0; k < 2; k++) {
        qsort(ms[k], ROUNDS, sizeof ms[k][0], by_value);
        printf("{\"name\":\"step of a 2 ms device beside 2 ms of host work, %s\",\"median\":%.3f,"
               "\"min\":%.3f,\"max\":%.3f,\"unit\":\"ms\",\"n\":%d}\n",
               k == 0 ? "one run ahead" : "one after the other", ms[k][ROUNDS / 2], ms[k][0],
               ms[k][ROUNDS - 1], (int)ROUNDS);
    }
    return 0;
}
