#ifndef TRAIND_LIB_BASE_FILES_HELD_PATH_H
#define TRAIND_LIB_BASE_FILES_HELD_PATH_H

// A file or directory that a daemon holds and works in: does its path still lead to it? What is
// written through an open descriptor of a file that was deleted, or of a file system that was
// unmounted, goes well and is lost.
//
// Any thread; constant after take. Asks the file system, which may not answer.

#include "lib/base/files/files.h"

struct td_held_path {
    char path[TD_FS_PATH_BYTES]; // "": nothing is held
    uint64_t device, inode;
};

TD_MUST_USE td_status td_held_path_take(const char *path, struct td_held_path *out_held);
// UNAVAILABLE, class disk: nothing is there any more, or something else is. "PATH is gone: put it
// back, or start traind again". Nothing held, and a file system that cannot be asked: OK.
TD_MUST_USE td_status td_held_path_check(const struct td_held_path *h);

#endif
