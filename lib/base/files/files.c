// Files, the durable way: temporary name, write, fsync, rename, fsync of the directory.
//
// Who reads holds the file first, by a descriptor of O_PATH: no FIFO waits, no device starts. It is
// looked at, then opened again through /proc/self/fd, which cannot lead elsewhere.
//
// Everything that must survive a crash goes through here or follows the same steps (whole_file.h).
// Removing a tree uses directory descriptors and never follows a link, so nobody can lead it
// outside. Any thread; nothing is kept between calls.
//
// The lock is flock(2): it belongs to the open descriptor, dies with the process however that ends,
// and the file's text (the holder) is only for people. Rejected: fcntl locks, which any close of
// the same file in the process releases; pid files, which outlive a kill. Who waits for it waits in
// flock itself, in a thread that is cancelled at the deadline. Rejected: inotify, whose event of a
// close comes before the kernel lets the lock go.

#include "lib/base/files/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "lib/base/clock.h"
#include "lib/base/files/whole_file.h"

enum { READ_CHUNK = 1 << 16, TREE_DEPTH_MAX = 100, HOLDER_MAX = 256 };
#define LOCK_BEGIN "pid " // of each lock file

// The directory of path, as text; "." if it has none.
static td_status parent_of(const char *path, char out[PATH_MAX]) {
    const char *slash = strrchr(path, '/');
    size_t len = !slash ? 0 : slash == path ? 1 : (size_t)(slash - path);
    if (len >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return td_fs_fail("use", path);
    }
    memcpy(out, path, len);
    out[len] = '\0';
    if (len == 0) snprintf(out, PATH_MAX, ".");
    return TD_OK;
}

static const char *name_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

td_status td_fs_fsync_dir(const char *path) {
    TD_AUTO_CLOSE int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return td_fs_fail("open directory", path);
    // Some filesystems cannot sync a directory and say EINVAL: there rename is all we can have.
    if (fsync(fd) != 0 && errno != EINVAL) return td_fs_fail("sync directory", path);
    return TD_OK;
}

td_status td_fs_rename(const char *from, const char *to) {
    char directory[PATH_MAX];
    TD_TRY(parent_of(to, directory));
    if (rename(from, to) != 0) {
        td_status s = td_fs_fail("rename to", to);
        return td_status_context(s, "move '%s'", from);
    }
    return td_fs_fsync_dir(directory);
}

td_status td_fd_write_all(int fd, const void *data, size_t bytes, const char *what) {
    const char *p = data;
    while (bytes > 0) {
        ssize_t n = write(fd, p, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return td_fs_fail("write", what);
        p += n;
        bytes -= (size_t)n;
    }
    return TD_OK;
}

bool td_fd_has_ended(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLIN | POLLRDHUP};
    int bytes =
        0; // of all messages that wait: after the last one with any, only empty ones are left
    if (poll(&p, 1, 0) < 0 || ioctl(fd, FIONREAD, &bytes) != 0) return true;
    return (p.revents & (POLLRDHUP | POLLHUP | POLLERR)) && bytes == 0;
}

static td_status not_printed(td_status take_failed) {
    return take_failed ? td_status_with_reason(take_failed, TD_FS_NOT_PRINTED) : TD_OK;
}

td_status td_fs_write_stdout(const void *data, size_t bytes) {
    return not_printed(td_fd_write_all(STDOUT_FILENO, data, bytes, "stdout"));
}

td_status td_fs_flush_stdout(void) {
    bool failed_before = ferror(stdout);
    if (fflush(stdout) == 0 && !failed_before) return TD_OK;
    if (failed_before) errno = EIO; // which error it was, nobody kept
    return not_printed(td_fs_fail("write", "stdout"));
}

td_status td_fs_write(const char *path, const void *data, size_t bytes, mode_t mode, int flags) {
    char directory[PATH_MAX];
    TD_AUTO_WHOLE_FILE file = TD_WHOLE_FILE_NONE;
    TD_TRY(parent_of(path, directory));
    int dir_fd = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0) return td_fs_fail("open the directory of", path);
    TD_TRY(td_whole_file_open(dir_fd, path, mode, &file));
    TD_TRY(td_fd_write_all(file.fd, data, bytes, path));
    return td_whole_file_become(&file, name_of(path), path, flags);
}

static const char *kind_of(mode_t mode) {
    return S_ISDIR(mode)    ? "a directory"
           : S_ISFIFO(mode) ? "a FIFO"
           : S_ISSOCK(mode) ? "a socket"
           : S_ISREG(mode)  ? "a regular file"
                            : "a device";
}

