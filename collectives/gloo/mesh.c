// Connections between nodes, authenticated by tokens of the store (see mesh.h).

#include "collectives/gloo/mesh.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "collectives/gloo/wire.h"
#include "lib/base/clip.h"
#include "lib/base/clock.h"
#include "lib/base/rng.h"

enum { GUESTS_MAX = 16, BACKLOG = 64, RETRY_MS = 20 };
#define SLICE_NS    (50 * TD_NS_PER_MS)
#define STORE_NS    (500 * TD_NS_PER_MS)
#define GREETING_NS (5 * TD_NS_PER_S)

// Somebody who connected and did not greet yet.
struct guest {
    int fd; // -1: none
    size_t have;
    int64_t deadline_ns;
    struct sockaddr_storage from;
    struct td_wire_greeting greeting;
};

struct td_mesh {
    struct td_mesh_config config;
    int listener;
    struct sockaddr_storage address;
    socklen_t address_bytes;
    struct guest guests[GUESTS_MAX];
    uint64_t n_strangers;          // that were dropped
    bool gave_way;                 // one of them, to others
    struct sockaddr_storage first; // of them
    struct td_wire_record nodes[]; // (n_nodes); those that were read have a family
};

const char *td_mesh_node(const struct td_mesh_config *c, int32_t node,
                         char out[TD_MESH_NODE_TEXT]) {
    const char *name = c->names ? c->names[node] : "";
    snprintf(out, TD_MESH_NODE_TEXT, *name ? "%d (%s)" : "%d%s", node, name);
    return out;
}

// ---- small helpers ------------------------------------------------------------------------------
static bool same_token(const uint8_t *a, const uint8_t *b) {
    uint8_t differs = 0;
    for (int i = 0; i < TD_WIRE_TOKEN_BYTES; i++) {
        differs |= a[i] ^ b[i];
    }
    return !differs;
}

static td_status check_going(const struct td_mesh *m) {
    if (!m->config.aborted || !m->config.aborted(m->config.aborted_arg)) return TD_OK;
    return td_fail(TD_ABORTED, "a peer is gone, the attempt is over");
}

// Nodes that did not come, and their ranks.
struct missing {
    uint32_t n;
    char nodes[512], ranks[256];
    struct td_clip_list node_list, rank_list;
};

static void init_missing(struct missing *w) {
    w->n = 0;
    td_clip_list_init(&w->node_list, w->nodes, sizeof w->nodes, ", ");
    td_clip_list_init(&w->rank_list, w->ranks, sizeof w->ranks, ", ");
}

// Of one that left nothing in the store, ranks are as many as on this node: nodes are alike.
static void add_missing(const struct td_mesh *m, struct missing *w, int32_t node) {
    char name[TD_MESH_NODE_TEXT];
    const struct td_wire_record *r = &m->nodes[node];
    const int32_t n = r->family ? r->n_ranks : m->config.n_ranks;
    const int32_t first = r->family ? r->first_rank : node * n;
    w->n++;
    td_clip_list_add(&w->node_list, "%s", td_mesh_node(&m->config, node, name));
    if (n == 1) td_clip_list_add(&w->rank_list, "%d", first);
    if (n > 1) td_clip_list_add(&w->rank_list, "%d to %d", first, first + n - 1);
}

static td_status fail_missing(const struct td_mesh *m, const struct missing *w, const char *why) {
    const bool is_one = w->n == 1 && m->config.n_ranks == 1;
    return td_status_with_meta(
        td_fail(TD_DEADLINE_EXCEEDED,
                "node %s of %d did not come in time (%s), with rank%s %s; see its log, and check "
                "that the nodes reach each other at the address of the interface",
                w->nodes, m->config.n_nodes, why, is_one ? "" : "s", w->ranks),
        "missing_nodes", "%s", w->nodes);
}

static td_status fail_without(const struct td_mesh *m, int32_t node, const char *why) {
    struct missing w;
    init_missing(&w);
    add_missing(m, &w, node);
    return fail_missing(m, &w, why);
}

