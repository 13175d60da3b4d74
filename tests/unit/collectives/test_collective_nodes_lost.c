// Ranks of several nodes when another node is lost, late, or in another call. Also what a stranger
// can do to them, and how many bytes go between nodes. Without libgloo: skipped.

#include "tests/unit/collectives/nodes_rig.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

static const int32_t two_by_two[] = {2, 2}, three[] = {1, 1, 1}, two[] = {1, 1};

// ---- a node that is killed ----------------------------------------------------------------------
static td_status rank_until_killed(struct node_rank *r, void *arg) {
    enum { N = 200000 };
    static float x[N];
    const int32_t victim = *(const int32_t *)arg;
    for (int i = 0;; i++) {
        if (i == 20 && r->node == victim) {
            atomic_store(&r->nodes->page->killed_ns, td_mono_now().ns);
            raise(SIGKILL);
        }
        TD_TRY(r->ops->all_reduce(r->c, x, N, TD_F32, TD_REDUCE_SUM));
    }
}

static void kill_a_node(int32_t n_nodes, const int32_t *counts, int32_t victim) {
    struct nodes n;
    char name[32];
    nodes_init(&n, n_nodes, counts);
    nodes_run_but(&n, rank_until_killed, &victim, -1);
    snprintf(name, sizeof name, "node %d is gone", victim);
    nodes_expect(&n, victim, TD_ABORTED, TD_CLASS_COLLECTIVE, name);
    for (int32_t r = 0; r < n.world; r++) {
        const struct outcome *o = &n.page->outcome[r];
        if (o->code == TD_UNKNOWN) continue; // it was killed
        assert_true(o->ended_ns - atomic_load(&n.page->killed_ns) < 2 * TD_NS_PER_S);
    }
    nodes_finish(&n);
}
static void test_peers_are_aborted_with_the_node_when_it_is_killed(void **state) {
    (void)state;
    kill_a_node(2, two, 1);
    kill_a_node(2, two_by_two, 0);
    kill_a_node(3, three, 0);
    kill_a_node(3, three, 2);
}

static void *kill_this_process(void *arg) {
    struct node_rank *r = arg;
    while (atomic_load(&r->nodes->page->stage) == 0) {
        sched_yield();
    }
    (void)poll(NULL, 0, 7); // within the first sum, which takes several times as long
    atomic_store(&r->nodes->page->killed_ns, td_mono_now().ns);
    kill(getpid(), SIGKILL);
    return NULL;
}

static td_status rank_killed_within_a_slice(struct node_rank *r, void *arg) {
    enum { N = 1 << 24 };
    static float x[N];
    pthread_t killer;
    (void)arg;
    TD_TRY(r->ops->barrier(r->c, "all are there"));
    NODE_CHECK(r->node == 0 || pthread_create(&killer, NULL, kill_this_process, r) == 0);
    atomic_store(&r->nodes->page->stage, 1);
    for (;;) {
        TD_TRY(r->ops->all_reduce(r->c, x, N, TD_F32, TD_REDUCE_SUM));
    }
}

// What of the slice has come stays in the buffer of whoever waits for the rest.
static void test_peers_are_aborted_when_a_node_is_killed_within_a_slice(void **state) {
    (void)state;
    for (int i = 0; i < 6; i++) {
        struct nodes n;
        nodes_init(&n, 2, two);
        n.timeout_ns = 20 * TD_NS_PER_S;
        nodes_run_but(&n, rank_killed_within_a_slice, NULL, -1);
        nodes_expect(&n, 1, TD_ABORTED, TD_CLASS_COLLECTIVE, "");
        const int64_t took_ns = n.page->outcome[0].ended_ns - atomic_load(&n.page->killed_ns);
        assert_in_range(took_ns, 0, 2 * TD_NS_PER_S);
        nodes_finish(&n);
    }
}

