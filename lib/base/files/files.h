#ifndef TRAIND_LIB_BASE_FILES_FILES_H
#define TRAIND_LIB_BASE_FILES_FILES_H

// Files, the durable way. A file that others may read appears whole or not at all (whole_file.h).
// It is written and synced before it has its name; then the directory is synced. Reads have a cap.
// Errors are those of td_fs_fail (fs_fail.h); every message names the path.
//
// The room, in reading order:
//
//   fs_fail.h       what went wrong with a file, as a status
//   whole_file.h    a file that gets its name when all of it is there
//   held_path.h     does the path of a file or directory that is held still lead to it?
//   named.h         opens what a person named, by the rules of path_rules.h
//   named_output.h  writes it: only a file is replaced, and stays what it was
//   state_dir.h     where daemon and client find each other
//   gz.h            reads gzip files
//   trace_file.h    events with their time, for a viewer
//   tfevents.h      records of TensorBoard's files

#include <sys/types.h>

#include "lib/base/buf.h"
#include "lib/base/files/fs_fail.h"
#include "lib/base/files/whole_file.h"

// Replaces path atomically with the bytes. The file's mode is `mode` less the process's umask.
// Leaves no temporary file on failure.
TD_MUST_USE td_status td_fs_write(const char *path, const void *data, size_t bytes, mode_t mode,
                                  int flags);
struct stat;
// Opens a regular file of traind's own to read; what a spec names is opened by named.h. out_st may
// be NULL. FAILED_PRECONDITION: "'PATH' is a FIFO, not a regular file", which is not opened.
TD_MUST_USE td_status td_fs_open(const char *path, int *out_fd, struct stat *out_st);
// The same; the first root_bytes of path name a directory, and nothing below it may be a link or
// "..": FAILED_PRECONDITION then. For directories that others may write.
TD_MUST_USE td_status td_fs_open_below(const char *path, size_t root_bytes, int *out_fd,
                                       struct stat *out_st);
// What is there, of any kind but a link, by a descriptor of O_PATH, below a directory that is open.
TD_MUST_USE td_status td_fs_hold_below(int root_fd, const char *path, int *out_fd,
                                       struct stat *out_st);
// The two halves of td_fs_open: what is there, of any kind, by a descriptor of O_PATH; that opened
// to read, if it is of this kind (S_IFREG, S_IFDIR).
TD_MUST_USE td_status td_fs_hold(const char *path, int *out_fd, struct stat *out_st);
TD_MUST_USE td_status td_fs_open_held(int held, const char *path, mode_t kind, int *out_fd);
// Reads a whole regular file into out (appended); RESOURCE_EXHAUSTED past max_bytes.
// It is of traind's own; td_named_read reads what a spec names.
TD_MUST_USE td_status td_fs_read(const char *path, size_t max_bytes, struct td_buf *out);
// The same of a descriptor at its beginning; st is of its fstat.
TD_MUST_USE td_status td_fs_read_open(int fd, const char *path, const struct stat *st,
                                      size_t max_bytes, struct td_buf *out);
// mkdir -p; existing directories are fine, other files of that name are an error.
TD_MUST_USE td_status td_fs_mkdirs(const char *path, mode_t mode);
// The same, but what it makes has this mode whatever the umask is: directories that a job writes
// into, made by a daemon whose own umask is 077.
TD_MUST_USE td_status td_fs_mkdirs_exact(const char *path, mode_t mode);
TD_MUST_USE td_status td_fs_fsync_dir(const char *path);
TD_MUST_USE td_status td_fs_rename(const char *from, const char *to); // and fsyncs to's directory
// Removes a tree without following links; absent is fine. Depth is bounded by 100.
TD_MUST_USE td_status td_fs_remove_tree(const char *path);
bool td_fs_exists(const char *path);
enum { TD_FS_PATH_BYTES = 4096 };
// Prints a path into out[TD_FS_PATH_BYTES]; INVALID_ARGUMENT when it is too long.
TD_MUST_USE td_status td_fs_path(char *out, const char *fmt, ...) TD_PRINTF(2, 3);
// The same place from the root, without "." and "..": a relative path begins at the current
// directory, links are not looked at. INVALID_ARGUMENT when out is too short.
TD_MUST_USE td_status td_fs_absolute(const char *path, char *out, size_t out_bytes);
// Writes all bytes to a descriptor, through short writes and EINTR.
TD_MUST_USE td_status td_fd_write_all(int fd, const void *data, size_t bytes, const char *what);
// Of a socket that keeps messages apart, from which recv took 0 bytes: the other end is closed and
// all that it wrote was read. False: the message was an empty one, which ends nothing.
bool td_fd_has_ended(int fd);
// An answer on standard output: its bytes, and what stdio still holds of it. Both fail with reason
// TD_FS_NOT_PRINTED when any of it was not written, whatever the error: what was asked is done.
#define TD_FS_NOT_PRINTED "NOT_PRINTED"
TD_MUST_USE td_status td_fs_write_stdout(const void *data, size_t bytes);
TD_MUST_USE td_status td_fs_flush_stdout(void);
// Takes an exclusive lock file that names its holder; FAILED_PRECONDITION names the other holder
// ("held by pid 123 (traind on host)"). The descriptor is the lock; closing releases it.
TD_MUST_USE td_status td_fs_lock(const char *path, const char *holder, int *out_fd);
// The same; a lock that another holds is waited for, at most wait_ns. Blocks its thread.
TD_MUST_USE td_status td_fs_lock_within(const char *path, const char *holder, int64_t wait_ns,
                                        int *out_fd);
// The same, of a file that is open to read and write.
TD_MUST_USE td_status td_fs_lock_opened(int fd, const char *path, const char *holder,
                                        int64_t wait_ns);
// Of an open file, before it is locked and so written: it is a lock file, or a new one. Anything
// that has another name or other text is not.
bool td_fs_is_lock(int fd);

#endif
