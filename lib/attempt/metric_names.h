#ifndef TRAIND_LIB_ATTEMPT_METRIC_NAMES_H
#define TRAIND_LIB_ATTEMPT_METRIC_NAMES_H

// Names of metrics in a stream of 64-byte records: a rank's ring, and its segment.
//
// A name of at most 23 bytes is in each of its records, as it always was. A longer one, of at most
// 63, is defined once. The record that does it has the text in its first 56 bytes and its last 7,
// padded with zeros, and TD_METRIC_NAMES between. The first definition of a stream is number 0, the
// next one 1. Points after it have that number, and no name.
//
//   [0, 56)   text        [56]  TD_METRIC_NAMES        [57, 64)  text
//
// So a reader needs all definitions of a stream before the place where it begins. Nobody loses one:
//
// - The writer counts a name as defined when its record is in the ring. Where the ring is full the
//   point is dropped with it, and the next point of that name defines it.
// - The launcher keeps the definitions that it took out of the ring. Those that could not be
//   written come first in what it writes next (daemon/launcher/rank.c).
// - The coordinator begins in the middle after a restart. It keeps the definitions in metrics.db,
//   committed with the cursor up to which the segment was taken. All other readers begin at 0.
//
// A table that has no more room takes no further definition: a number is never another name's.
// A reader of an older build takes both kinds of records for damaged ones, and counts them.
// Plain data; a table belongs to one thread.

#include <string.h>

#include "lib/attempt/rank_page.h"
#include "lib/base/ring.h"

// A point under its name.
struct td_metric_point {
    char name[TD_METRIC_NAME_BYTES];
    int32_t step, epoch;
    double sum, count;
    int64_t real_ns;
    uint32_t flags; // TD_METRIC_SUM_COUNT, TD_METRIC_DEVICE
};

struct td_metric_names {
    char (*text)[TD_METRIC_NAME_BYTES]; // (n)
    uint32_t n, cap;
    uint32_t last; // that was found: names come in the same order at each step
    bool full;
};
void td_metric_names_finish(struct td_metric_names *t); // accepts zeros
// False: it is full, or there is no memory; it takes no more then.
bool td_metric_names_add(struct td_metric_names *t, const char *name);

// Can it be a metric's name? 1 to 63 bytes of UTF-8.
bool td_metric_name_fits(const char *name);

// The writer's part. False: the point was dropped, and the ring has counted it.
bool td_metric_names_push(struct td_metric_names *t, struct td_ring *ring,
                          const struct td_metric_point *p);
// The record that defines a name.
void td_metric_names_define(const char *name, struct td_metric_record *out);

// Is it a definition? For a reader that hands on points as they are.
static inline bool td_metric_is_name(const struct td_metric_record *r) {
    unsigned char mark;
    memcpy(&mark, &r->flags, 1);
    return mark == TD_METRIC_NAMES;
}

// The reader's part, for each record in its order.
enum td_metric_kind {
    TD_METRIC_IS_POINT, // out_point is written
    TD_METRIC_IS_NAME,  // it was a definition, which the table has now unless it is full
    TD_METRIC_IS_BAD,   // damaged, or of a name that was not defined
};
enum td_metric_kind td_metric_names_take(struct td_metric_names *t,
                                         const struct td_metric_record *r,
                                         struct td_metric_point *out_point);

#endif
