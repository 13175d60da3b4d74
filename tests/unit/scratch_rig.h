#ifndef TRAIND_TESTS_UNIT_SCRATCH_RIG_H
#define TRAIND_TESTS_UNIT_SCRATCH_RIG_H

// Files below the scratch directory of a test (test_in_scratch): their paths, and how many there
// are.

#include <dirent.h>

#include "tests/unit/test.h"

// Good until 32 others were made.
static inline const char *in(void **state, const char *name) {
    static char path[32][1024];
    static unsigned next;
    next = (next + 1) % TD_COUNTOF(path);
    snprintf(path[next], sizeof path[next], "%s/%s", (char *)*state, name);
    return path[next];
}

// -2: no directory is there.
static inline int count_entries(const char *directory) {
    DIR *d = opendir(directory);
    int n = -2; // . and ..
    while (d && readdir(d)) {
        n++;
    }
    if (d) closedir(d);
    return n;
}

#endif