td_status td_fs_hold(const char *path, int *out_fd, struct stat *out_st) {
    TD_AUTO_CLOSE int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0 || fstat(fd, out_st) != 0) return td_fs_fail("open", path);
    *out_fd = td_steal_fd(&fd);
    return TD_OK;
}

// O_NONBLOCK: a lease on the file must not hold us, either.
td_status td_fs_open_held(int held, const char *path, mode_t kind, int *out_fd) {
    char name[32];
    struct stat st;
    if (fstat(held, &st) != 0) return td_fs_fail("look at", path);
    if ((st.st_mode & S_IFMT) != kind) {
        return td_fail(TD_FAILED_PRECONDITION, "'%s' is %s, not %s", path, kind_of(st.st_mode),
                       kind_of(kind));
    }
    snprintf(name, sizeof name, "/proc/self/fd/%d", held);
    TD_AUTO_CLOSE int fd = open(name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT && !td_fs_exists("/proc/self/fd")) {
        return td_fail(TD_FAILED_PRECONDITION, "open '%s': /proc is not mounted here", path);
    }
    if (fd < 0) return td_fs_fail("open", path);
    const int now = fcntl(fd, F_GETFL);
    if (now < 0 || fcntl(fd, F_SETFL, now & ~O_NONBLOCK) != 0) return td_fs_fail("open", path);
    *out_fd = td_steal_fd(&fd);
    return TD_OK;
}

td_status td_fs_open(const char *path, int *out_fd, struct stat *out_st) {
    struct stat st;
    TD_AUTO_CLOSE int held = -1;
    TD_TRY(td_fs_hold(path, &held, &st));
    TD_TRY(td_fs_open_held(held, path, S_IFREG, out_fd));
    if (out_st) *out_st = st;
    return TD_OK;
}

// Goes one name down; 0, or errno. ELOOP: it is a link, or leads up.
static int descend(int *inout_fd, const char *name, struct stat *out_st) {
    if (strcmp(name, "..") == 0) return ELOOP;
    TD_AUTO_CLOSE int fd = openat(*inout_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, out_st) != 0) return errno;
    if (S_ISLNK(out_st->st_mode)) return ELOOP;
    close(*inout_fd);
    *inout_fd = td_steal_fd(&fd);
    return 0;
}

// Down from *inout_at, to a descriptor of O_PATH.
static td_status walk(int *inout_at, const char *below, const char *path, struct stat *out_st) {
    char part[TD_FS_PATH_BYTES], *rest;
    TD_TRY(td_fs_path(part, "%s", below));
    for (char *name = strtok_r(part, "/", &rest); name; name = strtok_r(NULL, "/", &rest)) {
        errno = descend(inout_at, name, out_st);
        if (errno == ELOOP) {
            return td_fail(TD_FAILED_PRECONDITION, "open '%s': '%s' is a link", path, name);
        }
        if (errno) return td_fs_fail("open", path);
    }
    return TD_OK;
}

td_status td_fs_open_below(const char *path, size_t root_bytes, int *out_fd, struct stat *out_st) {
    char root[TD_FS_PATH_BYTES];
    struct stat st;
    TD_AUTO_CLOSE int at = -1;
    TD_TRY(td_fs_path(root, "%.*s", (int)TD_MAX(root_bytes, (size_t)1), path));
    TD_TRY(td_fs_hold(root, &at, &st));
    TD_TRY(walk(&at, path + root_bytes, path, &st));
    TD_TRY(td_fs_open_held(at, path, S_IFREG, out_fd));
    if (out_st) *out_st = st;
    return TD_OK;
}

td_status td_fs_hold_below(int root_fd, const char *path, int *out_fd, struct stat *out_st) {
    TD_AUTO_CLOSE int at = fcntl(root_fd, F_DUPFD_CLOEXEC, 0);
    if (at < 0 || fstat(at, out_st) != 0) return td_fs_fail("open", path);
    TD_TRY(walk(&at, path, path, out_st));
    *out_fd = td_steal_fd(&at);
    return TD_OK;
}

td_status td_fs_read_open(int fd, const char *path, const struct stat *st, size_t max_bytes,
                          struct td_buf *out) {
    size_t done = 0;
    for (;;) {
        size_t wanted = st->st_size > 0 && done == 0 ? (size_t)st->st_size : READ_CHUNK;
        size_t room = TD_MIN(wanted, TD_MIN(max_bytes - done, out->max_bytes - out->len));
        char one_more; // when all room is used, the next byte must be the end of the file
        if (room > 0) TD_TRY_CTX(td_buf_reserve(out, room), "read '%s'", path);
        ssize_t n = read(fd, room > 0 ? out->data + out->len : &one_more, TD_MAX(room, 1));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return td_fs_fail("read", path);
        if (n == 0) return TD_OK;
        if (room == 0) {
            return td_fail(TD_RESOURCE_EXHAUSTED, "read '%s': it is over the limit of %zu bytes",
                           path, done);
        }
        done += (size_t)n;
        out->len += (size_t)n;
        out->data[out->len] = '\0';
    }
}

