// A relay whose client stops reading: what waits for it is bounded, it is cut at its deadline, and
// descriptors and buffers go. And one that asks for more than may be read of it now. The client and
// gRPC are the far ends of two socket pairs.

#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <sys/socket.h>

#include "lib/base/clock.h"
#include "lib/loop/loop.h"
#include "lib/rpc/front/relay.h"

enum { FRAME = 16384, PAIR_BYTES = 64 << 10 };

struct fixture {
    struct td_loop *loop;
    struct td_relay *relay;
    uint8_t scratch[TD_RELAY_SCRATCH];
    int client, grpc;               // far ends
    int client_inside, grpc_inside; // the relay's
    size_t held_before;
    bool cut, ended;
    size_t may_read;
    char reason[64], text[256];
};

static size_t held(void) {
    struct mallinfo2 m = mallinfo2(); // zeros under a sanitizer, which counts leaks by itself
    return m.uordblks + m.hblkhd;
}

static void on_cut(td_status take_why, void *owner) {
    struct fixture *f = owner;
    f->cut = true;
    snprintf(f->reason, sizeof f->reason, "%s", td_status_reason(take_why));
    snprintf(f->text, sizeof f->text, "%s", td_status_message(take_why));
    td_status_free(take_why);
}

static void on_end(void *owner) {
    struct fixture *f = owner;
    f->ended = true;
    td_relay_destroy(td_steal(f->relay));
}

static size_t may_read(uint32_t n_requests, void *owner) {
    const struct fixture *f = owner;
    return n_requests < 2 ? SIZE_MAX : f->may_read;
}

static void make_pair(int *out_far, int *out_near) {
    int pair[2], bytes = PAIR_BYTES;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes), 0);
    }
    *out_far = pair[0];
    *out_near = pair[1];
}

static struct fixture *make_fixture(void) {
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->may_read = SIZE_MAX;
    return f;
}

static void begin_with(struct fixture *f, int64_t stall_ns, int64_t first_request_ns) {
    assert_ok(td_loop_create(&f->loop));
    make_pair(&f->client, &f->client_inside);
    make_pair(&f->grpc, &f->grpc_inside);
    f->held_before = held();
    const struct td_relay_options o = {.scratch = f->scratch,
                                       .first_request_ns = first_request_ns,
                                       .stall_ns = stall_ns,
                                       .on_cut = on_cut,
                                       .on_end = on_end,
                                       .may_read = may_read,
                                       .owner = f};
    assert_ok(td_relay_create(f->loop, &o, f->client_inside, f->grpc_inside, &f->relay));
}

static void begin(struct fixture *f, int64_t stall_ns) {
    begin_with(f, stall_ns, TD_TEST_WAIT_NS);
}

static void finish(struct fixture *f) {
    td_loop_destroy(f->loop);
    close(f->client);
    if (f->grpc >= 0) close(f->grpc);
    free(f);
}

static void turn(struct fixture *f) {
    static const bool never = false;
    td_status s = td_loop_run_until(f->loop, &never, TD_NS_PER_MS);
    assert_fails(s, TD_DEADLINE_EXCEEDED, "");
}

// Frames of data from gRPC until nobody takes any more, the client is cut, or it is `most`; how
// many bytes were taken.
static size_t fill(struct fixture *f, size_t most) {
    uint8_t frame[9 + FRAME] = {0, FRAME >> 8, FRAME & 0xff, 0, 0, 0, 0, 0, 1};
    size_t sent = 0, at = 0;
    bool was_cut = f->cut;
    for (int refused = 0; refused < 3 && sent < most && f->cut == was_cut;) {
        ssize_t n = send(f->grpc, frame + at, sizeof frame - at, MSG_NOSIGNAL);
        assert_true(n > 0 || errno == EAGAIN);
        refused = n > 0 ? 0 : refused + 1;
        if (n > 0) at = (at + (size_t)n) % sizeof frame;
        if (n > 0) sent += (size_t)n;
        if (n < 0) turn(f);
    }
    return sent;
}

static size_t read_all(int fd, ssize_t *out_last) {
    static char bytes[65536];
    size_t all = 0;
    while ((*out_last = recv(fd, bytes, sizeof bytes, 0)) > 0) {
        all += (size_t)*out_last;
    }
    return all;
}

static void expect_gone(struct fixture *f) {
    assert_null(f->relay);
    assert_int_equal(fcntl(f->client_inside, F_GETFD), -1);
    assert_int_equal(fcntl(f->grpc_inside, F_GETFD), -1);
    assert_in_range(held(), 0, f->held_before + 4096); // the loop's own lists may have grown
}

