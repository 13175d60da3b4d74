// See the header.

#include "client/flag_values.h"

#include <inttypes.h>
#include <stdlib.h>

#include "lib/base/clock.h"

uint64_t td_flag_number(struct argp_state *state, const char *flag, const char *text,
                        uint64_t max) {
    char *end;
    unsigned long long v = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || v > max) {
        argp_error(state, "--%s takes a whole number from 0 to %" PRIu64 ", not '%s'", flag, max,
                   text);
    }
    return v;
}

int64_t td_flag_seconds(struct argp_state *state, const char *text) {
    char *end;
    double s = strtod(text, &end);
    if (end == text || *end || !(s > 0 && s <= 1e7)) {
        argp_error(state, "--timeout takes seconds above 0, not '%s'", text);
    }
    return (int64_t)(s * 1e9);
}

bool td_span_parse(const char *text, uint64_t *out_s) {
    static const struct {
        char unit;
        uint64_t s;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 24 * 3600}};
    char *end;
    unsigned long long n = strtoull(text, &end, 10);
    for (size_t i = 0; i < TD_COUNTOF(units); i++) {
        bool fits = *text >= '0' && *text <= '9' && *end == units[i].unit && !end[1];
        if (!fits || !n || n > UINT32_MAX) continue;
        *out_s = n * units[i].s;
        return true;
    }
    return false;
}

int64_t td_flag_span_ns(struct argp_state *state, const char *flag, const char *text) {
    const uint64_t most_s = 1000 * 24 * 3600;
    uint64_t s = 0;
    if (!td_span_parse(text, &s) || s > most_s) {
        argp_error(state, "--%s takes a span such as 10m, 90s or 2h, at most 1000d, not '%s'", flag,
                   text);
    }
    return (int64_t)s * TD_NS_PER_S;
}
