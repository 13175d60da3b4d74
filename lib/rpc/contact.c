// See the header. Without gRPC, which cannot be asked for the chain that a server shows.

#include "lib/rpc/contact.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/rpc/address.h"
#include "lib/tls/first_contact.h"

static td_status unreachable(const char *address, const char *why) {
    return td_status_with_reason(td_fail(TD_UNAVAILABLE, "connect to %s: %s", address, why),
                                 "UNREACHABLE");
}

// 0, or why not, as errno says it.
static int connect_within(int fd, const struct addrinfo *to, struct td_mono due) {
    if (connect(fd, to->ai_addr, to->ai_addrlen) == 0) return 0;
    if (errno != EINPROGRESS) return errno;
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    for (;;) {
        int64_t left_ns = due.ns - td_mono_now().ns;
        if (left_ns <= 0) return ETIMEDOUT;
        int n = poll(&p, 1, (int)(left_ns / TD_NS_PER_MS + 1)), err = 0;
        socklen_t bytes = sizeof err;
        if (n < 0 && errno != EINTR) return errno;
        if (n <= 0) continue;
        return getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &bytes) == 0 ? err : errno;
    }
}

static td_status dial(const struct td_rpc_address *a, const char *address, int64_t timeout_ns,
                      int *out_fd) {
    char port[8];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC}, *found;
    snprintf(port, sizeof port, "%u", a->port);
    int failed = getaddrinfo(a->host, port, &hints, &found);
    if (failed) return unreachable(address, gai_strerror(failed));
    struct td_mono due = td_mono_add(td_mono_now(), timeout_ns);
    int err = EHOSTUNREACH;
    for (const struct addrinfo *to = found; to && err; to = to->ai_next) {
        int fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        err = fd < 0 ? errno : connect_within(fd, to, due);
        if (!err) *out_fd = fd;
        if (err && fd >= 0) close(fd);
    }
    freeaddrinfo(found);
    if (!err) return TD_OK;
    errno = err;
    return td_status_with_reason(td_fail_errno(TD_UNAVAILABLE, "connect to %s", address),
                                 "UNREACHABLE");
}

td_status td_rpc_fetch_ca(const char *address, const char *fingerprint, int64_t timeout_ns,
                          struct td_buf *out_ca) {
    TD_AUTO_CLOSE int fd = -1;
    struct td_rpc_address a;
    TD_TRY(td_rpc_address_parse(address, &a));
    TD_TRY(dial(&a, address, timeout_ns, &fd));
    return td_tls_first_contact(fd, a.host, fingerprint, timeout_ns, out_ca);
}
