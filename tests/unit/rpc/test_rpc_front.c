// The parts of the server's front, each alone: whose connection a number is, a call whose
// connection is over, and a listener without descriptors. Then the check that a listener answers,
// and whether the server serves.

#include "tests/unit/test.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "lib/base/clock.h"
#include "lib/base/files/files.h"
#include "lib/loop/loop.h"
#include "lib/rpc/front/front.h"
#include "lib/rpc/front/listener.h"
#include "lib/rpc/front/peers.h"
#include "lib/rpc/front/self_check.h"
#include "lib/rpc/server.h"
#include "lib/rpc/server_private.h"
#include "lib/tls/authority.h"
#include "lib/tls/certificate.h"
#include "lib/tls/context.h"

enum { NOTICES_BYTES = 4096 };

static struct td_loop *loop;

static int set_up(void **state) {
    (void)state;
    assert_ok(td_loop_create(&loop));
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    td_loop_destroy(loop);
    return 0;
}

static void set_true(void *arg) {
    *(bool *)arg = true;
}

// ---- numbers ----
static int take(struct td_peers *p, const char *name) {
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC), number = -1;
    assert_true(fd >= 0);
    td_status s = td_peers_take(p, fd, name, &number);
    if (!s) return number;
    assert_fails(s, TD_UNAVAILABLE, "no number");
    close(fd);
    return -1;
}

static void expect_call(struct td_peers *p, int number, enum td_peer_call kind, const char *name) {
    char peer[TD_PEER_NAME_BYTES];
    td_peers_begin(p, number, kind, peer);
    assert_string_equal(peer, name);
}

// With four numbers, of which three stay taken.
static struct td_peers *three_taken(bool *fenced, int out_numbers[4]) {
    const struct td_peers_options o = {
        .n_wanted = 2, .max_waiting = 10, .on_fenced = set_true, .ctx = fenced};
    struct td_peers *p;
    assert_ok(td_peers_create(loop, &o, &p));
    assert_in_range(td_peers_capacity(p), 1, 2);
    for (int i = 0; i < 4; i++) {
        char name[8];
        snprintf(name, sizeof name, "peer-%d", i);
        out_numbers[i] = take(p, name);
        assert_true(out_numbers[i] >= 0);
    }
    assert_int_equal(take(p, "one too many"), -1);
    return p;
}

static void release(struct td_peers *p, int numbers[4]) {
    for (int i = 0; i < 4; i++) {
        close(numbers[i]);
    }
    td_peers_destroy(p);
}

static void
test_number_is_not_given_again_while_a_call_of_its_last_connection_may_come(void **state) {
    (void)state;
    bool fenced = false;
    int numbers[4];
    struct td_peers *p = three_taken(&fenced, numbers);
    expect_call(p, numbers[0], TD_PEER_TRUSTED, "peer-0");
    assert_true(td_peers_is_trusted(p, numbers[0]));
    close(numbers[0]);
    td_peers_free(p, numbers[0], 2); // gRPC has one more call of it
    assert_int_equal(take(p, "next"), -1);
    assert_true(td_peers_is_over(p, numbers[0]) && !td_peers_is_over(p, numbers[1]));
    expect_call(p, numbers[0], TD_PEER_TRUSTED, "peer-0"); // and still knows whose it is
    int again = take(p, "next");
    assert_int_equal(again, numbers[0]);
    assert_false(td_peers_is_over(p, again));
    assert_true(td_peers_is_over(p, 0) && td_peers_is_over(p, INT32_MAX));
    assert_false(td_peers_is_trusted(p, again));
    expect_call(p, again, TD_PEER_STRANGER, "next");
    assert_false(td_peers_is_trusted(p, again));
    expect_call(p, 0, TD_PEER_TRUSTED, "unknown");
    expect_call(p, INT32_MAX, TD_PEER_TRUSTED, "unknown");
    release(p, numbers);
}

