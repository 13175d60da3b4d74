// One timer, which is either the pause until the next check or the patience for its answer. A timer
// that fires much too late shows that this process stood still, not that nobody answered: the
// answer is given its time once more.

#include "lib/rpc/front/self_check.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "lib/base/clock.h"
#include "lib/loop/loop.h"
#include "lib/rpc/address.h"
#include "lib/rpc/front/h2_guard.h"
#include "lib/tls/context.h"
#include "lib/tls/session.h"

enum { td_self_check_magic = 0x74647363 };

struct td_self_check {
    uint32_t magic;
    struct td_loop *loop;
    struct td_self_check_options o;
    struct td_rpc_address address;
    char text[80];
    struct td_tls_context *tls; // NULL: plain
    struct td_tls_session *session;
    struct td_loop_timer *timer;
    struct td_loop_fd *watch;
    int fd; // -1: no check is going on
    struct td_mono due;
    bool in_trouble;
};

static void wait_next(struct td_self_check *c) {
    td_loop_fd_destroy(td_steal(c->watch));
    if (c->session) td_tls_session_close(c->session);
    td_tls_session_destroy(td_steal(c->session));
    if (c->fd >= 0) close(td_steal_fd(&c->fd));
    td_loop_timer_arm(c->timer, c->o.every_ns);
}

static void conclude(struct td_self_check *c, const char *trouble) {
    bool changed = c->in_trouble != (trouble != NULL);
    c->in_trouble = trouble != NULL;
    wait_next(c);
    if (changed) c->o.on_change(trouble, c->o.ctx);
}

static void fail(struct td_self_check *c, const char *what, int err) {
    char text[256];
    snprintf(text, sizeof text, "the listener %s does not answer: %s%s%s", c->text, what,
             err ? ": " : "", err ? strerror(err) : "");
    conclude(c, text);
}

static void on_readable(int fd, void *arg) {
    struct td_self_check *c = TD_CAST(td_self_check, arg);
    uint8_t header[TD_H2_HEADER_BYTES];
    ssize_t n = recv(fd, header, sizeof header, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
        fail(c, n < 0 ? "it is refused" : "it closes at once", n < 0 ? errno : 0);
        return;
    }
    conclude(c, NULL); // only our front sends bytes by itself
}

static void on_handshake(int fd, void *arg);

static td_status watch_handshake(struct td_self_check *c, int flags) {
    td_loop_fd_destroy(td_steal(c->watch));
    return td_loop_fd_create(c->loop, c->fd, flags, on_handshake, c, &c->watch);
}

static void on_handshake(int fd, void *arg) {
    (void)fd;
    struct td_self_check *c = TD_CAST(td_self_check, arg);
    enum td_tls_step step = TD_TLS_DONE;
    td_status failed = td_tls_session_handshake(c->session, &step);
    if (!failed && step == TD_TLS_DONE) {
        conclude(c, NULL);
        return;
    }
    if (!failed) failed = watch_handshake(c, step == TD_TLS_WANTS_WRITE ? TD_LOOP_FD_WRITE : 0);
    if (failed) fail(c, td_status_message(failed), 0);
    td_status_free(failed);
}

// The certificate's name is not asked for: it need not have the address that is listened on.
static td_status start_handshake(struct td_self_check *c) {
    bool changed;
    TD_TRY(td_tls_context_refresh(c->tls, &changed));
    TD_TRY(td_tls_session_create(c->tls, c->fd, NULL, &c->session));
    return watch_handshake(c, TD_LOOP_FD_WRITE); // connected
}

static td_status dial(struct td_self_check *c) {
    struct sockaddr_in in4 = {.sin_family = AF_INET, .sin_port = htons(c->address.port)};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(c->address.port)};
    bool v6 = strchr(c->address.host, ':');
    inet_pton(v6 ? AF_INET6 : AF_INET, c->address.host,
              v6 ? (void *)&in6.sin6_addr : (void *)&in4.sin_addr);
    c->fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (c->fd < 0) return td_fail_errno(TD_RESOURCE_EXHAUSTED, "no socket to check it with");
    int failed = connect(c->fd, v6 ? (void *)&in6 : (void *)&in4, v6 ? sizeof in6 : sizeof in4);
    if (failed && errno != EINPROGRESS) return td_fail_errno(TD_UNAVAILABLE, "connect");
    if (c->tls) return start_handshake(c);
    return td_loop_fd_create(c->loop, c->fd, 0, on_readable, c, &c->watch);
}

static void on_timer(void *arg) {
    struct td_self_check *c = TD_CAST(td_self_check, arg);
    struct td_mono now = td_mono_now();
    if (c->fd >= 0) {
        if (now.ns - c->due.ns > c->o.patience_ns / 2) {
            c->due = td_mono_add(now, c->o.patience_ns);
            td_loop_timer_arm(c->timer, c->o.patience_ns);
            return;
        }
        char what[64];
        snprintf(what, sizeof what, "nothing came within %" PRId64 " ms",
                 c->o.patience_ns / TD_NS_PER_MS);
        fail(c, what, 0);
        return;
    }
    td_status failed = dial(c);
    if (failed) {
        fail(c, td_status_message(failed), 0);
        td_status_free(failed);
        return;
    }
    c->due = td_mono_add(now, c->o.patience_ns);
    td_loop_timer_arm(c->timer, c->o.patience_ns);
}

td_status td_self_check_create(struct td_loop *loop, const struct td_self_check_options *o,
                               struct td_self_check **out_check) {
    TD_AUTO(td_self_check) *self = td_calloc(1, sizeof *self);
    if (!self) return td_fail_oom();
    self->magic = td_self_check_magic;
    self->loop = loop;
    self->o = *o;
    self->fd = -1;
    TD_TRY(td_rpc_address_parse(o->address, &self->address));
    snprintf(self->text, sizeof self->text, "%s", o->address);
    if (o->ca) {
        const struct td_tls_paths paths = {.ca = o->ca};
        TD_TRY(td_tls_context_create(TD_TLS_CLIENT, &paths, &self->tls));
    }
    TD_TRY(td_loop_timer_create(loop, on_timer, self, &self->timer));
    td_loop_timer_arm(self->timer, o->every_ns);
    *out_check = td_steal(self);
    return TD_OK;
}

void td_self_check_destroy(struct td_self_check *c) {
    if (!c) return;
    td_loop_fd_destroy(c->watch);
    td_loop_timer_destroy(c->timer);
    td_tls_session_destroy(c->session);
    td_tls_context_destroy(c->tls);
    if (c->fd >= 0) close(c->fd);
    c->magic = 0;
    free(c);
}
