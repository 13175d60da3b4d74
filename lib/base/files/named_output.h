#ifndef TRAIND_LIB_BASE_FILES_NAMED_OUTPUT_H
#define TRAIND_LIB_BASE_FILES_NAMED_OUTPUT_H

// Named output: writes what a person named, in a spec or by an option.
//
// Only a regular file is replaced: a device, a pipe, a socket, a directory or an open file of a
// process (/dev/stdout, /proc/self/fd/1) is refused, with what it is. Links are followed once, when
// the output is opened; from then on the directory is held by a descriptor, and no link is
// followed. So is the file that a link leads to the one that is replaced, and the link stays. The
// new file appears whole (whole_file.h), with mode and owner of the one it replaces. One that may
// not be written, or whose owner cannot be kept, is refused, though a rename would do it.
//
// All apply the path rules of this process (path_rules.h) to the directory that a name leads to,
// and to what is there already.
//
// A refusal is FAILED_PRECONDITION, or what td_fs_fail says of the errno. It names the path and not
// the key or the option, which the caller knows. Thread: one at a time for each output.

#include <limits.h>

#include "lib/base/files/files.h"
#include "lib/base/files/whole_file.h"

struct td_named_output {
    struct td_whole_file file;
    const char *path; // the caller's, and outlives this
    char name[NAME_MAX + 1];
};
#define TD_NAMED_OUTPUT_NONE ((struct td_named_output){.file = TD_WHOLE_FILE_NONE})

// Ready to be written at out->file.fd. What is there under that name stays until it is finished.
// mode: of a new file, less the umask.
TD_MUST_USE td_status td_named_output_open(const char *path, mode_t mode,
                                           struct td_named_output *out);
// All is written: it takes its place; flags: td_fs_write_flags.
TD_MUST_USE td_status td_named_output_finish(struct td_named_output *o, int flags);
// The end of one that was opened, or is TD_NAMED_OUTPUT_NONE: unless it was finished, it is gone.
void td_named_output_close(struct td_named_output *o);
#define TD_AUTO_NAMED_OUTPUT __attribute__((cleanup(td_named_output_close))) struct td_named_output
// All three, for bytes that are there.
TD_MUST_USE td_status td_named_output_write(const char *path, const void *data, size_t bytes,
                                            mode_t mode, int flags);

// A file that is written in place, in a directory that a person named: made if it is absent, and
// opened with `flags` besides (O_WRONLY or O_RDWR, and O_APPEND). A link is not followed.
TD_MUST_USE td_status td_named_output_update(const char *path, int flags, mode_t mode, int *out_fd);

// Do the rules allow the job to make this directory, or to write in it? The nearest one that is
// there counts. What else may be wrong with it is for whoever makes it to say.
TD_MUST_USE td_status td_named_output_allowed(const char *path);
// td_fs_mkdirs of what a person named, if it is allowed. What is made is in the directory that was
// judged, whatever comes meanwhile. Of both: INVALID_ARGUMENT where ".." follows a name that is not
// there.
TD_MUST_USE td_status td_named_output_mkdirs(const char *path, mode_t mode);

// While it is held, nobody else who asks writes this output: a lock file beside it, which the
// release removes. A holder that is killed may leave the file, unlocked. It is waited for at most
// wait_ns. FAILED_PRECONDITION LOCK_HELD names the other holder, and without that reason what has
// the name of the lock file and is none. UNAVAILABLE: the file system has no locks, or the lock
// file is another user's.
struct td_named_hold {
    int fd;
    char lock[TD_FS_PATH_BYTES];
};
#define TD_NAMED_HOLD_NONE ((struct td_named_hold){.fd = -1})
TD_MUST_USE td_status td_named_output_hold(const char *path, const char *holder, int64_t wait_ns,
                                           struct td_named_hold *out);
void td_named_output_release(
    struct td_named_hold *h); // of one that is held, or is TD_NAMED_HOLD_NONE

#endif
