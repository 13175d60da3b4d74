#ifndef TRAIND_ENGINE_TRAIN_CONFIG_EARLY_STOP_H
#define TRAIND_ENGINE_TRAIN_CONFIG_EARLY_STOP_H

// Early stop: what ends fit before its limits do. It receives the monitored metric at each check,
// and says once why training should end.
//
// Rule for rule Lightning's EarlyStopping (tests/golden/early_stopping.json). A value that is not
// finite ends fit, and so does one beyond a threshold. So do `patience` values in a row of which
// none passes the best by more than min_delta. Once the end is decided it stays decided, but for
// patience that ran out before min_epochs: an improvement until then takes that back. Whether fit
// may obey yet is the business of the loop (min_epochs, min_steps).
//
// The whole state is a part of td_progress. It is saved in the manifest, broadcast to all ranks on
// resume, and fed on each rank with the same global value. So it is the same everywhere and nothing
// more has to be agreed on. Pure, any thread.

#include "engine/train/config/config.h"

enum { TD_EARLY_STOP_REASON_BYTES = 160 };

// All zero: no metric is monitored.
struct td_early_stop {
    char monitor[TD_METRIC_NAME_BYTES]; // whose state it is
    bool larger_is_better;
    bool has_best, has_value;
    bool decided;   // that fit ends
    bool revocable; // by an improvement, as min_epochs have not passed
    double best;    // if has_best; may be infinite
    double value;   // the newest of a validation, if has_value
    int64_t wait;   // checks in a row that were no improvement
};

enum td_early_stop_end {
    TD_EARLY_STOP_NOT,
    TD_EARLY_STOP_NOT_FINITE,
    TD_EARLY_STOP_THRESHOLD,
    TD_EARLY_STOP_DIVERGENCE,
    TD_EARLY_STOP_PATIENCE,
};

// Makes s, which a checkpoint may have brought, ready for this job: one that followed another
// metric or the other end of it is forgotten.
void td_early_stop_begin(struct td_early_stop *s, const struct td_early_stop_config *c);
// Is it checked when an epoch of training has ended, rather than a validation? has_validation:
// there is data to validate on.
bool td_early_stop_checks_epochs(const struct td_early_stop_config *c,
                                 const struct td_limits *limits, bool has_validation);
// One check. Counts, and says whether this value asks for the end.
enum td_early_stop_end td_early_stop_receive(struct td_early_stop *s,
                                             const struct td_early_stop_config *c, double value);
// "val_loss did not improve for 3 checks (best 0.25)": of a check that asked for the end.
void td_early_stop_say(const struct td_early_stop *s, const struct td_early_stop_config *c,
                       enum td_early_stop_end end, double value,
                       char out[TD_EARLY_STOP_REASON_BYTES]);

#endif
