#ifndef TRAIND_DAEMON_COORDINATOR_SHELL_DISK_DISK_H
#define TRAIND_DAEMON_COORDINATOR_SHELL_DISK_DISK_H

// A thread for work that may wait for a disk: it runs there in the order it was given, and its end
// is reported on the loop. There are several, so that no read waits for a write. One is for what is
// written (shards, logs, sweeps, verification). One is for files that are read to clients, and one
// for questions to metrics.db (databases.h). A job carries its own data; it belongs to the thread
// between submit and done. At most TD_DISK_MAX_JOBS wait: then submit refuses, and the caller
// pushes back on whoever sends or reads.
//
// The room:
//
//   logs.h           what ranks print, by byte offset
//   look.h verify.h  are the files of checkpoints here, and are they what was committed?
//   sweep.h          files that nobody will ask for any more

#include "lib/base/base.h"

enum { TD_DISK_MAX_JOBS = 1024 };

struct td_disk;
struct td_loop;

struct td_disk_job {
    struct td_disk_job *next;              // the thread's
    void (*run)(struct td_disk_job *job);  // on the thread
    void (*done)(struct td_disk_job *job); // on the loop, once; frees the job
};

// name: of the thread, in the log; static.
TD_MUST_USE td_status td_disk_create(struct td_loop *loop, const char *name,
                                     struct td_disk **out_disk);
// Runs what waits, calls every done, joins.
void td_disk_destroy(struct td_disk *d);
TD_DEFINE_AUTO(td_disk, td_disk_destroy);
// RESOURCE_EXHAUSTED: the job was not taken.
TD_MUST_USE td_status td_disk_submit(struct td_disk *d, struct td_disk_job *job);

// Length of a regular file, at once: a stat is not worth a thread.
TD_MUST_USE td_status td_disk_file_bytes(const char *path, uint64_t *out_bytes);
// On the thread: writes all of data at offset. A file that ends before it is refused, UNAVAILABLE:
// a write before this one failed, and a hole would count as bytes that came.
TD_MUST_USE td_status td_disk_write_at(int fd, const char *path, uint64_t offset, const void *data,
                                       size_t bytes);
struct td_disk_file {
    const char *path;
    size_t root_bytes; // of path: a directory, below which nothing may be a link
    bool is_named;     // by a spec: the path rules of the daemon hold
    // The caller's, for several reads of one file: -1 before the first one, which opens and judges
    // it. It lives as long as a read does, and the caller closes it. NULL: opened for each read.
    int *fd;
};
// Reads at most bytes of a regular file from offset. done comes on the loop:
// data dies when it returns; n is short at the end of the file. Errors as td_disk_submit.
typedef void td_disk_read_fn(td_status take_status, const void *data, size_t n, void *arg);
TD_MUST_USE td_status td_disk_read(struct td_disk *d, const struct td_disk_file *file,
                                   uint64_t offset, size_t bytes, td_disk_read_fn *done, void *arg);

#endif
