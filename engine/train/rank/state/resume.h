#ifndef TRAIND_ENGINE_TRAIN_RANK_STATE_RESUME_H
#define TRAIND_ENGINE_TRAIN_RANK_STATE_RESUME_H

// Resume: what a run that goes on from a checkpoint does not share with the run that wrote it.
//
// The resume key is one part of that: world size, nodes, threads, hardware, build, precision. The
// other is state that the job has no place for, and state that the checkpoint never had. It is of
// another optimizer or learning-rate schedule, of a loss scale, of weights that the model does not
// have, of a strategy or precision that kept something of itself. A strategy may also say that it
// never resumes exactly. The first is dropped, the second begins as in a new run. Each reason is
// one line for people, and none means that the resumed run gives the bits of one that was never
// interrupted. Pure: reads the rank, sends nothing. Bounds: TD_RESUME_REASONS lines, of which each
// kind takes one, of TD_RESUME_REASON_BYTES, where a longer one ends in "..."; a list of tensors
// names the first few and their number. Thread: the training thread of a rank that reads.

#include "engine/train/rank/rank.h"

// With its head a line has to fit a job's note.
enum { TD_RESUME_REASONS = 13, TD_RESUME_REASON_BYTES = 272 };
enum { TD_RESUME_BYTES = TD_RESUME_REASONS * (TD_RESUME_REASON_BYTES + 2) + 64 };

struct td_resume_reasons {
    char text[TD_RESUME_REASONS][TD_RESUME_REASON_BYTES];
    size_t n;
};
// r: resumed, with its manifest and its state laid out. roles: bits 1 << td_role that are loaded.
void td_resume_compare(const struct td_rank *r, uint32_t roles,
                       struct td_resume_reasons *out_reasons);
// All of them in one line, "; " between them; there is room for all.
void td_resume_join(const struct td_resume_reasons *reasons, char out[TD_RESUME_BYTES]);

#endif