static void test_number_is_given_again_when_no_call_waited_for_a_while(void **state) {
    (void)state;
    bool fenced = false;
    int numbers[4];
    struct td_peers *p = three_taken(&fenced, numbers);
    close(numbers[2]);
    td_peers_free(p, numbers[2], 5); // requests that never became calls
    assert_int_equal(take(p, "next"), -1);
    assert_ok(td_loop_run_until(loop, &fenced, TD_TEST_WAIT_NS));
    assert_int_equal(take(p, "next"), numbers[2]);
    release(p, numbers);
}

static void test_number_is_given_again_when_more_calls_came_than_could_wait(void **state) {
    (void)state;
    bool fenced = false;
    int numbers[4];
    struct td_peers *p = three_taken(&fenced, numbers);
    close(numbers[2]);
    td_peers_free(p, numbers[2], 5);
    assert_int_equal(take(p, "next"), -1);
    bool turned = false; // the wish for a fence is taken first
    assert_ok(td_loop_post(loop, set_true, &turned));
    assert_ok(td_loop_run_until(loop, &turned, TD_TEST_WAIT_NS));
    for (int i = 0; i < 41; i++) {
        expect_call(p, numbers[1], TD_PEER_STRANGER, "peer-1");
    }
    assert_ok(td_loop_run_until(loop, &fenced, TD_TEST_WAIT_NS));
    assert_int_equal(take(p, "next"), numbers[2]);
    release(p, numbers);
}

static void test_number_is_passed_over_when_something_else_has_it(void **state) {
    (void)state;
    bool fenced = false;
    int numbers[4];
    struct td_peers *p = three_taken(&fenced, numbers);
    td_peers_free(p, numbers[0], 0); // not closed: gRPC takes its time
    assert_int_equal(take(p, "next"), -1);
    close(numbers[0]);
    assert_int_equal(take(p, "next"), numbers[0]);
    release(p, numbers);
}

static void test_connection_of_a_node_takes_no_room_from_the_others(void **state) {
    (void)state;
    bool fenced = false;
    int numbers[4];
    const struct td_peers_options o = {
        .n_wanted = 2, .n_apart = 2, .max_waiting = 10, .on_fenced = set_true, .ctx = &fenced};
    struct td_peers *p;
    assert_ok(td_peers_create(loop, &o, &p));
    assert_int_equal(td_peers_capacity(p), 2);
    assert_int_equal(td_peers_capacity_apart(p), 2);
    for (int i = 0; i < 4; i++) {
        numbers[i] = take(p, "n");
    }
    for (int i = 0; i < 3; i++) {
        expect_call(p, numbers[i], TD_PEER_APART, "n");
    }
    assert_true(td_peers_is_apart(p, numbers[0]) && td_peers_is_trusted(p, numbers[0]));
    assert_true(td_peers_is_apart(p, numbers[1]));
    assert_false(
        td_peers_is_apart(p, numbers[2])); // above the bound: it gives way, as strangers do
    assert_false(td_peers_is_trusted(p, numbers[2]));
    close(numbers[0]);
    td_peers_free(p, numbers[0], 2);
    expect_call(p, numbers[0], TD_PEER_APART, "n"); // its last call: it is gone already
    assert_false(td_peers_is_apart(p, numbers[0]));
    expect_call(p, numbers[3], TD_PEER_APART, "n");
    assert_true(td_peers_is_apart(p, numbers[3]));
    numbers[0] = take(p, "next");
    assert_false(td_peers_is_apart(p, numbers[0]));
    release(p, numbers);
}

// ---- the listener ----
static int dial(const char *address) {
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port =
                                 htons((uint16_t)strtoul(strrchr(address, ':') + 1, NULL, 10)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (void *)&to, sizeof to), 0);
    return fd;
}

static bool is_closed(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char byte;
    return poll(&p, 1, 5000) == 1 && recv(fd, &byte, 1, 0) <= 0;
}

