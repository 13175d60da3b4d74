// See the header. A name is followed by hand, link by link: what /proc has looks like links and is
// none. /dev/stdout leads to /proc/self/fd/1, whose text may be the path of a log file.
//
// The lock is a file of its own: the output may not be there yet, and is another inode when it was
// written. It is beside the output, so it is the same one for all daemons and nodes that write this
// file, and another where nodes have file systems of their own. Rejected: the coordinator, which
// knows paths but not which of them are one file; a table of the node, which knows its own jobs.

#include "lib/base/files/named_output.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "lib/base/digest.h"
#include "lib/base/files/path_rules.h"

enum { LINKS_MAX = 40, HOLD_TRIES = 16 };

struct place { // that a name leads to
    int dir_fd;
    char name[NAME_MAX + 1];
    bool is_there;
    struct stat st;
};

static td_status refuse(const char *path, const char *why) {
    return td_fail(TD_FAILED_PRECONDITION, "'%s' %s; name a file", path, why);
}

// NULL: a regular file, which may be replaced.
static const char *why_not(mode_t mode) {
    switch (mode & S_IFMT) {
    case S_IFREG:
        return NULL;
    case S_IFDIR:
        return "is a directory, not a regular file";
    case S_IFIFO:
        return "is a FIFO, not a regular file";
    case S_IFSOCK:
        return "is a socket, not a regular file";
    case S_IFLNK:
        return "is a link, which is not followed here";
    default:
        return "is a device, not a regular file";
    }
}

// ---- where a name leads -------------------------------------------------------------------------
// Opens the directory of at, and takes the name in it.
static td_status open_parent(const char *path, const char *at, struct place *out) {
    char dir[TD_FS_PATH_BYTES];
    struct statfs fs;
    const char *slash = strrchr(at, '/'), *name = slash ? slash + 1 : at;
    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
        return refuse(path, "names a directory");
    }
    if (strlen(name) > NAME_MAX) {
        errno = ENAMETOOLONG;
        return td_fs_fail("use", path);
    }
    snprintf(out->name, sizeof out->name, "%s", name);
    TD_TRY(td_fs_path(dir, "%.*s%s", slash ? (int)(slash - at) : 1, slash ? at : ".",
                      slash == at ? "/" : ""));
    out->dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (out->dir_fd < 0 || fstatfs(out->dir_fd, &fs) != 0) {
        td_status s = td_fs_fail("open the directory", dir);
        return td_status_context(s, "'%s' cannot be written", path);
    }
    if (fs.f_type != PROC_SUPER_MAGIC) return TD_OK;
    return refuse(path, "leads into /proc, to what a process has open and not to a file");
}

static td_status look(const char *path, struct place *p) {
    p->is_there = fstatat(p->dir_fd, p->name, &p->st, AT_SYMLINK_NOFOLLOW) == 0;
    return p->is_there || errno == ENOENT ? TD_OK : td_fs_fail("look at", path);
}

// The text of a link, from its directory if it is relative.
static td_status read_link(const char *path, const struct place *p, char at[TD_FS_PATH_BYTES]) {
    char text[TD_FS_PATH_BYTES], from[TD_FS_PATH_BYTES];
    ssize_t n = readlinkat(p->dir_fd, p->name, text, sizeof text - 1);
    if (n < 0) return td_fs_fail("follow the link", path);
    text[n] = '\0';
    const char *slash = strrchr(at, '/');
    TD_TRY(td_fs_path(from, "%.*s", slash && text[0] != '/' ? (int)(slash + 1 - at) : 0, at));
    return td_fs_path(at, "%s%s", from, text);
}

static td_status find(const char *path, struct place *out) {
    char at[TD_FS_PATH_BYTES];
    TD_TRY(td_fs_path(at, "%s", path));
    for (int i = 0; i < LINKS_MAX; i++) {
        TD_TRY(open_parent(path, at, out));
        TD_TRY(look(path, out));
        if (!out->is_there || !S_ISLNK(out->st.st_mode)) return TD_OK;
        TD_TRY(read_link(path, out, at));
        td_auto_close(&out->dir_fd);
        out->dir_fd = -1;
    }
    errno = ELOOP;
    return td_fs_fail("follow the link", path);
}

