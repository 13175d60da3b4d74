// Frames: any cut of the stream gives the same frames, and hostile streams end with a status.
// The random walk is seeded, so a failure comes back.

#include "lib/base/frame.h"
#include "tests/unit/test.h"

static void test_frames_come_out_whole_when_bytes_come_in_pieces(void **state) {
    (void)state;
    TD_AUTO_BUF stream;
    td_buf_init(&stream, 1 << 20);
    for (uint16_t i = 0; i < 20; i++) {
        char body[100];
        memset(body, 'a' + i, sizeof body);
        assert_ok(td_frame_append(&stream, i, 1, body, i * 5u));
    }
    for (size_t step = 1; step < stream.len; step = step * 2 + 1) {
        struct td_frame_reader r;
        struct td_frame f;
        bool have;
        uint16_t next = 0;
        td_frame_reader_init(&r);
        for (size_t at = 0; at < stream.len; at += step) {
            assert_ok(td_frame_reader_feed(&r, stream.data + at, TD_MIN(step, stream.len - at)));
            for (;;) {
                assert_ok(td_frame_reader_next(&r, &f, &have));
                if (!have) break;
                assert_int_equal(f.type, next);
                assert_int_equal(f.version_major, 1);
                assert_int_equal(f.body_bytes, next * 5u);
                if (next > 0) assert_int_equal(f.body[f.body_bytes - 1], 'a' + next);
                next++;
            }
        }
        assert_int_equal(next, 20);
        td_frame_reader_finish(&r);
    }
}

static void test_bytes_on_the_wire_are_little_endian_when_framed(void **state) {
    (void)state;
    TD_AUTO_BUF stream;
    td_buf_init(&stream, 100);
    assert_ok(td_frame_append(&stream, 0x0102, 0x0304, "xy", 2));
    assert_int_equal(stream.len, 10);
    assert_memory_equal(stream.data, "\x02\0\0\0\x02\x01\x04\x03xy", 10);
}

static void test_frame_is_refused_when_too_large(void **state) {
    (void)state;
    static char body[TD_FRAME_MAX + 1];
    TD_AUTO_BUF stream;
    td_buf_init(&stream, 4 << 20);
    assert_fails(td_frame_append(&stream, 1, 1, body, sizeof body), TD_RESOURCE_EXHAUSTED,
                 "1048577");
    assert_int_equal(stream.len, 0);
    assert_ok(td_frame_append(&stream, 1, 1, body, TD_FRAME_MAX));
    struct td_frame_reader r;
    struct td_frame f;
    bool have;
    td_frame_reader_init(&r);
    assert_ok(td_frame_reader_feed(&r, stream.data, stream.len));
    assert_ok(td_frame_reader_next(&r, &f, &have));
    assert_true(have && f.body_bytes == TD_FRAME_MAX);
    assert_ok(td_frame_reader_feed(&r, "\x01\0\x10\0\0\0\0\0", 8)); // 2^20 + 1
    assert_fails(td_frame_reader_next(&r, &f, &have), TD_DATA_LOSS, "damaged");
    td_frame_reader_finish(&r);
}

static void test_feed_is_refused_when_nobody_takes_frames(void **state) {
    (void)state;
    static char zeros[1 << 16];
    struct td_frame_reader r;
    td_status s = TD_OK;
    td_frame_reader_init(&r);
    for (int i = 0; i < 40 && !s; i++) {
        s = td_frame_reader_feed(&r, zeros, sizeof zeros);
    }
    assert_fails(s, TD_RESOURCE_EXHAUSTED, "");
    td_frame_reader_finish(&r);
}

static void test_append_leaves_nothing_when_the_buffer_is_full(void **state) {
    (void)state;
    TD_AUTO_BUF stream;
    td_buf_init(&stream, 20);
    assert_ok(td_frame_append(&stream, 1, 1, "12345", 5));
    assert_fails(td_frame_append(&stream, 1, 1, "", 0), TD_RESOURCE_EXHAUSTED, "");
    assert_int_equal(stream.len, 13);
}

static void test_reader_lives_when_bytes_are_random(void **state) {
    (void)state;
    uint32_t x = 12345;
    for (int round = 0; round < 300; round++) {
        struct td_frame_reader r;
        td_frame_reader_init(&r);
        td_status s = TD_OK;
        for (int i = 0; i < 50 && !s; i++) {
            uint8_t bytes[97];
            for (size_t k = 0; k < sizeof bytes; k++) {
                x = x * 1664525u + 1013904223u;
                bytes[k] = (uint8_t)(x >> 24);
                if (k % 4 >= 1 && round % 2) bytes[k] = 0; // small lengths are the interesting ones
            }
            s = td_frame_reader_feed(&r, bytes, x >> 16 & 63);
            bool have = true;
            while (!s && have) {
                struct td_frame f;
                s = td_frame_reader_next(&r, &f, &have);
                if (!s && have && f.body_bytes) x ^= f.body[0] ^ f.body[f.body_bytes - 1];
            }
        }
        td_status_free(s);
        td_frame_reader_finish(&r);
    }
}

static td_status pass_through(void *arg) {
    (void)arg;
    TD_AUTO_BUF stream;
    td_buf_init(&stream, 1000);
    struct td_frame_reader r;
    td_frame_reader_init(&r);
    td_status s = td_frame_append(&stream, 1, 1, "body", 4);
    if (!s) s = td_frame_reader_feed(&r, stream.data, stream.len);
    td_frame_reader_finish(&r);
    return s;
}

static void test_frames_fail_cleanly_when_out_of_memory(void **state) {
    td_test_failing_allocations(pass_through, state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frames_come_out_whole_when_bytes_come_in_pieces),
        cmocka_unit_test(test_bytes_on_the_wire_are_little_endian_when_framed),
        cmocka_unit_test(test_frame_is_refused_when_too_large),
        cmocka_unit_test(test_feed_is_refused_when_nobody_takes_frames),
        cmocka_unit_test(test_append_leaves_nothing_when_the_buffer_is_full),
        cmocka_unit_test(test_reader_lives_when_bytes_are_random),
        cmocka_unit_test(test_frames_fail_cleanly_when_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