// Stops the other within a slice, then ends the attempt here.
static void *abort_beside_a_silent_node(void *arg) {
    struct node_rank *r = arg;
    const pid_t other = r->nodes->page->stage;
    (void)poll(NULL, 0, 7);
    kill(other, SIGSTOP);
    (void)poll(NULL, 0, 100);
    atomic_store(&r->nodes->page->killed_ns, td_mono_now().ns);
    r->ops->abort(r->c);
    return NULL;
}

static td_status rank_aborted_within_a_slice(struct node_rank *r, void *arg) {
    enum { N = 1 << 24 };
    static float x[N];
    pthread_t thread;
    (void)arg;
    if (r->node == 1) atomic_store(&r->nodes->page->stage, getpid());
    TD_TRY(r->ops->barrier(r->c, "all are there"));
    NODE_CHECK(r->node == 1 || pthread_create(&thread, NULL, abort_beside_a_silent_node, r) == 0);
    td_status s = TD_OK;
    while (!s) {
        s = r->ops->all_reduce(r->c, x, N, TD_F32, TD_REDUCE_SUM);
    }
    if (r->node == 0) {
        pthread_join(thread, NULL);
        kill(r->nodes->page->stage, SIGKILL);
    }
    return s;
}

static void test_rank_leaves_a_slice_when_the_attempt_is_aborted(void **state) {
    (void)state;
    for (int i = 0; i < 6; i++) {
        struct nodes n;
        nodes_init(&n, 2, two);
        n.timeout_ns = 20 * TD_NS_PER_S;
        nodes_run_but(&n, rank_aborted_within_a_slice, NULL, -1);
        assert_int_equal(n.page->outcome[0].code, TD_ABORTED);
        const int64_t took_ns = n.page->outcome[0].ended_ns - atomic_load(&n.page->killed_ns);
        assert_in_range(took_ns, 0, 2 * TD_NS_PER_S);
        nodes_finish(&n);
    }
}

// ---- a node that is late ------------------------------------------------------------------------
static td_status rank_barrier(struct node_rank *r, void *arg) {
    (void)arg;
    return r->ops->barrier(r->c, "all are there");
}
static void test_deadline_names_the_node_when_it_never_comes(void **state) {
    (void)state;
    for (int32_t absent = 0; absent < 3; absent++) {
        struct nodes n;
        char name[32];
        nodes_init(&n, 3, three);
        n.timeout_ns = 400 * TD_NS_PER_MS;
        nodes_run_but(&n, rank_barrier, NULL, absent);
        snprintf(name, sizeof name, "node %d of 3", absent);
        nodes_expect(&n, absent, TD_DEADLINE_EXCEEDED, TD_CLASS_COLLECTIVE, name);
        nodes_expect(
            &n, absent, TD_DEADLINE_EXCEEDED, TD_CLASS_COLLECTIVE,
            "connect the nodes: not done within 0.350 s (seven eighths of the first knob)");
        nodes_finish(&n);
    }
}

static const struct td_collective_deadline later = {400 * TD_NS_PER_MS, "the later knob"};

static td_status rank_goes_silent(struct node_rank *r, void *arg) {
    static float x[500000];
    (void)arg;
    TD_TRY(r->ops->barrier(r->c, "all are there"));
    r->ops->set_deadline(r->c, &later);
    if (r->node == 1) {
        nodes_wait_stage(r->nodes, r->nodes->count[0]);
        return TD_OK;
    }
    td_status s = r->ops->all_reduce(r->c, x, TD_COUNTOF(x), TD_F32, TD_REDUCE_SUM);
    atomic_fetch_add(&r->nodes->page->stage, 1);
    return s;
}
static void test_deadline_names_the_node_when_it_is_connected_and_sends_nothing(void **state) {
    (void)state;
    struct nodes n;
    nodes_init(&n, 2, two_by_two);
    nodes_run_but(&n, rank_goes_silent, NULL, -1);
    const struct outcome *o = &n.page->outcome[0];
    assert_int_equal(o->code, TD_DEADLINE_EXCEEDED);
    assert_non_null(strstr(o->message, "node 1 did not send"));
    assert_non_null(strstr(o->message, "all_reduce (sum) of 500000 f32"));
    assert_non_null(
        strstr(o->message, "not done within 0.350 s (seven eighths of the later knob)"));
    assert_true(n.page->outcome[1].code != TD_CODE_OK);
    nodes_finish(&n);
}