// What the path rules of this process say of the directory, and of what is there.
static td_status judge(const char *path, const struct place *p) {
    TD_TRY(td_path_rules_check(TD_PATH_WRITE, path, p->dir_fd));
    if (!p->is_there) return TD_OK;
    TD_AUTO_CLOSE int fd = openat(p->dir_fd, p->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? td_fs_fail("look at", path) : td_path_rules_check(TD_PATH_WRITE, path, fd);
}

static void place_auto(struct place *p) {
    td_auto_close(&p->dir_fd);
}
#define AUTO_PLACE __attribute__((cleanup(place_auto))) struct place

// ---- the file -----------------------------------------------------------------------------------
// Mode and owner of the file that is replaced. The owner first: a change of it takes modes away.
static td_status dress(int fd, const struct stat *like, const char *path) {
    struct stat own;
    if (fstat(fd, &own) != 0) return td_fs_fail("look at the new", path);
    bool same = own.st_uid == like->st_uid && own.st_gid == like->st_gid;
    if (!same && fchown(fd, like->st_uid, like->st_gid) != 0) {
        return td_fail_errno(
            TD_FAILED_PRECONDITION,
            "'%s' belongs to user %u and group %u, which the new file cannot have; "
            "remove it, or name another file",
            path, like->st_uid, like->st_gid);
    }
    return fchmod(fd, like->st_mode & 0777) == 0 ? TD_OK : td_fs_fail("set the mode of", path);
}

static td_status check_there(const struct place *p, const char *path) {
    const char *why = why_not(p->st.st_mode);
    if (why) return refuse(path, why);
    if (faccessat(p->dir_fd, p->name, W_OK, AT_EACCESS) == 0) return TD_OK;
    return td_fs_fail("write", path);
}

td_status td_named_output_open(const char *path, mode_t mode, struct td_named_output *out) {
    AUTO_PLACE p = {.dir_fd = -1};
    TD_AUTO_NAMED_OUTPUT o = TD_NAMED_OUTPUT_NONE;
    TD_TRY(find(path, &p));
    TD_TRY(judge(path, &p));
    if (p.is_there) TD_TRY(check_there(&p, path));
    TD_TRY(td_whole_file_open(td_steal_fd(&p.dir_fd), path, p.is_there ? 0600 : mode, &o.file));
    if (p.is_there) TD_TRY(dress(o.file.fd, &p.st, path));
    o.path = path;
    memcpy(o.name, p.name, sizeof o.name);
    *out = o;
    o = TD_NAMED_OUTPUT_NONE; // ownership leaves this scope
    return TD_OK;
}

// What is there now may have come, or changed, since it was opened.
td_status td_named_output_finish(struct td_named_output *o, int flags) {
    struct stat now;
    if (fstatat(o->file.dir_fd, o->name, &now, AT_SYMLINK_NOFOLLOW) == 0) {
        if (why_not(now.st_mode)) return refuse(o->path, why_not(now.st_mode));
        TD_TRY(dress(o->file.fd, &now, o->path));
    }
    return td_whole_file_become(&o->file, o->name, o->path, flags);
}

void td_named_output_close(struct td_named_output *o) {
    td_whole_file_finish(&o->file);
}

td_status td_named_output_write(const char *path, const void *data, size_t bytes, mode_t mode,
                                int flags) {
    TD_AUTO_NAMED_OUTPUT o = TD_NAMED_OUTPUT_NONE;
    TD_TRY(td_named_output_open(path, mode, &o));
    TD_TRY(td_fd_write_all(o.file.fd, data, bytes, path));
    return td_named_output_finish(&o, flags);
}

// O_NONBLOCK: a FIFO in the place of a file must not hold us.
td_status td_named_output_update(const char *path, int flags, mode_t mode, int *out_fd) {
    const int careful = O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    AUTO_PLACE p = {.dir_fd = -1};
    TD_TRY(open_parent(path, path, &p));
    TD_TRY(look(path, &p));
    if (p.is_there && why_not(p.st.st_mode)) return refuse(path, why_not(p.st.st_mode));
    TD_TRY(judge(path, &p));
    TD_AUTO_CLOSE int fd = openat(p.dir_fd, p.name, flags | careful, mode);
    if (fd < 0 || fstat(fd, &p.st) != 0) return td_fs_fail("create", path);
    if (why_not(p.st.st_mode)) return refuse(path, why_not(p.st.st_mode)); // it came meanwhile
    if (fcntl(fd, F_SETFL, flags) != 0) return td_fs_fail("open", path);
    *out_fd = td_steal_fd(&fd);
    return TD_OK;
}

// ---- directories --------------------------------------------------------------------------------
static bool leads_up(const char *path) {
    for (const char *p = path; *p; p += strcspn(p, "/")) {
        p += strspn(p, "/");
        if (strncmp(p, "..", 2) == 0 && (!p[2] || p[2] == '/')) return true;
    }
    return false;
}

// The nearest directory of path that is there, if the rules allow to write in it; out_rest: what is
// to be made in it. -1, and errno: something is in the way. A ".." in what is not there would lead
// out of the directory that was judged.
static td_status open_nearest(const char *path, const char **out_rest, int *out_fd) {
    char at[TD_FS_PATH_BYTES];
    TD_AUTO_CLOSE int fd = -1;
    size_t len = strlen(path);
    for (;;) {
        TD_TRY(td_fs_path(at, "%.*s", (int)len, path));
        fd = open(len || !*path ? at : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (fd >= 0 || errno != ENOENT || len == 0) break;
        while (len && path[len - 1] == '/') {
            len--;
        }
        while (len && path[len - 1] != '/') {
            len--;
        }
    }
    if (fd >= 0) TD_TRY(td_path_rules_check(TD_PATH_WRITE, path, fd));
    if (fd >= 0 && leads_up(path + len)) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "'%s' leads up from a directory that is not there; name it without '..'",
                       path);
    }
    *out_rest = path + len;
    *out_fd = td_steal_fd(&fd);
    return TD_OK;
}

