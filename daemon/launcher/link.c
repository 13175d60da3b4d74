// See the header. Errors on the connection only drop it: the daemon comes again.

#include "daemon/launcher/link.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "lib/attempt/segments.h"
#include "lib/base/digest.h"
#include "lib/base/files/files.h"

enum { OUT_MAX = TD_FRAME_MAX + TD_FRAME_HEADER };

// ---- the path -----------------------------------------------------------------------------------
// A directory that only we can have filled: ours, 0700, no link.
static td_status private_dir(const char *path) {
    if (mkdir(path, 0700) != 0 && errno != EEXIST) return td_fs_fail("make directory", path);
    struct stat st;
    if (lstat(path, &st) != 0) return td_fs_fail("look at", path);
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077) != 0) {
        return td_fail(TD_FAILED_PRECONDITION,
                       "'%s' is not a directory of mode 0700 that belongs to user %u: remove it",
                       path, (unsigned)geteuid());
    }
    return TD_OK;
}

static td_status choose_path(struct td_link *l, const char *wanted) {
    int n = snprintf(l->path, sizeof l->path, "%s", wanted);
    if (n < (int)sizeof l->path) return TD_OK;
    char hex[TD_DIGEST_HEX];
    td_xxh3_128_hex(wanted, strlen(wanted), hex);
    const char *slash = strrchr(wanted, '/');
    n = snprintf(l->path, sizeof l->path, "%.*s/l-%.16s.sock", (int)(slash - wanted), wanted, hex);
    if (n < (int)sizeof l->path) return TD_OK;
    char dir[48] = "/run/traind";
    if (geteuid() != 0) snprintf(dir, sizeof dir, "/tmp/traind-%u", (unsigned)geteuid());
    TD_TRY(private_dir(dir));
    snprintf(l->path, sizeof l->path, "%s/l-%.16s.sock", dir, hex);
    return TD_OK;
}

static struct sockaddr_un address_of(const struct td_link *l) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    memcpy(a.sun_path, l->path, sizeof l->path);
    return a;
}

static bool somebody_answers(const struct td_link *l) {
    TD_AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un a = address_of(l);
    if (fd < 0) return true;
    return connect(fd, (struct sockaddr *)&a, sizeof a) == 0 || errno != ECONNREFUSED;
}

td_status td_link_init(struct td_link *l, const char *wanted_path) {
    *l = (struct td_link){.listen_fd = -1, .node_fd = -1};
    td_frame_reader_init(&l->in);
    td_buf_init(&l->out, OUT_MAX);
    TD_TRY(choose_path(l, wanted_path));
    TD_AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return td_fail_errno(TD_RESOURCE_EXHAUSTED, "make a Unix socket");
    struct sockaddr_un a = address_of(l);
    int rc = bind(fd, (struct sockaddr *)&a, sizeof a);
    if (rc != 0 && errno == EADDRINUSE) {
        if (somebody_answers(l)) {
            return td_fail(TD_ALREADY_EXISTS, "another launcher answers on '%s'", l->path);
        }
        if (unlink(l->path) != 0) return td_fs_fail("remove the stale socket", l->path);
        rc = bind(fd, (struct sockaddr *)&a, sizeof a);
    }
    if (rc != 0) return td_fs_fail("listen on", l->path);
    if (listen(fd, 4) != 0) {
        td_status s = td_fs_fail("listen on", l->path);
        unlink(l->path);
        return s;
    }
    l->listen_fd = td_steal_fd(&fd);
    return TD_OK;
}

void td_link_finish(struct td_link *l) {
    if (l->listen_fd >= 0) unlink(l->path);
    td_link_drop(l);
    td_auto_close(&l->listen_fd);
    l->listen_fd = -1;
    td_frame_reader_finish(&l->in);
    td_buf_finish(&l->out);
}

// ---- the connection -----------------------------------------------------------------------------
bool td_link_accept(struct td_link *l) {
    TD_AUTO_CLOSE int fd = accept4(l->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return false;
    struct ucred peer;
    socklen_t len = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0 || peer.uid != geteuid()) {
        return false;
    }
    td_link_drop(l);
    l->node_fd = td_steal_fd(&fd);
    return true;
}

void td_link_drop(struct td_link *l) {
    td_auto_close(&l->node_fd);
    l->node_fd = -1;
    td_frame_reader_finish(&l->in);
    td_frame_reader_init(&l->in);
    td_buf_clear(&l->out);
}

bool td_link_read(struct td_link *l) {
    char bytes[4096];
    ssize_t n = recv(l->node_fd, bytes, sizeof bytes, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (n <= 0) return false;
    td_status s = td_frame_reader_feed(&l->in, bytes, (size_t)n);
    bool ok = !s;
    td_status_free(s);
    return ok;
}

bool td_link_next(struct td_link *l, struct td_frame *out_frame) {
    bool have = false;
    td_status s = td_frame_reader_next(&l->in, out_frame, &have);
    if (s) td_link_drop(l);
    bool ok = !s && have;
    td_status_free(s);
    return ok;
}

bool td_link_can_send(const struct td_link *l) {
    return l->node_fd >= 0 && l->out.len == 0;
}

bool td_link_has_room(const struct td_link *l, size_t frame_bytes) {
    return l->node_fd >= 0 && l->out.len + frame_bytes <= OUT_MAX;
}

void td_link_send(struct td_link *l, uint16_t type, const void *body, size_t bytes) {
    if (l->node_fd < 0) return;
    td_status_free(td_frame_append(&l->out, type, TD_LAUNCHER_MAJOR, body, bytes));
}

bool td_link_flush(struct td_link *l, bool *out_waits) {
    while (l->node_fd >= 0 && l->out.len > 0) {
        ssize_t n = send(l->node_fd, l->out.data, l->out.len, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) break;
        if (n < 0 && errno != EINTR) return false;
        if (n > 0) td_buf_consume(&l->out, (size_t)n);
    }
    *out_waits = l->out.len > 0;
    return true;
}
