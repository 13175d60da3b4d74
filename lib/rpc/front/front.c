// Accepting, caps, and the thread.
//
// A connection has an entry from its accept until gRPC has closed its side.

#include "lib/rpc/front/front.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/loop/loop.h"
#include "lib/rpc/front/front_tls.h"
#include "lib/rpc/front/hello.h"
#include "lib/rpc/front/listener.h"
#include "lib/rpc/front/notices.h"
#include "lib/rpc/front/peer_slots.h"
#include "lib/rpc/front/relay.h"
#include "lib/tls/session.h"

enum {
    td_front_magic = 0x74646672,
    entry_magic = 0x74646665,
    ACCEPTS_PER_TURN = 64,
    PAIR_BYTES = 512 << 10, // asked for; the kernel's own limit is below in most places
    JOIN_MS = 60000,
    STRANGER_REQUESTS = 8, // that wait inside gRPC at a time
    STRANGER_BYTES = 1024, // that are read at once
};
static const int64_t retry_ns = 100 * TD_NS_PER_MS;

struct entry {
    uint32_t magic;
    struct td_front *front;
    struct td_peer_slot place;
    struct td_hello *hello; // until the handshake is over
    struct td_relay *relay; // from then on
    int number;
    int client_fd, pair_fd; // -1: the relay has them
    bool handed_over;       // gRPC has the number
    bool leaving;           // counts no more
    char name[TD_PEER_NAME_BYTES];
};

struct td_front {
    uint32_t magic;
    struct td_front_options o;
    struct td_loop *home;
    struct td_peers *peers;
    struct td_notices *notices;
    pthread_t thread;
    bool started;
    char address[80];
    atomic_bool stop_listening, let_go;
    // the front's
    struct td_loop *loop;
    struct td_loop_wakeup *wake;
    struct td_loop_timer *retry;
    struct td_listener listener;
    struct td_front_tls tls;
    struct td_loop_fd *watch; // NULL while nobody can be taken
    struct td_peer_slots places;
    int waiting_fd; // accepted, and waits for a number; -1: none
    struct sockaddr_storage waiting_peer;
    bool letting_go;
    uint8_t *scratch;
};

static void on_notice(const char *text, void *ctx) {
    struct td_front *f = TD_CAST(td_front, ctx);
    f->o.on_notice(text, f->o.ctx);
}

// ---- connections --------------------------------------------------------------------------------
static void watch_listener(struct td_front *f, bool on);

static void forget(struct entry *e) {
    td_peer_slots_remove(&e->front->places, &e->place);
    td_hello_destroy(e->hello);
    td_relay_destroy(e->relay);
    if (e->client_fd >= 0) close(e->client_fd);
    if (e->pair_fd >= 0) close(e->pair_fd);
    if (!e->handed_over && e->number >= 0) close(e->number);
    e->magic = 0;
    free(e);
}

static void drop(struct entry *e) {
    struct td_front *f = e->front;
    int number = e->number;
    uint32_t n_requests = e->relay ? td_relay_n_requests(e->relay) : 0;
    forget(e); // closes before the number is given out again
    td_peers_free(f->peers, number, n_requests);
}

static void on_relay_end(void *owner) {
    struct entry *e = TD_CAST(entry, owner);
    struct td_front *f = e->front;
    drop(e);
    if (f->waiting_fd >= 0 || !f->watch) watch_listener(f, true);
}

static void on_relay_cut(td_status take_why, void *owner) {
    struct entry *e = TD_CAST(entry, owner);
    e->leaving = true;
    const char *reason = td_status_reason(take_why);
    if (reason && strcmp(reason, "FIRST_REQUEST_LATE") == 0) { // as any port scan is
        td_log_debug("connection cut peer=%s: %s", e->name, td_status_message(take_why));
    } else if (reason && strcmp(reason, "TLS_UNUSED") == 0) {
        td_notify_home(e->front->notices, TD_NOTICE_HANDSHAKE_FAILED,
                       "connection refused peer=%s: %s", e->name, td_status_message(take_why));
    } else {
        td_notify_home(e->front->notices, TD_NOTICE_CUT, "connection cut peer=%s: %s", e->name,
                       td_status_message(take_why));
    }
    td_status_free(take_why);
}

