// Slices over libgloo (collectives/gloo/gloo.h) between two nodes of this process. A
// relay is the network between: it lets through what a test allows, in pieces of a size that it
// chooses. Without libgloo: skipped.

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "collectives/gloo/gloo.h"
#include "lib/base/clock.h"
#include "lib/base/machine/machine.h"

#ifdef TD_HAS_GLOO
enum { PIECE_MAX = 1 << 19 };

// ---- the network --------------------------------------------------------------------------------
struct relay {
    int fd[2];               // to node 0, to node 1
    const size_t *pieces;    // from node 1 at a time, over and over; 0 ends them
    _Atomic size_t may_pass; // bytes from node 1 in all
    _Atomic bool hangs_up;   // once they have passed
    _Atomic bool stops;
    pthread_t thread;
};

static size_t pass(int from, int to, size_t most) {
    static char buffer[PIECE_MAX];
    const ssize_t n = recv(from, buffer, TD_MIN(most, sizeof buffer), MSG_DONTWAIT);
    for (ssize_t sent = 0; sent < n;) {
        const ssize_t k = send(to, buffer + sent, (size_t)(n - sent), MSG_NOSIGNAL);
        if (k <= 0) return (size_t)n;
        sent += k;
    }
    return n > 0 ? (size_t)n : 0;
}

static void *relay(void *arg) {
    struct relay *r = arg;
    size_t passed = 0, piece = 0;
    while (!atomic_load(&r->stops)) {
        const size_t left = atomic_load(&r->may_pass) - passed;
        struct pollfd polled[] = {{r->fd[0], POLLIN, 0}, {left ? r->fd[1] : -1, POLLIN, 0}};
        if (!left && atomic_load(&r->hangs_up)) {
            shutdown(r->fd[0], SHUT_RDWR);
            return NULL;
        }
        if (poll(polled, 2, 1) <= 0) continue;
        if (polled[0].revents) (void)pass(r->fd[0], r->fd[1], PIECE_MAX);
        if (!polled[1].revents) continue;
        passed += pass(r->fd[1], r->fd[0], TD_MIN(left, r->pieces[piece]));
        piece = r->pieces[piece + 1] ? piece + 1 : 0;
    }
    return NULL;
}

// A connection of TCP, which alone has the mark that the kernel waits for.
static void connect_pair(int *out_near, int *out_far) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    const int on = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &bytes), 0);
    *out_near = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(*out_near, (struct sockaddr *)&at, sizeof at), 0);
    *out_far = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(*out_far >= 0);
    setsockopt(*out_far, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    close(listener);
}

// ---- two nodes ----------------------------------------------------------------------------------
struct two_nodes {
    struct relay relay;
    struct td_gloo *node[2];
    uint64_t tag;
};

static void start(struct two_nodes *n, const size_t *pieces, size_t may_pass) {
    *n = (struct two_nodes){.relay.pieces = pieces};
    atomic_init(&n->relay.may_pass, may_pass);
    for (int i = 0; i < 2; i++) {
        int fds[] = {-1, -1};
        connect_pair(&fds[1 - i], &n->relay.fd[i]);
        const struct td_gloo_config config = {.node = i, .n_nodes = 2};
        assert_null(td_gloo_create(&config, fds, &n->node[i]));
    }
    assert_int_equal(pthread_create(&n->relay.thread, NULL, relay, &n->relay), 0);
}

static void finish(struct two_nodes *n) {
    atomic_store(&n->relay.stops, true);
    pthread_join(n->relay.thread, NULL);
    for (int i = 0; i < 2; i++) {
        close(n->relay.fd[i]);
        td_gloo_destroy(n->node[i]);
    }
}

