// One watch at a time: for reading, or for writing while the socket is full.

#include "lib/rpc/front/hello.h"

#include <inttypes.h>

#include "lib/loop/loop.h"
#include "lib/tls/session.h"

enum { td_hello_magic = 0x7464686c };

struct td_hello {
    uint32_t magic;
    struct td_loop *loop;
    struct td_hello_options o;
    int fd;
    struct td_tls_session *session;
    struct td_loop_fd *watch;
    bool watches_write;
    struct td_loop_timer *deadline;
};

static void finish(struct td_hello *h, td_status take_failed) {
    td_loop_fd_destroy(td_steal(h->watch));
    td_loop_timer_disarm(h->deadline);
    struct td_tls_session *session = take_failed ? NULL : td_steal(h->session);
    h->o.on_done(take_failed, session, h->o.owner); // may destroy h
}

static void on_ready(int fd, void *arg);

static td_status watch(struct td_hello *h, bool for_write) {
    if (h->watch && h->watches_write == for_write) return TD_OK;
    td_loop_fd_destroy(td_steal(h->watch));
    h->watches_write = for_write;
    return td_loop_fd_create(h->loop, h->fd, for_write ? TD_LOOP_FD_WRITE : 0, on_ready, h,
                             &h->watch);
}

static void on_ready(int fd, void *arg) {
    (void)fd;
    struct td_hello *h = TD_CAST(td_hello, arg);
    enum td_tls_step step = TD_TLS_DONE;
    td_status failed = td_tls_session_handshake(h->session, &step);
    if (!failed && step != TD_TLS_DONE) {
        failed = watch(h, step == TD_TLS_WANTS_WRITE);
        if (!failed) return;
    }
    finish(h, failed);
}

static void on_deadline(void *arg) {
    struct td_hello *h = TD_CAST(td_hello, arg);
    finish(h, td_status_with_reason(td_fail(TD_DEADLINE_EXCEEDED,
                                            "no TLS handshake within %" PRId64 " ms of connecting",
                                            h->o.deadline_ns / TD_NS_PER_MS),
                                    "HANDSHAKE_LATE"));
}

td_status td_hello_create(struct td_loop *loop, const struct td_tls_context *context, int fd,
                          const struct td_hello_options *options, struct td_hello **out_hello) {
    TD_AUTO(td_hello) *self = td_calloc(1, sizeof *self);
    if (!self) return td_fail_oom();
    self->magic = td_hello_magic;
    self->loop = loop;
    self->o = *options;
    self->fd = fd;
    TD_TRY(td_tls_session_create(context, fd, NULL, &self->session));
    TD_TRY(td_loop_timer_create(loop, on_deadline, self, &self->deadline));
    TD_TRY(watch(self, false));
    td_loop_timer_arm(self->deadline, options->deadline_ns);
    *out_hello = td_steal(self);
    return TD_OK;
}

void td_hello_destroy(struct td_hello *h) {
    if (!h) return;
    td_loop_fd_destroy(h->watch);
    td_loop_timer_destroy(h->deadline);
    td_tls_session_destroy(h->session);
    h->magic = 0;
    free(h);
}
