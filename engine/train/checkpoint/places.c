// A file is really written: permissions, a read-only file system, a quota and a directory that is
// none all fail the same way then. It has no name where the file system can do that, so a rank that
// is killed leaves nothing. Rejected: access(2), which says yes to root and to a full disk.

#include "engine/train/checkpoint/places.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fsio.h"

static td_status write_named(const char *dir) {
    char path[TD_FS_PATH_BYTES];
    TD_TRY(td_fs_path(path, "%s/" TD_PLACES_TRIED "%d", dir, (int)getpid()));
    td_status s = td_fs_write(path, "\n", 1, 0600, 0);
    (void)unlink(path);
    return s;
}

static td_status write_unnamed(const char *dir) {
    TD_AUTO_CLOSE int fd = open(dir, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (fd >= 0) return td_fd_write_all(fd, "\n", 1, dir);
    // A file system (EOPNOTSUPP) or kernel (EISDIR) that cannot.
    if (errno == EOPNOTSUPP || errno == EISDIR) return write_named(dir);
    return td_fs_fail("make a file in", dir);
}

static td_status try_directory(const char *dir, const char *what) {
    td_status s = write_unnamed(dir);
    if (!s) return TD_OK;
    s = td_status_context(s, "%s cannot be written in '%s'", what, dir);
    return td_status_class(s) == TD_CLASS_NONE ? td_status_with_class(s, TD_CLASS_BAD_SPEC) : s;
}

static td_status try_made_directory(const char *dir, const char *what) {
    td_status s = td_fs_mkdirs(dir, 0777);
    if (!s) return try_directory(dir, what);
    s = td_status_context(s, "%s need a directory", what);
    return td_status_class(s) == TD_CLASS_NONE ? td_status_with_class(s, TD_CLASS_BAD_SPEC) : s;
}

static td_status check_output(const char *output) {
    char dir[TD_FS_PATH_BYTES];
    TD_TRY(td_fs_path(dir, "%s", output));
    char *slash = strrchr(dir, '/');
    if (slash) slash[slash == dir] = '\0';
    return try_directory(slash ? dir : ".", "predictions (predict.output)");
}

td_status td_places_check(const struct td_train_config *c) {
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
    if (dir && saves) TD_TRY(try_made_directory(dir, "checkpoints"));
    if (!predicts) return TD_OK;
    if (c->predict.output) return check_output(c->predict.output);
    return try_made_directory(dir, "predictions");
}
