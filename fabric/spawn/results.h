#ifndef TRAIND_FABRIC_SPAWN_RESULTS_H
#define TRAIND_FABRIC_SPAWN_RESULTS_H

// Results: what ranks gave back (traind/spawn.h), and what one call collects before it is known
// whether the call succeeds.
//
// A call collects in a td_results of its own, from the frames of rank 0. Only a call that succeeds
// merges that into the caller's. Bytes are counted as they come, against the call's maximum.

#include "fabric/spawn/result_frame.h"
#include "traind/spawn.h"

// Takes what the frame in the reader says; the reader keeps nothing of it. dir_fd: where files of
// weights are. Errors name what is wrong.
TD_MUST_USE td_status td_results_collect(struct td_results *r, struct td_result_reader *frame,
                                         int dir_fd, uint64_t max_bytes);
uint64_t td_results_held(const struct td_results *r); // bytes
// All of `call` moves into r, or nothing. r NULL: only checked against itself.
TD_MUST_USE td_status td_results_merge(struct td_results *r, struct td_results *call);
TD_DEFINE_AUTO(td_results, td_results_destroy);

#endif