// It stops in the middle of its slices: half of them are on their way.
static td_status rank_stops_within(struct node_rank *r, void *arg) {
    enum { N = 8 << 20 };
    (void)arg;
    TD_AUTO_FREE float *x = td_calloc(N, sizeof *x);
    if (!x) return td_fail_oom();
    TD_TRY(r->ops->barrier(r->c, "all are there"));
    if (r->node == 1) atomic_store(&r->nodes->page->stage, getpid());
    for (int i = 0; i < 1000; i++) {
        TD_TRY(r->ops->all_reduce(r->c, x, N, TD_F32, TD_REDUCE_SUM));
        if (i == 1 && r->node == 0) kill(atomic_load(&r->nodes->page->stage), SIGSTOP);
    }
    return TD_OK;
}

static td_status rank_stops_and_is_killed(struct node_rank *r, void *arg) {
    td_status s = rank_stops_within(r, arg);
    if (r->node == 0) kill(atomic_load(&r->nodes->page->stage), SIGKILL); // nothing is left over
    return s;
}
static void test_deadline_names_the_node_when_it_stops_within_a_call(void **state) {
    (void)state;
    struct nodes n;
    nodes_init(&n, 2, two);
    n.timeout_ns = 800 * TD_NS_PER_MS;
    nodes_run_but(&n, rank_stops_and_is_killed, NULL, -1);
    nodes_expect(&n, 1, TD_DEADLINE_EXCEEDED, TD_CLASS_COLLECTIVE, "node 1 did not send");
    nodes_finish(&n);
}

// ---- a node that takes a connection and does not greet ------------------------------------------
// The socket of this process that listens, and where; -1: none.
static int find_listener(struct sockaddr_in *out) {
    for (int fd = 0; fd < 256; fd++) {
        int on = 0;
        socklen_t bytes = sizeof on;
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &bytes) < 0 || !on) continue;
        bytes = sizeof *out;
        return getsockname(fd, (struct sockaddr *)out, &bytes) == 0 ? fd : -1;
    }
    return -1;
}

enum greets { KEEPS_THEM_WAITING, TAKES_AND_IS_SILENT, GREETS_BY_HALF, GREETS_FALSELY, HANGS_UP };

// In place of node 0's own greeting: takes who comes until all others have ended.
static td_status greet(struct node_rank *r, enum greets how) {
    char greeting[48]; // as many bytes as the true one
    int taken[64], n_taken = 0;
    struct sockaddr_in listener;
    struct pollfd polled = {.fd = find_listener(&listener), .events = POLLIN};
    NODE_CHECK(polled.fd >= 0);
    while (atomic_load(&r->nodes->page->stage) < r->world - 1) {
        if (how == KEEPS_THEM_WAITING || poll(&polled, 1, 1) <= 0) continue;
        const int fd = accept4(polled.fd, NULL, NULL, SOCK_CLOEXEC);
        NODE_CHECK(fd >= 0);
        NODE_CHECK(recv(fd, greeting, sizeof greeting, MSG_WAITALL) == sizeof greeting);
        const size_t bytes = how == GREETS_BY_HALF   ? sizeof greeting / 2
                             : how == GREETS_FALSELY ? sizeof greeting
                                                     : 0;
        NODE_CHECK(send(fd, greeting, bytes, MSG_NOSIGNAL) == (ssize_t)bytes);
        if (how == HANGS_UP || how == GREETS_FALSELY) {
            close(fd);
            continue;
        }
        NODE_CHECK(n_taken < (int)TD_COUNTOF(taken)); // each tries once, and waits
        taken[n_taken++] = fd;
    }
    while (n_taken) {
        close(taken[--n_taken]);
    }
    return TD_OK;
}

