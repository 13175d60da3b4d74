// Fuzz entry of what a Trainer of Hugging Face posts: any bytes as a request. Whatever came, a head
// is whole, is refused or needs more. Its rest, as a body, is a report within its bounds, or is
// refused with a reason. The same body again has no value that is new. Run by
// tests/unit/fuzz/messages/test_fuzz_hf_report.c.

#include "tests/fuzz/fuzz.h"

#include "daemon/worker/reports/hf_report.h"
#include "daemon/worker/reports/http_head.h"
#include "lib/base/arena.h"

static void check_report(const char *body, size_t bytes) {
    TD_AUTO(td_arena) *arena = NULL;
    struct td_hf_said said = {0};
    struct td_hf_report r, again;
    td_fuzz_expect(!td_arena_create(TD_HF_ARENA_BYTES, &arena));
    td_status s = td_hf_report_read(&said, arena, body, bytes, &r);
    if (s) {
        td_fuzz_expect_refusal(s, TD_INVALID_ARGUMENT, TD_RESOURCE_EXHAUSTED);
        td_hf_said_finish(&said);
        return;
    }
    td_fuzz_expect(r.step >= -1 && r.step <= INT32_MAX);
    td_fuzz_expect(r.total_steps >= -1 && r.total_steps <= INT32_MAX);
    td_fuzz_expect(r.value_step >= 0 && r.value_step <= INT32_MAX);
    td_fuzz_expect(r.epoch == -1 || (r.epoch >= 0 && r.epoch <= INT32_MAX));
    td_fuzz_expect((r.n_odd > 0) == (r.odd_name != NULL));
    td_fuzz_expect(r.n_values <= bytes && said.n <= r.n_values);
    if (said.n == r.n_values) { // each of its names once
        td_fuzz_expect(!td_hf_report_read(&said, arena, body, bytes, &again));
        td_fuzz_expect(again.n_values == 0 && again.n_odd == r.n_odd);
    }
    td_hf_said_finish(&said);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct td_http_head head;
    const char *text = (const char *)data;
    const int status = td_http_head_read(text, size, &head);
    if (status != 200) {
        td_fuzz_expect(status == 0 || (status >= 400 && status < 600));
        check_report(text, size);
        return 0;
    }
    td_fuzz_expect(head.bytes <= size && head.body_bytes >= -1);
    td_fuzz_expect(head.path > text && head.path + head.path_bytes < text + head.bytes);
    td_fuzz_expect(!head.token || head.token + head.token_bytes < text + head.bytes);
    // It is whole with its last byte, not before.
    td_fuzz_expect(td_http_head_read(text, head.bytes - 1, &head) == 0);
    check_report(text + head.bytes, size - head.bytes);
    return 0;
}