static void test_client_is_cut_when_it_reads_nothing_before_the_stall_deadline(void **state) {
    (void)state;
    ssize_t last;
    struct fixture *f = make_fixture();
    begin(f, TD_NS_PER_S / 2);
    size_t sent = fill(f, SIZE_MAX);
    assert_in_range(sent, 2 * FRAME, TD_RELAY_SCRATCH + 8 * PAIR_BYTES); // it is bounded
    if (f->held_before && !f->cut) {
        assert_true(held() > f->held_before + FRAME); // some waits inside
    }
    assert_ok(td_loop_run_until(f->loop, &f->cut, TD_TEST_WAIT_NS));
    assert_string_equal(f->reason, "READER_STALLED");
    assert_string_equal(f->text, "the client has read nothing for 500 ms");
    assert_true(read_all(f->client, &last) < sent); // what had left, and then the end
    assert_int_equal(last, 0);
    assert_int_equal(read_all(f->grpc, &last), 0);
    assert_int_equal(last, 0); // gRPC learns of it
    assert_true(fill(f, 4 << 20) >=
                4 << 20); // what gRPC still says is dropped, and holds up nobody
    assert_false(f->ended);
    close(td_steal_fd(&f->grpc));
    assert_ok(td_loop_run_until(f->loop, &f->ended, TD_TEST_WAIT_NS));
    expect_gone(f);
    finish(f);
}

static void test_relay_ends_when_grpc_has_closed_and_its_client_reads_nothing(void **state) {
    (void)state;
    struct fixture *f = make_fixture();
    begin(f, TD_NS_PER_S / 2);
    (void)fill(f, SIZE_MAX);
    close(td_steal_fd(&f->grpc));
    turn(f);
    assert_false(f->ended); // the client has the rest of its time
    assert_ok(td_loop_run_until(f->loop, &f->ended, TD_TEST_WAIT_NS));
    assert_string_equal(f->reason, "READER_STALLED");
    expect_gone(f);
    finish(f);
}

static void test_stall_deadline_is_over_when_the_client_has_read_all(void **state) {
    (void)state;
    ssize_t last;
    struct fixture *f = make_fixture();
    begin(f, TD_TEST_WAIT_NS);
    size_t sent = fill(f, SIZE_MAX), got = 0;
    for (struct td_mono end = td_mono_add(td_mono_now(), TD_TEST_WAIT_NS);
         got < sent && td_mono_now().ns < end.ns; turn(f)) {
        got += read_all(f->client, &last);
    }
    assert_int_equal(got, sent);
    assert_false(f->cut);
    assert_in_range(held(), 0, f->held_before + 8192); // the relay itself, no buffer
    close(td_steal_fd(&f->grpc));
    assert_ok(td_loop_run_until(f->loop, &f->ended, TD_TEST_WAIT_NS));
    expect_gone(f);
    finish(f);
}

// A whole request without a body, on a stream of its own. gRPC knows it by its header block.
static void ask(struct fixture *f, uint8_t stream) {
    const uint8_t request[] = {
        0, 0, 1, TD_H2_FRAME_HEADERS, TD_H2_END_HEADERS | TD_H2_END_STREAM, 0, 0, 0, stream, 0x83};
    assert_int_equal(send(f->client, request, sizeof request, 0), sizeof request);
}

static void begin_two_requests(struct fixture *f) {
    static const char hello[] = TD_H2_PREFACE "\0\0\0\4\0\0\0\0";
    assert_int_equal(send(f->client, hello, sizeof hello, 0), sizeof hello); // its zero, too
    ask(f, 1);
    ask(f, 3);
    while (!f->cut && td_relay_n_requests(f->relay) < 2) {
        turn(f);
    }
}

static void test_requests_wait_in_their_socket_while_no_more_may_be_read(void **state) {
    (void)state;
    ssize_t last;
    struct fixture *f = make_fixture();
    f->may_read = 0;
    begin_with(f, TD_TEST_WAIT_NS, TD_TEST_WAIT_NS);
    begin_two_requests(f);
    ask(f, 5);
    for (int i = 0; i < 20; i++) {
        turn(f);
    }
    assert_int_equal(td_relay_n_requests(f->relay), 2);
    f->may_read = 5; // in pieces
    for (struct td_mono end = td_mono_add(td_mono_now(), TD_TEST_WAIT_NS);
         td_relay_n_requests(f->relay) < 3 && td_mono_now().ns < end.ns;) {
        turn(f);
    }
    assert_int_equal(read_all(f->grpc, &last), TD_H2_PREFACE_BYTES + 9 + 3 * 10);
    close(td_steal_fd(&f->grpc));
    assert_ok(td_loop_run_until(f->loop, &f->ended, TD_TEST_WAIT_NS));
    finish(f);
}

static void test_client_is_cut_when_its_requests_are_held_for_too_long(void **state) {
    (void)state;
    struct fixture *f = make_fixture();
    f->may_read = 0;
    begin_with(f, TD_TEST_WAIT_NS, TD_NS_PER_S / 2);
    begin_two_requests(f);
    assert_ok(td_loop_run_until(f->loop, &f->cut, TD_TEST_WAIT_NS));
    assert_string_equal(f->reason, "REQUESTS_HELD");
    close(td_steal_fd(&f->grpc));
    assert_ok(td_loop_run_until(f->loop, &f->ended, TD_TEST_WAIT_NS));
    expect_gone(f);
    finish(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_client_is_cut_when_it_reads_nothing_before_the_stall_deadline),
        cmocka_unit_test(test_relay_ends_when_grpc_has_closed_and_its_client_reads_nothing),
        cmocka_unit_test(test_stall_deadline_is_over_when_the_client_has_read_all),
        cmocka_unit_test(test_requests_wait_in_their_socket_while_no_more_may_be_read),
        cmocka_unit_test(test_client_is_cut_when_its_requests_are_held_for_too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
