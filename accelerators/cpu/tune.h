#ifndef TRAIND_ACCELERATORS_CPU_TUNE_H
#define TRAIND_ACCELERATORS_CPU_TUNE_H

// Tune: which of several ways of computing the same thing is the fastest here, found by timing.
//
// A question is a key (what, shape, types: "conv2d 128x32x14x14 64x3x3 bf16"), an answer the name
// of one of the ways that the caller offers. It is looked up among the frozen choices of the job's
// first start (td_accelerator_ops.adopt_choices), then in the cache on disk, and measured only when
// both know nothing. Ways differ in the last bits, so a choice once used must stay: the job freezes
// what td_tune_text says. Without a cache directory, or when the job is to be deterministic,
// nothing is measured: the first way offered is taken.
//
// The cache is one file a processor, library version and number of threads, rewritten whole, shared
// by all jobs of a state directory. A damaged or foreign file is as none. Bounds: TD_TUNE_MAX
// choices, TD_TUNE_TEXT_MAX bytes. A cache that cannot be written is no failure; until something
// was measured nothing is written, so a planner may look into it. Thread: the training thread.

#include "lib/base/base.h"
#include "traind/accelerator.h"

enum { TD_TUNE_MAX = 4096, TD_TUNE_KEY_MAX = 160, TD_TUNE_TEXT_MAX = 32 << 10, TD_TUNE_WAYS = 4 };

struct td_tune;
// machine: whatever choices depend on besides their keys. cache_dir NULL: measure nothing.
TD_MUST_USE td_status td_tune_create(const char *cache_dir, const char *machine,
                                     struct td_tune **out_tune);
void td_tune_destroy(struct td_tune *t); // accepts NULL
TD_DEFINE_AUTO(td_tune, td_tune_destroy);

// The ways compute on the calling thread alone: what others take of its core meanwhile is not their
// time. A team is as slow as its slowest thread, which only the clock on the wall shows.
void td_tune_time_thread(struct td_tune *t);

// Frozen choices, lines of "key=name"; they win over everything. INVALID_ARGUMENT: not such lines.
TD_MUST_USE td_status td_tune_adopt(struct td_tune *t, const char *text);
// All choices that were asked for, in that form; borrowed until the next call.
TD_MUST_USE td_status td_tune_text(struct td_tune *t, const char **out_text);

// Runs way i once, on memory that the caller made for it.
typedef td_status td_tune_run(void *arg, int way);
// Which of the n ways to take for `key`. The first is preferred: another must be 3 % faster. A way
// that fails with UNIMPLEMENTED is out of the race; NULL names may not be. starts_slowly (n), NULL
// for none: ways that make every start of a rank 20 ms longer; 200 runs must make up for it.
TD_MUST_USE td_status td_tune_pick(struct td_tune *t, const char *key, const char *const *names,
                                   int n, const bool *starts_slowly, td_tune_run *run, void *arg,
                                   int *out_way);
// True if td_tune_pick would have to measure: the caller may then make its memory.
bool td_tune_measures(const struct td_tune *t, const char *key, const char *const *names, int n);
// A preview of t, which outlives it: picks as t would, but measures and keeps nothing. Each pick is
// reported, without a node; a key that t would have to measure is OPEN, and its first way is taken.
TD_MUST_USE td_status td_tune_preview(const struct td_tune *t, td_choice_fn *report, void *arg,
                                      struct td_tune **out_preview);
// Writes what was measured since the last call to the cache.
void td_tune_save(struct td_tune *t);

#endif
