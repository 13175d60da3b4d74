// The HTTP server of reports over real sockets: answers, refusals that can be read, what is slow,
// what comes in too large a number.

#include "daemon/worker/reports/http.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "lib/base/clock.h"
#include "tests/unit/test.h"

enum { BODY_MAX = 64 << 10, MOST = TD_HTTP_CONNECTIONS };
#define LONG_NS (600 * TD_NS_PER_S)

struct rig {
    struct td_loop *loop;
    struct td_http *http;
    int listen_fd, port;
    int n_admitted, n_taken, n_refused, last_refused;
    size_t body_bytes;
    char body_end; // its last byte
};

// A token is "good"; path "/0" is the only one.
static int admit(void *arg, const struct td_http_head *head, int32_t *out_who) {
    struct rig *r = arg;
    if (head->path_bytes != 2 || memcmp(head->path, "/0", 2) != 0) return 404;
    if (head->token_bytes != 4 || memcmp(head->token, "good", 4) != 0) return 401;
    r->n_admitted++;
    *out_who = 0;
    return 200;
}

static int take(void *arg, int32_t who, const char *body, size_t bytes) {
    struct rig *r = arg;
    assert_int_equal(who, 0);
    r->n_taken++;
    r->body_bytes = bytes;
    r->body_end = bytes ? body[bytes - 1] : '\0';
    return bytes && body[0] == '{' ? 200 : 400;
}

static void refused(void *arg, int32_t who, int status) {
    struct rig *r = arg;
    (void)who;
    r->n_refused++;
    r->last_refused = status;
}

