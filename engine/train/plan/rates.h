#ifndef TRAIND_ENGINE_TRAIN_PLAN_RATES_H
#define TRAIND_ENGINE_TRAIN_PLAN_RATES_H

// Rates: what the threads of this machine usually reach, measured once and kept in a file.
//
// A plan's step time needs them (estimate.h), and measuring takes as long as the rest of a plan
// several times over. So they are kept in the node's cache directory, one file an accelerator with
// its build (library, CPU level, cache sizes), good for one boot. The machine may come back with
// other clocks or neighbours. A line is one thread count and one size of what a step goes through,
// which decides the caches that hold it. Rates are the best of some moments, because a neighbour
// that was there in one need not come back; each moment that is measured is added to its line.
//
// A file that is damaged, of another boot, build or release counts as none, and the next moment
// replaces it. It is replaced whole, so a reader sees the old one or the new one; of two that write
// at once one moment is lost, which costs another one. Any thread.

#include "traind/accelerator.h"

enum {
    TD_RATES_MAX = 256,   // lines of a file; the oldest go first
    TD_RATES_ENOUGH = 3,  // moments, for a plan
    TD_RATES_SETTLED = 6, // after which nothing is measured any more
    TD_RATES_SIZES = 5,
};

// Where they are kept.
struct td_rates_home {
    const char *dir;     // made if it is not there
    const char *machine; // accelerator and build, one line
    const char *boot_id;
};

// What `machine` says of an accelerator.
enum { TD_RATES_MACHINE = 128 };
void td_rates_machine(const char *accelerator, const struct td_accel_facts *facts,
                      char out[TD_RATES_MACHINE]);

struct td_rates_line {
    int32_t n_threads;
    int32_t moments; // how many it is the best of
    size_t bytes;    // one of td_rates_size
    struct td_accel_rates rates;
};
struct td_rates {
    struct td_rates_line line[TD_RATES_MAX];
    size_t n;
};

// The sizes that have a rate each: size i, from 4 MiB, each twice the one before. And the smallest
// that holds so many bytes, else the largest.
size_t td_rates_size_at(int i);
size_t td_rates_size(size_t bytes);

// Never fails: what cannot be read is no line.
void td_rates_read(const struct td_rates_home *h, struct td_rates *out);
// The line of so many threads and that size; NULL: there is none.
const struct td_rates_line *td_rates_find(const struct td_rates *t, int32_t n_threads,
                                          size_t bytes);
// For want of that line: the nearest one, products scaled to the threads. False: no line at all.
bool td_rates_near(const struct td_rates *t, int32_t n_threads, size_t bytes,
                   struct td_accel_rates *out);
// Takes new moments into the file. Rates of 0 are kept as they are: there is no such product.
TD_MUST_USE td_status td_rates_add(const struct td_rates_home *h,
                                   const struct td_rates_line *moments);

// One moment after the other, each some 20 ms; rates are those of the best.
TD_MUST_USE td_status td_rates_measure(const struct td_accelerator_ops *ops,
                                       struct td_accelerator *accel, int32_t n_moments,
                                       struct td_rates_line *line);

#endif
