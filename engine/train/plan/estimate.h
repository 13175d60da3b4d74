#ifndef TRAIND_ENGINE_TRAIN_PLAN_ESTIMATE_H
#define TRAIND_ENGINE_TRAIN_PLAN_ESTIMATE_H

// Estimate: how long an optimizer step will take, before any step ran.
//
// The sum of what the nodes of the training program take. The accelerator predicts each at the
// rates that this machine usually reaches (slots node_seconds and measure_peak). The steps of an
// accelerator without these slots are not estimated. Rates are kept by rates.h in config's
// choices_dir, else cache_dir. Where they are not there yet they are measured now and kept, or, on
// a machine that is busy, taken from the nearest that are. So a prediction is for cores that no
// other process uses. Which nodes run on plain loops is known before (td_programs_preview_slow).
// Collectives between ranks are not in it. Thread: the training thread; some 100 ms where rates are
// measured.

#include "engine/train/plan/rates.h"
#include "engine/train/rank/rank.h"

enum td_rates_origin {
    TD_RATES_NONE,     // unknown here, and a busy machine is not measured
    TD_RATES_NEAR,     // scaled from other threads or sizes
    TD_RATES_MEASURED, // now
    TD_RATES_KEPT,     // in this boot, before
};
const char *td_rates_origin_name(enum td_rates_origin origin); // "none"; static

struct td_estimate {
    double seconds; // 0: unknown, or nothing is trained
    enum td_rates_origin rates;
    int32_t wants_threads; // rates of so many are not kept yet; 0: they are, or are not needed
};
TD_MUST_USE td_status td_estimate_step(const struct td_rank *r, struct td_estimate *out);

#endif