// ---- caps ---------------------------------------------------------------------------------------
static enum td_peer_slot_kind kind_of(void *owner) {
    const struct entry *e = TD_CAST(entry, owner);
    const struct td_peers *peers = e->front->peers;
    if (e->leaving || td_peers_is_apart(peers, e->number)) return TD_PEER_PLACE_UNCOUNTED;
    return td_peers_is_trusted(peers, e->number) ? TD_PEER_PLACE_TRUSTED : TD_PEER_PLACE_STRANGER;
}

static void replace(struct td_front *f, struct entry *e) {
    e->leaving = true;
    td_notify_home(
        f->notices, TD_NOTICE_REPLACED,
        "connection closed peer=%s: it showed no credential, and newer connections need its "
        "place",
        e->name);
    if (!e->relay) {
        drop(e);
        return;
    }
    td_relay_cut(e->relay, TD_H2_ENHANCE_YOUR_CALM,
                 "too many connections without a credential; this one was the oldest of the "
                 "address with the most");
}

// Makes room for a newcomer, or says why there is none.
static const char *admit(struct td_front *f, const struct td_source *source) {
    struct td_peer_slots_count c = td_peer_slots_count(&f->places, source);
    bool source_full = c.of_source >= f->o.max_per_source ||
                       c.strangers_of_source >= TD_MAX(f->o.max_strangers / 2, 1U);
    bool full = c.all >= f->o.max_connections || c.strangers >= f->o.max_strangers;
    if (!source_full && !full) return NULL;
    struct entry *victim = source_full ? c.oldest_of_source : c.oldest_of_most;
    if (victim) {
        replace(f, victim);
        return NULL;
    }
    return source_full
               ? "as many connections as one source may have (max-source-connections) are open"
               : "as many connections as are allowed (max-connections) are open";
}

static void refuse(struct td_front *f, int take_fd, const char *name, const char *why) {
    struct td_h2_guard guard;
    uint8_t frame[TD_H2_GOAWAY_MAX];
    td_h2_guard_init(&guard);
    size_t n = td_h2_goaway(&guard, 0, TD_H2_ENHANCE_YOUR_CALM, why, frame);
    if (!f->tls.context) (void)send(take_fd, frame, n, MSG_NOSIGNAL | MSG_DONTWAIT); // a courtesy
    (void)shutdown(take_fd, SHUT_WR);
    close(take_fd);
    td_notify_home(f->notices, TD_NOTICE_REFUSED, "connection refused peer=%s: %s", name, why);
}

