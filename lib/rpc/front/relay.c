// Two one-way flows. Each reads as much as the scratch holds and writes it on at once. Only what
// the other side does not take is kept, in a block that is allocated for it and freed when it is
// gone.
//
// Sockets are watched edge-triggered for reading, each for the flow that reads it, which goes on
// until there is nothing, or until its turn is over. Then a timer brings it back after the others.
// Being writable is watched only while something waits, because a socket pair says so after each
// read of its other side. A short read does not mean that there is nothing: the end may have come
// with it, and has no edge of its own then.
//
// The end of gRPC's side is read as the end of the stream. The client's side is half-closed towards
// gRPC, never shut down for reading, because that end would then be seen at once and always.

#include "lib/rpc/front/relay.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/socket.h>

#include "lib/base/clock.h"
#include "lib/loop/loop.h"
#include "lib/tls/session.h"

enum { td_relay_magic = 0x74647279, READS_PER_TURN = 4 };
static const int64_t hold_ns = 10 * TD_NS_PER_MS;

struct flow {
    uint8_t *kept; // NULL: nothing waits
    size_t at, end;
    struct td_loop_fd *writable;
};

struct td_relay {
    uint32_t magic;
    struct td_loop *loop;
    struct td_relay_options o;
    struct td_h2_guard guard;
    int client_fd; // -1: closed
    int grpc_fd;
    struct td_loop_fd *client_watch, *grpc_watch;
    struct flow up;   // client to gRPC
    struct flow down; // gRPC to client
    struct td_loop_timer *again;
    struct td_loop_timer *deadline;
    struct td_mono first_due; // INT64_MAX: it was there
    struct td_mono stall_due; // INT64_MAX: nothing waits
    struct td_mono held_due;  // INT64_MAX: the client may be read
    int64_t armed_ns;         // when the timer fires, if it is armed
    bool has_sent;            // the client did
    bool up_ended;            // the client sends nothing more
    bool letting_go;
    bool ended;
};

static ssize_t receive(struct td_relay *r, void *out, size_t bytes) {
    if (r->o.take_tls) return td_tls_session_recv(r->o.take_tls, out, bytes);
    return recv(r->client_fd, out, bytes, MSG_DONTWAIT);
}

