#ifndef TRAIND_LIB_BASE_FILES_GZ_H
#define TRAIND_LIB_BASE_FILES_GZ_H

// Reads .gz files, and deflates and inflates data in memory (the only home of zlib). No more is
// decoded than was asked for, because 1 KiB of gzip can hold 1 GiB of zeros. Errors are DATA_LOSS
// with class data, naming file and offset.

#include "lib/base/buf.h"

// The first bytes of what a .gz file holds, all if it is shorter. A plain file is read as it is
// (distinguished by magic, not by name).
TD_MUST_USE td_status td_gz_head(const char *path, size_t bytes, struct td_buf *out);

// Deflated data without a head, as a .zip holds it, into exactly out_bytes. NULL: done. Else what
// is wrong, and at which byte of the input.
const char *td_gz_inflate(const void *data, size_t bytes, void *out, size_t out_bytes,
                          size_t *out_at);
// The same of data, fast rather than small. RESOURCE_EXHAUSTED: out has no room for it, or no
// memory.
TD_MUST_USE td_status td_gz_deflate(const void *data, size_t bytes, struct td_buf *out);
uint32_t td_gz_crc32(const void *data, size_t bytes);

#endif