static td_status rank_meets_a_strange_node(struct node_rank *r, void *arg) {
    if (r->node == 0) return greet(r, *(const enum greets *)arg);
    const int64_t began_ns = td_mono_now().ns;
    td_status s = r->ops->barrier(r->c, "all are there");
    const int64_t took_ns = td_mono_now().ns - began_ns;
    atomic_fetch_add(&r->nodes->page->stage, 1);
    if (took_ns >= 350 * TD_NS_PER_MS && took_ns < 5 * TD_NS_PER_S) return s;
    return td_status_context(s, "after %.3f s", (double)took_ns / (double)TD_NS_PER_S);
}
static void test_deadline_names_the_node_when_it_does_not_greet(void **state) {
    static const char *const why[] = {
        [KEEPS_THEM_WAITING] = "(it takes the connection and does not answer)",
        [TAKES_AND_IS_SILENT] = "(it takes the connection and does not answer)",
        [GREETS_BY_HALF] = "(it takes the connection and does not answer)",
        [GREETS_FALSELY] = "(", // of the last try, which the deadline may end
        [HANGS_UP] = "(",
    };
    (void)state;
    for (enum greets how = 0; how < TD_COUNTOF(why); how++) {
        struct nodes n;
        char text[128];
        nodes_init(&n, 3, three);
        n.timeout_ns = 400 * TD_NS_PER_MS;
        nodes_run_but(&n, rank_meets_a_strange_node, &how, -1);
        assert_int_equal(n.page->outcome[0].code, TD_CODE_OK);
        snprintf(text, sizeof text, "node 0 of 3 did not come in time %s", why[how]);
        for (int32_t rank = 1; rank < 3; rank++) {
            const struct outcome *o = &n.page->outcome[rank];
            if (o->code != TD_DEADLINE_EXCEEDED || o->cls != TD_CLASS_COLLECTIVE ||
                !strstr(o->message, text) || !strstr(o->message, ", with rank 0; see") ||
                strstr(o->message, "after ")) {
                fail_msg("rank %d: %s: %s", rank, td_code_name(o->code), o->message);
            }
        }
        nodes_finish(&n);
    }
}

// ---- a network that is silent -------------------------------------------------------------------
// In a network of its own, whose only link goes down: nothing is refused, and nothing answers.
static bool enter_own_network(void) {
    return unshare(CLONE_NEWNET) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
}

static bool set_loopback(bool up) {
    struct ifreq r = {.ifr_name = "lo"};
    TD_AUTO_CLOSE int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (ioctl(fd, SIOCGIFFLAGS, &r) < 0) return false;
    r.ifr_flags = (short)(up ? r.ifr_flags | IFF_UP : r.ifr_flags & ~IFF_UP);
    return ioctl(fd, SIOCSIFFLAGS, &r) == 0;
}

static td_status rank_loses_the_network(struct node_rank *r, void *arg) {
    float x = 1;
    const bool sends = *(const bool *)arg; // else it waits for what another was to send
    TD_TRY(r->ops->barrier(r->c, "all are there"));
    atomic_fetch_add(&r->nodes->page->stage, 1);
    if (r->node == 0) {
        nodes_wait_stage(r->nodes, 2);
        NODE_CHECK(set_loopback(false));
        atomic_store(&r->nodes->page->killed_ns, td_mono_now().ns);
        atomic_fetch_add(&r->nodes->page->stage, 1);
    }
    nodes_wait_stage(r->nodes, 3);
    if (sends) return r->ops->all_reduce(r->c, &x, 1, TD_F32, TD_REDUCE_SUM);
    td_status s = r->node ? TD_OK : r->ops->barrier(r->c, "alone");
    if (r->node == 0) atomic_fetch_add(&r->nodes->page->stage, 1);
    nodes_wait_stage(r->nodes, 4);
    return s;
}