// Waits for events of a few descriptors until the deadline; out_ready is false once it has passed.
static td_status wait_some(const struct td_mesh *m, struct pollfd *fds, nfds_t n,
                           int64_t deadline_ns, bool *out_ready) {
    for (;;) {
        TD_TRY(check_going(m));
        const int64_t left = deadline_ns - td_mono_now().ns;
        const int64_t slice = TD_MIN(TD_MAX(left, (int64_t)0), (int64_t)SLICE_NS);
        const int ready = poll(fds, n, (int)((slice + TD_NS_PER_MS - 1) / TD_NS_PER_MS));
        if (ready < 0 && errno != EINTR) return td_fail_errno(TD_INTERNAL, "poll");
        *out_ready = ready > 0;
        if (ready > 0 || left <= 0) return TD_OK;
    }
}

static void key_of(const struct td_mesh *m, int32_t node, char out[TD_WIRE_KEY_BYTES]) {
    td_wire_key(m->config.attempt, m->config.group, node, out);
}

// ---- the store ----------------------------------------------------------------------------------
static td_status read_node(struct td_mesh *m, int32_t node, int64_t deadline_ns) {
    char key[TD_WIRE_KEY_BYTES];
    struct td_wire_record *r = &m->nodes[node];
    size_t bytes = 0;
    if (r->family) return TD_OK;
    key_of(m, node, key);
    for (;;) {
        TD_TRY(check_going(m));
        const int64_t left = deadline_ns - td_mono_now().ns;
        struct td_wire_record found;
        td_status s = m->config.store->get(m->config.store, key,
                                           TD_MIN(TD_MAX(left, (int64_t)1), (int64_t)STORE_NS),
                                           &found, sizeof found, &bytes);
        if (!s) {
            *r = found;
            break;
        }
        if (td_status_code(s) != TD_DEADLINE_EXCEEDED) return s;
        td_status_free(s);
        if (left <= 0) {
            return fail_without(m, node, "its address is not in the store");
        }
    }
    if (bytes == sizeof *r && memcmp(r->magic, td_wire_record_magic, sizeof r->magic) == 0 &&
        r->family == m->address.ss_family) {
        return TD_OK;
    }
    r->family = 0;
    return td_fail(TD_FAILED_PRECONDITION,
                   "node %d left an address that this node cannot use (%zu bytes); all nodes need "
                   "the same traind, and addresses of one family",
                   node, bytes);
}

static td_status leave_address(struct td_mesh *m) {
    char key[TD_WIRE_KEY_BYTES];
    struct td_wire_record *own = &m->nodes[m->config.node];
    memcpy(own->magic, td_wire_record_magic, sizeof own->magic);
    own->family = m->address.ss_family;
    own->first_rank = m->config.first_rank;
    own->n_ranks = m->config.n_ranks;
    td_random_bytes(own->token, sizeof own->token);
    struct sockaddr_storage bound;
    socklen_t bytes = sizeof bound;
    if (getsockname(m->listener, (struct sockaddr *)&bound, &bytes) < 0) {
        return td_fail_errno(TD_INTERNAL, "the port of this node");
    }
    if (bound.ss_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, &bound, sizeof in);
        own->port = in.sin_port;
        memcpy(own->address, &in.sin_addr, sizeof in.sin_addr);
    } else {
        struct sockaddr_in6 in;
        memcpy(&in, &bound, sizeof in);
        own->port = in.sin6_port;
        memcpy(own->address, &in.sin6_addr, sizeof in.sin6_addr);
    }
    key_of(m, m->config.node, key);
    return m->config.store->set(m->config.store, key, own, sizeof *own);
}

static socklen_t address_of(const struct td_mesh *m, int32_t node, struct sockaddr_storage *out) {
    const struct td_wire_record *r = &m->nodes[node];
    memset(out, 0, sizeof *out);
    if (r->family == AF_INET) {
        struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = (in_port_t)r->port};
        memcpy(&in.sin_addr, r->address, sizeof in.sin_addr);
        memcpy(out, &in, sizeof in);
        return sizeof in;
    }
    struct sockaddr_in6 in, own; // a link's address is one on the same link
    memcpy(&own, &m->address, sizeof own);
    in = (struct sockaddr_in6){.sin6_family = AF_INET6,
                               .sin6_port = (in_port_t)r->port,
                               .sin6_scope_id = own.sin6_scope_id};
    memcpy(&in.sin6_addr, r->address, sizeof in.sin6_addr);
    memcpy(out, &in, sizeof in);
    return sizeof in;
}