// ---- taking one in ------------------------------------------------------------------------------
static void ask_for_room(int fd) {
    int bytes = PAIR_BYTES;
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

// gRPC takes any number of requests in, also those that are taken back at once, and works on each
// long before somebody judges its credential. So a stranger's wait in its socket, until it is none.
static size_t may_read(uint32_t n_requests, void *owner) {
    const struct entry *e = TD_CAST(entry, owner);
    const struct td_peers *peers = e->front->peers;
    if (td_peers_is_trusted(peers, e->number)) return SIZE_MAX;
    uint32_t n_waiting = n_requests - td_peers_n_begun(peers, e->number);
    return n_waiting < STRANGER_REQUESTS ? STRANGER_BYTES : 0;
}

// Its relay, with the session if it has one, then gRPC. What fails leaves the session to the
// caller.
static td_status open_relay(struct entry *e, struct td_tls_session *session) {
    struct td_front *f = e->front;
    const struct td_relay_options relay = {.scratch = f->scratch,
                                           .first_request_ns = f->o.first_request_ns,
                                           .stall_ns = f->o.stall_ns,
                                           .on_cut = on_relay_cut,
                                           .on_end = on_relay_end,
                                           .may_read = may_read,
                                           .owner = e,
                                           .take_tls = session};
    TD_TRY(td_relay_create(f->loop, &relay, e->client_fd, e->pair_fd, &e->relay));
    e->client_fd = e->pair_fd = -1;
    e->handed_over = true;
    if (f->letting_go) td_relay_let_go(e->relay);
    f->o.hand_over(e->number, f->o.ctx);
    return TD_OK;
}

static void refuse_hello(struct entry *e, td_status take_why) {
    const char *reason = td_status_reason(take_why), *why = td_status_message(take_why);
    if (strcmp(reason, "TLS_CLOSED") == 0) { // as any port scan does
        td_log_debug("connection ended peer=%s: %s", e->name, why);
    } else {
        bool late = strcmp(reason, "HANDSHAKE_LATE") == 0;
        td_notify_home(e->front->notices,
                       late ? TD_NOTICE_HANDSHAKE_LATE : TD_NOTICE_HANDSHAKE_FAILED,
                       "connection refused peer=%s: %s", e->name, why);
    }
    td_status_free(take_why);
    struct td_front *f = e->front;
    drop(e);
    if (f->waiting_fd >= 0 || !f->watch) watch_listener(f, true);
}

static void on_hello(td_status take_failed, struct td_tls_session *take_session, void *owner) {
    struct entry *e = TD_CAST(entry, owner);
    struct td_certificate c;
    if (!take_failed) {
        td_hello_destroy(td_steal(e->hello));
        if (td_tls_session_peer(take_session, &c)) {
            struct td_peer_identity identity;
            snprintf(identity.name, sizeof identity.name, "%s", c.name);
            snprintf(identity.serial, sizeof identity.serial, "%s", c.serial);
            identity.valid_until_s = c.valid_until_s;
            td_peers_identify(e->front->peers, e->number, &identity);
        }
        take_failed = open_relay(e, take_session);
        if (take_failed) td_tls_session_destroy(take_session);
    }
    if (take_failed) refuse_hello(e, take_failed);
}

static td_status open_hello(struct entry *e) {
    struct td_front *f = e->front;
    td_front_tls_refresh(&f->tls, f->notices);
    const struct td_hello_options hello = {
        .deadline_ns = f->o.handshake_ns, .on_done = on_hello, .owner = e};
    return td_hello_create(f->loop, f->tls.context, e->client_fd, &hello, &e->hello);
}

static td_status list_entry(struct td_front *f, struct entry *e, const struct td_source *source,
                            int take_fd, const char *name) {
    TD_TRY(td_peer_slots_add(&f->places, source, e, &e->place));
    td_status failed = td_peers_take(f->peers, take_fd, name, &e->number);
    if (failed) td_peer_slots_remove(&f->places, &e->place);
    return failed;
}

// Makes the entry and its pair, and lists it; gRPC has nothing of it yet. What fails leaves
// client_fd to the caller.
static td_status make_entry(struct td_front *f, int client_fd, const char *name,
                            const struct td_source *source, struct entry **out_entry) {
    int pair[2];
    TD_AUTO_FREE struct entry *e = td_calloc(1, sizeof *e);
    if (!e) return td_fail_oom();
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) {
        return td_fail_errno(TD_RESOURCE_EXHAUSTED, "make a pair of sockets");
    }
    ask_for_room(pair[0]);
    ask_for_room(pair[1]);
    e->magic = entry_magic;
    e->front = f;
    e->client_fd = client_fd;
    e->pair_fd = pair[0];
    snprintf(e->name, sizeof e->name, "%s", name);
    td_status failed = list_entry(f, e, source, pair[1], name);
    if (failed) {
        close(pair[0]);
        close(pair[1]);
        return failed;
    }
    *out_entry = td_steal(e);
    return TD_OK;
}

static void fail_to_take(struct td_front *f, const char *name, td_status take_why) {
    td_notify_home(f->notices, TD_NOTICE_NO_DESCRIPTORS,
                   "connection refused peer=%s: %s; raise the limit of descriptors", name,
                   td_status_message(take_why));
    td_status_free(take_why);
}

// False: it waits for a number.
static bool take_in(struct td_front *f, int client_fd, const struct sockaddr_storage *peer) {
    char name[TD_PEER_NAME_BYTES];
    struct td_source source = td_source_of(peer);
    td_source_name(peer, name);
    const char *why = admit(f, &source);
    if (why) {
        refuse(f, client_fd, name, why);
        return true;
    }
    struct entry *e = NULL;
    td_status failed = make_entry(f, client_fd, name, &source, &e);
    if (td_status_code(failed) == TD_UNAVAILABLE) {
        td_status_free(failed);
        f->waiting_fd = client_fd;
        f->waiting_peer = *peer;
        td_loop_timer_arm(f->retry, retry_ns); // gRPC may close a number without a word here
        return false;
    }
    if (failed) {
        close(client_fd);
        fail_to_take(f, name, failed);
        return true;
    }
    failed = f->tls.context ? open_hello(e) : open_relay(e, NULL);
    if (failed) {
        fail_to_take(f, name, failed);
        drop(e);
    }
    return true;
}