static void test_node_is_named_when_its_machine_does_not_answer(void **state) {
    static const char *const names[] = {"rack-a", "rack-b"};
    (void)state;
    if (!enter_own_network()) {
        print_message("# skip: no network namespace\n");
        skip();
    }
    for (int i = 0; i < 2; i++) {
        struct nodes n;
        bool sends = i;
        assert_true(set_loopback(true));
        nodes_init(&n, 2, two);
        n.names = names;
        n.link_timeout_ns = TD_NS_PER_S;
        nodes_run_but(&n, rank_loses_the_network, &sends, -1);
        const struct outcome *o = &n.page->outcome[0];
        if (o->code != TD_ABORTED || o->cls != TD_CLASS_COLLECTIVE ||
            !strstr(o->message, "node 1 (rack-b) is gone") ||
            !strstr(o->message, "its machine does not answer any more")) {
            fail_msg("%s: %s", td_code_name(o->code), o->message);
        }
        const int64_t took_ns = o->ended_ns - atomic_load(&n.page->killed_ns);
        assert_true(took_ns > TD_NS_PER_S / 2 && took_ns < 5 * TD_NS_PER_S);
        nodes_finish(&n);
    }
}

// ---- nodes that disagree ------------------------------------------------------------------------
static td_status rank_differs(struct node_rank *r, void *arg) {
    enum { LARGE = 1 << 19 }; // its first piece is on its way before the calls are compared
    static float large[LARGE];
    const int kind = *(const int *)arg;
    float x[64] = {0};
    TD_TRY(r->ops->barrier(r->c, "all are there"));
    if (kind == 0) return r->ops->barrier(r->c, r->node ? "one" : "other");
    if (kind == 1) {
        return r->ops->all_reduce(r->c, x, r->node ? 63 : 64, TD_F32, TD_REDUCE_SUM);
    }
    if (kind == 3) {
        return r->ops->all_reduce(r->c, large, r->node ? LARGE : 9000, TD_F32, TD_REDUCE_SUM);
    }
    if (kind == 4) {
        return r->node ? r->ops->all_reduce(r->c, large, LARGE / 4, TD_F32, TD_REDUCE_SUM)
                       : r->ops->barrier(r->c, "other");
    }
    return r->node ? r->ops->broadcast(r->c, x, 8, 0)
                   : r->ops->all_reduce(r->c, x, 64, TD_F32, TD_REDUCE_MAX);
}
static void test_disagreement_names_both_calls_and_nodes_when_calls_differ(void **state) {
    static const char *const texts[] = {"barrier 'one' while node 0", "of 63 f32 while node 0",
                                        "broadcast of 8 bytes from rank 0 while node 0",
                                        "of 524288 f32 while node 0", "of 131072 f32 while node 0"};
    (void)state;
    for (int kind = 0; kind < (int)TD_COUNTOF(texts); kind++) {
        struct nodes n;
        nodes_init(&n, 2, two);
        nodes_run_but(&n, rank_differs, &kind, -1);
        nodes_expect(&n, -1, TD_FAILED_PRECONDITION, TD_CLASS_USER_CODE, texts[kind]);
        nodes_expect(&n, -1, TD_FAILED_PRECONDITION, TD_CLASS_USER_CODE, "call 2, ");
        nodes_finish(&n);
    }
}

