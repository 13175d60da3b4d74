// See the header. openat, not mkostemp: that makes 0600 files, and a chmod after it would not know
// the umask. A file without a name is linked by its place in /proc. Where it replaces another it is
// linked to a temporary name first: a link, unlike a rename, replaces nothing.

#include "lib/base/files/whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/files/fs_fail.h"
#include "lib/base/rng.h"

enum { TRIES = 16, SELF_BYTES = 32 };

static void name_temporary(char out[TD_WHOLE_FILE_NAME]) {
    uint64_t r;
    td_random_bytes(&r, sizeof r);
    snprintf(out, TD_WHOLE_FILE_NAME, TD_WHOLE_FILE_PREFIX "%016" PRIx64, r);
}

static void self_path(int fd, char out[SELF_BYTES]) {
    snprintf(out, SELF_BYTES, "/proc/self/fd/%d", fd);
}

// False: the file system, the kernel or a missing /proc cannot.
static bool open_unnamed(struct td_whole_file *f, mode_t mode) {
    char self[SELF_BYTES];
    f->fd = openat(f->dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, mode);
    if (f->fd < 0) return false;
    self_path(f->fd, self);
    if (access(self, F_OK) == 0) return true;
    close(td_steal_fd(&f->fd));
    return false;
}

static bool open_named(struct td_whole_file *f, mode_t mode) {
    const int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    errno = EEXIST;
    for (int i = 0; i < TRIES && f->fd < 0 && errno == EEXIST; i++) {
        name_temporary(f->temporary);
        f->fd = openat(f->dir_fd, f->temporary, flags, mode);
    }
    if (f->fd < 0) f->temporary[0] = '\0';
    return f->fd >= 0;
}

td_status td_whole_file_open(int take_dir_fd, const char *path, mode_t mode,
                             struct td_whole_file *out) {
    TD_AUTO_WHOLE_FILE f = TD_WHOLE_FILE_NONE;
    f.dir_fd = take_dir_fd;
    if (!open_unnamed(&f, mode) && !open_named(&f, mode)) {
        return td_fs_fail("create a temporary file beside", path);
    }
    *out = f;
    f = TD_WHOLE_FILE_NONE; // ownership leaves this scope
    return TD_OK;
}

static bool link_to(const struct td_whole_file *f, const char *name) {
    char self[SELF_BYTES];
    self_path(f->fd, self);
    return linkat(AT_FDCWD, self, f->dir_fd, name, AT_SYMLINK_FOLLOW) == 0;
}

// True: it has `name`, or a temporary one.
static bool give_name(struct td_whole_file *f, const char *name) {
    if (f->temporary[0] || link_to(f, name)) return true;
    for (int i = 0; i < TRIES && errno == EEXIST; i++) {
        name_temporary(f->temporary);
        if (link_to(f, f->temporary)) return true;
    }
    f->temporary[0] = '\0';
    return false;
}

static td_status sync_directory(int dir_fd, const char *path) {
    TD_AUTO_CLOSE int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    // Some file systems cannot sync a directory and say EINVAL: there a rename is all we can have.
    if (fd >= 0 && (fsync(fd) == 0 || errno == EINVAL)) return TD_OK;
    return td_fs_fail("sync the directory of", path);
}

td_status td_whole_file_become(struct td_whole_file *f, const char *name, const char *path,
                               int flags) {
    if (flags && fsync(f->fd) != 0) return td_fs_fail("sync", path);
    int same = fcntl(f->fd, F_DUPFD_CLOEXEC, 0); // what only close reports
    if (same < 0 || close(same) != 0) return td_fs_fail("close", path);
    if (!give_name(f, name)) return td_fs_fail("give a name to", path);
    if (f->temporary[0] && renameat(f->dir_fd, f->temporary, f->dir_fd, name) != 0) {
        return td_fs_fail("rename a temporary file to", path);
    }
    f->temporary[0] = '\0';
    return flags & TD_FS_WRITE_DURABLE ? sync_directory(f->dir_fd, path) : TD_OK;
}

void td_whole_file_finish(struct td_whole_file *f) {
    if (f->temporary[0]) (void)unlinkat(f->dir_fd, f->temporary, 0);
    td_auto_close(&f->fd);
    td_auto_close(&f->dir_fd);
    *f = TD_WHOLE_FILE_NONE;
}
