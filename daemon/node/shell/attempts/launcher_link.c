// See the header. Reading is bounded by the frame reader; a launcher that sends nonsense is dropped
// and tried again, which costs one connection a second at most.

#include "daemon/node/shell/attempts/launcher_link.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "lib/attempt/segments.h"
#include "lib/base/frame.h"
#include "lib/base/log.h"
#include "lib/loop/loop.h"

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
    struct td_loop_fd *watch, *write_watch;
    struct td_buf out;
    uint32_t n_values; // in out
    struct td_loop_timer *dial;
    struct td_frame_reader in;
};

// What waits is gone, one way or the other.
static void report_taken(struct td_launcher_link *l) {
    const uint32_t n = l->n_values;
    l->n_values = 0;
    if (n) l->events->on_store_taken(n, l->arg);
}

static void drop(struct td_launcher_link *l) {
    td_loop_fd_destroy(td_steal(l->watch));
    td_loop_fd_destroy(td_steal(l->write_watch));
    td_buf_clear(&l->out);
    td_auto_close(&l->fd);
    l->fd = -1;
    td_frame_reader_finish(&l->in);
    td_frame_reader_init(&l->in);
    td_loop_timer_arm(l->dial, redial_ns);
    report_taken(l);
}

static void on_store_frame(struct td_launcher_link *l, const struct td_frame *f) {
    if (f->type == TRAIND__V1__LAUNCHER_FRAME__LAUNCHER_STORE_SET) {
        Traind__V1__LauncherStoreSet *m =
            traind__v1__launcher_store_set__unpack(NULL, f->body_bytes, f->body);
        if (!m) return;
        l->events->on_store_set(m, l->arg);
        traind__v1__launcher_store_set__free_unpacked(m, NULL);
    } else if (f->type == TRAIND__V1__LAUNCHER_FRAME__LAUNCHER_STORE_WANT) {
        Traind__V1__LauncherStoreWant *m =
            traind__v1__launcher_store_want__unpack(NULL, f->body_bytes, f->body);
        if (!m) return;
        l->events->on_store_want(m, l->arg);
        traind__v1__launcher_store_want__free_unpacked(m, NULL);
    }
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
    } else if (f->version_major == TD_LAUNCHER_MAJOR) {
        on_store_frame(l, f);
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
    bool gone = n <= 0 || s || l->fd < 0;
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
    td_buf_init(&l->out, TD_LAUNCHER_LINK_MAX);
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
    td_loop_fd_destroy(l->write_watch);
    td_loop_timer_destroy(l->dial);
    td_buf_finish(&l->out);
    td_auto_close(&l->fd);
    td_frame_reader_finish(&l->in);
    l->magic = 0;
    free(l);
}

// ---- to the launcher ----------------------------------------------------------------------------
static bool flush(struct td_launcher_link *l);

static void on_room(int fd, void *arg) {
    (void)fd;
    struct td_launcher_link *l = TD_CAST(td_launcher_link, arg);
    if (!flush(l)) drop(l);
}

// Sends what waits; false: the connection is of no use any more.
static bool flush(struct td_launcher_link *l) {
    while (l->out.len > 0) {
        const ssize_t n = send(l->fd, l->out.data, l->out.len, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) break;
        if (n < 0 && errno != EINTR) return false;
        if (n > 0) td_buf_consume(&l->out, (size_t)n);
    }
    if (l->out.len == 0) {
        td_loop_fd_destroy(td_steal(l->write_watch));
        report_taken(l);
        return true;
    }
    if (l->write_watch) return true;
    td_status s = td_loop_fd_create(l->loop, l->fd, TD_LOOP_FD_WRITE, on_room, l, &l->write_watch);
    const bool ok = !s;
    td_status_log(TD_LOG_WARN, s, "no watch for a launcher's socket, connecting again");
    return ok;
}

static bool command(struct td_launcher_link *l, uint16_t type, const void *body, size_t bytes) {
    if (l->fd < 0 || l->major != TD_LAUNCHER_MAJOR) return false;
    td_status s = td_frame_append(&l->out, type, TD_LAUNCHER_MAJOR, body, bytes);
    const bool ok = !s && flush(l);
    td_status_log(TD_LOG_WARN, s, "a launcher does not read, connecting to it again");
    if (!ok) drop(l);
    return ok;
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

void td_launcher_link_gpus(struct td_launcher_link *l, const Traind__V1__LauncherGpus *gpus) {
    if (l->fd < 0 || l->out.len > 0) return;
    const size_t bytes = traind__v1__launcher_gpus__get_packed_size(gpus);
    TD_AUTO_FREE uint8_t *packed = bytes <= TD_FRAME_MAX ? td_calloc(1, bytes + 1) : NULL;
    if (!packed) return;
    traind__v1__launcher_gpus__pack(gpus, packed);
    (void)command(l, TRAIND__V1__LAUNCHER_FRAME__LAUNCHER_GPUS, packed, bytes);
}

// ---- the rendezvous store -----------------------------------------------------------------------
bool td_launcher_link_store_value(struct td_launcher_link *l, const Traind__V1__StoreValue *value) {
    Traind__V1__LauncherStoreValue m = TRAIND__V1__LAUNCHER_STORE_VALUE__INIT;
    m.key = value->key;
    m.value = value->value;
    const size_t bytes = traind__v1__launcher_store_value__get_packed_size(&m);
    TD_AUTO_FREE uint8_t *packed = bytes <= TD_FRAME_MAX ? td_calloc(1, bytes + 1) : NULL;
    if (!packed || l->fd < 0 || l->major != TD_LAUNCHER_MAJOR) return false;
    traind__v1__launcher_store_value__pack(&m, packed);
    l->n_values++; // reported when it has left, also if that is at once or never
    (void)command(l, TRAIND__V1__LAUNCHER_FRAME__LAUNCHER_STORE_VALUE, packed, bytes);
    return true;
}

void td_launcher_link_store_done(struct td_launcher_link *l, const Traind__V1__StoreDone *done) {
    Traind__V1__LauncherStoreDone m = TRAIND__V1__LAUNCHER_STORE_DONE__INIT;
    m.key = done->key;
    m.code = done->code;
    m.message = done->message;
    const size_t bytes = traind__v1__launcher_store_done__get_packed_size(&m);
    TD_AUTO_FREE uint8_t *packed = bytes <= TD_FRAME_MAX ? td_calloc(1, bytes + 1) : NULL;
    if (!packed) return;
    traind__v1__launcher_store_done__pack(&m, packed);
    (void)command(l, TRAIND__V1__LAUNCHER_FRAME__LAUNCHER_STORE_DONE, packed, bytes);
}

void td_launcher_link_store_again(struct td_launcher_link *l, bool all) {
    Traind__V1__LauncherStoreAgain m = TRAIND__V1__LAUNCHER_STORE_AGAIN__INIT;
    m.all = all;
    uint8_t packed[8];
    const size_t bytes = traind__v1__launcher_store_again__pack(&m, packed);
    (void)command(l, TRAIND__V1__LAUNCHER_FRAME__LAUNCHER_STORE_AGAIN, packed, bytes);
}
