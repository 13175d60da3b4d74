// See the header. A connection is destroyed from its own callbacks alone, or by an accept that
// needs its place; the loop allows both.

#include "daemon/worker/reports/http.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>

#include "lib/base/buf.h"
#include "lib/base/clock.h"

enum {
    td_http_magic = 0x74646874,
    connection_magic = 0x74646863,
    ACCEPTS_A_TURN = 16,
    READ_BYTES = 16 << 10,
    READS_A_TURN = 8,
};
#define ACCEPT_AGAIN_NS (100 * TD_NS_PER_MS)

struct connection {
    uint32_t magic;
    struct td_http *http;
    struct connection *next; // a younger one
    int fd;
    struct td_loop_fd *watch;
    struct td_loop_timer *deadline;
    struct td_buf in;
    size_t head_bytes, wanted_bytes; // head_bytes 0: it is not whole yet
    int32_t who;                     // -1: not admitted yet
    bool answered;                   // what comes now is thrown away
    size_t n_drained;
};

struct td_http {
    uint32_t magic;
    struct td_loop *loop;
    struct td_http_options o;
    struct td_loop_fd *watch;    // NULL: accepting rests
    struct td_loop_timer *again; // then it goes on
    struct connection *oldest;
    size_t n_connections;
};

// ---- connections --------------------------------------------------------------------------------
static void connection_free(struct connection *c) {
    td_loop_fd_destroy(c->watch);
    td_loop_timer_destroy(c->deadline);
    td_auto_close(&c->fd);
    td_buf_finish(&c->in);
    c->magic = 0;
    free(c);
}

static void close_connection(struct connection *c) {
    struct td_http *h = c->http;
    for (struct connection **at = &h->oldest; *at; at = &(*at)->next) {
        if (*at != c) continue;
        *at = c->next;
        h->n_connections--;
        break;
    }
    connection_free(c);
}

static const char *name_of(int status) {
    switch (status) {
    case 200:
        return "OK";
    case 400:
        return "Bad Request";
    case 401:
        return "Unauthorized\r\nWWW-Authenticate: Bearer";
    case 404:
        return "Not Found";
    case 405:
        return "Method Not Allowed\r\nAllow: POST";
    case 408:
        return "Request Timeout";
    case 411:
        return "Length Required";
    case 413:
        return "Content Too Large";
    case 431:
        return "Request Header Fields Too Large";
    case 501:
        return "Not Implemented";
    case 505:
        return "HTTP Version Not Supported";
    default:
        return "Error";
    }
}

