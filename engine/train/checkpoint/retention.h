#ifndef TRAIND_ENGINE_TRAIN_CHECKPOINT_RETENTION_H
#define TRAIND_ENGINE_TRAIN_CHECKPOINT_RETENTION_H

// Retention: which checkpoints of an attempt its rank keeps, by the rule of
// lib/attempt/retention.h. Pure bookkeeping, no file is touched here. What earlier attempts of the
// job left is the coordinator's to judge, which counts over all of them
// (daemon/coordinator/core/catalog/retain.c).
//
// A checkpoint that the run was resumed from belongs to another attempt or is named at creation;
// it is never a victim. Bound: k + 2 entries. One thread.

#include "engine/train/config/config.h"

struct td_retention;
// resumed_from: path of a checkpoint, NULL none; only protected if it is in config->dir.
TD_MUST_USE td_status td_retention_create(const struct td_checkpoint_config *config,
                                          const char *resumed_from,
                                          struct td_retention **out_retention);
void td_retention_destroy(struct td_retention *r); // accepts NULL
TD_DEFINE_AUTO(td_retention, td_retention_destroy);

// A checkpoint became durable. value: its monitored metric, NaN if there is none.
void td_retention_add(struct td_retention *r, int64_t step, double value);
// Would a checkpoint of this monitored value be one of those that are asked for, not only the
// newest? All are where all stay; of the best k, one that no k others are at least as good as. A
// checkpoint between two validations repeats the value of the one before, and is not asked for.
bool td_retention_wants(const struct td_retention *r, double value);
// Takes one that has to go out of the books; false: all may stay.
bool td_retention_victim(struct td_retention *r, int64_t *out_step);

#endif
