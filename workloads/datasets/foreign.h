#ifndef TRAIND_WORKLOADS_DATASETS_FOREIGN_H
#define TRAIND_WORKLOADS_DATASETS_FOREIGN_H

// What a file is that somebody gave to a reader of bare bytes.
//
// Ids and text have no header, so any file can be read as one, and training on an archive or an
// array would end well and mean nothing. Each kind here is known by four bytes at least, mostly
// some that are no text. That bare ids begin with these is possible, and as likely as one in 10^9.
// Pure.

#include "lib/base/base.h"

// "an array of NumPy (.npy)"; static. NULL: nothing that is known here. Gzip's is one, for readers
// that do not decode it.
const char *td_foreign_kind(const void *data, size_t bytes);

#endif