// The kernel asks the other machine twice a link timeout and oftener, also while nothing is sent.
static td_status watch_link(const struct td_mesh *m, int fd) {
    const int64_t limit = m->config.link_timeout_ns;
    const int64_t ns = limit ? limit : (int64_t)TD_MESH_LINK_NS;
    const int on = 1, idle_s = (int)TD_MAX(ns / 4 / TD_NS_PER_S, (int64_t)1);
    const int each_s = (int)TD_MAX(ns / 8 / TD_NS_PER_S, (int64_t)1);
    const unsigned ms = (unsigned)TD_MAX(ns / TD_NS_PER_MS, (int64_t)1);
    if (setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on) < 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s) < 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &each_s, sizeof each_s) < 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms) < 0) {
        return td_fail_errno(TD_INTERNAL, "the link timeout of a connection between nodes");
    }
    return TD_OK;
}

// ---- listening ----------------------------------------------------------------------------------
static td_status open_socket(const struct td_mesh *m, int *out_fd) {
    TD_AUTO_CLOSE int fd =
        socket(m->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return td_fail_errno(TD_RESOURCE_EXHAUSTED, "a socket between nodes");
    if (bind(fd, (const struct sockaddr *)&m->address, m->address_bytes) < 0) {
        return td_fail_errno(TD_FAILED_PRECONDITION,
                             "bind to the interface address '%s'; name an address that this node "
                             "has",
                             m->config.address);
    }
    *out_fd = td_steal_fd(&fd);
    return TD_OK;
}

static td_status read_address(struct td_mesh *m) {
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    const char *text = m->config.address ? m->config.address : "";
    const int error = getaddrinfo(text, NULL, &hints, &found);
    if (error || (found->ai_family != AF_INET && found->ai_family != AF_INET6)) {
        if (!error) freeaddrinfo(found);
        return td_fail(TD_INVALID_ARGUMENT,
                       "the interface address '%s' is not a numeric address; ranks of several "
                       "nodes need the one that traffic between nodes takes",
                       text);
    }
    memcpy(&m->address, found->ai_addr, found->ai_addrlen);
    m->address_bytes = found->ai_addrlen;
    freeaddrinfo(found);
    return TD_OK;
}

td_status td_mesh_create(const struct td_mesh_config *config, struct td_mesh **out_m) {
    TD_AUTO(td_mesh) *m =
        td_calloc(1, sizeof *m + (size_t)config->n_nodes * sizeof(struct td_wire_record));
    if (!m) return td_fail_oom();
    m->config = *config;
    m->listener = -1;
    for (int i = 0; i < GUESTS_MAX; i++) {
        m->guests[i].fd = -1;
    }
    TD_TRY(read_address(m));
    TD_TRY(open_socket(m, &m->listener));
    if (listen(m->listener, BACKLOG) < 0) return td_fail_errno(TD_INTERNAL, "listen for nodes");
    TD_TRY(leave_address(m));
    *out_m = td_steal(m);
    return TD_OK;
}

// A stranger. One that has to give way to others may be a node, which comes again.
static void drop_guest(struct td_mesh *m, struct guest *g) {
    if (g->fd < 0) return;
    close(g->fd);
    g->fd = -1;
    if (!m->n_strangers++) m->first = g->from;
}

static void say_strangers(const struct td_mesh *m) {
    char host[INET6_ADDRSTRLEN] = "?", port[8] = "?", name[TD_MESH_NODE_TEXT], text[384];
    if (!m->n_strangers || !m->config.note) return;
    (void)getnameinfo((const struct sockaddr *)&m->first, sizeof m->first, host, sizeof host, port,
                      sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(text, sizeof text,
             "node %s dropped %" PRIu64 " connection%s of strangers to %s, where it waited for the "
             "other nodes; the first came from %s, port %s%s",
             td_mesh_node(&m->config, m->config.node, name), m->n_strangers,
             m->n_strangers == 1 ? "" : "s", m->config.address, host, port,
             m->gave_way ? "; nodes that had to come again may be among them" : "");
    m->config.note(m->config.note_arg, text);
}

static void stop_listening(struct td_mesh *m) {
    for (int i = 0; i < GUESTS_MAX; i++) {
        drop_guest(m, &m->guests[i]);
    }
    if (m->listener >= 0) close(m->listener);
    m->listener = -1;
}

void td_mesh_destroy(struct td_mesh *m) {
    if (!m) return;
    stop_listening(m);
    free(m);
}

// A place for a new one: a free one, else that of the oldest.
static struct guest *guest_place(struct td_mesh *m) {
    struct guest *oldest = &m->guests[0];
    for (int i = 0; i < GUESTS_MAX; i++) {
        struct guest *g = &m->guests[i];
        if (g->fd < 0) return g;
        if (g->deadline_ns < oldest->deadline_ns) oldest = g;
    }
    drop_guest(m, oldest);
    m->gave_way = true;
    return oldest;
}

static void take_guests(struct td_mesh *m) {
    for (int i = 0; i < GUESTS_MAX; i++) {
        struct guest g = {.deadline_ns = td_mono_now().ns + GREETING_NS};
        socklen_t bytes = sizeof g.from;
        g.fd =
            accept4(m->listener, (struct sockaddr *)&g.from, &bytes, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (g.fd < 0) return; // none left; one that is gone again is no error of ours
        *guest_place(m) = g;
    }
}

static void answer(const struct td_mesh *m, int fd, int32_t to) {
    struct td_wire_greeting back = {.from = m->config.node, .to = to};
    memcpy(back.magic, td_wire_greeting_magic, sizeof back.magic);
    memcpy(back.token, m->nodes[to].token, sizeof back.token);
    // 48 bytes always fit an empty socket. One that fails is found by who reads it.
    (void)!send(fd, &back, sizeof back, MSG_NOSIGNAL);
}

// A node of the attempt that is not connected yet, by what the guest sent.
static bool is_expected(const struct td_mesh *m, const struct td_wire_greeting *g, const int *fds) {
    const struct td_mesh_config *c = &m->config;
    return memcmp(g->magic, td_wire_greeting_magic, sizeof g->magic) == 0 && g->to == c->node &&
           g->from > c->node && g->from < c->n_nodes && fds[g->from] < 0 &&
           same_token(g->token, m->nodes[c->node].token);
}

static td_status read_guest(struct td_mesh *m, struct guest *g, int64_t deadline_ns, int *fds) {
    const ssize_t n = recv(g->fd, (char *)&g->greeting + g->have, sizeof g->greeting - g->have, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return TD_OK;
    if (n > 0) g->have += (size_t)n;
    if (n > 0 && g->have < sizeof g->greeting) return TD_OK;
    const int32_t from = g->greeting.from;
    if (n <= 0 || !is_expected(m, &g->greeting, fds)) {
        drop_guest(m, g);
        return TD_OK;
    }
    TD_TRY(read_node(m, from, deadline_ns));
    TD_TRY(watch_link(m, g->fd));
    answer(m, g->fd, from);
    fds[from] = td_steal_fd(&g->fd);
    return TD_OK;
}

static td_status look_at_guests(struct td_mesh *m, int64_t deadline_ns, int *fds, bool *out_late) {
    struct pollfd polled[GUESTS_MAX + 1] = {{.fd = m->listener, .events = POLLIN}};
    int64_t until = deadline_ns;
    bool ready;
    for (int i = 0; i < GUESTS_MAX; i++) {
        polled[i + 1] = (struct pollfd){.fd = m->guests[i].fd, .events = POLLIN};
        if (m->guests[i].fd >= 0) until = TD_MIN(until, m->guests[i].deadline_ns);
    }
    TD_TRY(wait_some(m, polled, GUESTS_MAX + 1, until, &ready));
    const int64_t now = td_mono_now().ns;
    for (int i = 0; i < GUESTS_MAX; i++) {
        struct guest *g = &m->guests[i];
        if (polled[i + 1].revents) TD_TRY(read_guest(m, g, deadline_ns, fds));
        if (g->fd >= 0 && now >= g->deadline_ns) drop_guest(m, g);
    }
    if (polled[0].revents) take_guests(m);
    *out_late = now >= deadline_ns;
    return TD_OK;
}

static td_status accept_nodes(struct td_mesh *m, int64_t deadline_ns, int *fds) {
    for (bool is_late = false;;) {
        struct missing w;
        init_missing(&w);
        for (int32_t p = m->config.node + 1; p < m->config.n_nodes; p++) {
            if (fds[p] < 0) add_missing(m, &w, p);
        }
        if (!w.n) return TD_OK;
        if (is_late) return fail_missing(m, &w, "it did not connect");
        TD_TRY(look_at_guests(m, deadline_ns, fds, &is_late));
    }
}

// ---- connecting ---------------------------------------------------------------------------------
// One try. out_fd stays -1 where the other end is not there, or went again; out_why says why.
static td_status dial(struct td_mesh *m, int32_t node, int64_t deadline_ns, int *out_fd,
                      const char **out_why) {
    TD_AUTO_CLOSE int fd = -1;
    struct sockaddr_storage to;
    const socklen_t bytes = address_of(m, node, &to);
    bool ready;
    TD_TRY(open_socket(m, &fd));
    if (connect(fd, (const struct sockaddr *)&to, bytes) < 0 && errno != EINPROGRESS) {
        *out_why = strerror(errno);
        return TD_OK;
    }
    struct pollfd polled = {.fd = fd, .events = POLLOUT};
    TD_TRY(wait_some(m, &polled, 1, deadline_ns, &ready));
    int error = ready ? 0 : ETIMEDOUT;
    socklen_t size = sizeof error;
    if (ready) (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error) {
        *out_why = strerror(error);
        return TD_OK;
    }
    struct td_wire_greeting out = {.from = m->config.node, .to = node}, back;
    memcpy(out.magic, td_wire_greeting_magic, sizeof out.magic);
    memcpy(out.token, m->nodes[node].token, sizeof out.token);
    if (send(fd, &out, sizeof out, MSG_NOSIGNAL) != (ssize_t)sizeof out) {
        *out_why = strerror(errno);
        return TD_OK;
    }
    polled.events = POLLIN;
    for (size_t have = 0; have < sizeof back;) {
        TD_TRY(wait_some(m, &polled, 1, deadline_ns, &ready));
        const ssize_t n = ready ? recv(fd, (char *)&back + have, sizeof back - have, 0) : 0;
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        *out_why = !ready  ? "it takes the connection and does not answer"
                   : n < 0 ? strerror(errno)
                           : "it closes the connection";
        if (n <= 0) return TD_OK;
        have += (size_t)n;
    }
    const bool knows = memcmp(back.magic, td_wire_greeting_magic, sizeof back.magic) == 0 &&
                       back.from == node && back.to == m->config.node &&
                       same_token(back.token, m->nodes[m->config.node].token);
    *out_why = "what answers at its address is not the node";
    if (knows) TD_TRY(watch_link(m, fd));
    if (knows) *out_fd = td_steal_fd(&fd);
    return TD_OK;
}

static td_status connect_to(struct td_mesh *m, int32_t node, int64_t deadline_ns, int *out_fd) {
    TD_TRY(read_node(m, node, deadline_ns));
    for (;;) {
        const char *why = "";
        TD_TRY(dial(m, node, deadline_ns, out_fd, &why));
        if (*out_fd >= 0) return TD_OK;
        if (td_mono_now().ns >= deadline_ns) return fail_without(m, node, why);
        (void)poll(NULL, 0, RETRY_MS); // the next try
    }
}

td_status td_mesh_connect(struct td_mesh *m, int64_t deadline_ns, int *out_fds,
                          struct td_mesh_place *out_places) {
    td_status s = TD_OK;
    for (int32_t p = 0; p < m->config.n_nodes; p++) {
        out_fds[p] = -1;
    }
    for (int32_t p = 0; !s && p < m->config.node; p++) {
        s = connect_to(m, p, deadline_ns, &out_fds[p]);
    }
    if (!s) s = accept_nodes(m, deadline_ns, out_fds);
    stop_listening(m);
    say_strangers(m);
    for (int32_t p = 0; p < m->config.n_nodes; p++) {
        if (!s) out_places[p] = (struct td_mesh_place){m->nodes[p].first_rank, m->nodes[p].n_ranks};
        if (!s || out_fds[p] < 0) continue;
        close(out_fds[p]);
        out_fds[p] = -1;
    }
    return s;
}