static void on_connection(int fd, void *arg) {
    (void)fd;
    struct td_front *f = TD_CAST(td_front, arg);
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        int client_fd;
        struct sockaddr_storage peer;
        enum td_accept got = td_listener_accept(&f->listener, &client_fd, &peer);
        if (got == TD_ACCEPT_NONE) return;
        if (got == TD_ACCEPT_SHED) {
            td_notify_home(
                f->notices, TD_NOTICE_NO_DESCRIPTORS,
                "connection refused: this process has no descriptor left; raise its limit "
                "(ulimit -n, LimitNOFILE=)");
            struct td_peer_slots_count c = td_peer_slots_count(&f->places, NULL);
            if (c.oldest_of_most) replace(f, c.oldest_of_most);
            continue;
        }
        bool waits = got == TD_ACCEPT_STUCK || !take_in(f, client_fd, &peer);
        if (!waits) continue;
        watch_listener(f, false);
        if (got == TD_ACCEPT_STUCK) td_loop_timer_arm(f->retry, retry_ns);
        return;
    }
}

// Who waits for a number comes first.
static void watch_listener(struct td_front *f, bool on) {
    if (!on || f->listener.fd < 0) {
        td_loop_fd_destroy(td_steal(f->watch));
        return;
    }
    if (f->waiting_fd >= 0) {
        int fd = td_steal_fd(&f->waiting_fd);
        struct sockaddr_storage peer = f->waiting_peer;
        if (!take_in(f, fd, &peer)) return;
    }
    if (f->watch) return;
    td_status failed = td_loop_fd_create(f->loop, f->listener.fd, 0, on_connection, f, &f->watch);
    if (!failed) return;
    td_status_free(failed);
    td_loop_timer_arm(f->retry, retry_ns);
}

static void on_retry(void *arg) {
    watch_listener(TD_CAST(td_front, arg), true);
}

// ---- the thread ---------------------------------------------------------------------------------
static void close_listener(struct td_front *f) {
    td_loop_timer_disarm(f->retry);
    watch_listener(f, false);
    td_listener_finish(&f->listener);
    if (f->waiting_fd >= 0) close(td_steal_fd(&f->waiting_fd));
    for (struct td_peer_slot *at = f->places.first, *next; at; at = next) {
        struct entry *e = TD_CAST(entry, at->owner);
        next = at->next;
        if (e->hello) drop(e); // gRPC takes no more
    }
}

static void on_wake(void *arg) {
    struct td_front *f = TD_CAST(td_front, arg);
    if (atomic_load(&f->stop_listening)) close_listener(f);
    if (atomic_load(&f->let_go) && !f->letting_go) {
        f->letting_go = true;
        for (const struct td_peer_slot *at = f->places.first; at; at = at->next) {
            const struct entry *e = TD_CAST(entry, at->owner);
            if (e->relay) td_relay_let_go(e->relay);
        }
    }
    if (f->listener.fd >= 0) watch_listener(f, true); // a fence has passed
}

static void finish_loop(struct td_front *f) {
    if (!f->loop) return;
    if (f->retry) close_listener(f);
    while (f->places.first) {
        forget(TD_CAST(entry, f->places.first->owner));
    }
    td_loop_timer_destroy(td_steal(f->retry));
    td_loop_wakeup_destroy(td_steal(f->wake));
}

static void *run_thread(void *arg) {
    struct td_front *f = TD_CAST(td_front, arg);
    td_status failed = td_loop_run(f->loop);
    if (failed) {
        td_notify_home(f->notices, TD_NOTICE_LOOP_FAILED,
                       "connections are not served any more: %s; restart the daemon",
                       td_status_message(failed));
    }
    td_status_free(failed);
    finish_loop(f); // here, because its owner is this thread
    return NULL;
}

td_status td_front_start(struct td_front *f) {
    TD_CHECK(!f->started);
    watch_listener(f, true);
    sigset_t all, before; // signals belong to the home loop
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int err = pthread_create(&f->thread, NULL, run_thread, f);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = err;
    if (err) return td_fail_errno(TD_RESOURCE_EXHAUSTED, "start the thread of connections");
    f->started = true;
    return TD_OK;
}

// ---- life ---------------------------------------------------------------------------------------
static void on_fenced(void *ctx) {
    struct td_front *f = TD_CAST(td_front, ctx);
    td_loop_wakeup_send(f->wake);
}

