#ifndef TRAIND_LIB_ATTEMPT_RETENTION_H
#define TRAIND_LIB_ATTEMPT_RETENTION_H

// Which checkpoints are kept: one rule for a rank (over its attempt) and for the coordinator's
// catalog (over all attempts of a job). Pure, any thread.
//
// Without a value to compare by the newest k stay. With one the best k stay, and besides them
// always the newest, because that is what a restart needs. A value that is not a number is the
// worst. Of two equal ones the older is better: the newer may only repeat what the last validation
// found of other weights. -1 keeps all, 0 keeps only the newest.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_retention_rule {
    int32_t top_k;         // -1: all
    bool by_value;         // else by age
    bool larger_is_better; // of values
};

// True: *out_at is the one of values (n), oldest first, that goes next. False: all may stay.
bool td_retention_worst(const struct td_retention_rule *rule, const double *values, size_t n,
                        size_t *out_at);
// The one of values (n) that would go last, for a rule by value. False: none is a number.
bool td_retention_best(const struct td_retention_rule *rule, const double *values, size_t n,
                       size_t *out_at);

#endif
