// The guard on HTTP/2 framing, fed with the bytes of clients that mean well and of those that do
// not, in one piece and byte by byte.

#include "tests/unit/test.h"

#include "lib/rpc/front/h2_guard.h"

static const struct td_mono start = {1000 * TD_NS_PER_S};

struct stream {
    uint8_t bytes[1 << 20];
    size_t n;
};

static struct stream stream;

static void put(const void *data, size_t bytes) {
    assert_true(stream.n + bytes <= sizeof stream.bytes);
    memcpy(stream.bytes + stream.n, data, bytes);
    stream.n += bytes;
}

static void put_frame(unsigned type, unsigned flags, unsigned id, size_t bytes) {
    const uint8_t header[TD_H2_HEADER_BYTES] = {
        (uint8_t)(bytes >> 16), (uint8_t)(bytes >> 8), (uint8_t)bytes,
        (uint8_t)type,          (uint8_t)flags,        0,
        (uint8_t)(id >> 16),    (uint8_t)(id >> 8),    (uint8_t)id};
    static const uint8_t payload[TD_H2_FRAME_MIN + 100];
    put(header, sizeof header);
    put(payload, TD_MIN(bytes, sizeof payload));
}

// A client that has just connected.
static void begin(void) {
    stream.n = 0;
    put(TD_H2_PREFACE, TD_H2_PREFACE_BYTES);
    put_frame(TD_H2_FRAME_SETTINGS, 0, 0, 6);
    put_frame(TD_H2_FRAME_SETTINGS, TD_H2_ACK, 0, 0);
}

static td_status feed(struct td_h2_guard *g, struct td_mono now, size_t piece) {
    for (size_t at = 0; at < stream.n; at += piece) {
        TD_TRY(td_h2_guard_take(g, now, stream.bytes + at, TD_MIN(piece, stream.n - at)));
    }
    return TD_OK;
}

// Whole, then in pieces: the verdict is the same.
static void expect(enum td_code code, const char *words) {
    const size_t pieces[] = {sizeof stream.bytes, 1, 7};
    for (size_t i = 0; i < TD_COUNTOF(pieces); i++) {
        struct td_h2_guard g;
        td_h2_guard_init(&g);
        td_status s = feed(&g, start, pieces[i]);
        if (code == TD_CODE_OK) {
            assert_ok(s);
        } else {
            assert_fails(s, code, words);
        }
    }
}

static void test_call_passes_when_it_is_like_any_clients(void **state) {
    (void)state;
    begin();
    put_frame(TD_H2_FRAME_HEADERS, 0, 1, 5000);
    put_frame(TD_H2_FRAME_CONTINUATION, 0, 1, 5000);
    put_frame(TD_H2_FRAME_CONTINUATION, TD_H2_END_HEADERS, 1, 5000);
    for (int i = 0; i < 20; i++) {
        put_frame(TD_H2_FRAME_DATA, 0, 1, TD_H2_FRAME_MIN);
    }
    put_frame(TD_H2_FRAME_DATA, TD_H2_END_STREAM, 1, 0);
    put_frame(TD_H2_FRAME_PING, 0, 0, 8);
    put_frame(TD_H2_FRAME_WINDOW_UPDATE, 0, 0, 4);
    put_frame(TD_H2_FRAME_RST_STREAM, 0, 1, 4);
    put_frame(TD_H2_FRAME_GOAWAY, 0, 0, 12);
    put_frame(99, 0, 0, 100); // a type that is not known is passed over by HTTP/2
    expect(TD_CODE_OK, NULL);
}

