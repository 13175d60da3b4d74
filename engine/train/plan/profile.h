#ifndef TRAIND_ENGINE_TRAIN_PLAN_PROFILE_H
#define TRAIND_ENGINE_TRAIN_PLAN_PROFILE_H

// Profile: where the time of a run's steps went, by kernel: a table for people, and the same as
// JSON. The accelerator counts runs and nanoseconds of every kernel (kernel_at), because it was
// opened with `profile`; one that does not has no table. Steps that train, evaluate and predict are
// apart: a kernel's share is that of the time of all kernels of its kind of step. What is no
// kernel, such as reading samples, is in none of them.

#include "engine/train/rank/programs/programs.h"
#include "lib/base/buf.h"

// A row has less than 200 bytes in both forms, so this is room for more kernels than there are.
enum { TD_PROFILE_BYTES = 4 << 20 };

struct td_profile;
// Of all bound programs, as they have run so far.
TD_MUST_USE td_status td_profile_take(const struct td_programs *p, struct td_profile **out_profile);
void td_profile_destroy(struct td_profile *p); // accepts NULL
TD_DEFINE_AUTO(td_profile, td_profile_destroy);
// No kernel took any time: the accelerator counts none, or nothing has run.
bool td_profile_is_empty(const struct td_profile *p);
// Appends the table, the costliest kernel of each kind of step first; a sentence of an empty one.
TD_MUST_USE td_status td_profile_print(const struct td_profile *p, struct td_buf *out);
// Appends one object: the members `what`, then "kernels", in the order of the table.
TD_MUST_USE td_status td_profile_json(const struct td_profile *p, const char *what,
                                      struct td_buf *out);

#endif
