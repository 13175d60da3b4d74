#ifndef TRAIND_WORKLOADS_DATASETS_IDX_CACHE_H
#define TRAIND_WORKLOADS_DATASETS_IDX_CACHE_H

// A decoded idx data set: the four files as one image of bytes, in the node's cache or in private
// memory.
//
//   header (64 bytes) | train images | test images | train labels | test labels
//
// The image is named by a digest of path, size and modification time of the four files, so changed
// files make a new one. It is written aside and renamed, then mapped read-only by every rank of the
// node; the header holds a digest of all that follows, so a damaged image is decoded anew. Ranks
// that find no image each decode for themselves and rename the same bytes into place: no lock, no
// waiting for a rank that may have died. Without a cache directory, or when it cannot be written,
// the image stays private. Old images are not removed here: the cache is the node's to empty.
// Errors: of the idx files only (class data).

#include "lib/base/base.h"

struct td_idx_header {
    char magic[8];   // "TDIDX1\n"
    uint64_t digest; // XXH3-64 of the image behind this field
    uint64_t n[2];   // samples: train, test
    uint32_t rows, cols;
    uint32_t n_classes;
    uint32_t reserved[5];
};
_Static_assert(sizeof(struct td_idx_header) == 64, "the image's header is 64 bytes");

struct td_idx_image {
    void *data;
    size_t bytes;
    bool mapped; // from the cache; else allocated
};

struct td_idx_view { // of one half: 0 train, 1 test
    int64_t n;
    const uint8_t *images; // (n, rows, cols)
    const uint8_t *labels; // (n)
};

// Opens the set below dir, labels in [0, n_classes). cache_dir may be NULL.
TD_MUST_USE td_status td_idx_image_init(const char *dir, uint32_t n_classes, const char *cache_dir,
                                        struct td_idx_image *out_image);
void td_idx_image_finish(struct td_idx_image *image);
const struct td_idx_header *td_idx_image_header(const struct td_idx_image *image);
struct td_idx_view td_idx_image_view(const struct td_idx_image *image, int half);

#endif
