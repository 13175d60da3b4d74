// See the header. The integer is in two's complement, its lowest limb first.

#include "lib/base/floats/exact_sum.h"

#include <math.h>

#include "lib/base/base.h"

__extension__ typedef unsigned __int128 u128;
enum { LEAST = -1074, MANTISSA = 53 }; // exponents: of the unit; bits of a double

static void add_at(uint64_t *limb, size_t at, u128 what, bool minus) {
    uint64_t part[2] = {(uint64_t)what, (uint64_t)(what >> 64)};
    uint64_t carry = 0;
    for (size_t i = at; i < TD_EXACT_LIMBS && (i < at + 2 || carry); i++) {
        uint64_t own = i < at + 2 ? part[i - at] : 0;
        u128 sum = minus ? (u128)limb[i] - own - carry : (u128)limb[i] + own + carry;
        limb[i] = (uint64_t)sum;
        carry = (uint64_t)(sum >> 64) & 1;
    }
}

void td_exact_sum_add(struct td_exact_sum *s, double x) {
    if (!isfinite(x)) {
        s->odd += x;
        return;
    }
    int exponent;
    double fraction = frexp(fabs(x), &exponent);
    uint64_t mantissa = (uint64_t)ldexp(fraction, MANTISSA);
    int at = exponent - MANTISSA - LEAST;
    if (at < 0) { // subnormal: these bits are zero
        mantissa >>= -at;
        at = 0;
    }
    add_at(s->limb, (size_t)at / 64, (u128)mantissa << at % 64, x < 0);
}

double td_exact_sum_value(const struct td_exact_sum *s) {
    uint64_t size[TD_EXACT_LIMBS];
    const bool negative = s->limb[TD_EXACT_LIMBS - 1] >> 63;
    uint64_t carry = negative;
    size_t top = 0;
    if (s->odd != 0) return s->odd; // NaN is not 0 either
    for (size_t i = 0; i < TD_EXACT_LIMBS; i++) {
        size[i] = (negative ? ~s->limb[i] : s->limb[i]) + carry;
        carry = carry && size[i] == 0;
        if (size[i]) top = i;
    }
    // Two limbs have all bits that a double has. What is below only says on which side of a tie.
    u128 head = (u128)size[top] << 64 | (top ? size[top - 1] : 0);
    for (size_t i = 0; i + 1 < top; i++) {
        head |= size[i] != 0;
    }
    double value = ldexp((double)head, 64 * ((int)top - 1) + LEAST);
    return negative ? -value : value;
}

size_t td_exact_sum_parts(const struct td_exact_sum *s, double out[TD_EXACT_PARTS]) {
    struct td_exact_sum rest = *s;
    size_t n = 0;
    out[n++] = td_exact_sum_value(&rest);
    while (isfinite(out[n - 1]) && n < TD_EXACT_PARTS) {
        td_exact_sum_add(&rest, -out[n - 1]);
        double left = td_exact_sum_value(&rest);
        if (left == 0) break;
        out[n++] = left;
    }
    return n;
}

bool td_exact_mean_add(struct td_exact_mean *m, double sum, double count) {
    if (!m->any) {
        m->any = true;
        m->sum = sum;
        m->count = count;
        return true;
    }
    if (!m->exact) {
        m->exact = td_calloc(2, sizeof *m->exact);
        if (!m->exact) return false;
        td_exact_sum_add(&m->exact[0], m->sum);
        td_exact_sum_add(&m->exact[1], m->count);
    }
    td_exact_sum_add(&m->exact[0], sum);
    td_exact_sum_add(&m->exact[1], count);
    m->sum = td_exact_sum_value(&m->exact[0]);
    m->count = td_exact_sum_value(&m->exact[1]);
    return true;
}

double td_exact_mean_value(const struct td_exact_mean *m) {
    return m->count > 0 ? m->sum / m->count : (double)NAN;
}

void td_exact_mean_settle(struct td_exact_mean *m) {
    free(m->exact);
    m->exact = NULL;
}

void td_exact_mean_finish(struct td_exact_mean *m) {
    td_exact_mean_settle(m);
    *m = (struct td_exact_mean){0};
}
