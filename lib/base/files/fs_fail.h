#ifndef TRAIND_LIB_BASE_FILES_FS_FAIL_H
#define TRAIND_LIB_BASE_FILES_FS_FAIL_H

// What went wrong with a file: errno is mapped here, once. A missing file is NOT_FOUND. Errors of
// the storage itself (full, read-only, failing, its server away) have the class disk, which the
// job's restart policy knows. Any thread.

#include "lib/base/base.h"

// The status for errno after a file operation: "<doing> '<path>': <errno text>".
TD_MUST_USE td_status td_fs_fail(const char *doing, const char *path);
// Of such a status: the path is missing or forbidden. If it was good before, its file system may be
// away.
bool td_fs_is_gone(td_status borrow_status);

#endif
