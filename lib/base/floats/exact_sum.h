#ifndef TRAIND_LIB_BASE_FLOATS_EXACT_SUM_H
#define TRAIND_LIB_BASE_FLOATS_EXACT_SUM_H

// A sum of doubles that does not depend on their order: it is kept whole, and rounded once.
//
// The sum is one integer of 2176 bits, in units of 2^-1074, the least of all doubles. So every
// double is an integer, adding is exact, and the order cannot show. Two doubles (the sum, and what
// rounding left of it) would do for values whose largest is below 2^53 of their least. Past that
// the second one is rounded, too, and now and then that decides how the first is. Adding in the
// order of the ranks would need the values of all of them until the last one has come.
//
// Between two additions a sum may be kept as a few doubles: its value, the value of what is left,
// and so on. Nearly always these are two. NaN and infinities are kept apart, as sums of them are.
// A sum past the range of doubles is infinite, and stays that once it was kept so.
// Plain values, any thread.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TD_EXACT_LIMBS = 34, // 64 bits each: 1074 + 1024, and room for 2^64 additions
    TD_EXACT_PARTS = 42, // doubles that a sum is, at most
};

struct td_exact_sum { // all zero: 0
    uint64_t limb[TD_EXACT_LIMBS];
    double odd; // sum of what is not finite; 0: there was none
};
void td_exact_sum_add(struct td_exact_sum *s, double x);
double td_exact_sum_value(const struct td_exact_sum *s); // nearest double, ties to even
// The sum as doubles; the first is its value, the others make the sum exact. Their number, from 1.
size_t td_exact_sum_parts(const struct td_exact_sum *s, double out[TD_EXACT_PARTS]);

// A mean over what several give: sum / count. Both are whole from the second one on.
struct td_exact_mean { // all zero: over nothing
    double sum, count;
    struct td_exact_sum *exact; // (2); NULL: sum and count are all there is
    bool any;
};
// False: no memory; nothing was added.
bool td_exact_mean_add(struct td_exact_mean *m, double sum, double count);
double td_exact_mean_value(const struct td_exact_mean *m); // NaN: over nothing
void td_exact_mean_settle(struct td_exact_mean *m);        // no more is expected: less memory
void td_exact_mean_finish(struct td_exact_mean *m);        // over nothing again

#endif
