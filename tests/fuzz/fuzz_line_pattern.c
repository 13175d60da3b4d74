// Fuzz entry of patterns over lines: the first line is the pattern, the others are matched with it.
// Whatever came, the pattern is refused with a reason, or each line says nothing, or what fits into
// a report. Run by tests/unit/fuzz/test_fuzz_line_pattern.c.

#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "lib/pattern/line_pattern.h"

static void read_line(const struct td_line_pattern *p, const char *line, size_t bytes) {
    struct td_line_pattern_said said;
    if (!td_line_pattern_read(p, line, bytes, &said)) return;
    td_fuzz_expect(said.step >= 0 && said.step <= INT32_MAX);
    td_fuzz_expect(said.total_steps >= -1 && said.total_steps <= INT32_MAX);
    td_fuzz_expect(said.epoch >= -1 && said.epoch <= (double)INT32_MAX);
    td_fuzz_expect(said.n_values >= 0 && said.n_values + said.n_bad <= TD_PATTERN_GROUPS);
    for (int i = 0; i < said.n_values; i++) {
        td_fuzz_expect(said.values[i].name[0] != '\0');
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data, *end = text + size;
    const char *stop = size ? memchr(text, '\n', size) : NULL;
    if (!stop) stop = end;
    char *pattern = strndup(text ? text : "", (size_t)(stop - text));
    struct td_line_pattern *p = NULL;
    td_fuzz_expect(pattern);
    td_status s = td_line_pattern_create(pattern, &p);
    free(pattern);
    if (s) {
        td_fuzz_expect_refusal(s, TD_INVALID_ARGUMENT, TD_RESOURCE_EXHAUSTED);
        return 0;
    }
    while (stop < end) {
        const char *line = stop + 1;
        stop = line < end ? memchr(line, '\n', (size_t)(end - line)) : NULL;
        if (!stop) stop = end;
        read_line(p, line, (size_t)(stop - line));
    }
    td_line_pattern_destroy(p);
    return 0;
}
