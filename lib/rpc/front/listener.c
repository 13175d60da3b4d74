// Bind, listen, accept. gRPC binds nothing: what it did with a port stays visible here, and a
// second server on the same one is refused (SO_REUSEPORT is never set).

#include "lib/rpc/front/listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>

#include "lib/rpc/address.h"
#include "lib/rpc/front/port_holder.h"

enum { BACKLOG = 1024, SILENT_S = 60, PROBE_S = 10, N_PROBES = 6 };

static td_status bind_failure(const struct td_rpc_address *a, const char *text, int err) {
    if (err == EADDRINUSE) {
        char holder[64];
        td_rpc_port_holder(a->port, holder, sizeof holder);
        return td_status_with_reason(td_fail(TD_UNAVAILABLE,
                                             "cannot listen on %s: %s listens there; stop it or "
                                             "choose another port (port 0 picks one)",
                                             text, holder[0] ? holder : "another process"),
                                     "ADDRESS_IN_USE");
    }
    errno = err;
    return td_fail_errno(TD_UNAVAILABLE, "cannot listen on %s", text);
}

static int open_spare(void) {
    return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static socklen_t sockaddr_of(const struct td_rpc_address *a, struct sockaddr_storage *out) {
    struct sockaddr_in *in4 = (void *)out;
    struct sockaddr_in6 *in6 = (void *)out;
    memset(out, 0, sizeof *out);
    if (strchr(a->host, ':')) {
        in6->sin6_family = AF_INET6;
        in6->sin6_port = htons(a->port);
        inet_pton(AF_INET6, a->host, &in6->sin6_addr);
        return sizeof *in6;
    }
    in4->sin_family = AF_INET;
    in4->sin_port = htons(a->port);
    inet_pton(AF_INET, a->host, &in4->sin_addr);
    return sizeof *in4;
}

static uint16_t port_of(const struct sockaddr_storage *s) {
    const struct sockaddr_in *in4 = (const void *)s;
    const struct sockaddr_in6 *in6 = (const void *)s;
    return ntohs(s->ss_family == AF_INET6 ? in6->sin6_port : in4->sin_port);
}

td_status td_listener_open(const char *address, struct td_listener *out_listener) {
    struct td_rpc_address a;
    TD_TRY(td_rpc_address_parse(address, &a));
    if (a.reach == TD_RPC_NAME) {
        return td_status_with_reason(td_fail(TD_INVALID_ARGUMENT,
                                             "cannot listen on the name '%s'; write an address of "
                                             "this machine, or 0.0.0.0 for all",
                                             address),
                                     "ADDRESS_INVALID");
    }
    char text[80];
    td_rpc_address_format(&a, text, sizeof text);
    struct sockaddr_storage bound;
    socklen_t bytes = sockaddr_of(&a, &bound);
    TD_AUTO_CLOSE int fd = socket(bound.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int on = 1;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(fd, (void *)&bound, bytes) != 0 || listen(fd, BACKLOG) != 0 ||
        getsockname(fd, (void *)&bound, &bytes) != 0) {
        return bind_failure(&a, text, errno);
    }
    a.port = port_of(&bound);
    struct td_listener l = {.fd = -1, .spare_fd = open_spare()};
    if (l.spare_fd < 0) return td_fail_errno(TD_RESOURCE_EXHAUSTED, "open a spare descriptor");
    l.fd = td_steal_fd(&fd);
    l.is_loopback = a.reach == TD_RPC_LOOPBACK;
    td_rpc_address_format(&a, l.address, sizeof l.address);
    *out_listener = l;
    return TD_OK;
}

void td_listener_finish(struct td_listener *l) {
    if (l->fd >= 0) close(td_steal_fd(&l->fd));
    if (l->spare_fd >= 0) close(td_steal_fd(&l->spare_fd));
}

static int accept_one(struct td_listener *l, struct sockaddr_storage *out_peer) {
    int fd;
    do {
        socklen_t bytes = sizeof *out_peer;
        fd = accept4(l->fd, (void *)out_peer, &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
    } while (fd < 0 && (errno == EINTR || errno == ECONNABORTED || errno == EPROTO));
    return fd;
}

static enum td_accept shed(struct td_listener *l) {
    if (l->spare_fd < 0) l->spare_fd = open_spare();
    if (l->spare_fd < 0) return TD_ACCEPT_STUCK;
    close(td_steal_fd(&l->spare_fd));
    struct sockaddr_storage peer;
    int fd = accept_one(l, &peer);
    if (fd >= 0) close(fd);
    l->spare_fd = open_spare(); // another thread may have been faster: then it is tried again
    return fd >= 0 ? TD_ACCEPT_SHED : TD_ACCEPT_STUCK;
}

static void tune(int fd) {
    int on = 1, silent = SILENT_S, every = PROBE_S, n = N_PROBES;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &silent, sizeof silent);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &n, sizeof n);
}

enum td_accept td_listener_accept(struct td_listener *l, int *out_fd,
                                  struct sockaddr_storage *out_peer) {
    if (l->spare_fd < 0) l->spare_fd = open_spare();
    int fd = accept_one(l, out_peer);
    if (fd >= 0) {
        tune(fd);
        *out_fd = fd;
        return TD_ACCEPTED;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return TD_ACCEPT_NONE;
    return errno == EMFILE || errno == ENFILE ? shed(l) : TD_ACCEPT_STUCK;
}