static void test_requests_are_counted_when_their_headers_are_whole(void **state) {
    (void)state;
    struct td_h2_guard g;
    td_h2_guard_init(&g);
    begin();
    put_frame(TD_H2_FRAME_HEADERS, 0, 1, 10);
    assert_ok(feed(&g, start, 3));
    assert_int_equal(td_h2_guard_n_requests(&g), 0);
    stream.n = 0;
    put_frame(TD_H2_FRAME_CONTINUATION, TD_H2_END_HEADERS, 1, 10);
    put_frame(TD_H2_FRAME_HEADERS, TD_H2_END_HEADERS, 3, 10);
    put_frame(TD_H2_FRAME_HEADERS, TD_H2_END_HEADERS | TD_H2_END_STREAM, 3, 10); // trailers
    assert_ok(feed(&g, start, 3));
    assert_int_equal(td_h2_guard_n_requests(&g), 2);
}

static void test_client_is_cut_when_it_does_not_speak_http2(void **state) {
    (void)state;
    const char *const other[] = {"GET / HTTP/1.1\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\rX",
                                 "\x16\x03\x01\x02"};
    for (size_t i = 0; i < TD_COUNTOF(other); i++) {
        stream.n = 0;
        put(other[i], strlen(other[i]));
        expect(TD_INVALID_ARGUMENT, "does not speak HTTP/2");
    }
    const unsigned first[] = {TD_H2_FRAME_HEADERS, TD_H2_FRAME_PING, TD_H2_FRAME_DATA,
                              TD_H2_FRAME_CONTINUATION};
    for (size_t i = 0; i < TD_COUNTOF(first); i++) {
        stream.n = 0;
        put(TD_H2_PREFACE, TD_H2_PREFACE_BYTES);
        put_frame(first[i], 0, 0, 8);
        expect(TD_INVALID_ARGUMENT, "first frame is not SETTINGS");
    }
}

static void test_header_block_is_bounded_when_continuations_never_end(void **state) {
    (void)state;
    const size_t sizes[] = {0, 1, 1000, TD_H2_FRAME_MIN};
    for (size_t i = 0; i < TD_COUNTOF(sizes); i++) {
        begin();
        put_frame(TD_H2_FRAME_HEADERS, 0, 1, 100);
        size_t n = TD_H2_BLOCK_MAX / (sizes[i] + TD_H2_HEADER_BYTES) + 1;
        for (size_t k = 0; k < n; k++) {
            put_frame(TD_H2_FRAME_CONTINUATION, 0, 1, sizes[i]);
        }
        expect(TD_RESOURCE_EXHAUSTED, "header block");
    }
    begin(); // just fits, and the next one begins at nothing
    for (unsigned id = 1; id < 5; id += 2) {
        put_frame(TD_H2_FRAME_HEADERS, TD_H2_END_HEADERS, id, TD_H2_BLOCK_MAX);
    }
    expect(TD_CODE_OK, NULL);
    begin();
    put_frame(TD_H2_FRAME_HEADERS, TD_H2_END_HEADERS, 1, TD_H2_BLOCK_MAX + 1);
    expect(TD_RESOURCE_EXHAUSTED, "header block");
}

static void test_frame_is_refused_when_it_is_out_of_place(void **state) {
    (void)state;
    begin();
    put_frame(TD_H2_FRAME_CONTINUATION, TD_H2_END_HEADERS, 1, 4);
    expect(TD_INVALID_ARGUMENT, "not open");
    begin();
    put_frame(TD_H2_FRAME_HEADERS, 0, 1, 4);
    put_frame(TD_H2_FRAME_PING, 0, 0, 8);
    expect(TD_INVALID_ARGUMENT, "not complete");
    begin();
    put_frame(TD_H2_FRAME_HEADERS, 0, 1, 4);
    put_frame(TD_H2_FRAME_CONTINUATION, 0, 3, 4); // of another stream
    expect(TD_INVALID_ARGUMENT, "not complete");
    begin();
    put_frame(TD_H2_FRAME_PUSH_PROMISE, 0, 1, 4);
    expect(TD_INVALID_ARGUMENT, "PUSH_PROMISE");
}

