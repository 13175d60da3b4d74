#ifndef TRAIND_LIB_BASE_FILES_NAMED_H
#define TRAIND_LIB_BASE_FILES_NAMED_H

// What a person named: a path of a spec, a flag or a folder that others may write. It may be
// anything, so it is looked at before it is opened: only a regular file, or a directory, is. A FIFO
// would hold who opens it, and to open a device can do something. What was judged is what is
// opened: the path is walked once.
//
// All of them apply the path rules of this process; td_fs_open (files.h) is for traind's own files.
// No error but ENOENT's is NOT_FOUND. Any thread; a mount
// that does not answer holds the caller, so no loop of a daemon calls these for a spec's path.

#include <dirent.h>
#include <sys/stat.h>

#include "lib/base/files/path_rules.h"

// Opens a regular file to read. out_st may be NULL. Errors: those of td_fs_fail;
// FAILED_PRECONDITION
// "'PATH' is a FIFO, not a regular file"; those of the path rules. Class data, but for theirs.
TD_MUST_USE td_status td_named_open(const char *path, int *out_fd, struct stat *out_st);
// Opens a directory, to read it or to use with openat; use is what for.
TD_MUST_USE td_status td_named_open_dir(enum td_path_use use, const char *path, int *out_fd);
// Its entries; closedir is the caller's.
TD_MUST_USE td_status td_named_list(const char *path, DIR **out_dir);
// What is there, of any kind, through links; the rules have to allow to read it.
TD_MUST_USE td_status td_named_stat(const char *path, struct stat *out_st);
// td_fs_read of what a person named.
TD_MUST_USE td_status td_named_read(const char *path, size_t max_bytes, struct td_buf *out);

#endif
