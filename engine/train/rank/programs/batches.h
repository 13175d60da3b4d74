#ifndef TRAIND_ENGINE_TRAIN_RANK_PROGRAMS_BATCHES_H
#define TRAIND_ENGINE_TRAIN_RANK_PROGRAMS_BATCHES_H

// Batches: how many a rank plays, and which program each of them takes.
//
// Programs are recorded for what these functions say (record.h), and the loop asks them again for
// every batch, so that none is missing. Pure functions of the rank. Thread: the training thread.

#include "engine/train/rank/rank.h"

// The epoch that p is in, played from there on.
struct td_epoch td_rank_epoch(const struct td_rank *r, const struct td_progress *p);
// Micro-batches of an epoch played whole.
int64_t td_rank_epoch_batches(const struct td_rank *r);
// Batches of one loader of an evaluation, the same on all ranks; some may have no samples for the
// last one. A limit of the job counts for each loader. And of all loaders of the split.
int64_t td_rank_loader_batches(const struct td_rank *r, enum td_split split, int loader);
int64_t td_rank_eval_batches(const struct td_rank *r, enum td_split split);
// The program of training step `step` for micro-batch `batch` of an epoch, with n samples; and the
// ones to evaluate and to predict n.
struct td_program_key td_rank_train_key(const struct td_rank *r, int step, const struct td_epoch *e,
                                        int64_t batch, int64_t n);
// The same of a loop that says itself what it wants of a micro-batch. Alone a rank always syncs.
struct td_program_key td_rank_manual_key(const struct td_rank *r, int step, bool accumulate,
                                         bool sync, int64_t n);
struct td_program_key td_rank_eval_key(const struct td_rank *r, int64_t n);
struct td_program_key td_rank_predict_key(const struct td_rank *r, int64_t n);
// The job's limits with windows in place of optimizer steps. Each step of the module makes one of
// these in a window; a window that max_steps ends in is played whole.
struct td_limits td_rank_window_limits(const struct td_rank *r);
// The place of a checkpoint as this world counts batches: of its offset, which samplers go by. One
// of an older traind has no windows: they follow from its steps.
void td_rank_recount(const struct td_rank *r, struct td_progress *p);
// Windows of a run that is at p: those that it has played, and what is left with the data, world
// and batch of this rank. A schedule with an end that is `auto` ends there. 0: it has no end. Where
// nothing has changed it is the same from every place of the run.
int64_t td_rank_total_windows(const struct td_rank *r, const struct td_progress *p);
// Does the job go through that split without training on it? Of predict: unless it generates.
bool td_rank_evaluates(const struct td_rank *r, enum td_split split);
// The predict stage continues a prompt instead of going through data.
bool td_rank_generates(const struct td_rank *r);
// The scores of an evaluation (scores.h) ask for the model's predictions, too.
bool td_rank_scores_predict(const struct td_rank *r);

#endif