td_status td_named_output_allowed(const char *path) {
    const char *rest;
    TD_AUTO_CLOSE int fd = -1;
    return open_nearest(path, &rest, &fd);
}

// Makes a directory in the one of inout_fd, and goes there. No link is followed: it has come since
// the place was judged, or leads nowhere.
static td_status make_in(int *inout_fd, const char *name, mode_t mode, const char *path) {
    struct stat st;
    if (mkdirat(*inout_fd, name, mode) != 0 && errno != EEXIST) {
        return td_fs_fail("make directory", path);
    }
    int next = openat(*inout_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (next < 0) {
        const int err = errno;
        errno = fstatat(*inout_fd, name, &st, 0) == 0 ? err : errno;
        return td_fs_fail("make directory", path);
    }
    td_auto_close(inout_fd);
    *inout_fd = next;
    return TD_OK;
}

td_status td_named_output_mkdirs(const char *path, mode_t mode) {
    char text[TD_FS_PATH_BYTES], *more;
    const char *rest;
    TD_AUTO_CLOSE int fd = -1;
    TD_TRY(open_nearest(path, &rest, &fd));
    if (fd < 0) return td_fs_fail("make directory", path);
    TD_TRY(td_fs_path(text, "%s", rest));
    for (char *name = strtok_r(text, "/", &more); name; name = strtok_r(NULL, "/", &more)) {
        if (strcmp(name, ".") != 0) TD_TRY(make_in(&fd, name, mode, path));
    }
    return TD_OK;
}

// ---- one writer at a time -----------------------------------------------------------------------
static td_status name_lock(const struct place *p, const char *path, char out[TD_FS_PATH_BYTES]) {
    char self[32], dir[TD_FS_PATH_BYTES];
    snprintf(self, sizeof self, "/proc/self/fd/%d", p->dir_fd);
    ssize_t n = readlink(self, dir, sizeof dir - 1);
    if (n < 0) return td_fs_fail("find the directory of", path);
    dir[n] = '\0';
    return td_fs_path(out, "%s/" TD_WHOLE_FILE_PREFIX "%016" PRIx64 ".lock", dir,
                      td_xxh3_64(p->name, strlen(p->name)));
}

// Opens the lock file of a place. Its name can be known before, so anything may have it: nothing
// but a lock is written. A directory with the sticky bit lets nobody pass O_CREAT for a file of
// somebody else. -1: it came or went meanwhile.
static td_status open_lock(const struct place *p, const char *lock, int *out_fd) {
    const char *name = strrchr(lock, '/') + 1;
    struct stat st;
    const bool is_there = fstatat(p->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
    bool is_lock = !is_there || S_ISREG(st.st_mode);
    TD_AUTO_CLOSE int fd = -1;
    if (is_lock) {
        const int make = is_there ? 0 : O_CREAT | O_EXCL;
        fd = openat(p->dir_fd, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | make, 0600);
        if (fd < 0 && errno == (is_there ? ENOENT : EEXIST)) return TD_OK;
        if (fd < 0 && errno == EACCES && is_there) {
            return td_fail(TD_UNAVAILABLE,
                           "'%s' is a lock file of user %u, which this one may "
                           "not use",
                           lock, st.st_uid);
        }
        if (fd < 0) return td_fs_fail("open lock file", lock);
        is_lock = td_fs_is_lock(fd);
    }
    if (!is_lock) {
        return td_fail(TD_FAILED_PRECONDITION,
                       "'%s' has the name of a lock file and is none; remove it, or name another "
                       "output",
                       lock);
    }
    *out_fd = td_steal_fd(&fd);
    return TD_OK;
}

td_status td_named_output_hold(const char *path, const char *holder, int64_t wait_ns,
                               struct td_named_hold *out) {
    AUTO_PLACE p = {.dir_fd = -1};
    TD_TRY(find(path, &p));
    TD_TRY(judge(path, &p));
    TD_TRY(name_lock(&p, path, out->lock));
    for (int i = 0; i < HOLD_TRIES; i++) {
        struct stat st;
        TD_AUTO_CLOSE int fd = -1;
        TD_TRY(open_lock(&p, out->lock, &fd));
        if (fd < 0) continue;
        TD_TRY(td_fs_lock_opened(fd, out->lock, holder, wait_ns));
        if (fstat(fd, &st) != 0 || st.st_nlink == 0) continue; // its holder removed it meanwhile
        out->fd = td_steal_fd(&fd);
        return TD_OK;
    }
    return td_fail(TD_UNAVAILABLE, "'%s' changes its holder again and again", out->lock);
}

void td_named_output_release(struct td_named_hold *h) {
    if (h->fd < 0) return;
    (void)unlink(h->lock); // while it is locked: who waits for it looks again
    close(h->fd);
    h->fd = -1;
}
