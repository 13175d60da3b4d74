#ifndef TRAIND_LIB_BASE_FILES_WHOLE_FILE_H
#define TRAIND_LIB_BASE_FILES_WHOLE_FILE_H

// Whole file: one that gets its name when all of it is written, so that nobody sees a part of it.
//
// Where the file system can do that it has no name until then, and a writer that is killed leaves
// nothing. Otherwise it has a temporary one in the same directory: random, of 24 bytes whatever the
// file will be called, made by O_EXCL. Both hold on to the directory by a descriptor, so what is
// written goes where it was begun, even if a link above it changes meanwhile.
//
// Thread: one at a time. td_fs_write and td_named_output (named_output.h) are its callers.

#include <sys/types.h>

#include "lib/base/base.h"

enum td_fs_write_flags { // none: no fsync (scratch files)
    TD_FS_WRITE_DURABLE = 1,
    TD_FS_WRITE_SYNCED =
        2, // the bytes alone: the name is durable with the next one in its directory
};

// What a temporary name begins with; a killed writer may leave one.
#define TD_WHOLE_FILE_PREFIX ".traind-"
enum { TD_WHOLE_FILE_NAME = sizeof TD_WHOLE_FILE_PREFIX + 16 }; // with its NUL

struct td_whole_file {
    int dir_fd, fd;                     // fd: for whoever writes; read and write
    char temporary[TD_WHOLE_FILE_NAME]; // "": it has none
};
#define TD_WHOLE_FILE_NONE ((struct td_whole_file){.dir_fd = -1, .fd = -1})

// take_dir_fd: of the directory, O_PATH will do; taken on failure, too. path: for messages. The
// file's mode is `mode` less the process's umask.
TD_MUST_USE td_status td_whole_file_open(int take_dir_fd, const char *path, mode_t mode,
                                         struct td_whole_file *out);
// It becomes `name` in its directory, in the place of what is there; flags: td_fs_write_flags.
// Once.
TD_MUST_USE td_status td_whole_file_become(struct td_whole_file *f, const char *name,
                                           const char *path, int flags);
// The end of one that was opened, or is TD_WHOLE_FILE_NONE: without a name it is gone.
void td_whole_file_finish(struct td_whole_file *f);
#define TD_AUTO_WHOLE_FILE __attribute__((cleanup(td_whole_file_finish))) struct td_whole_file

#endif