// A slice from node 1 to node 0. Returns what node 0 says of it.
static td_status send_slice(struct two_nodes *n, char *from, char *to, size_t bytes,
                            int64_t timeout_ns) {
    struct td_gloo_slice none[2] = {{NULL, 0}}, out[2] = {{from, bytes}}, in[2] = {{NULL, 0}};
    struct td_gloo_round *sends, *takes;
    in[1] = (struct td_gloo_slice){to, bytes};
    assert_null(td_gloo_begin(n->node[1], ++n->tag, out, none, &sends));
    assert_null(td_gloo_begin(n->node[0], n->tag, none, in, &takes));
    td_status s = td_gloo_end(n->node[0], takes, td_mono_now().ns + timeout_ns);
    if (s) {
        td_gloo_drop(sends);
    } else {
        assert_null(td_gloo_end(n->node[1], sends, td_mono_now().ns + timeout_ns));
    }
    return s;
}

// ---- tests --------------------------------------------------------------------------------------
enum { LARGEST = (1 << 20) + 13 };
static char sent[LARGEST], taken[LARGEST];

static void test_slices_of_any_size_come_whole_in_pieces_of_any_size(void **state) {
    enum { AT_ONCE = 5 << 15, HEAD = 48 }; // of gloo.cc, and of what libgloo puts before a slice
    static const size_t cuts[][8] = {
        {PIECE_MAX}, {1400}, {65483}, {1, 47, 48, 49, 4096, AT_ONCE, AT_ONCE - 1}};
    static const size_t sizes[] = {1,           8,           AT_ONCE - HEAD, AT_ONCE - 1,
                                   AT_ONCE,     AT_ONCE + 1, AT_ONCE + HEAD, 2 * AT_ONCE,
                                   AT_ONCE * 3, 1 << 20,     LARGEST};
    (void)state;
    for (size_t c = 0; c < TD_COUNTOF(cuts); c++) {
        struct two_nodes n;
        start(&n, cuts[c], SIZE_MAX);
        for (size_t i = 0; i < 2 * TD_COUNTOF(sizes); i++) {
            const size_t bytes = i & 1 ? 1 : sizes[i / 2]; // after each, one byte alone
            for (size_t k = 0; k < bytes; k++) {
                sent[k] = (char)(k * 31 + (k >> 8) + i + c);
            }
            memset(taken, 0, bytes);
            assert_null(send_slice(&n, sent, taken, bytes, 30 * TD_NS_PER_S));
            assert_memory_equal(sent, taken, bytes);
        }
        finish(&n);
    }
}

static const size_t any[] = {PIECE_MAX, 0};

static void test_deadline_names_the_node_when_half_a_slice_has_come(void **state) {
    static const size_t halves[] = {1000, LARGEST / 2, LARGEST - 1};
    (void)state;
    for (size_t i = 0; i < TD_COUNTOF(halves); i++) {
        struct two_nodes n;
        start(&n, any, halves[i]);
        td_status s = send_slice(&n, sent, taken, LARGEST, 300 * TD_NS_PER_MS);
        assert_int_equal(td_status_code(s), TD_DEADLINE_EXCEEDED);
        assert_non_null(strstr(td_status_message(s), "node 1 did not send"));
        td_status_free(s);
        finish(&n);
    }
}

static void test_node_is_lost_when_its_connection_ends_within_a_slice(void **state) {
    static const size_t halves[] = {1000, LARGEST / 2, LARGEST - 1};
    (void)state;
    for (size_t i = 0; i < TD_COUNTOF(halves); i++) {
        struct two_nodes n;
        start(&n, any, halves[i]);
        atomic_store(&n.relay.hangs_up, true);
        td_status s = send_slice(&n, sent, taken, LARGEST, 60 * TD_NS_PER_S);
        assert_int_equal(td_status_code(s), TD_ABORTED);
        assert_non_null(strstr(td_status_message(s), "node 1 is gone"));
        td_status_free(s);
        finish(&n);
    }
}

