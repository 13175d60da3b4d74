#ifndef TRAIND_WORKLOADS_DATASETS_WINDOWS_H
#define TRAIND_WORKLOADS_DATASETS_WINDOWS_H

// Rows of tokens cut out of long runs of them: what `tokens` and `text` hand out.
//
// Window j of a run begins at token j * stride and has block + 1 tokens: x is all but the last, y
// all but the first. With stride = block every token is a target once an epoch; no window crosses
// the end of a run (a file). Windows are numbered through all runs in the order they were added, so
// which tokens sample j holds depends on nothing but files, block and stride. So the sampler's
// position resumes exactly. Rejected: drawing starts at random, with replacement, as nanoGPT does:
// an epoch then has no end and a sample no number. stride 1 gives every start there is.
// Memory is the caller's (mapped files); a struct holds WINDOWS_RUNS runs at most. One thread.

#include "lib/base/base.h"
#include "traind/dataset.h"

enum { TD_WINDOWS_RUNS = 1024 };

struct td_token_run {
    const void *data;
    int64_t n_tokens;
    int64_t first; // number of its first window
    int width;     // bytes of a token: 1, 2, 4 or 8, little-endian
};

struct td_windows {
    int64_t block, stride;
    int64_t n; // windows in all runs
    struct td_token_run run[TD_WINDOWS_RUNS];
    size_t n_runs;
};

void td_windows_init(struct td_windows *w, int64_t block, int64_t stride);
// Adds a run; one that is shorter than a window adds none. RESOURCE_EXHAUSTED past the bound.
TD_MUST_USE td_status td_windows_add(struct td_windows *w, const void *data, int64_t n_tokens,
                                     int width);
// Copies windows index[0..n) into x and y, each (n, block). OUT_OF_RANGE naming the split.
TD_MUST_USE td_status td_windows_gather(const struct td_windows *w, enum td_split split,
                                        const int64_t *index, int64_t n, int32_t *x, int32_t *y);
// The fields of such a dataset: "x" and "y".
size_t td_windows_fields(const struct td_windows *w, int64_t vocab_size,
                         struct td_field out_fields[8]);

// Finds the first token that is not from 0 to below vocab_size: -1 if there is none.
int64_t td_tokens_find_bad(const void *data, int64_t n_tokens, int width, int64_t vocab_size);
int64_t td_token_at(const void *data, int64_t i, int width);

// block_size and stride (null: block_size) from a dataset's knobs; INVALID_ARGUMENT, bad_spec.
TD_MUST_USE td_status td_windows_knobs(const struct td_json *knobs, int64_t *out_block,
                                       int64_t *out_stride);

#endif
