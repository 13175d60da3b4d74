// See the header. One stat a question.

#include "daemon/launcher/watchdog/file.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/files/files.h"

td_status td_launch_file_init(struct td_launch_file *f, const char *dir, const char *name) {
    char path[PATH_MAX];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (stat(path, &st) != 0) return td_fs_fail("look at", path);
    *f = (struct td_launch_file){.device = st.st_dev, .inode = st.st_ino};
    return TD_OK;
}

bool td_launch_file_append(int fd, uint64_t *bytes, const void *data, size_t n) {
    ssize_t written = write(fd, data, n);
    if (written == (ssize_t)n) {
        *bytes += n;
        return true;
    }
    if (written > 0 && ftruncate(fd, (off_t)*bytes) != 0) *bytes += (uint64_t)written;
    return false;
}

bool td_launch_file_lost(const struct td_launch_file *f, const char *dir, const char *name,
                         uint64_t bytes, char *out_text, size_t out_bytes) {
    char path[PATH_MAX];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (stat(path, &st) != 0) {
        if (errno != ENOENT && errno != ENOTDIR) return false;
        snprintf(out_text, out_bytes, "%s of the attempt was removed", name);
    } else if (st.st_dev != f->device || st.st_ino != f->inode) {
        snprintf(out_text, out_bytes, "%s of the attempt was replaced by another file", name);
    } else if ((uint64_t)st.st_size < bytes) {
        snprintf(out_text, out_bytes, "%s of the attempt was cut to %llu of its %llu bytes", name,
                 (unsigned long long)st.st_size, (unsigned long long)bytes);
    } else {
        return false;
    }
    return true;
}
