#ifndef TRAIND_WORKLOADS_DATASETS_TOKENS_FILE_H
#define TRAIND_WORKLOADS_DATASETS_TOKENS_FILE_H

// One file of token ids, as llm.c or nanoGPT writes them.
//
//   llm.c     256 int32, of which: magic 20240520, version 1, count; then count u16
//             magic 20240801, version 7, count; then count u32 (Llama 3)
//   nanoGPT   u16 from the first byte to the last
//
// The file is known to be llm.c's by its magic. One that bears another magic of that family (a
// model, an evaluation set) is refused by name, because as nanoGPT's it would train on rubbish.
// Checked before use: version, count against the file's size, each id below vocab_size. Pure.

#include "lib/base/base.h"

struct td_tokens {
    const void *data;
    int64_t n;
    int width; // 2 or 4
};

// data stays the caller's; path is for messages. DATA_LOSS (class data) with the four facts.
TD_MUST_USE td_status td_tokens_read(const char *path, const void *data, size_t bytes,
                                     int64_t vocab_size, struct td_tokens *out_tokens);

#endif
