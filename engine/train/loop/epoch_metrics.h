#ifndef TRAIND_ENGINE_TRAIN_LOOP_EPOCH_METRICS_H
#define TRAIND_ENGINE_TRAIN_LOOP_EPOCH_METRICS_H

// Epoch metrics: what training measured over the epoch that is played, "train_loss_epoch".
//
// Each rank adds its windows; nothing is exchanged before the epoch ends, when each logs its own
// sum and the coordinator merges them as it does for every metric. A checkpoint keeps the sums of
// each rank apart, so a run that resumes inside an epoch logs the same bits as one that was never
// cut. In a world of another size rank 0 takes them all. A checkpoint without them (an older traind
// wrote it) is said in a note; the epoch that it is from then has no epoch metrics, rather than
// wrong ones. A step that the precision skipped is in no sum.
//
// Memory is the rank's arena. A manifest borrows its sums while it is written, so there are two
// blocks of them. Thread: the training thread.

#include "engine/train/events/tallies.h"
#include "traind/status.h"

struct td_rank;
struct td_manifest;

struct td_epoch_metrics {
    struct td_rank *rank;
    struct td_tallies own; // of this rank, of the epoch's windows
    bool incomplete;       // the epoch's beginning is not known
    double *gathered;      // (W, 2, TD_TALLIES, 2): of each rank the window's and the epoch's sums
    double *saved[2];      // (W, TD_TALLIES, 2)
    int spare;             // that of them which no manifest borrows
};

// Collective: once, before the first step, after the ranks know whether they resumed.
TD_MUST_USE td_status td_epoch_metrics_begin(struct td_epoch_metrics *e, struct td_rank *r);
void td_epoch_metrics_add(struct td_epoch_metrics *e, const struct td_tallies *window);
// Logs "train_<name>_epoch".
void td_epoch_metrics_log(struct td_epoch_metrics *e, int64_t step, int64_t epoch);
// Collective. The mean over the epoch so far and all ranks, of "train_loss" or "train_loss_epoch".
// *out_known: false, if there is none.
TD_MUST_USE td_status td_epoch_metrics_mean(struct td_epoch_metrics *e, const char *name,
                                            bool *out_known, double *out_mean);
// Another epoch begins.
void td_epoch_metrics_next(struct td_epoch_metrics *e);
// Collective. Fills in the manifest's training metrics, over all ranks, and the sums of each.
TD_MUST_USE td_status td_epoch_metrics_describe(struct td_epoch_metrics *e,
                                                const struct td_tallies *window,
                                                struct td_manifest *m);
// That manifest was taken to be written: it borrows its sums until another one is taken.
void td_epoch_metrics_taken(struct td_epoch_metrics *e);

#endif