static void begin(struct rig *r, int64_t deadline_ns) {
    *r = (struct rig){.listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    assert_int_equal(bind(r->listen_fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(r->listen_fd, 2 * MOST), 0);
    assert_int_equal(getsockname(r->listen_fd, (struct sockaddr *)&at, &bytes), 0);
    r->port = ntohs(at.sin_port);
    const struct td_http_options o = {.listen_fd = r->listen_fd,
                                      .max_body_bytes = BODY_MAX,
                                      .deadline_ns = deadline_ns,
                                      .admit = admit,
                                      .take = take,
                                      .refused = refused,
                                      .arg = r};
    assert_ok(td_loop_create(&r->loop));
    assert_ok(td_http_create(r->loop, &o, &r->http));
}

static void end(struct rig *r) {
    td_http_destroy(r->http);
    td_loop_destroy(r->loop);
    close(r->listen_fd);
}

static void turn(struct rig *r) {
    assert_ok(td_loop_run_for(r->loop, NULL, TD_NS_PER_MS));
}

static int dial(struct rig *r) {
    const struct sockaddr_in at = {.sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                   .sin_port = htons((uint16_t)r->port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

static void put(struct rig *r, int fd, const char *data, size_t bytes) {
    const struct td_mono until = td_mono_add(td_mono_now(), TD_TEST_WAIT_NS);
    while (bytes > 0 && td_mono_now().ns < until.ns) {
        const ssize_t n = send(fd, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN) return; // the server has closed it
        if (n > 0) data += n;
        if (n > 0) bytes -= (size_t)n;
        turn(r);
    }
}

// Status of the answer; 0: the connection ended without one. All of it is read.
static int answer(struct rig *r, int fd) {
    char text[512];
    size_t len = 0;
    const struct td_mono until = td_mono_add(td_mono_now(), TD_TEST_WAIT_NS);
    for (;;) {
        assert_true(td_mono_now().ns < until.ns);
        turn(r);
        const ssize_t n = recv(fd, text + len, sizeof text - 1 - len, MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN) continue;
        if (n <= 0) break;
        len += (size_t)n;
    }
    close(fd);
    text[len] = '\0';
    if (!len) return 0;
    assert_int_equal(strncmp(text, "HTTP/1.1 ", 9), 0);
    assert_string_equal(text + len - 4, "\r\n\r\n");
    assert_non_null(strstr(text, "Content-Length: 0\r\nConnection: close\r\n"));
    return (int)strtol(text + 9, NULL, 10);
}

// A request of that many bytes of body, of which the first is '{'.
static size_t request(char *out, size_t out_bytes, const char *path, const char *token,
                      size_t body_bytes) {
    const int n = snprintf(out, out_bytes,
                           "POST %s HTTP/1.1\r\nAuthorization: Bearer %s\r\n"
                           "Content-Length: %zu\r\n\r\n",
                           path, token, body_bytes);
    assert_true((size_t)n + body_bytes <= out_bytes);
    memset(out + n, 'x', body_bytes);
    if (body_bytes) out[n] = '{';
    return (size_t)n + body_bytes;
}

static int post(struct rig *r, const char *path, const char *token, size_t body_bytes) {
    static char text[4 << 20];
    const size_t n = request(text, sizeof text, path, token, body_bytes);
    const int fd = dial(r);
    put(r, fd, text, n);
    return answer(r, fd);
}

static void test_a_post_is_taken_and_answered(void **state) {
    (void)state;
    struct rig r;
    begin(&r, LONG_NS);
    assert_int_equal(post(&r, "/0", "good", 10), 200);
    assert_int_equal(r.body_bytes, 10);
    assert_int_equal(r.body_end, 'x');
    assert_int_equal(post(&r, "/0", "good", BODY_MAX), 200);
    assert_int_equal(r.body_bytes, BODY_MAX);
    assert_int_equal(post(&r, "/0", "good", 0), 400); // of what takes it
    assert_int_equal(r.n_taken, 3);
    assert_int_equal(r.last_refused, 400);
    end(&r);
}

static void test_refusals_can_be_read_though_a_body_comes(void **state) {
    (void)state;
    struct rig r;
    begin(&r, LONG_NS);
    assert_int_equal(post(&r, "/0", "evil", 10), 401);
    assert_int_equal(post(&r, "/0", "", 10), 401);
    assert_int_equal(post(&r, "/0", "goo", 10), 401);
    assert_int_equal(post(&r, "/1", "good", 10), 404);
    assert_int_equal(post(&r, "/0", "evil", 200 << 10), 401);
    assert_int_equal(r.n_admitted, 0);
    assert_int_equal(post(&r, "/0", "good", BODY_MAX + 1), 413);
    assert_int_equal(post(&r, "/0", "good", 700 << 10), 413);
    assert_int_equal(r.n_taken, 0);
    assert_int_equal(r.n_refused, 7);
    end(&r);
}

static void test_one_that_sends_without_end_after_its_refusal_is_cut(void **state) {
    (void)state;
    struct rig r;
    begin(&r, LONG_NS);
    static char more[TD_HTTP_DRAIN_MAX];
    const int fd = dial(&r);
    memset(more, 'x', sizeof more);
    const size_t n = request(more, sizeof more, "/0", "evil", 0);
    put(&r, fd, more, n);
    char byte;
    for (int i = 0; i < 64 && send(fd, more, sizeof more, MSG_DONTWAIT | MSG_NOSIGNAL) != -1; i++) {
        put(&r, fd, more, sizeof more);
    }
    assert_true(recv(fd, &byte, 1, MSG_DONTWAIT) != -1 || errno != EAGAIN);
    assert_true(send(fd, more, 1, MSG_NOSIGNAL) < 0);
    close(fd);
    end(&r);
}

static void test_requests_come_in_pieces(void **state) {
    (void)state;
    struct rig r;
    char text[512];
    begin(&r, LONG_NS);
    const size_t n = request(text, sizeof text, "/0", "good", 20);
    const int fd = dial(&r);
    for (size_t i = 0; i < n; i++) {
        put(&r, fd, text + i, 1);
    }
    assert_int_equal(answer(&r, fd), 200);
    assert_int_equal(r.body_bytes, 20);
    end(&r);
}

static void test_requests_without_a_length_or_with_another_method_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int status;
    } cases[] = {
        {"POST /0 HTTP/1.1\r\nAuthorization: Bearer good\r\n\r\n{}", 411},
        {"POST /0 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 501},
        {"GET /0 HTTP/1.1\r\n\r\n", 405},
        {"nonsense\r\n\r\n", 400},
    };
    struct rig r;
    begin(&r, LONG_NS);
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        const int fd = dial(&r);
        put(&r, fd, cases[i].text, strlen(cases[i].text));
        (void)shutdown(fd, SHUT_WR);
        assert_int_equal(answer(&r, fd), cases[i].status);
    }
    assert_int_equal(r.n_taken, 0);
    end(&r);
}

static void test_a_slow_body_is_cut_though_bytes_come(void **state) {
    (void)state;
    struct rig r;
    char text[4096];
    begin(&r, 200 * TD_NS_PER_MS);
    const size_t n = request(text, sizeof text, "/0", "good", 3000);
    const int fd = dial(&r);
    const struct td_mono began = td_mono_now();
    put(&r, fd, text, n - 3000);
    for (size_t i = n - 3000; !r.n_refused; i++) {
        assert_true(i < n); // 3000 turns of 1 ms
        put(&r, fd, text + i, 1);
    }
    assert_true(td_mono_now().ns - began.ns >= 200 * TD_NS_PER_MS);
    assert_int_equal(r.last_refused, 408);
    assert_int_equal(r.n_taken, 0);
    const int status = answer(&r, fd);
    assert_true(status == 408 || status == 0); // bytes that came meanwhile may have taken it along
    end(&r);
}

static void test_connections_past_the_bound_end_the_oldest(void **state) {
    (void)state;
    struct rig r;
    int idle[MOST];
    begin(&r, LONG_NS);
    for (int i = 0; i < MOST; i++) {
        idle[i] = dial(&r);
        turn(&r);
    }
    assert_int_equal(post(&r, "/0", "good", 10), 200);
    char byte;
    assert_int_equal(recv(idle[0], &byte, 1, MSG_DONTWAIT), 0); // ended
    assert_int_equal(recv(idle[1], &byte, 1, MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN); // open
    for (int i = 0; i < MOST; i++) {
        close(idle[i]);
    }
    end(&r);
}

static void test_connections_that_end_early_leave_nothing(void **state) {
    (void)state;
    struct rig r;
    begin(&r, LONG_NS);
    for (int i = 0; i < 3 * MOST; i++) {
        const int fd = dial(&r);
        put(&r, fd, "POST /0 HT", i % 10);
        close(fd);
        turn(&r);
    }
    assert_int_equal(post(&r, "/0", "good", 10), 200);
    end(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_post_is_taken_and_answered),
        cmocka_unit_test(test_refusals_can_be_read_though_a_body_comes),
        cmocka_unit_test(test_one_that_sends_without_end_after_its_refusal_is_cut),
        cmocka_unit_test(test_requests_come_in_pieces),
        cmocka_unit_test(test_requests_without_a_length_or_with_another_method_are_refused),
        cmocka_unit_test(test_a_slow_body_is_cut_though_bytes_come),
        cmocka_unit_test(test_connections_past_the_bound_end_the_oldest),
        cmocka_unit_test(test_connections_that_end_early_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
