// Fuzz entry of lib/pattern/line_pattern: any bytes as a pattern, a line feed, and lines. Whatever
// came, a pattern is refused with a sentence, or what it gives of a line is in its bounds. A step
// can be one, names are the pattern's own, and parts are of that line. Run by
// tests/unit/fuzz/texts/test_fuzz_line_pattern.c.

#include "tests/fuzz/fuzz.h"

#include "lib/pattern/line_pattern.h"

enum { LINE_BYTES = 4096 };

static void check_values(const struct td_line_pattern_said *said) {
    td_fuzz_expect(said->n_values >= 0 && said->n_values <= TD_PATTERN_GROUPS);
    for (int i = 0; i < said->n_values; i++) {
        td_fuzz_expect(said->values[i].name && *said->values[i].name);
    }
}

static void check_bad(const struct td_line_pattern_said *said, const char *line, size_t bytes) {
    td_fuzz_expect(said->n_bad >= 0 && said->n_bad <= TD_PATTERN_GROUPS);
    if (!said->n_bad) return;
    td_fuzz_expect(said->bad_name != NULL);
    td_fuzz_expect(said->bad.text >= line && said->bad.text + said->bad.bytes <= line + bytes);
}

static void read_line(const struct td_line_pattern *s, const char *line, size_t bytes) {
    struct td_line_pattern_said said;
    const bool found = td_line_pattern_read(s, line, bytes, &said);
    check_bad(&said, line, bytes);
    if (!found) return;
    td_fuzz_expect(said.step >= 0 && said.step <= INT32_MAX);
    td_fuzz_expect(said.total_steps >= -1 && said.total_steps <= INT32_MAX);
    check_values(&said);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *const bytes = (const char *)data;
    const char *end = size ? memchr(bytes, '\n', size) : NULL;
    const size_t head = end ? (size_t)(end - bytes) : size;
    char text[2 * TD_PATTERN_BYTES] = ""; // too long ones, too
    memcpy(text, bytes, head < sizeof text - 1 ? head : sizeof text - 1);
    struct td_line_pattern *s = NULL;
    td_status refused = td_line_pattern_create(text, &s);
    if (refused) {
        td_fuzz_expect_refusal(refused, TD_INVALID_ARGUMENT, TD_INVALID_ARGUMENT);
        return 0;
    }
    for (size_t at = head + 1; at < size;) {
        const char *line = bytes + at, *next = memchr(line, '\n', size - at);
        size_t n = next ? (size_t)(next - line) : size - at;
        at += n + 1;
        read_line(s, line, n < LINE_BYTES ? n : LINE_BYTES);
    }
    td_line_pattern_destroy(s);
    return 0;
}