// As its server calls it: "127.0.0.1:51000".
static const char *peer_of(int fd) {
    static char name[TD_PEER_NAME_BYTES];
    struct sockaddr_in own;
    socklen_t bytes = sizeof own;
    assert_int_equal(getsockname(fd, (void *)&own, &bytes), 0);
    snprintf(name, sizeof name, "127.0.0.1:%u", (unsigned)ntohs(own.sin_port));
    return name;
}

// gRPC 1.51 stops accepting for good there (CVE-2023-4785).
static void test_listener_goes_on_when_descriptors_are_used_up(void **state) {
    (void)state;
    struct td_listener l;
    struct sockaddr_storage peer;
    struct rlimit before, low;
    int accepted = -1;
    assert_ok(td_listener_open("127.0.0.1:0", &l));
    int first = dial(l.address), second = dial(l.address), third = dial(l.address);
    int lowest = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    low = before;
    low.rlim_cur = (rlim_t)lowest + 1; // none is free, but for the spare
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    enum td_accept a = td_listener_accept(&l, &accepted, &peer);
    enum td_accept b = td_listener_accept(&l, &accepted, &peer);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(a, TD_ACCEPT_SHED);
    assert_int_equal(b, TD_ACCEPT_SHED);
    assert_true(is_closed(first) && is_closed(second)); // they learn of it at once
    assert_int_equal(td_listener_accept(&l, &accepted, &peer), TD_ACCEPTED);
    assert_int_equal(td_listener_accept(&l, &accepted, &peer), TD_ACCEPT_NONE);
    close(accepted);
    close(first);
    close(second);
    close(third);
    close(lowest);
    td_listener_finish(&l);
}

// ---- the check ----
struct news {
    unsigned n;
    bool news;
    char trouble[256];
};

static void on_change(const char *trouble, void *ctx) {
    struct news *h = ctx;
    h->n++;
    h->news = true;
    snprintf(h->trouble, sizeof h->trouble, "%s", trouble ? trouble : "");
}

static void expect_news(struct news *h, const char *words) {
    h->news = false;
    assert_ok(td_loop_run_until(loop, &h->news, TD_TEST_WAIT_NS));
    if (!strstr(h->trouble, words)) fail_msg("'%s' lacks '%s'", h->trouble, words);
}

struct answerer {
    struct td_listener l;
    bool answers;
};

static void on_dialled(int fd, void *arg) {
    (void)fd;
    struct answerer *a = arg;
    struct sockaddr_storage peer;
    int client;
    while (td_listener_accept(&a->l, &client, &peer) == TD_ACCEPTED) {
        if (a->answers) assert_int_equal(send(client, "\0\0\0\x04\0\0\0\0\0", 9, 0), 9);
        close(client);
    }
}

static void test_check_says_so_when_the_listener_does_not_answer(void **state) {
    (void)state;
    struct answerer a = {0};
    struct news news = {0};
    assert_ok(td_listener_open("127.0.0.1:0", &a.l));
    const struct td_self_check_options o = {.address = a.l.address,
                                            .every_ns = 20 * TD_NS_PER_MS,
                                            .patience_ns = 100 * TD_NS_PER_MS,
                                            .on_change = on_change,
                                            .ctx = &news};
    struct td_self_check *check;
    assert_ok(td_self_check_create(loop, &o, &check));
    expect_news(&news, "nothing came within 100 ms"); // the backlog takes it, nobody accepts
    struct td_loop_fd *watch;
    assert_ok(td_loop_fd_create(loop, a.l.fd, 0, on_dialled, &a, &watch));
    a.answers = true;
    expect_news(&news, "");
    a.answers = false;
    expect_news(&news, "closes at once");
    a.answers = true;
    expect_news(&news, "");
    td_loop_fd_destroy(watch);
    td_listener_finish(&a.l);
    expect_news(&news, "does not answer");
    assert_int_equal(news.n, 5);
    td_self_check_destroy(check);
}

// ---- does it serve? ----
static td_status authorize_all(struct td_str token, const struct td_rpc_method *row, void *ctx,
                               uint64_t *out_identity) {
    (void)token;
    (void)row;
    (void)ctx;
    *out_identity = 1;
    return TD_OK;
}