td_status td_fs_read(const char *path, size_t max_bytes, struct td_buf *out) {
    struct stat st;
    TD_AUTO_CLOSE int fd = -1;
    TD_TRY(td_fs_open(path, &fd, &st));
    return td_fs_read_open(fd, path, &st, max_bytes, out);
}

bool td_fs_exists(const char *path) {
    return access(path, F_OK) == 0;
}

static td_status make_directory(const char *path, mode_t mode, bool exact) {
    struct stat st;
    if (mkdir(path, mode) == 0) {
        if (exact && chmod(path, mode) != 0) return td_fs_fail("set the mode of", path);
        return TD_OK;
    }
    if (errno != EEXIST) return td_fs_fail("make directory", path);
    if (stat(path, &st) != 0) return td_fs_fail("look at", path);
    if (S_ISDIR(st.st_mode)) return TD_OK;
    return td_fail(TD_FAILED_PRECONDITION, "make directory '%s': it exists and is not a directory",
                   path);
}

static td_status make_directories(const char *path, mode_t mode, bool exact) {
    char part[PATH_MAX];
    if (strlen(path) >= sizeof part) {
        errno = ENAMETOOLONG;
        return td_fs_fail("make directory", path);
    }
    if (path[0] == '\0') return td_fail(TD_INVALID_ARGUMENT, "make directory: the path is empty");
    memcpy(part, path, strlen(path) + 1);
    for (char *p = part + 1; *p; p++) {
        if (*p != '/') continue;
        *p = '\0';
        TD_TRY(make_directory(part, mode, exact));
        *p = '/';
    }
    return make_directory(part, mode, exact);
}

td_status td_fs_mkdirs(const char *path, mode_t mode) {
    return make_directories(path, mode, false);
}

td_status td_fs_mkdirs_exact(const char *path, mode_t mode) {
    return make_directories(path, mode, true);
}

static td_status remove_at(int dir_fd, const char *name, const char *tree, int depth);

static td_status remove_children(int fd, const char *tree, int depth) {
    DIR *dir = fdopendir(fd);
    if (!dir) {
        td_status s = td_fs_fail("list a directory of", tree);
        close(fd);
        return s;
    }
    td_status s = TD_OK;
    for (struct dirent *e; !s && (e = readdir(dir));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        s = remove_at(dirfd(dir), e->d_name, tree, depth + 1);
    }
    closedir(dir);
    return s;
}

static td_status remove_at(int dir_fd, const char *name, const char *tree, int depth) {
    if (unlinkat(dir_fd, name, 0) == 0) return TD_OK;
    if (errno == ENOENT || errno == ENOTDIR) return TD_OK; // absent, or a file is above it
    if (errno != EISDIR && errno != EPERM) return td_fs_fail("remove a file of", tree);
    if (depth >= TREE_DEPTH_MAX) {
        return td_fail(TD_FAILED_PRECONDITION, "remove '%s': it is deeper than %d directories",
                       tree, TREE_DEPTH_MAX);
    }
    int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return td_fs_fail("open a directory of", tree);
    TD_TRY(remove_children(fd, tree, depth));
    if (unlinkat(dir_fd, name, AT_REMOVEDIR) != 0 && errno != ENOENT) {
        return td_fs_fail("remove a directory of", tree);
    }
    return TD_OK;
}

td_status td_fs_remove_tree(const char *path) {
    return remove_at(AT_FDCWD, path, path, 0);
}

// Who holds the lock, from its file: one line of printable text.
static void read_holder(int fd, char out[HOLDER_MAX]) {
    ssize_t n = pread(fd, out, HOLDER_MAX - 1, 0);
    out[TD_MAX(n, 0)] = '\0';
    out[strcspn(out, "\n")] = '\0';
    for (char *p = out; *p; p++) {
        if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = '?';
    }
    if (!out[0]) snprintf(out, HOLDER_MAX, "a process that has not written its name yet");
}

struct lock_wait {
    int fd;
    int err; // 0: it is locked
};

