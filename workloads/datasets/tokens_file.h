#ifndef TRAIND_WORKLOADS_DATASETS_TOKENS_FILE_H
#define TRAIND_WORKLOADS_DATASETS_TOKENS_FILE_H

// One file of token ids, as llm.c, NumPy or nanoGPT write them.
//
//   llm.c     256 int32, of which: magic 20240520, version 1, count; then count u16
//             magic 20240801, version 7, count; then count u32 (Llama 3)
//   NumPy     .npy of u2, u4, i4 or i8; of several dimensions in C order, row after row
//   bare      little-endian ids from the first byte to the last: u16 as nanoGPT's, or as wide as
//             data.token_bytes says
//
// A header is known by its magic. Another file that has one (foreign.h: an archive, a model) is
// refused by name, because as bare ids it would train on rubbish. So are ids of 4 or 8 bytes, taken
// for ids of 2: the upper half of each is 0, or as small as the vocabulary lets it be. A person who
// really has such ids of 2 bytes says so by the knob. Checked before use: headers against the
// file's size and the knob, each id in the vocabulary. Pure.

#include "lib/base/base.h"

struct td_tokens {
    const void *data;
    int64_t n;
    int width;      // 2, 4 or 8
    bool is_signed; // of width 4: ids of 2^31 and more were below 0
};

// data stays the caller's; path is for messages. token_bytes: the knob; 0: it was not given.
// DATA_LOSS (class data) with the four facts.
TD_MUST_USE td_status td_tokens_read(const char *path, const void *data, size_t bytes,
                                     int64_t vocab_size, int token_bytes,
                                     struct td_tokens *out_tokens);

#endif