// Nothing is written twice, so the socket has room for it.
static void say(const struct connection *c, int status) {
    char text[256];
    int n = snprintf(text, sizeof text,
                     "HTTP/1.1 %d %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", status,
                     name_of(status));
    (void)send(c->fd, text, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
    (void)shutdown(c->fd, SHUT_WR);
}

// False: c is gone.
static bool answer(struct connection *c, int status) {
    struct td_http *h = c->http;
    const bool whole = c->head_bytes > 0 && c->in.len >= c->wanted_bytes;
    if (status != 200 && h->o.refused) h->o.refused(h->o.arg, c->who, status);
    say(c, status);
    c->answered = true;
    if (!whole) return true;
    close_connection(c);
    return false;
}

// ---- reading ------------------------------------------------------------------------------------
// False: c is gone.
static bool take_head(struct connection *c) {
    struct td_http *h = c->http;
    struct td_http_head head;
    int status = td_http_head_read(c->in.data, c->in.len, &head);
    if (status == 0) return true;
    int32_t who = -1;
    if (status == 200) status = h->o.admit(h->o.arg, &head, &who);
    if (status == 200) c->who = who;
    if (status == 200 && head.body_bytes < 0) status = 411;
    if (status == 200 && (uint64_t)head.body_bytes > h->o.max_body_bytes) status = 413;
    if (status != 200) return answer(c, status);
    c->head_bytes = head.bytes;
    c->wanted_bytes = head.bytes + (size_t)head.body_bytes;
    return true;
}

static bool take_all(struct connection *c) {
    const struct td_http *h = c->http;
    if (c->answered || !c->head_bytes || c->in.len < c->wanted_bytes) return true;
    return answer(c, h->o.take(h->o.arg, c->who, c->in.data + c->head_bytes,
                               c->wanted_bytes - c->head_bytes));
}

// Bytes of a request that is whole are wanted, no more. A head may come with some of its body.
static size_t room_of(const struct connection *c) {
    if (c->answered) return READ_BYTES;
    const size_t most = c->head_bytes ? c->wanted_bytes : (size_t)TD_HTTP_HEAD_MAX;
    return TD_MIN(most - c->in.len, (size_t)READ_BYTES);
}

// False: c is gone.
static bool take_bytes(struct connection *c, const char *data, size_t bytes) {
    if (c->answered) {
        c->n_drained += bytes;
        if (c->n_drained <= TD_HTTP_DRAIN_MAX) return true;
        close_connection(c);
        return false;
    }
    td_status s = td_buf_append(&c->in, data, bytes);
    if (s) {
        td_status_free(s); // no memory
        close_connection(c);
        return false;
    }
    return (c->head_bytes || take_head(c)) && take_all(c);
}

static void on_bytes(int fd, void *arg) {
    static char data[READ_BYTES]; // one thread
    struct connection *c = TD_CAST(connection, arg);
    for (int i = 0; i < READS_A_TURN; i++) {
        const ssize_t n = recv(fd, data, room_of(c), 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (n <= 0) { // it has ended, or is lost
            close_connection(c);
            return;
        }
        if (!take_bytes(c, data, (size_t)n)) return;
    }
}

static void on_deadline(void *arg) {
    struct connection *c = TD_CAST(connection, arg);
    struct td_http *h = c->http;
    if (!c->answered) {
        if (h->o.refused) h->o.refused(h->o.arg, c->who, 408);
        say(c, 408);
    }
    close_connection(c);
}

// ---- accepting ----------------------------------------------------------------------------------
static td_status open_connection(struct td_http *h, int fd) {
    struct connection *c = td_calloc(1, sizeof *c);
    if (!c) {
        close(fd);
        return td_fail_oom();
    }
    *c = (struct connection){.magic = connection_magic, .http = h, .fd = fd, .who = -1};
    td_buf_init(&c->in, TD_HTTP_HEAD_MAX + h->o.max_body_bytes);
    td_status s = td_loop_timer_create(h->loop, on_deadline, c, &c->deadline);
    if (!s) s = td_loop_fd_create(h->loop, fd, 0, on_bytes, c, &c->watch);
    if (s) {
        connection_free(c);
        return s;
    }
    td_loop_timer_arm(c->deadline, h->o.deadline_ns);
    struct connection **at = &h->oldest;
    while (*at) {
        at = &(*at)->next;
    }
    *at = c;
    h->n_connections++;
    return TD_OK;
}

static void rest(struct td_http *h) {
    td_loop_fd_destroy(h->watch);
    h->watch = NULL;
    td_loop_timer_arm(h->again, ACCEPT_AGAIN_NS);
}

static void on_connection(int fd, void *arg) {
    struct td_http *h = TD_CAST(td_http, arg);
    for (int i = 0; i < ACCEPTS_A_TURN; i++) {
        const int taken = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (taken < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
        if (taken < 0 && errno == EAGAIN) return;
        if (taken < 0) { // no descriptor is left: one that waits would wake the loop all the time
            rest(h);
            return;
        }
        if (h->n_connections == TD_HTTP_CONNECTIONS) close_connection(h->oldest);
        td_status_free(open_connection(h, taken)); // no memory: the other side sees it closed
    }
}

static void on_again(void *arg) {
    struct td_http *h = TD_CAST(td_http, arg);
    td_status s = td_loop_fd_create(h->loop, h->o.listen_fd, 0, on_connection, h, &h->watch);
    if (s) td_loop_timer_arm(h->again, ACCEPT_AGAIN_NS);
    td_status_free(s);
}

// ---- life ---------------------------------------------------------------------------------------
td_status td_http_create(struct td_loop *loop, const struct td_http_options *o,
                         struct td_http **out_http) {
    TD_AUTO(td_http) *h = td_calloc(1, sizeof *h);
    if (!h) return td_fail_oom();
    *h = (struct td_http){.magic = td_http_magic, .loop = loop, .o = *o};
    const int flags = fcntl(o->listen_fd, F_GETFL);
    if (flags < 0 || fcntl(o->listen_fd, F_SETFL, flags | O_NONBLOCK) != 0) {
        return td_fail_errno(TD_INTERNAL, "use the socket for reports");
    }
    TD_TRY(td_loop_timer_create(loop, on_again, h, &h->again));
    TD_TRY(td_loop_fd_create(loop, o->listen_fd, 0, on_connection, h, &h->watch));
    *out_http = td_steal(h);
    return TD_OK;
}

void td_http_destroy(struct td_http *h) {
    if (!h) return;
    while (h->oldest) {
        close_connection(h->oldest);
    }
    td_loop_fd_destroy(h->watch);
    td_loop_timer_destroy(h->again);
    h->magic = 0;
    free(h);
}
