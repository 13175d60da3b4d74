#ifndef TRAIND_LIB_BASE_GZ_H
#define TRAIND_LIB_BASE_GZ_H

// Reads .gz files (the only home of zlib). The decoded size has a cap, because 1 KiB of gzip can
// hold 1 GiB of zeros. Errors are DATA_LOSS with class data, naming file and offset.

#include "lib/base/buf.h"

// Decodes a whole .gz file, or reads a plain one as it is (told apart by magic, not by name).
TD_MUST_USE td_status td_gz_read(const char *path, size_t max_bytes, struct td_buf *out);
// The first bytes of it only (all, if it is shorter): what a header says before the rest is
// decoded.
TD_MUST_USE td_status td_gz_head(const char *path, size_t bytes, struct td_buf *out);

#endif
