// A bounded run of the fuzz entry of result frames: streams that ranks send, then mutations of
// them.

#include "tests/unit/test.h"

#include "tests/fuzz/messages/fuzz_result_frame.c"

static const char *const words[] = {"FSRT", "loss", "weights.safetensors", "rank", "a/b/c"};

// The streams of a rank that succeeds, and of one that fails.
static size_t record(bool fails, uint8_t *out, size_t size) {
    struct link l = connect_both();
    const double loss = 0.25;
    const int64_t steps = 7;
    out[0] = 5; // the size of pieces
    assert_ok(td_result_send(l.rank, TD_RESULT_DOUBLE, "loss", &loss, sizeof loss));
    assert_ok(td_result_send(l.rank, TD_RESULT_INT, "steps", &steps, sizeof steps));
    assert_ok(td_result_send(l.rank, TD_RESULT_BYTES, "curve", words, 40));
    if (fails) {
        td_status s = td_status_with_class(td_fail(TD_DATA_LOSS, "row %d", 3), TD_CLASS_DATA);
        s = td_status_with_meta(s, "file", "%s", "a.bin");
        s = td_status_with_field(td_status_with_reason(s, "DAMAGED"), "data.path", "%s", "bad");
        assert_ok(td_result_send_status(l.rank, s));
        td_status_free(s);
    } else {
        assert_ok(td_result_send(l.rank, TD_RESULT_BEST_PATH, "", "a/step-3", 8));
        assert_ok(td_result_send(l.rank, TD_RESULT_WEIGHTS, "w", NULL, 0));
        assert_ok(td_result_send(l.rank, TD_RESULT_DONE, "", NULL, 0));
    }
    const ssize_t n = recv(l.parent, out + 1, size - 1, MSG_DONTWAIT);
    assert_true(n > 0);
    close(l.parent);
    close(l.rank);
    return (size_t)n + 1;
}

static void test_results_hold_when_fed_mutated_streams(void **state) {
    (void)state;
    static uint8_t done[TD_FUZZ_MAX], failed[TD_FUZZ_MAX];
    const struct td_fuzz_input corpus[] = {
        {done, record(false, done, sizeof done)},
        {failed, record(true, failed, sizeof failed)},
        {"", 0},
    };
    td_fuzz_arrays(corpus, words, 5000);
}

TD_FUZZ_MAIN(test_results_hold_when_fed_mutated_streams)