// A node's ranks add up a mean, and divide it when nodes have been added.
static td_status rank_takes_another_op(struct node_rank *r, void *arg) {
    const int32_t differs = *(const int32_t *)arg;
    float x[64] = {0};
    TD_TRY(r->ops->barrier(r->c, "all are there"));
    return r->ops->all_reduce(r->c, x, TD_COUNTOF(x), TD_F32,
                              r->rank == differs ? TD_REDUCE_SUM : TD_REDUCE_MEAN);
}
static void test_disagreement_is_found_when_one_of_a_node_sums_and_others_take_the_mean(void **s) {
    (void)s;
    for (int32_t differs = 0; differs < 4; differs++) {
        struct nodes n;
        nodes_init(&n, 2, two_by_two);
        nodes_run_but(&n, rank_takes_another_op, &differs, -1);
        int n_found = 0;
        for (int32_t r = 0; r < n.world; r++) {
            assert_int_not_equal(n.page->outcome[r].code, TD_CODE_OK);
            n_found += n.page->outcome[r].code == TD_FAILED_PRECONDITION;
        }
        assert_true(n_found > 0);
        nodes_finish(&n);
    }
}

// ---- strangers ----------------------------------------------------------------------------------
enum { STRANGERS = 40 }; // more than may be greeting at once
static int strangers[STRANGERS];
static const char *const rack[] = {"rack-a", "rack-b", "rack-c"};

static bool bother(const struct sockaddr_in *to) {
    char garbage[100];
    memset(garbage, 0x5a, sizeof garbage);
    for (int i = 0; i < STRANGERS; i++) {
        strangers[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(strangers[i], (const struct sockaddr *)to, sizeof *to) < 0) return false;
        const size_t bytes = i % 3 ? (size_t)i : 0; // some greet by half, some by too much
        if (send(strangers[i], garbage, bytes, MSG_NOSIGNAL) < 0) return false;
    }
    return true;
}

// Node 0 is bothered before node 1 comes; and when all are connected nobody listens.
static td_status rank_with_strangers(struct node_rank *r, void *arg) {
    struct sockaddr_in listener;
    float x = (float)r->rank;
    (void)arg;
    NODE_CHECK(find_listener(&listener) >= 0);
    NODE_CHECK(r->rank != 0 || ntohl(listener.sin_addr.s_addr) == 0x7f000001);
    if (r->rank == 0) {
        NODE_CHECK(bother(&listener));
        atomic_store(&r->nodes->page->stage, 1);
    }
    nodes_wait_stage(r->nodes, 1);
    TD_TRY(r->ops->all_reduce(r->c, &x, 1, TD_F32, TD_REDUCE_SUM));
    NODE_CHECK(x == (float)(r->world * (r->world - 1) / 2));
    NODE_CHECK(find_listener(&listener) < 0);
    char byte;
    for (int i = 0; r->rank == 0 && i < STRANGERS; i++) { // all were dropped
        NODE_CHECK(recv(strangers[i], &byte, 1, 0) <= 0);
    }
    return r->ops->barrier(r->c, "end");
}
static void test_job_goes_on_when_strangers_connect(void **state) {
    (void)state;
    struct nodes n;
    nodes_init(&n, 3, three);
    n.names = rack;
    nodes_run(&n, rank_with_strangers, NULL);
    const struct outcome *o = n.page->outcome;
    if (!strstr(o[0].note, "node 0 (rack-a) dropped 40 connections of strangers to 127.0.0.1, ") ||
        !strstr(o[0].note, "the first came from 127.0.0.1, port ") || strchr(o[0].note, '?')) {
        fail_msg("%s", o[0].note);
    }
    assert_int_equal(o[0].n_notes, 1); // one line, however many they are
    assert_int_equal(o[1].n_notes + o[2].n_notes, 0);
    nodes_finish(&n);
}

