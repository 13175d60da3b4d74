#ifndef TRAIND_WORKLOADS_DATASETS_IDX_CACHE_H
#define TRAIND_WORKLOADS_DATASETS_IDX_CACHE_H

// A decoded idx data set: the four files as one image of bytes (cache.h).
//
//   header (64 bytes) | train images | test images | train labels | test labels
//
// Errors: of the idx files only (class data).

#include "workloads/datasets/cache.h"

struct td_idx_header {
    struct td_image_head head; // magic "TDIDX1\n"
    uint64_t n[2];             // samples: train, test
    uint32_t rows, cols;
    uint32_t n_classes;
    uint32_t reserved[5];
};
_Static_assert(sizeof(struct td_idx_header) == 64, "the image's header is 64 bytes");

struct td_idx_view { // of one half: 0 train, 1 test
    int64_t n;
    const uint8_t *images; // (n, rows, cols)
    const uint8_t *labels; // (n)
};

// Opens the set below dir, labels in [0, n_classes) or `ignored`, which no label is if it is below
// 0. cache_dir may be NULL.
TD_MUST_USE td_status td_idx_image_init(const char *dir, uint32_t n_classes, int32_t ignored,
                                        const char *cache_dir, struct td_image *out_image);
const struct td_idx_header *td_idx_image_header(const struct td_image *image);
struct td_idx_view td_idx_image_view(const struct td_image *image, int half);

#endif
