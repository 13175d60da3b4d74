// Fuzz entry of the one parser of events: any bytes as a line. Whatever came, it is refused with a
// reason, or it is an event; written again from the table it is the same one. Run by
// tests/unit/fuzz/messages/test_fuzz_event_line.c.

#include "tests/fuzz/fuzz.h"

#include "tests/event_lines.h"

enum { ARENA_MAX = 4 << 20, LINE_MAX_BYTES = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    TD_AUTO(td_arena) *first = NULL;
    TD_AUTO(td_arena) *second = NULL;
    TD_AUTO_BUF line;
    struct td_event event, again;
    td_buf_init(&line, LINE_MAX_BYTES);
    td_fuzz_expect(!td_arena_create(ARENA_MAX, &first) && !td_arena_create(ARENA_MAX, &second));
    td_status s = td_event_parse(first, (const char *)data, size, &event);
    if (s) {
        td_fuzz_expect_refusal(s, TD_INVALID_ARGUMENT, TD_RESOURCE_EXHAUSTED);
        return 0;
    }
    if (event.kind == TD_EVENT_UNKNOWN) return 0;
    td_fuzz_expect(!event_write(&event, &line));
    td_fuzz_expect(td_event_line_is(line.data, line.len, event.kind));
    td_fuzz_expect(!td_event_parse(second, line.data, line.len, &again));
    td_fuzz_expect(event_same(&event, &again));
    return 0;
}
