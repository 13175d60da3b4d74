#ifndef TRAIND_DAEMON_COORDINATOR_SHELL_ACCESS_AUDIT_FILE_H
#define TRAIND_DAEMON_COORDINATOR_SHELL_ACCESS_AUDIT_FILE_H

// The files of the audit log: appended to, replaced when they are full, and read for the number of
// their last line. For audit.h, which says what happens at these bounds. They belong to its
// thread, and before that is created to the loop's.

#include "lib/base/base.h"

enum {
    TD_AUDIT_FILE_BYTES = 16 << 20,
    TD_AUDIT_FILES = 8, // with the newest
};

// Appends whole lines. Nothing of what fails stays. A file that would be too long becomes an older
// one first, on disk.
TD_MUST_USE td_status td_audit_file_append(const char *path, const char *text, size_t bytes);
// What was appended is on disk, and so is the file's name.
TD_MUST_USE td_status td_audit_file_sync(const char *path);
// The number of the last whole line that has one, also of an older file; 0: there is none.
// *out_torn: the file ends in the middle of a line, which a crash of the machine left.
TD_MUST_USE td_status td_audit_file_last(const char *path, uint64_t *out_number, bool *out_torn);

#endif