static void test_owner_and_listener_overwrote_what_the_other_said_of_health(void **state) {
    (void)state;
    const struct td_rpc_server_options o = {.listen = "127.0.0.1:0", .authorize = authorize_all};
    struct td_rpc_server *server;
    assert_ok(td_rpc_server_create(loop, &o, &server));
    assert_false(td_rpc_server_is_serving(server));
    td_rpc_server_set_serving(server, true);
    assert_true(td_rpc_server_is_serving(server));
    server->deaf = true;
    td_rpc_server_set_serving(server, true); // its disk is written again
    assert_false(td_rpc_server_is_serving(server));
    td_rpc_server_set_serving(server, false); // its disk refuses
    server->deaf = false;
    assert_false(td_rpc_server_is_serving(server));
    td_rpc_server_set_serving(server, true);
    assert_true(td_rpc_server_is_serving(server));
    td_rpc_server_destroy(server);
}

// ---- a call and its connection ----
struct judged {
    bool answered;
    int n_judged;
    char reason[32], peer[TD_PEER_NAME_BYTES];
};

static td_status judge(struct td_str token, const struct td_rpc_method *row, void *ctx,
                       uint64_t *out_identity) {
    struct judged *j = ctx;
    j->n_judged++;
    return authorize_all(token, row, ctx, out_identity);
}

static void note_answer(const struct td_rpc_call *call, td_status borrow_status, void *ctx) {
    struct judged *j = ctx;
    snprintf(j->reason, sizeof j->reason, "%s", td_status_reason(borrow_status));
    snprintf(j->peer, sizeof j->peer, "%s", td_rpc_call_peer(call));
    j->answered = true;
}

// A call of a method that nobody has, and a ping after it: what answers that has read the call.
static void send_call(int fd) {
    static const char bytes[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
                                "\0\0\0\4\0\0\0\0\0"    // settings
                                "\0\0\x43\1\4\0\0\0\1"  // headers of stream 1
                                "\x83\x86\4\4/x/y\1\1x" // :method POST, :path, host
                                "\x0f\x10\x10"          // content-type
                                "application/grpc"      //
                                "\0\2te\x08trailers"    //
                                "\0\x0d"
                                "authorization\x08"
                                "Bearer x" //
                                "\0\0\x08\6\0\0\0\0\0"
                                "12345678"; // ping
    assert_int_equal(send(fd, bytes, sizeof bytes - 1, MSG_NOSIGNAL), sizeof bytes - 1);
    char heard[1024];
    size_t n = 0;
    while (!memmem(heard, n, "12345678", 8)) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&p, 1, 5000), 1);
        ssize_t got = recv(fd, heard + n, sizeof heard - n, 0);
        assert_true(got > 0);
        n += (size_t)got;
    }
}

static bool has_connections(struct td_peers *p) {
    for (int number = 0; number < 1 << 16; number++) {
        if (!td_peers_is_over(p, number)) return true;
    }
    return false;
}

static void wait_until_over(struct td_peers *p) {
    struct td_mono until = td_mono_add(td_mono_now(), TD_TEST_WAIT_NS);
    while (has_connections(p)) {
        assert_true(td_mono_now().ns < until.ns);
        sched_yield();
    }
}

static void test_call_whose_connection_is_over_is_refused_unjudged(void **state) {
    (void)state;
    struct judged judged = {0};
    const struct td_rpc_server_options o = {
        .listen = "127.0.0.1:0", .authorize = judge, .on_answered = note_answer, .ctx = &judged};
    struct td_rpc_server *server;
    assert_ok(td_rpc_server_create(loop, &o, &server));
    assert_ok(td_rpc_server_start(server));
    struct td_peers *peers = td_front_borrow_peers(server->front);
    for (int i = 0; i < 20; i++) {
        bool stays = i % 2;
        judged = (struct judged){0};
        int fd = dial(td_rpc_server_address(server));
        char own[TD_PEER_NAME_BYTES];
        snprintf(own, sizeof own, "%s", peer_of(fd));
        send_call(fd); // this loop has not seen it
        if (!stays) {
            close(fd);
            wait_until_over(peers);
        }
        assert_ok(td_loop_run_until(loop, &judged.answered, TD_TEST_WAIT_NS));
        assert_string_equal(judged.reason, stays ? "METHOD_UNKNOWN" : "CONNECTION_OVER");
        assert_int_equal(judged.n_judged, stays);
        assert_string_equal(judged.peer, own);
        if (stays) close(fd);
        wait_until_over(peers);
    }
    td_rpc_server_destroy(server);
}

