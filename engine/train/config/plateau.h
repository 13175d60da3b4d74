#ifndef TRAIND_ENGINE_TRAIN_CONFIG_PLATEAU_H
#define TRAIND_ENGINE_TRAIN_CONFIG_PLATEAU_H

// Plateau: the one learning-rate schedule with a memory. It receives the monitored metric after
// each validation and lowers the rate when the metric no longer improves.
//
// Rule for rule torch.optim.lr_scheduler.ReduceLROnPlateau (tests/golden/plateau.json): a value
// that does not pass the best by `threshold` is bad. More than `patience` bad ones in a row
// multiply the rate by `factor`, not below min_lr and not by less than eps. For `cooldown`
// validations after that nothing is bad. A value that is not finite is bad; torch would keep an
// infinite one as its best.
//
// The rate is kept as a scale of optimizer.lr, so that a run resumed with another optimizer.lr goes
// on in proportion, as under every other schedule. The whole state is a part of td_progress. It is
// saved in the manifest, broadcast to all ranks on resume, and fed on each rank with the same
// global value. So it is the same everywhere and nothing more has to be agreed on. Pure, any
// thread.

#include "engine/train/config/config.h"

// All zero: nothing was received yet.
struct td_plateau {
    char monitor[TD_METRIC_NAME_BYTES]; // whose best it is
    double best;                        // if has_best
    double lr_scale;                    // of optimizer.lr
    int64_t bad;                        // validations in a row
    int64_t cooldown;                   // validations left of it
    bool has_best;
};

// Makes p, which a checkpoint may have brought, ready for this job: one that followed another
// metric keeps only its scale.
void td_plateau_begin(struct td_plateau *p, const struct td_plateau_config *c);
// True: the rate was lowered.
bool td_plateau_receive(struct td_plateau *p, const struct td_plateau_config *c, double base_lr,
                        double value);

#endif
