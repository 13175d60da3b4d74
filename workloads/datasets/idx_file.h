#ifndef TRAIND_WORKLOADS_DATASETS_IDX_FILE_H
#define TRAIND_WORKLOADS_DATASETS_IDX_FILE_H

// One idx file (the MNIST family's format): four magic bytes 0, 0, type, number of dimensions; the
// dimensions as big-endian 32-bit numbers; then the elements, row-major. Only unsigned bytes (type
// 8) with one or three dimensions are read here. A file may be gzipped.
//
// The header is read and believed only within bounds, then the body is decoded with the length that
// the header promises as its cap. A bomb costs what its header admits to, at most TD_IDX_MAX_BYTES.
// Errors are DATA_LOSS (NOT_FOUND when there is no file), class data, with file, offset, expected
// and found in the message and as metadata.

#include "lib/base/buf.h"

enum { TD_IDX_MAX_PATH = 4400, TD_IDX_MAX_DIMS = 3 };
#define TD_IDX_MAX_BYTES ((size_t)1 << 30)

struct td_idx_file {
    char path[TD_IDX_MAX_PATH]; // as it was found, with or without .gz
    uint32_t dim[TD_IDX_MAX_DIMS];
    size_t header_bytes, body_bytes;
};

// Finds dir/stem or dir/stem.gz (the plain one first).
TD_MUST_USE td_status td_idx_find(const char *dir, const char *stem, struct td_idx_file *out_file);
// Reads and checks the header of a file that was found; n_dims is what it must have.
TD_MUST_USE td_status td_idx_read_header(struct td_idx_file *f, int n_dims);
// Copies the body into out[body_bytes]; the header was read before.
TD_MUST_USE td_status td_idx_read_body(const struct td_idx_file *f, uint8_t *out);

#endif