// ---- bytes --------------------------------------------------------------------------------------
// What this process has sent over its connections, and whether all are from its own address.
static uint64_t sent_bytes(const struct node_rank *r, bool *out_bound) {
    enum { ESTABLISHED = 1 }; // of the kernel's states
    uint64_t all = 0;
    *out_bound = true;
    for (int fd = 0; fd < 256; fd++) {
        struct tcp_info info;
        struct sockaddr_in from;
        socklen_t bytes = sizeof info, address_bytes = sizeof from;
        memset(&info, 0, sizeof info);
        if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) < 0) continue;
        if (info.tcpi_state != ESTABLISHED) continue;
        (void)getsockname(fd, (struct sockaddr *)&from, &address_bytes);
        *out_bound = *out_bound && ntohl(from.sin_addr.s_addr) == 0x7f000001u + (uint32_t)r->node;
        all += info.tcpi_bytes_acked;
    }
    return all;
}

static td_status rank_counts(struct node_rank *r, void *arg) {
    enum { N = 3 << 20 };
    (void)arg;
    TD_AUTO_FREE float *x = td_calloc(N, sizeof *x);
    if (!x) return td_fail_oom();
    bool is_bound;
    const struct td_bucket b = {.struct_bytes = sizeof b,
                                .n_buckets = 1,
                                .dtype = TD_F32,
                                .buffer = td_buffer_of_host(x, N * sizeof *x),
                                .n = N};
    TD_TRY(r->ops->barrier(r->c, "before"));
    const uint64_t before = sent_bytes(r, &is_bound);
    NODE_CHECK(is_bound);
    TD_TRY(r->ops->all_reduce_bucket(r->c, &b));
    TD_TRY(r->ops->barrier(r->c, "after"));
    const double sent = (double)(sent_bytes(r, &is_bound) - before);
    TD_TRY(r->ops->barrier(r->c, "counted")); // nobody leaves, and closes, before all have
    const int32_t n = r->nodes->n_nodes;
    const double want = 2.0 * (n - 1) / n * N * sizeof *x;
    if (r->local_rank || (sent > want * 0.98 && sent < want * 1.02)) return TD_OK;
    return td_fail(TD_INTERNAL, "%.0f bytes sent, %.0f expected", sent, want);
}
static void test_bytes_between_nodes_are_two_shares_of_the_gradients(void **state) {
    static const int32_t four[] = {1, 1, 1, 1};
    static const struct {
        int32_t n;
        const int32_t *counts;
    } layouts[] = {{2, two}, {2, two_by_two}, {3, three}, {4, four}};
    (void)state;
    for (size_t i = 0; i < TD_COUNTOF(layouts); i++) {
        struct nodes n;
        nodes_init(&n, layouts[i].n, layouts[i].counts);
        nodes_run(&n, rank_counts, NULL);
        nodes_finish(&n);
    }
}

int main(void) {
    const struct CMUnitTest none[] = {cmocka_unit_test(test_is_skipped_without_libgloo)};
    if (!hierarchy_ops()) return cmocka_run_group_tests(none, NULL, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_peers_are_aborted_with_the_node_when_it_is_killed),
        cmocka_unit_test(test_peers_are_aborted_when_a_node_is_killed_within_a_slice),
        cmocka_unit_test(test_rank_leaves_a_slice_when_the_attempt_is_aborted),
        cmocka_unit_test(test_deadline_names_the_node_when_it_never_comes),
        cmocka_unit_test(test_deadline_names_the_node_when_it_is_connected_and_sends_nothing),
        cmocka_unit_test(test_deadline_names_the_node_when_it_stops_within_a_call),
        cmocka_unit_test(test_deadline_names_the_node_when_it_does_not_greet),
        cmocka_unit_test(test_disagreement_names_both_calls_and_nodes_when_calls_differ),
        cmocka_unit_test(
            test_disagreement_is_found_when_one_of_a_node_sums_and_others_take_the_mean),
        cmocka_unit_test(test_job_goes_on_when_strangers_connect),
        cmocka_unit_test(test_bytes_between_nodes_are_two_shares_of_the_gradients),
        cmocka_unit_test(test_node_is_named_when_its_machine_does_not_answer), // the last one
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
