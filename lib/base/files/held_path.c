// See the header. The path is followed as it was taken, through links. Rejected: the count of links
// of an open descriptor. It is 0 for a deleted file, but 1 for one below a directory that was
// moved, or on a file system that was unmounted lazily.

#include "lib/base/files/held_path.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

td_status td_held_path_take(const char *path, struct td_held_path *out_held) {
    struct stat st;
    struct td_held_path held;
    TD_TRY(td_fs_path(held.path, "%s", path));
    if (stat(path, &st) != 0) return td_fs_fail("look at", path);
    held.device = st.st_dev;
    held.inode = st.st_ino;
    *out_held = held;
    return TD_OK;
}

td_status td_held_path_check(const struct td_held_path *h) {
    struct stat st;
    const char *what = NULL;
    if (!h->path[0]) return TD_OK;
    if (stat(h->path, &st) != 0) {
        if (errno == ENOENT || errno == ENOTDIR || errno == ESTALE) what = "is gone";
    } else if (st.st_dev != h->device || st.st_ino != h->inode) {
        what = "was replaced by another";
    }
    if (!what) return TD_OK;
    return td_status_with_class(
        td_fail(TD_UNAVAILABLE, "'%.200s' %s: put it back, or start traind again", h->path, what),
        TD_CLASS_DISK);
}