// The network takes a connection back before libgloo has it.
static void test_node_is_lost_when_its_connection_has_ended_before_the_start(void **state) {
    (void)state;
    for (int by_reset = 0; by_reset < 2; by_reset++) {
        struct linger at_once = {.l_onoff = by_reset, .l_linger = 0};
        int fds[3] = {-1, -1, -1}, far[3];
        struct td_gloo *g = NULL;
        connect_pair(&fds[1], &far[1]);
        connect_pair(&fds[2], &far[2]);
        setsockopt(far[2], SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        if (by_reset) {
            close(far[2]);
        } else {
            assert_int_equal(shutdown(fds[2], SHUT_RDWR), 0);
            shutdown(far[2], SHUT_RDWR);
        }
        const int number = fds[2];
        struct pollfd ended = {.fd = number, .events = POLLIN};
        assert_int_equal(poll(&ended, 1, 10000), 1);
        const struct td_gloo_config config = {.node = 0, .n_nodes = 3};
        td_status s = td_gloo_create(&config, fds, &g);
        assert_int_equal(td_status_code(s), TD_ABORTED);
        assert_non_null(strstr(td_status_message(s), "node 2 is gone"));
        if (by_reset) assert_non_null(strstr(td_status_message(s), "Connection reset by peer"));
        assert_int_equal(fcntl(number, F_GETFD), -1); // taken in any case
        td_status_free(s);
        close(far[1]);
        if (!by_reset) close(far[2]);
    }
}

static void *send_late(void *arg) {
    struct td_gloo *g = arg;
    struct td_gloo_slice out[3] = {{sent, 8}}, none[3] = {{NULL, 0}};
    struct td_gloo_round *round;
    (void)poll(NULL, 0, 2000); // as long as packets that are lost three times
    td_status s = td_gloo_begin(g, 1, out, none, &round);
    return s ? s : td_gloo_end(g, round, td_mono_now().ns + 30 * TD_NS_PER_S);
}

// Its last call is done: the others still wait for each other.
static void test_node_that_leaves_takes_nobody_along_whose_slice_is_late(void **state) {
    struct td_gloo *node[3];
    int fds[3][3];
    (void)state;
    for (int i = 0; i < 3; i++) {
        fds[i][i] = -1;
        for (int k = i + 1; k < 3; k++) {
            connect_pair(&fds[i][k], &fds[k][i]);
        }
    }
    for (int i = 0; i < 3; i++) {
        const struct td_gloo_config config = {.node = i, .n_nodes = 3};
        assert_null(td_gloo_create(&config, fds[i], &node[i]));
    }
    struct td_gloo_slice out[3] = {{sent, 8}}, in[3] = {{NULL, 0}}, none[3] = {{NULL, 0}};
    struct td_gloo_round *sends, *takes;
    in[1] = (struct td_gloo_slice){taken, 8};
    in[2] = (struct td_gloo_slice){taken + 8, 8};
    assert_null(td_gloo_begin(node[2], 1, out, none, &sends));
    assert_null(td_gloo_begin(node[0], 1, none, in, &takes));
    assert_null(td_gloo_end(node[2], sends, td_mono_now().ns + 30 * TD_NS_PER_S));
    td_gloo_destroy(node[2]);
    pthread_t late;
    void *failed;
    assert_int_equal(pthread_create(&late, NULL, send_late, node[1]), 0);
    assert_null(td_gloo_end(node[0], takes, td_mono_now().ns + 30 * TD_NS_PER_S));
    pthread_join(late, &failed);
    assert_null(failed);
    td_gloo_destroy(node[0]);
    td_gloo_destroy(node[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_node_that_leaves_takes_nobody_along_whose_slice_is_late),
        cmocka_unit_test(test_node_is_lost_when_its_connection_has_ended_before_the_start),
        cmocka_unit_test(test_slices_of_any_size_come_whole_in_pieces_of_any_size),
        cmocka_unit_test(test_deadline_names_the_node_when_half_a_slice_has_come),
        cmocka_unit_test(test_node_is_lost_when_its_connection_ends_within_a_slice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
static void test_is_skipped_without_libgloo(void **state) {
    (void)state;
    print_message("# skip: no libgloo, so ranks are on one node\n");
    skip();
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_is_skipped_without_libgloo)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
