#ifndef TRAIND_WORKLOADS_DATASETS_ZIP_FILE_H
#define TRAIND_WORKLOADS_DATASETS_ZIP_FILE_H

// Arrays in an .npz, which is a zip archive of .npy files, stored (numpy.savez) or deflated
// (numpy.savez_compressed); archives above 4 GiB (zip64) too. The directory at the end of the file
// is read, and of a member its local header. What is encrypted, split over files, or compressed in
// another way is refused. Errors: as mapped.h has them. Pure functions of the mapped file.

#include "workloads/datasets/mapped.h"

struct td_zip_entry {
    struct td_str name; // without ".npy"; of the mapped file
    const char *data;   // as it is stored
    size_t stored_bytes;
    size_t bytes; // of the .npy that it holds
    uint64_t offset;
    uint32_t crc;
    bool is_deflated;
};

bool td_zip_is(const struct td_mapped *f); // by its first bytes
// The array of that name; the only one that there is where none is asked for by name.
TD_MUST_USE td_status td_zip_find(const char *path, const struct td_mapped *f, const char *name,
                                  bool is_asked, struct td_zip_entry *out_entry);
// data: (bytes), what the entry holds, has the checksum of the directory.
TD_MUST_USE td_status td_zip_check(const char *path, const struct td_zip_entry *e,
                                   const void *data);

#endif
