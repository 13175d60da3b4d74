// Fuzz entry of lib/spec/plan: any bytes as the plan of an attempt. A plan that is believed prints
// to a text that reads back and prints the same, and its facts are within their bounds. Run by
// tests/unit/fuzz/texts/test_fuzz_plan.c.

#include "tests/fuzz/fuzz.h"

#include "lib/spec/plan.h"

static void print(const struct td_plan *p, struct td_buf *out) {
    td_buf_init(out, 4 * TD_SPEC_MAX_BYTES);
    td_fuzz_expect(!td_plan_print(p, out));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    TD_AUTO(td_arena) *a = NULL, *b = NULL;
    td_fuzz_expect(!td_arena_create(TD_SPEC_ARENA_BYTES, &a));
    td_fuzz_expect(!td_arena_create(TD_SPEC_ARENA_BYTES, &b));
    struct td_plan plan, again;
    td_status s = td_plan_parse(a, (const char *)data, size, &plan);
    if (s) {
        td_fuzz_expect(td_status_code(s) != TD_INVALID_ARGUMENT ||
                       td_status_class(s) == TD_CLASS_BAD_SPEC);
        td_fuzz_expect_refusal(s, TD_INVALID_ARGUMENT, TD_RESOURCE_EXHAUSTED);
        return 0;
    }
    td_fuzz_expect(plan.run.attempt >= 0 && plan.run.world_size >= 0);
    td_fuzz_expect(plan.run.threads_per_rank >= 0);
    td_fuzz_expect(plan.run.job && plan.run.checkpoint_dir && plan.run.cache_dir);
    TD_AUTO_BUF once, twice;
    print(&plan, &once);
    td_fuzz_expect(!td_plan_parse(b, once.data, once.len, &again));
    print(&again, &twice);
    td_fuzz_expect(once.len == twice.len && memcmp(once.data, twice.data, once.len) == 0);
    return 0;
}
