#ifndef TRAIND_WORKLOADS_DATASETS_MAPPED_H
#define TRAIND_WORKLOADS_DATASETS_MAPPED_H

// A file of data, mapped read-only, and the words in which datasets complain about one. Every
// refusal names the file, the offset, what was expected and what was found, in the message and as
// metadata, with class data. Pages come from the page cache, so all ranks of a node share them.
// A file that shrinks while it is mapped raises SIGBUS when it is read. The fatal handler names it,
// and the failure is of class data, because it is mapped shared (fabric/signals/mapping.h). The
// cache's images are mapped private: another attempt makes them again.

#include "lib/base/base.h"

struct td_mapped {
    void *data;
    size_t bytes;
};

// Errors: those of td_named_open; empty is DATA_LOSS.
TD_MUST_USE td_status td_mapped_init(const char *path, struct td_mapped *out_file);
void td_mapped_finish(struct td_mapped *f);

// "'PATH' offset N: what: expected E, found F" (DATA_LOSS, class data).
TD_MUST_USE td_status td_data_fail(const char *path, uint64_t offset, const char *what,
                                   uint64_t expected, uint64_t found);
// The same with words for what was expected and found.
TD_MUST_USE td_status td_data_fail_text(const char *path, uint64_t offset, const char *what,
                                        const char *expected, const char *found);

#endif