// ---- the front ----
static void pass_number(int take_fd, void *ctx) {
    const int *pipe_fds = ctx;
    assert_int_equal(write(pipe_fds[1], &take_fd, sizeof take_fd), sizeof take_fd);
}

static void ignore_notice(const char *text, void *ctx) {
    (void)text;
    (void)ctx;
}

static int next_number(const int pipe_fds[2]) {
    struct pollfd p = {.fd = pipe_fds[0], .events = POLLIN};
    int number = -1;
    if (poll(&p, 1, 5000) == 1) assert_int_equal(read(p.fd, &number, sizeof number), sizeof number);
    return number;
}

static void
test_client_waited_for_ever_when_its_number_was_closed_after_its_connection(void **state) {
    (void)state;
    int handed[2], clients[5], numbers[4];
    assert_int_equal(pipe2(handed, O_CLOEXEC), 0);
    const struct td_front_options o = {.listen = "127.0.0.1:0",
                                       .max_connections = 2,
                                       .max_per_source = 2,
                                       .max_strangers = 2,
                                       .max_streams = 10,
                                       .first_request_ns = 60 * TD_NS_PER_S,
                                       .stall_ns = 60 * TD_NS_PER_S,
                                       .hand_over = pass_number,
                                       .on_notice = ignore_notice,
                                       .ctx = handed};
    struct td_front *front;
    assert_ok(td_front_create(loop, &o, &front));
    assert_ok(td_front_start(front));
    for (int i = 0; i < 4; i++) { // the first stays, each other one gives way to the next
        clients[i] = dial(td_front_address(front));
        numbers[i] = next_number(handed);
        assert_true(numbers[i] >= 0);
        if (i == 0) {
            expect_call(td_front_borrow_peers(front), numbers[0], true, peer_of(clients[0]));
        }
    }
    clients[4] = dial(td_front_address(front));         // waits: all four numbers are in use
    assert_int_equal(shutdown(numbers[1], SHUT_WR), 0); // over, and not closed yet
    assert_int_equal(send(numbers[0], "x", 1, 0), 1);
    assert_false(is_closed(clients[0])); // the front has seen both
    close(numbers[1]);
    assert_int_equal(next_number(handed), numbers[1]);
    td_front_destroy(front);
    for (int i = 0; i < 4; i++) {
        close(numbers[i]);
    }
    for (int i = 0; i < 5; i++) {
        close(clients[i]);
    }
    close(handed[0]);
    close(handed[1]);
}

// ---- its certificates ----
struct tls_files {
    char ca[TD_FS_PATH_BYTES], certificate[TD_FS_PATH_BYTES], key[TD_FS_PATH_BYTES];
};

