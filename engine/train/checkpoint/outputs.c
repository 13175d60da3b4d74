// A file is really written: permissions, a read-only file system, a quota and a directory that is
// none all fail the same way then. It has no name where the file system can do that, so a rank that
// is killed leaves nothing. Rejected: access(2), which says yes to root and to a full disk.
//
// A plan tries the nearest directory that is there in place of one that a rank would make. A full
// disk is no reason to refuse a plan: there may be room when the job starts.

#include "engine/train/checkpoint/outputs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/files/files.h"
#include "lib/base/files/named.h"
#include "lib/base/files/named_output.h"

static td_status write_in(enum td_path_use use, const char *dir) {
    TD_AUTO_WHOLE_FILE file = TD_WHOLE_FILE_NONE;
    int dir_fd;
    TD_TRY(td_named_open_dir(use, dir, &dir_fd));
    TD_TRY(td_whole_file_open(dir_fd, dir, 0600, &file));
    return td_fd_write_all(file.fd, "\n", 1, dir);
}

static td_status try_directory(enum td_path_use use, const char *dir, const char *what) {
    return td_status_context(write_in(use, dir), "%s cannot be written in '%s'", what, dir);
}

// How a directory that a rank makes, if it is not there, is tried.
typedef td_status try_fn(const char *dir, const char *what);

static td_status make_and_try(const char *dir, const char *what) {
    td_status s = td_named_output_mkdirs(dir, 0777);
    return s ? td_status_context(s, "%s need a directory", what)
             : try_directory(TD_PATH_WRITE, dir, what);
}

// The directory above; false: there is none.
static bool rise(char path[TD_FS_PATH_BYTES]) {
    char *slash = strrchr(path, '/');
    if (strcmp(path, "/") == 0 || strcmp(path, ".") == 0) return false;
    if (slash) {
        slash[slash == path] = '\0';
    } else {
        snprintf(path, TD_FS_PATH_BYTES, ".");
    }
    return true;
}

// What is in the way, a file or a link that leads nowhere, is there, too, and fails the trial.
static bool is_missing(const char *path) {
    struct stat st;
    return lstat(path, &st) != 0 && (errno == ENOENT || errno == ENOTDIR || errno == EACCES);
}

// The node makes the job's own directory in `dir` itself, but not in one above it.
static td_status try_nearest(const char *dir, const char *what) {
    char at[TD_FS_PATH_BYTES];
    enum td_path_use use = TD_PATH_MAKE;
    TD_TRY(td_fs_path(at, "%s", dir));
    while (is_missing(at) && rise(at)) {
        use = TD_PATH_WRITE;
    }
    return try_directory(use, at, what);
}

static td_status check_output(const char *output) {
    TD_AUTO_NAMED_OUTPUT o = TD_NAMED_OUTPUT_NONE;
    td_status s = td_named_output_open(output, 0666, &o);
    if (!s) s = td_fd_write_all(o.file.fd, "\n", 1, output);
    return td_status_context(s, "predict.output");
}

static td_status check(const struct td_train_config *c, try_fn *try_made) {
    const char *dir = c->checkpoint.dir;
    bool predicts = c->stages & TD_STAGE_PREDICT;
    if (c->rank != 0) return TD_OK;
    if (predicts && !c->predict.output && !dir) {
        return td_status_with_class(
            td_fail(TD_FAILED_PRECONDITION,
                    "there is no place for predictions: set predict.output or checkpoint.dir"),
            TD_CLASS_BAD_SPEC);
    }
    bool saves = (c->stages & TD_STAGE_FIT) && c->checkpoint.save_top_k != 0;
    if (dir && saves) TD_TRY(try_made(dir, "checkpoints (checkpoint.dir)"));
    if (!predicts) return TD_OK;
    if (c->predict.output) return check_output(c->predict.output);
    return try_made(dir, "predictions (predict.output, else checkpoint.dir)");
}

// It was found good when the job was planned: what is missing or refused now may be back soon, as
// when a file system is mounted again. A file in the way stays.
td_status td_outputs_check(const struct td_train_config *c) {
    td_status s = check(c, make_and_try);
    if (!s || td_status_class(s) != TD_CLASS_NONE) return s;
    bool is_gone = td_fs_is_gone(s);
    return td_status_with_class(s, is_gone ? TD_CLASS_DISK : TD_CLASS_BAD_SPEC);
}

// A file system that is read-only now is taken for one that always is.
td_status td_outputs_look(const struct td_train_config *c) {
    td_status s = check(c, try_nearest);
    bool fails = td_status_class(s) == TD_CLASS_DISK && td_status_code(s) != TD_FAILED_PRECONDITION;
    if (!fails) return td_status_with_class(s, TD_CLASS_BAD_SPEC);
    td_status_free(s);
    return TD_OK;
}