static void test_frame_is_refused_when_its_size_is_wrong(void **state) {
    (void)state;
    static const struct {
        unsigned type;
        size_t bytes;
    } bad[] = {{TD_H2_FRAME_PING, 7},
               {TD_H2_FRAME_PING, 9},
               {TD_H2_FRAME_RST_STREAM, 5},
               {TD_H2_FRAME_PRIORITY, 4},
               {TD_H2_FRAME_SETTINGS, 606},
               {TD_H2_FRAME_WINDOW_UPDATE, 0},
               {TD_H2_FRAME_DATA, TD_H2_FRAME_MIN + 1},
               {TD_H2_FRAME_GOAWAY, TD_H2_FRAME_MIN + 1},
               {77, TD_H2_FRAME_MIN + 1}};
    for (size_t i = 0; i < TD_COUNTOF(bad); i++) {
        begin();
        put_frame(bad[i].type, 0, 1, bad[i].bytes);
        expect(TD_INVALID_ARGUMENT, "bytes");
    }
}

static void test_larger_data_passes_when_the_server_announced_it(void **state) {
    (void)state;
    const uint8_t settings[] = {
        0, 0, 12, TD_H2_FRAME_SETTINGS, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0, 5, 0, 0, 64, 64};
    for (size_t piece = 1; piece <= sizeof settings; piece += 4) {
        struct td_h2_guard g;
        td_h2_guard_init(&g);
        assert_true(td_h2_guard_is_between(&g));
        for (size_t at = 0; at < sizeof settings; at += piece) {
            td_h2_guard_watch(&g, settings + at, TD_MIN(piece, sizeof settings - at));
            assert_int_equal(td_h2_guard_is_between(&g), at + piece >= sizeof settings);
        }
        begin();
        put_frame(TD_H2_FRAME_DATA, 0, 1, 16448);
        assert_ok(feed(&g, start, 1000));
        stream.n = 0;
        put_frame(TD_H2_FRAME_DATA, 0, 1, 16449);
        assert_fails(feed(&g, start, 1000), TD_INVALID_ARGUMENT, "16448");
    }
}

static void test_control_frames_are_cut_when_they_flood(void **state) {
    (void)state;
    static const struct {
        unsigned type;
        size_t bytes;
        int most;
        const char *words;
    } flood[] = {{TD_H2_FRAME_SETTINGS, 0, 98, "SETTINGS"},
                 {TD_H2_FRAME_PING, 8, 500, "PING"},
                 {TD_H2_FRAME_RST_STREAM, 4, 1000, "RST_STREAM"},
                 {TD_H2_FRAME_PRIORITY, 5, 500, "PRIORITY"},
                 {TD_H2_FRAME_WINDOW_UPDATE, 4, 10000, "WINDOW_UPDATE"},
                 {TD_H2_FRAME_DATA, 0, 1000, "empty DATA"},
                 {99, 0, 100, "unknown"}};
    for (size_t i = 0; i < TD_COUNTOF(flood); i++) {
        begin();
        for (int n = 0; n < flood[i].most; n++) {
            put_frame(flood[i].type, 0, 1, flood[i].bytes);
        }
        expect(TD_CODE_OK, NULL); // what a connection may send at once
        put_frame(flood[i].type, 0, 1, flood[i].bytes);
        expect(TD_RESOURCE_EXHAUSTED, flood[i].words);
    }
}

static void test_control_frames_pass_when_time_goes_by(void **state) {
    (void)state;
    struct td_h2_guard g;
    td_h2_guard_init(&g);
    begin();
    for (int n = 0; n < 98; n++) {
        put_frame(TD_H2_FRAME_SETTINGS, 0, 0, 0);
    }
    assert_ok(feed(&g, start, 1000));
    stream.n = 0;
    for (int n = 0; n < 20; n++) {
        put_frame(TD_H2_FRAME_SETTINGS, 0, 0, 0);
    }
    assert_ok(feed(&g, (struct td_mono){start.ns + TD_NS_PER_S}, 1000));
    assert_fails(feed(&g, (struct td_mono){start.ns + TD_NS_PER_S}, 1000), TD_RESOURCE_EXHAUSTED,
                 "SETTINGS");
}