td_status td_front_create(struct td_loop *home, const struct td_front_options *o,
                          struct td_front **out_front) {
    TD_AUTO(td_front) *self = td_calloc(1, sizeof *self);
    if (!self) return td_fail_oom();
    self->magic = td_front_magic;
    self->o = *o;
    self->o.listen = NULL;
    self->o.tls = NULL;
    self->o.guests = NULL;
    self->home = home;
    self->listener.fd = self->listener.spare_fd = self->waiting_fd = -1;
    self->places.kind_of = kind_of;
    TD_TRY(td_listener_open(o->listen, &self->listener));
    self->tls.told_days = INT64_MAX;
    if (!self->listener.is_loopback) {
        TD_TRY(td_front_tls_init(&self->tls, o->listen, o->tls, o->guests));
    }
    memcpy(self->address, self->listener.address, sizeof self->address);
    self->scratch = malloc(TD_RELAY_SCRATCH);
    if (!self->scratch) return td_fail_oom();
    const struct td_peers_options peers = {.n_wanted = o->max_connections,
                                           .n_apart = o->max_apart,
                                           .max_waiting = o->max_streams,
                                           .on_fenced = on_fenced,
                                           .ctx = self};
    TD_TRY(td_notices_create(home, on_notice, self, &self->notices));
    TD_TRY(td_peers_create(home, &peers, &self->peers));
    TD_TRY(td_loop_create(&self->loop));
    TD_TRY(td_loop_timer_create(self->loop, on_retry, self, &self->retry));
    TD_TRY(td_loop_wakeup_create(self->loop, on_wake, self, &self->wake));
    uint32_t capacity = td_peers_capacity(self->peers),
             apart = td_peers_capacity_apart(self->peers);
    if (capacity < o->max_connections || apart < o->max_apart) {
        td_notify_home(self->notices, TD_NOTICE_NO_DESCRIPTORS,
                       "at most %" PRIu32 " of %" PRIu32 " connections fit, and %" PRIu32
                       " of %" PRIu32
                       " of nodes: the limit of descriptors (ulimit -n, LimitNOFILE=) is low",
                       capacity, o->max_connections, apart, o->max_apart);
    }
    td_front_tls_warn(&self->tls, self->notices);
    self->o.max_connections = TD_MIN(o->max_connections, capacity);
    // Strangers must never fill the house.
    self->o.max_strangers = TD_MIN(o->max_strangers, TD_MAX(self->o.max_connections / 2, 1U));
    *out_front = td_steal(self);
    return TD_OK;
}

void td_front_destroy(struct td_front *f) {
    if (!f) return;
    if (f->started) {
        td_loop_stop(f->loop);
        TD_CHECK(td_clock_join(f->thread, JOIN_MS)); // it waits for nothing
    } else {
        finish_loop(f);
    }
    td_listener_finish(&f->listener); // half-built
    td_loop_destroy(f->loop);
    td_front_tls_finish(&f->tls);
    td_notices_destroy(f->notices);
    td_peers_destroy(f->peers);
    free(f->scratch);
    f->magic = 0;
    free(f);
}

const char *td_front_address(const struct td_front *f) {
    return f->address;
}

bool td_front_has_tls(const struct td_front *f) {
    return f->tls.context;
}

int64_t td_front_certificate_until_s(const struct td_front *f) {
    return atomic_load(&f->tls.until_s);
}

struct td_rpc_connections td_front_counts(const struct td_front *f) {
    return (struct td_rpc_connections){
        .handshakes_failed = td_notices_total(f->notices, TD_NOTICE_HANDSHAKE_FAILED),
        .handshakes_late = td_notices_total(f->notices, TD_NOTICE_HANDSHAKE_LATE),
        .refused = td_notices_total(f->notices, TD_NOTICE_REFUSED),
        .replaced = td_notices_total(f->notices, TD_NOTICE_REPLACED),
        .cut = td_notices_total(f->notices, TD_NOTICE_CUT)};
}

struct td_peers *td_front_borrow_peers(struct td_front *f) {
    return f->peers;
}

void td_front_stop_listening(struct td_front *f) {
    atomic_store(&f->stop_listening, true);
    td_loop_wakeup_send(f->wake);
}

void td_front_let_go(struct td_front *f) {
    atomic_store(&f->let_go, true);
    td_loop_wakeup_send(f->wake);
}
