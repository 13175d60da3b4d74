// Fuzz entry of lib/rpc/h2_guard: any bytes as what a client sends after it has connected well. The
// verdict is the same whole and in pieces of a size that the first byte chooses. An open header
// block never grows above its bound. Bytes of the server, any at all, are watched without harm. Run
// by tests/unit/fuzz/messages/test_fuzz_h2_guard.c.

#include "tests/fuzz/fuzz.h"

#include "lib/rpc/front/h2_guard.h"

static const char hello[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

// How many bytes passed before the refusal cannot differ, but for the piece it came in.
static bool take(const uint8_t *data, size_t size, size_t piece, struct td_h2_guard *g) {
    const struct td_mono now = {TD_NS_PER_S};
    td_h2_guard_init(g);
    td_fuzz_expect(!td_h2_guard_take(g, now, hello, sizeof hello - 1));
    for (size_t at = 0; at < size; at += piece) {
        td_status s = td_h2_guard_take(g, now, data + at, TD_MIN(piece, size - at));
        if (s) {
            td_fuzz_expect_refusal(s, TD_INVALID_ARGUMENT, TD_RESOURCE_EXHAUSTED);
            return false;
        }
        td_fuzz_expect(g->block_bytes <= TD_H2_BLOCK_MAX);
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    struct td_h2_guard whole, pieces;
    bool a = take(data + 1, size - 1, size, &whole);
    bool b = take(data + 1, size - 1, 1U + data[0] % 32, &pieces);
    td_fuzz_expect(a == b);
    td_fuzz_expect(!a ||
                   (whole.n_requests == pieces.n_requests && whole.in_block == pieces.in_block &&
                    whole.in.n_left == pieces.in.n_left));
    td_h2_guard_init(&whole);
    td_h2_guard_watch(&whole, data, size);
    td_h2_guard_init(&pieces);
    for (size_t at = 0; at < size; at++) {
        td_h2_guard_watch(&pieces, data + at, 1);
    }
    td_fuzz_expect(whole.max_frame == pieces.max_frame && whole.out.n_left == pieces.out.n_left);
    uint8_t frame[TD_H2_GOAWAY_MAX];
    if (td_h2_guard_is_between(&whole)) {
        td_fuzz_expect(td_h2_goaway(&whole, 1, TD_H2_NO_ERROR, "x", frame) <= sizeof frame);
    }
    return 0;
}