// gRPC's clients send a WINDOW_UPDATE for each small message, others a PING for each DATA frame.
static void test_answers_pass_when_the_server_sends_many_messages(void **state) {
    (void)state;
    struct td_h2_guard g;
    td_h2_guard_init(&g);
    begin();
    assert_ok(feed(&g, start, 1000));
    for (int n = 0; n < 100000; n++) {
        stream.n = 0;
        put_frame(TD_H2_FRAME_DATA, 0, 1, 6);
        td_h2_guard_watch(&g, stream.bytes, stream.n);
        stream.n = 0;
        put_frame(TD_H2_FRAME_WINDOW_UPDATE, 0, 0, 4);
        put_frame(TD_H2_FRAME_WINDOW_UPDATE, 0, 1, 4);
        put_frame(TD_H2_FRAME_PING, 0, 0, 8);
        assert_ok(feed(&g, start, 1000));
    }
}

static void test_requests_are_cut_when_none_is_waited_for(void **state) {
    (void)state;
    begin();
    for (unsigned i = 0; i <= TD_H2_OPEN_MAX; i++) {
        put_frame(TD_H2_FRAME_HEADERS, TD_H2_END_HEADERS | TD_H2_END_STREAM, 2 * i + 1, 10);
    }
    expect(TD_RESOURCE_EXHAUSTED, "requests at once");
    struct td_h2_guard g;
    td_h2_guard_init(&g);
    begin();
    assert_ok(feed(&g, start, 1000));
    for (unsigned i = 0; i < 5 * TD_H2_OPEN_MAX; i++) { // answered, one after the other
        stream.n = 0;
        put_frame(TD_H2_FRAME_HEADERS, TD_H2_END_HEADERS | TD_H2_END_STREAM, 2 * i + 1, 10);
        assert_ok(feed(&g, start, 1000));
        td_h2_guard_watch(&g, stream.bytes, stream.n);
    }
}

static void test_goaway_says_why_when_a_connection_is_cut(void **state) {
    (void)state;
    struct td_h2_guard g, reader;
    uint8_t out[TD_H2_GOAWAY_MAX];
    char text[400];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    td_h2_guard_init(&g);
    size_t n = td_h2_goaway(&g, 0, TD_H2_ENHANCE_YOUR_CALM, "why", out);
    assert_int_equal(n, 9 + 9 + 8 + 3);
    assert_memory_equal(out + n - 3, "why", 3);
    assert_int_equal(out[n - 4], TD_H2_ENHANCE_YOUR_CALM);
    n = td_h2_goaway(&g, 7, TD_H2_PROTOCOL_ERROR, text, out);
    assert_int_equal(n, TD_H2_GOAWAY_MAX);
    td_h2_guard_init(&reader);
    td_h2_guard_watch(&reader, out, n);
    assert_true(td_h2_guard_is_between(&reader));
    n = td_h2_goaway(&reader, 7, TD_H2_PROTOCOL_ERROR, "", out); // no second SETTINGS
    assert_int_equal(n, 9 + 8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_call_passes_when_it_is_like_any_clients),
        cmocka_unit_test(test_requests_are_counted_when_their_headers_are_whole),
        cmocka_unit_test(test_client_is_cut_when_it_does_not_speak_http2),
        cmocka_unit_test(test_header_block_is_bounded_when_continuations_never_end),
        cmocka_unit_test(test_frame_is_refused_when_it_is_out_of_place),
        cmocka_unit_test(test_frame_is_refused_when_its_size_is_wrong),
        cmocka_unit_test(test_larger_data_passes_when_the_server_announced_it),
        cmocka_unit_test(test_control_frames_are_cut_when_they_flood),
        cmocka_unit_test(test_control_frames_pass_when_time_goes_by),
        cmocka_unit_test(test_answers_pass_when_the_server_sends_many_messages),
        cmocka_unit_test(test_requests_are_cut_when_none_is_waited_for),
        cmocka_unit_test(test_goaway_says_why_when_a_connection_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
