#ifndef TRAIND_FABRIC_SIGNALS_MAPPING_H
#define TRAIND_FABRIC_SIGNALS_MAPPING_H

// Mapping: which file's bytes are at an address, for the last words of a rank that could not read
// them. The kernel's list of the process's mappings says so, /proc/self/maps. Async-signal-safe:
// nothing is allocated or locked. Thread: one at a time.

#include <stdbool.h>
#include <stdint.h>

enum { TD_MAPPING_PATH = 512 };

struct td_mapping {
    char path[TD_MAPPING_PATH]; // "/data/x.npy"; one that is longer is cut
    uint64_t offset;            // of the address, in the file
    bool is_data; // mapped shared and read-only: as data sets are, and neither programs nor caches
};

// False: no file is mapped there.
bool td_mapping_of(uintptr_t address, struct td_mapping *out_mapping);

#endif
