#ifndef TRAIND_DAEMON_WORKER_REPORTS_BOARD_TREE_H
#define TRAIND_DAEMON_WORKER_REPORTS_BOARD_TREE_H

// The directory of `loggers_in.tensorboard`, and which event files are in it and below it.
//
// An event file is a regular file whose name has `tfevents` in it, as TensorBoard itself has it. A
// link is never followed, whatever it leads to: so nothing outside is read, and nothing twice. The
// files that a launcher writes itself (`loggers`) are left out, as their points would come in
// again. A file that was written last a minute or more before the attempt began is left out until
// that changes: it is of another run, and may be long.
//
// A directory is listed when it has changed, or was changed within 2 s, and each 10 s. The root is
// opened again when its path leads elsewhere, so a program may remove and make it again. Nothing is
// open between two looks but the root.
//
// Bounds: TD_BOARD_DIRS directories and TD_BOARD_FILES files, DEEP levels, LISTED entries of a
// directory. A directory's own path is shorter than a metric's name, of which it is the beginning.
// What is past a bound is left out and noted. Thread: one.

#include "daemon/worker/reports/board_file.h"

struct td_board_notes;

enum { TD_BOARD_DIRS = 1024, TD_BOARD_FILES = 1024 };

struct td_board_dir;
struct td_board_tree {
    const char *path; // of the root, absolute; the caller's
    int64_t old_ns;   // a file that was written last before that is of another run
    struct td_board_notes *notes;
    int root_fd; // -1: it is not there
    struct td_board_dir *dir;
    size_t n_dirs, dirs_cap, next_dir;
    struct td_board_file *file; // (n_files)
    size_t n_files, files_cap;
    bool said_unread;
};

void td_board_tree_finish(struct td_board_tree *t);
// Looks at a part of the directories, all of them in a few calls. A file that is new has a mark of
// zeros, and `bytes` -1.
void td_board_tree_look(struct td_board_tree *t, struct td_mono now);
// What has the file's name now, links not followed. False: nothing, or no regular file: forget it.
bool td_board_tree_stat(const struct td_board_tree *t, const struct td_board_file *f,
                        struct stat *out_st);
TD_MUST_USE td_status td_board_tree_open(const struct td_board_tree *t,
                                         const struct td_board_file *f, int *out_fd);
void td_board_tree_forget(struct td_board_tree *t, size_t file); // the last one takes its place

#endif
