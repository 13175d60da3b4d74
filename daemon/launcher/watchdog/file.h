#ifndef TRAIND_DAEMON_LAUNCHER_WATCHDOG_FILE_H
#define TRAIND_DAEMON_LAUNCHER_WATCHDOG_FILE_H

// A file of the attempt, as its path named it when it was opened: is it still the same? And how it
// grows.
//
// Thread: the launcher's. A file system that cannot be asked counts as the same.

#include <stdbool.h>
#include <sys/types.h>

#include "lib/base/base.h"

// A file as it was opened.
struct td_launch_file {
    dev_t device;
    ino_t inode;
};
TD_MUST_USE td_status td_launch_file_init(struct td_launch_file *f, const char *dir,
                                          const char *name);
// Whole or not at all; false: nothing was added. *bytes: its length.
bool td_launch_file_append(int fd, uint64_t *bytes, const void *data, size_t n);
// True: it is lost, and out_text says how: "metrics.0.seg of the attempt was removed".
bool td_launch_file_lost(const struct td_launch_file *f, const char *dir, const char *name,
                         uint64_t bytes, char *out_text, size_t out_bytes);

#endif
