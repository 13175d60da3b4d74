#ifndef TRAIND_DAEMON_NODE_SHELL_PLANNER_MEASURER_H
#define TRAIND_DAEMON_NODE_SHELL_PLANNER_MEASURER_H

// Measurer: what this machine's threads reach, measured in the background for the plans of jobs
// (engine/train/plan/rates.h). `traind-worker rates` runs as a child at low priority, a moment at a
// time, until every thread count that is wanted has been measured often enough in this boot. Then
// nothing runs until a plan asks for a count that is not there.
//
// Never while a rank runs: it begins after the node was idle for a while, and what runs is ended
// before a rank or a plan starts. Bound: TD_MEASURER_COUNTS thread counts wait; more are dropped,
// their plans measure for themselves. Loop thread.

#include "lib/base/base.h"

struct td_loop;
struct td_measurer;

enum { TD_MEASURER_COUNTS = 16 };

// No rank is here.
typedef bool td_measurer_idle_fn(void *arg);

// after_ns: idle so long before it measures, and between two moments; 0: it never measures.
TD_MUST_USE td_status td_measurer_create(struct td_loop *loop, const char *bin_dir,
                                         const char *cache_dir, int64_t after_ns,
                                         td_measurer_idle_fn *idle, void *arg,
                                         struct td_measurer **out_measurer);
// Ends what runs. Accepts NULL.
void td_measurer_destroy(struct td_measurer *m);
TD_DEFINE_AUTO(td_measurer, td_measurer_destroy);
// Rates of so many threads will be asked for.
void td_measurer_want(struct td_measurer *m, int32_t n_threads);
// Somebody needs the cores: ends what runs (within some ms), and waits again.
void td_measurer_yield(struct td_measurer *m);

#endif