static ssize_t send_to_client(struct td_relay *r, const void *data, size_t bytes) {
    if (r->o.take_tls) return td_tls_session_send(r->o.take_tls, data, bytes);
    return send(r->client_fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void on_up(int fd, void *arg);
static void on_down(int fd, void *arg);

// ---- ends ---------------------------------------------------------------------------------------
static void drop(struct flow *f) {
    td_loop_fd_destroy(td_steal(f->writable));
    free(td_steal(f->kept));
}

static void close_client(struct td_relay *r) {
    td_loop_fd_destroy(td_steal(r->client_watch));
    drop(&r->up);
    drop(&r->down);
    r->stall_due.ns = r->first_due.ns = r->held_due.ns = INT64_MAX;
    if (r->client_fd >= 0) close(td_steal_fd(&r->client_fd));
    if (!r->up_ended) (void)shutdown(r->grpc_fd, SHUT_WR);
    r->up_ended = true;
}

void td_relay_cut(struct td_relay *r, enum td_h2_error code, const char *text) {
    if (r->client_fd < 0) return;
    if (!r->down.kept && td_h2_guard_is_between(&r->guard)) {
        uint8_t frame[TD_H2_GOAWAY_MAX];
        uint32_t last = td_relay_n_requests(r) ? INT32_MAX : 0;
        size_t n = td_h2_goaway(&r->guard, last, code, text, frame);
        (void)send_to_client(r, frame, n); // a courtesy
        if (r->o.take_tls) td_tls_session_close(r->o.take_tls);
    }
    (void)shutdown(r->client_fd, SHUT_WR);
    close_client(r);
    td_loop_timer_arm(r->again, 0);
}

static void cut_for(struct td_relay *r, td_status take_why) {
    bool calm = td_status_code(take_why) == TD_RESOURCE_EXHAUSTED;
    td_relay_cut(r, calm ? TD_H2_ENHANCE_YOUR_CALM : TD_H2_PROTOCOL_ERROR,
                 td_status_message(take_why));
    if (r->o.on_cut) {
        r->o.on_cut(take_why, r->o.owner);
    } else {
        td_status_free(take_why);
    }
}

void td_relay_let_go(struct td_relay *r) {
    r->letting_go = true;
    if (r->down.kept) close_client(r);
    td_loop_timer_arm(r->again, 0);
}

// ---- deadlines ----------------------------------------------------------------------------------
static void arm_deadline(struct td_relay *r) {
    int64_t due = TD_MIN(r->held_due.ns, TD_MIN(r->first_due.ns, r->stall_due.ns));
    if (due == INT64_MAX) {
        if (td_loop_timer_is_armed(r->deadline)) td_loop_timer_disarm(r->deadline);
    } else if (!td_loop_timer_is_armed(r->deadline) || due < r->armed_ns) {
        r->armed_ns = due; // one that fires too early is armed again
        td_loop_timer_arm(r->deadline, due - td_mono_now().ns);
    }
}

static void on_deadline(void *arg) {
    struct td_relay *r = TD_CAST(td_relay, arg);
    int64_t now = td_mono_now().ns;
    if (now >= r->first_due.ns) {
        cut_for(r, td_status_with_reason(td_fail(TD_RESOURCE_EXHAUSTED,
                                                 "no request within %" PRId64 " ms of connecting",
                                                 r->o.first_request_ns / TD_NS_PER_MS),
                                         "FIRST_REQUEST_LATE"));
    } else if (now >= r->stall_due.ns) {
        cut_for(r, td_status_with_reason(td_fail(TD_RESOURCE_EXHAUSTED,
                                                 "the client has read nothing for %" PRId64 " ms",
                                                 r->o.stall_ns / TD_NS_PER_MS),
                                         "READER_STALLED"));
    } else if (now >= r->held_due.ns) {
        cut_for(r, td_status_with_reason(td_fail(TD_RESOURCE_EXHAUSTED,
                                                 "requests without a credential, of which none was "
                                                 "begun within %" PRId64 " ms",
                                                 r->o.first_request_ns / TD_NS_PER_MS),
                                         "REQUESTS_HELD"));
    }
    arm_deadline(r);
}

// ---- flows --------------------------------------------------------------------------------------
// How much of it the socket took; -1: it takes nothing ever again.
static ssize_t put(struct td_relay *r, const struct flow *f, const uint8_t *data, size_t bytes) {
    size_t at = 0;
    while (at < bytes) {
        ssize_t n = f == &r->down
                        ? send_to_client(r, data + at, bytes - at)
                        : send(r->grpc_fd, data + at, bytes - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? (ssize_t)at : -1;
        at += (size_t)n;
    }
    return (ssize_t)at;
}

// False: no memory, or the socket cannot be watched.
static bool keep(struct td_relay *r, struct flow *f, int fd, const uint8_t *data, size_t bytes) {
    f->kept = malloc(bytes);
    if (!f->kept) return false;
    memcpy(f->kept, data, bytes);
    f->at = 0;
    f->end = bytes;
    td_status s = td_loop_fd_create(r->loop, fd, TD_LOOP_FD_EDGE | TD_LOOP_FD_WRITE,
                                    f == &r->up ? on_up : on_down, r, &f->writable);
    bool ok = !s;
    td_status_free(s);
    return ok;
}

enum progress { BLOCKED, FREE, BROKEN };

static enum progress flush(struct td_relay *r, struct flow *f) {
    if (!f->kept) return FREE;
    ssize_t n = put(r, f, f->kept + f->at, f->end - f->at);
    if (n < 0) return BROKEN;
    f->at += (size_t)n;
    if (f->at < f->end) return BLOCKED;
    drop(f);
    return FREE;
}

// The client is gone, or has finished: gRPC ends a connection either way.
static void leave(struct td_relay *r) {
    const bool is_mute = r->o.take_tls && !r->has_sent && !td_tls_session_was_closed(r->o.take_tls);
    close_client(r);
    if (!is_mute || !r->o.on_cut) return;
    r->o.on_cut(td_status_with_reason(
                    td_fail(TD_UNAUTHENTICATED,
                            "it left after the handshake without a word, as clients of gRPC do "
                            "where the host that they dial is not in the certificate"),
                    "TLS_UNUSED"),
                r->o.owner);
}

static size_t may_read(const struct td_relay *r) {
    size_t most = r->o.may_read ? r->o.may_read(td_relay_n_requests(r), r->o.owner) : SIZE_MAX;
    return TD_MIN(most, (size_t)TD_RELAY_SCRATCH);
}

// Client to gRPC. True: there may be more to read.
static bool run_up(struct td_relay *r) {
    if (r->up_ended || flush(r, &r->up) != FREE) return false;
    for (int i = 0; i < READS_PER_TURN; i++) {
        size_t most = may_read(r);
        if (!most) {
            if (r->held_due.ns == INT64_MAX) {
                r->held_due = td_mono_add(td_mono_now(), r->o.first_request_ns);
            }
            td_loop_timer_arm(r->again, hold_ns);
            return false;
        }
        r->held_due.ns = INT64_MAX;
        ssize_t n = receive(r, r->o.scratch, most);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
        if (n <= 0) {
            td_status excess = r->o.take_tls ? td_tls_session_refusal(r->o.take_tls) : TD_OK;
            if (excess) {
                cut_for(r, excess);
            } else {
                leave(r);
            }
            return false;
        }
        r->has_sent = true;
        td_status bad = td_h2_guard_take(&r->guard, td_mono_now(), r->o.scratch, (size_t)n);
        if (bad) {
            cut_for(r, bad);
            return false;
        }
        if (td_relay_n_requests(r)) r->first_due.ns = INT64_MAX;
        ssize_t taken = put(r, &r->up, r->o.scratch, (size_t)n);
        if (taken == n) continue;
        if (taken < 0) return false; // gRPC has closed: the other flow sees it
        if (!keep(r, &r->up, r->grpc_fd, r->o.scratch + taken, (size_t)(n - taken))) {
            close_client(r);
        }
        return false;
    }
    return true;
}

// gRPC's side has ended; what waits for the client is given the rest of its time.
static void end(struct td_relay *r) {
    if (r->down.kept && !r->letting_go) return;
    close_client(r);
    td_loop_fd_destroy(td_steal(r->grpc_watch));
    td_loop_timer_disarm(r->again);
    td_loop_timer_disarm(r->deadline);
    r->ended = true;
}

static bool pass_down(struct td_relay *r, size_t bytes) {
    td_h2_guard_watch(&r->guard, r->o.scratch, bytes);
    ssize_t taken = put(r, &r->down, r->o.scratch, bytes);
    if (taken < 0 || ((size_t)taken < bytes &&
                      (r->letting_go || !keep(r, &r->down, r->client_fd, r->o.scratch + taken,
                                              bytes - (size_t)taken)))) {
        close_client(r);
        return true; // to the end of what gRPC sends
    }
    if ((size_t)taken == bytes) return true;
    r->stall_due = td_mono_add(td_mono_now(), r->o.stall_ns);
    return false;
}

// gRPC to client. True: there may be more to read.
static bool run_down(struct td_relay *r) {
    if (r->down.kept) {
        size_t before = r->down.at;
        enum progress p = flush(r, &r->down);
        if (p == BROKEN) close_client(r);
        if (p == BLOCKED) {
            if (r->down.at > before) r->stall_due = td_mono_add(td_mono_now(), r->o.stall_ns);
            return false;
        }
        r->stall_due.ns = INT64_MAX;
    }
    for (int i = 0; i < READS_PER_TURN; i++) {
        ssize_t n = recv(r->grpc_fd, r->o.scratch, TD_RELAY_SCRATCH, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
        if (n <= 0) {
            end(r);
            return false;
        }
        if (r->client_fd >= 0 && !pass_down(r, (size_t)n)) return false;
    }
    return true;
}

// Without a client what gRPC sends is only read to its end, whatever was blocked before.
static void run(struct td_relay *r, bool up, bool down) {
    if (r->ended) return;
    bool more = up && run_up(r);
    more |= (down || r->client_fd < 0) && run_down(r);
    if (r->ended) {
        r->o.on_end(r->o.owner); // may destroy r
        return;
    }
    arm_deadline(r);
    if (more) td_loop_timer_arm(r->again, 0);
}

static void on_up(int fd, void *arg) {
    (void)fd;
    run(TD_CAST(td_relay, arg), true, false);
}

static void on_down(int fd, void *arg) {
    (void)fd;
    struct td_relay *r = TD_CAST(td_relay, arg);
    run(r, r->o.take_tls != NULL, true); // TLS may have read, or written, while it did the other
}

static void on_again(void *arg) {
    run(TD_CAST(td_relay, arg), true, true);
}

// ---- life ---------------------------------------------------------------------------------------
td_status td_relay_create(struct td_loop *loop, const struct td_relay_options *options,
                          int take_client_fd, int take_grpc_fd, struct td_relay **out_relay) {
    TD_AUTO(td_relay) *self = td_calloc(1, sizeof *self);
    if (!self) return td_fail_oom();
    self->magic = td_relay_magic;
    self->loop = loop;
    self->o = *options;
    self->o.take_tls = NULL; // the caller's until success
    self->client_fd = self->grpc_fd = -1;
    td_h2_guard_init(&self->guard);
    self->first_due = td_mono_add(td_mono_now(), options->first_request_ns);
    self->stall_due.ns = self->held_due.ns = INT64_MAX;
    TD_TRY(td_loop_timer_create(loop, on_again, self, &self->again));
    TD_TRY(td_loop_timer_create(loop, on_deadline, self, &self->deadline));
    TD_TRY(
        td_loop_fd_create(loop, take_client_fd, TD_LOOP_FD_EDGE, on_up, self, &self->client_watch));
    TD_TRY(
        td_loop_fd_create(loop, take_grpc_fd, TD_LOOP_FD_EDGE, on_down, self, &self->grpc_watch));
    arm_deadline(self);
    self->client_fd = take_client_fd;
    self->grpc_fd = take_grpc_fd;
    self->o.take_tls = options->take_tls;
    // Bytes may have come with the handshake.
    if (self->o.take_tls) td_loop_timer_arm(self->again, 0);
    *out_relay = td_steal(self);
    return TD_OK;
}

uint32_t td_relay_n_requests(const struct td_relay *r) {
    return td_h2_guard_n_requests(&r->guard);
}

void td_relay_destroy(struct td_relay *r) {
    if (!r) return;
    drop(&r->up);
    drop(&r->down);
    td_loop_fd_destroy(r->client_watch);
    td_loop_fd_destroy(r->grpc_watch);
    td_loop_timer_destroy(r->again);
    td_loop_timer_destroy(r->deadline);
    td_tls_session_destroy(r->o.take_tls);
    if (r->client_fd >= 0) close(r->client_fd);
    if (r->grpc_fd >= 0) close(r->grpc_fd);
    r->magic = 0;
    free(r);
}