// flock is no cancellation point. It is one system call that holds nothing here, so it may be left
// at any time; what it had taken by then goes with the descriptor.
static void *wait_in_flock(void *arg) {
    struct lock_wait *w = arg;
    int type, rc;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
    do {
        rc = flock(w->fd, LOCK_EX);
    } while (rc != 0 && errno == EINTR);
    pthread_setcanceltype(type, &type);
    w->err = rc == 0 ? 0 : errno;
    return NULL;
}

// 0: locked; EWOULDBLOCK: not within wait_ns; otherwise what went wrong.
static int take_lock(int fd, int64_t wait_ns) {
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return 0;
    if (errno != EWOULDBLOCK || wait_ns <= 0) return errno;
    struct lock_wait w = {.fd = fd, .err = EWOULDBLOCK};
    pthread_t thread;
    sigset_t all, before; // signals belong to the caller
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int err = pthread_create(&thread, NULL, wait_in_flock, &w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (err) return err;
    if (td_clock_join(thread, (wait_ns + TD_NS_PER_MS - 1) / TD_NS_PER_MS)) return w.err;
    (void)pthread_cancel(thread);
    (void)pthread_join(thread, NULL); // it waits for nothing
    return w.err;
}

td_status td_fs_lock(const char *path, const char *holder, int *out_fd) {
    return td_fs_lock_within(path, holder, 0, out_fd);
}

td_status td_fs_lock_within(const char *path, const char *holder, int64_t wait_ns, int *out_fd) {
    TD_AUTO_CLOSE int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return td_fs_fail("open lock file", path);
    TD_TRY(td_fs_lock_opened(fd, path, holder, wait_ns));
    *out_fd = td_steal_fd(&fd);
    return TD_OK;
}

bool td_fs_is_lock(int fd) {
    struct stat st;
    char text[sizeof LOCK_BEGIN - 1];
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_nlink > 1) return false;
    const ssize_t n = pread(fd, text, sizeof text, 0);
    return n == 0 || (n == (ssize_t)sizeof text && memcmp(text, LOCK_BEGIN, sizeof text) == 0);
}

td_status td_fs_lock_opened(int fd, const char *path, const char *holder, int64_t wait_ns) {
    errno = take_lock(fd, wait_ns);
    if (errno) {
        if (errno != EWOULDBLOCK) return td_fs_fail("lock", path);
        char other[HOLDER_MAX];
        read_holder(fd, other);
        td_status s = td_fail(TD_FAILED_PRECONDITION, "'%s' is held by %s", path, other);
        return td_status_with_reason(s, "LOCK_HELD");
    }
    char host[64] = "this host", text[HOLDER_MAX];
    gethostname(host, sizeof host - 1);
    int n =
        snprintf(text, sizeof text, LOCK_BEGIN "%d (%.100s on %s)\n", (int)getpid(), holder, host);
    if (ftruncate(fd, 0) != 0) return td_fs_fail("write lock file", path);
    return td_fd_write_all(fd, text, (size_t)n, path);
}

td_status td_fs_path(char *out, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(out, TD_FS_PATH_BYTES, fmt, ap);
    va_end(ap);
    if (n >= 0 && n < TD_FS_PATH_BYTES) return TD_OK;
    return td_fail(TD_INVALID_ARGUMENT, "path '%.60s...' is longer than %d bytes", out,
                   TD_FS_PATH_BYTES - 1);
}

td_status td_fs_absolute(const char *path, char *out, size_t out_bytes) {
    char cwd[TD_FS_PATH_BYTES] = "", whole[TD_FS_PATH_BYTES], flat[TD_FS_PATH_BYTES] = "/", *rest;
    size_t len = 0;
    if (*path != '/' && !getcwd(cwd, sizeof cwd)) {
        return td_fs_fail("find the current directory, of", path);
    }
    TD_TRY(td_fs_path(whole, "%s/%s", cwd, path));
    for (char *part = strtok_r(whole, "/", &rest); part; part = strtok_r(NULL, "/", &rest)) {
        if (strcmp(part, ".") == 0) continue;
        if (strcmp(part, "..") == 0) {
            while (len > 0 && flat[--len] != '/') {}
            flat[len] = '\0';
        } else { // never longer than whole
            len += (size_t)snprintf(flat + len, sizeof flat - len, "/%s", part);
        }
    }
    size_t bytes = TD_MAX(len, (size_t)1) + 1;
    if (bytes > out_bytes) {
        return td_fail(TD_INVALID_ARGUMENT, "path '%.60s...' is longer than %zu bytes", flat,
                       out_bytes - 1);
    }
    if (len == 0) flat[0] = '/';
    memcpy(out, flat, bytes - 1);
    out[bytes - 1] = '\0';
    return TD_OK;
}
