// A file is really written: permissions, a read-only file system, a quota and a directory that is
// none all fail the same way then. Rejected: access(2), which says yes to root and to a full disk.

#include "engine/train/places.h"

#include <string.h>
#include <unistd.h>

#include "lib/base/fsio.h"

static td_status try_directory(const char *dir, const char *what) {
    char path[TD_FS_PATH_BYTES];
    TD_TRY(td_fs_path(path, "%s/.traind-place-%d", dir, (int)getpid()));
    td_status s = td_fs_write(path, "", 0, 0600, 0);
    (void)unlink(path);
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
    bool predicts = c->stages & TD_TRAIN_PREDICT;
    if (c->rank != 0) return TD_OK;
    if (predicts && !c->predict.output && !dir)
        return td_status_with_class(
            td_fail(TD_FAILED_PRECONDITION,
                    "there is no place for predictions: set predict.output or checkpoint.dir"),
            TD_CLASS_BAD_SPEC);
    bool saves = (c->stages & TD_TRAIN_FIT) && c->checkpoint.save_top_k != 0;
    if (dir && saves) TD_TRY(try_made_directory(dir, "checkpoints"));
    if (!predicts) return TD_OK;
    if (c->predict.output) return check_output(c->predict.output);
    return try_made_directory(dir, "predictions");
}