// A server's certificate that ends in five days, and its CA.
static void make_files(const char *dir, struct tls_files *f) {
    const char *host = "127.0.0.1";
    const struct td_authority_terms terms = {
        .use = TD_TLS_SERVER, .name = "c", .hosts = &host, .n_hosts = 1, .lifetime_s = 5 * 86400};
    TD_AUTO(td_authority) *a = NULL;
    TD_AUTO_BUF ca, ca_key, key, request, pem;
    struct td_buf *all[] = {&ca, &ca_key, &key, &request, &pem};
    for (size_t i = 0; i < TD_COUNTOF(all); i++) {
        td_buf_init(all[i], TD_TLS_PEM_MAX);
    }
    assert_ok(td_authority_make("test CA", &ca, &ca_key));
    assert_ok(td_authority_open(td_buf_cstr(&ca), td_buf_cstr(&ca_key), &a));
    assert_ok(td_tls_key_make(&key));
    assert_ok(td_tls_request_make(td_buf_cstr(&key), "c", &request));
    assert_ok(td_authority_issue(a, td_buf_cstr(&request), &terms, &pem));
    assert_ok(td_fs_path(f->ca, "%s/ca.pem", dir));
    assert_ok(td_fs_path(f->certificate, "%s/server.pem", dir));
    assert_ok(td_fs_path(f->key, "%s/server.key", dir));
    assert_ok(td_fs_write(f->ca, ca.data, ca.len, 0600, 0));
    assert_ok(td_fs_write(f->certificate, pem.data, pem.len, 0600, 0));
    assert_ok(td_fs_write(f->key, key.data, key.len, 0600, 0));
}

static void keep_notice(const char *text, void *ctx) {
    char *all = ctx;
    size_t len = strlen(all);
    snprintf(all + len, NOTICES_BYTES - len, "%s\n", text);
}

static void test_warning_of_the_end_and_bad_certificates_are_both_said(void **state) {
    char dir[] = "/tmp/traind-test-XXXXXX", all[NOTICES_BYTES] = "";
    struct tls_files files;
    (void)state;
    assert_non_null(mkdtemp(dir));
    make_files(dir, &files);
    const struct td_tls_paths paths = {files.ca, files.certificate, files.key};
    const struct td_front_options o = {.listen = "0.0.0.0:0",
                                       .max_connections = 2,
                                       .max_per_source = 2,
                                       .max_strangers = 2,
                                       .max_streams = 10,
                                       .first_request_ns = 60 * TD_NS_PER_S,
                                       .stall_ns = 60 * TD_NS_PER_S,
                                       .handshake_ns = 60 * TD_NS_PER_S,
                                       .tls = &paths,
                                       .on_notice = keep_notice,
                                       .ctx = all};
    struct td_front *front;
    assert_ok(td_front_create(loop, &o, &front)); // it warns; nobody takes the text yet
    assert_ok(td_fs_write(files.certificate, "none", 4, 0600, 0));
    assert_ok(td_front_start(front));
    const struct td_mono due = td_mono_add(td_mono_now(), 2 * TD_NS_PER_S);
    while (td_mono_now().ns < due.ns) { // the files are looked at once a second
        int fd = dial(td_front_address(front));
        assert_int_equal(send(fd, "no hello\n", 9, MSG_NOSIGNAL), 9);
        assert_true(is_closed(fd));
        close(fd);
    }
    static const bool never = false;
    td_status_free(td_loop_run_until(loop, &never, TD_NS_PER_S / 10));
    td_front_destroy(front);
    if (!strstr(all, "ends in 4 days")) fail_msg("%s", all);
    if (!strstr(all, "the new certificates cannot be used")) fail_msg("%s", all);
    assert_ok(td_fs_remove_tree(dir));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            test_number_is_not_given_again_while_a_call_of_its_last_connection_may_come, set_up,
            tear_down),
        cmocka_unit_test_setup_teardown(test_number_is_given_again_when_no_call_waited_for_a_while,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_number_is_given_again_when_more_calls_came_than_could_wait, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_number_is_passed_over_when_something_else_has_it,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_connection_of_a_node_takes_no_room_from_the_others,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_listener_goes_on_when_descriptors_are_used_up, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_check_says_so_when_the_listener_does_not_answer,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_client_waited_for_ever_when_its_number_was_closed_after_its_connection, set_up,
            tear_down),
        cmocka_unit_test_setup_teardown(test_call_whose_connection_is_over_is_refused_unjudged,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_owner_and_listener_overwrote_what_the_other_said_of_health, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_warning_of_the_end_and_bad_certificates_are_both_said,
                                        set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
