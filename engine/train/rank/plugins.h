#ifndef TRAIND_ENGINE_TRAIN_RANK_PLUGINS_H
#define TRAIND_ENGINE_TRAIN_RANK_PLUGINS_H

// Plugins: what the job names is found, opened and kept in the rank. Each of these is a step of
// building (build.h) and leaves what td_rank_destroy can take down. Thread: the training thread.

#include "engine/train/rank/rank.h"

// The accelerator that a rank of this configuration opens: what the job asks for; for auto what its
// first start settled, else what the caller says.
const char *td_rank_accelerator_name(const struct td_train_config *c);
TD_MUST_USE td_status td_rank_open_accelerator(struct td_rank *r);
TD_MUST_USE td_status td_rank_find_group(struct td_rank *r);
// The precision that the job asks for; and the one that r->precision_name names.
TD_MUST_USE td_status td_rank_open_precision(struct td_rank *r);
TD_MUST_USE td_status td_rank_open_named_precision(struct td_rank *r);
// Shows the precision to the strategy.
TD_MUST_USE td_status td_rank_open_strategy(struct td_rank *r);
// INVALID_ARGUMENT (class bad_spec) where the precision may skip steps that the strategy takes.
TD_MUST_USE td_status td_rank_check_precision(struct td_rank *r);
// Finds the module, too, and what it takes as targets. Divides the data.
TD_MUST_USE td_status td_rank_open_data(struct td_rank *r);
// As the strategy says, and puts its loaders around; again, where a plan has opened another one.
TD_MUST_USE td_status td_rank_divide_data(struct td_rank *r);
// Connects it, too: shows it to the strategy.
TD_MUST_USE td_status td_rank_open_module(struct td_rank *r);
TD_MUST_USE td_status td_rank_connect_module(struct td_rank *r);
// Which builds of plugins this rank runs, into its resume key.
TD_MUST_USE td_status td_rank_list_plugins(struct td_rank *r);

#endif
