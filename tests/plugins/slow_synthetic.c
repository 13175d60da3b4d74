// Dataset `slow_synthetic`, for tests: synthetic itself, but every gather takes `pause_us` longer.
//
// A job that a test disturbs has to last. One that computes for so long takes the cores from the
// other tests; this one waits, as for a slow disk, and leaves them free.

#include "workloads/datasets/synthetic.c" // its functions are static, and nothing here may differ

#include <errno.h>
#include <time.h>

#include "traind/plugin.h"

static const struct td_plugin_knob knobs[] = {
    {"samples", TD_PLUGIN_KNOB_INT, 1, INT32_MAX, "samples", "1024", NULL, "of training"},
    {"features", TD_PLUGIN_KNOB_INT, 1, 1 << 20, NULL, "128", NULL, "width of a sample"},
    {"classes", TD_PLUGIN_KNOB_INT, 2, 1 << 20, NULL, "8", NULL, "number of labels"},
    {"seed", TD_PLUGIN_KNOB_INT, 0, UINT32_MAX, NULL, "0", NULL, "of all of it"},
    {"pause_us", TD_PLUGIN_KNOB_INT, 0, 1000000, "us", "1000", NULL, "that a batch takes longer"},
};

static int64_t pause_us; // of the one dataset of this process

static td_status slow_open(const struct td_dataset_config *config,
                           struct td_dataset **out_dataset) {
    TD_TRY(read_knob(config->knobs, "pause_us", 0, 1000000, &pause_us));
    return synthetic_open(config, out_dataset);
}

static td_status slow_gather(struct td_dataset *d, enum td_split split, const int64_t *index,
                             int64_t n, void *const *out) {
    struct timespec left = {.tv_sec = pause_us / 1000000, .tv_nsec = pause_us % 1000000 * 1000};
    while (nanosleep(&left, &left) && errno == EINTR) {}
    return synthetic_gather(d, split, index, n, out);
}

static const struct td_dataset_ops slow_ops = {
    .struct_bytes = sizeof slow_ops,
    .open = slow_open,
    .close = synthetic_close,
    .fields = synthetic_fields,
    .length = synthetic_length,
    .gather = slow_gather,
};
TD_PLUGIN_WITH_KNOBS(DATASET, "slow_synthetic", "synthetic, and a pause in every gather", &slow_ops,
                     knobs)
