// See the header. Reading is bounded by the frame reader; a launcher that sends nonsense is dropped
// and tried again, which costs one connection a second at most.

#include "daemon/node/shell/launcher_link.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "lib/attempt/segments.h"
#include "lib/base/frame.h"
#include "lib/base/log.h"
#include "lib/rpc/loop.h"

enum { td_launcher_link_magic = 0x4c4e4b31 };
static const int64_t redial_ns = TD_NS_PER_S;

struct td_launcher_link {
    uint32_t magic;
    struct td_loop *loop;
    const struct td_launcher_link_events *events;
    void *arg;
    struct sockaddr_un address;
    int fd; // -1: not connected
    uint16_t major;
    struct td_loop_fd *watch;
    struct td_loop_timer *dial;
    struct td_frame_reader in;
};

static void drop(struct td_launcher_link *l) {
    td_loop_fd_destroy(td_steal(l->watch));
    td_auto_close(&l->fd);
    l->fd = -1;
    td_frame_reader_finish(&l->in);
    td_frame_reader_init(&l->in);
    td_loop_timer_arm(l->dial, redial_ns);
}

static void on_frame(struct td_launcher_link *l, const struct td_frame *f) {
    if (f->type == TRAIND__V1__LAUNCHER_FRAME__LAUNCHER_HELLO) {
        Traind__V1__LauncherHello *m =
            traind__v1__launcher_hello__unpack(NULL, f->body_bytes, f->body);
        if (!m) return;
        l->major = f->version_major;
        l->events->on_hello(m, l->arg);
        traind__v1__launcher_hello__free_unpacked(m, NULL);
    } else if (f->type == TRAIND__V1__LAUNCHER_FRAME__LAUNCHER_STATUS &&
               f->version_major == TD_LAUNCHER_MAJOR) {
        Traind__V1__LauncherStatus *m =
            traind__v1__launcher_status__unpack(NULL, f->body_bytes, f->body);
        if (!m) return;
        l->events->on_status(m, l->arg);
        traind__v1__launcher_status__free_unpacked(m, NULL);
    }
}

// Events handlers must not destroy the link: its owner does that from its own turns.
static void on_readable(int fd, void *arg) {
    struct td_launcher_link *l = TD_CAST(td_launcher_link, arg);
    char bytes[16384];
    ssize_t n = recv(fd, bytes, sizeof bytes, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    td_status s = n > 0 ? td_frame_reader_feed(&l->in, bytes, (size_t)n) : TD_OK;
    bool have = n > 0;
    while (!s && have) {
        struct td_frame f;
        s = td_frame_reader_next(&l->in, &f, &have);
        if (!s && have) on_frame(l, &f);
    }
    bool gone = n <= 0 || s;
    td_status_log(TD_LOG_WARN, s, "launcher's frames, continuing");
    if (gone) drop(l);
}

static void dial(void *arg) {
    struct td_launcher_link *l = TD_CAST(td_launcher_link, arg);
    l->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    // A Unix socket connects at once or not at all.
    if (l->fd < 0 || connect(l->fd, (struct sockaddr *)&l->address, sizeof l->address) != 0) {
        drop(l);
        return;
    }
    td_status s = td_loop_fd_create(l->loop, l->fd, 0, on_readable, l, &l->watch);
    if (!s) return;
    td_status_log(TD_LOG_WARN, s, "no watch for a launcher's socket, dialling again");
    drop(l);
}

td_status td_launcher_link_create(struct td_loop *loop, const char *socket_path,
                                  const struct td_launcher_link_events *events, void *arg,
                                  struct td_launcher_link **out_link) {
    struct td_launcher_link *l = td_calloc(1, sizeof *l);
    if (!l) return td_fail_oom();
    l->magic = td_launcher_link_magic;
    l->loop = loop;
    l->events = events;
    l->arg = arg;
    l->fd = -1;
    td_frame_reader_init(&l->in);
    l->address.sun_family = AF_UNIX;
    snprintf(l->address.sun_path, sizeof l->address.sun_path, "%s", socket_path);
    td_status s = td_loop_timer_create(loop, dial, l, &l->dial);
    if (s) {
        td_launcher_link_destroy(l);
        return s;
    }
    td_loop_timer_arm(l->dial, 0);
    *out_link = l;
    return TD_OK;
}

void td_launcher_link_destroy(struct td_launcher_link *l) {
    if (!l) return;
    td_loop_fd_destroy(l->watch);
    td_loop_timer_destroy(l->dial);
    td_auto_close(&l->fd);
    td_frame_reader_finish(&l->in);
    l->magic = 0;
    free(l);
}

// A command is a few bytes; if the socket has no room for them the launcher is stuck.
static bool command(struct td_launcher_link *l, uint16_t type, const void *body, size_t bytes) {
    if (l->fd < 0 || l->major != TD_LAUNCHER_MAJOR) return false;
    TD_AUTO_BUF out;
    td_buf_init(&out, 256);
    TD_AUTO_STATUS td_status s = td_frame_append(&out, type, TD_LAUNCHER_MAJOR, body, bytes);
    return !s && send(l->fd, out.data, out.len, MSG_NOSIGNAL) == (ssize_t)out.len;
}

bool td_launcher_link_stop(struct td_launcher_link *l, int mode, uint32_t grace_ms) {
    Traind__V1__LauncherStop m = TRAIND__V1__LAUNCHER_STOP__INIT;
    m.mode = (uint32_t)mode;
    m.grace_ms = grace_ms;
    uint8_t packed[32];
    size_t bytes = traind__v1__launcher_stop__pack(&m, packed);
    return command(l, TRAIND__V1__LAUNCHER_FRAME__LAUNCHER_STOP, packed, bytes);
}

bool td_launcher_link_save(struct td_launcher_link *l) {
    return command(l, TRAIND__V1__LAUNCHER_FRAME__LAUNCHER_SAVE, "", 0);
}
