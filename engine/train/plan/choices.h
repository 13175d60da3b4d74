#ifndef TRAIND_ENGINE_TRAIN_PLAN_CHOICES_H
#define TRAIND_ENGINE_TRAIN_PLAN_CHOICES_H

// Choices: what a job settles at its first start and never chooses again, because another choice
// would be other bits: what `auto` became, and which kernels were the fastest.
//
// They are announced once (the coordinator puts them into the plans of later attempts) and copied
// into each manifest. So a resumed job finds them even without a coordinator and without the
// accelerator's cache. Kernels are taken where hardware, library and CPU level are those that they
// were chosen on; elsewhere they are chosen again, which a note says. Kernels are chosen by rank 0
// alone, while nobody else computes, and adopted by the others. Thread: the training thread.

#include "traind/accelerator.h"

struct td_rank;

// Binds the rank's programs: adopts what is known, measures the rest, agrees with the other ranks.
TD_MUST_USE td_status td_choices_bind(struct td_rank *r, const struct td_bindings *b);
// What settles choices before they are made.
struct td_choices_origin {
    const char *frozen; // "the plan" or the directory of a checkpoint; NULL: nothing
    bool is_foreign;    // it is of other hardware or another CPU level, so nothing of it is taken
};
// Reports each choice that the program's kernels will be, before any is made: for a rank that only
// plans. What settles some of them is adopted first. Of checkpoints manifests alone are read, and
// those that cannot be are passed over: they may be on another node. Where the accelerator chooses
// nothing, nothing is reported.
TD_MUST_USE td_status td_choices_preview(struct td_rank *r, const struct td_program *p,
                                         td_choice_fn *fn, void *arg,
                                         struct td_choices_origin *out_origin);
// Puts everything together in r->frozen, and announces it at a job's first start.
TD_MUST_USE td_status td_choices_freeze(struct td_rank *r);

#endif
