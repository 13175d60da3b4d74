#ifndef TRAIND_DAEMON_LAUNCHER_COMMAND_TALK_VALUES_H
#define TRAIND_DAEMON_LAUNCHER_COMMAND_TALK_VALUES_H

// Values: what a rank of a command said of its metrics, until that cannot change any more.
//
// A value of a name at a step is open until the rank says that name at another step, or for 1 s.
// One that its reports child said is open for a quarter of that. Until then it may be said again,
// and the last one counts. Then it is closed: whatever comes of that name and step is a repeat,
// which is dropped and counted. A name that has no value at a step yet is taken at any time, at a
// lower step than the last one, too.
//
// Values leave in the order in which they were first said, so that those of a step stay together in
// the files of loggers. One that is open holds back those after it, so for 1 s at most.
//
// Bounds of a rank: TD_TALK_NAMES names, and values of more are dropped and counted. TD_TALK_RUNS
// runs of steps (step_set.h), which is as many as it likes of regular ones. Where more would come,
// the name with the most runs forgets the lower half of them. No value is lost by that, but a
// repeat at such a step is taken. TD_TALK_OPEN values wait, then the oldest is closed early.
// Thread: the launcher's.

#include "daemon/launcher/loggers/step_set.h"
#include "lib/attempt/metric_names.h"
#include "lib/base/clock.h"

enum { TD_TALK_NAMES = 4096, TD_TALK_RUNS = 1 << 20, TD_TALK_OPEN = 1 << 16 };
#define TD_TALK_OPEN_NS        TD_NS_PER_S
#define TD_TALK_REPORT_OPEN_NS (TD_NS_PER_S / 4) // said for the rank, by its reports child

struct td_talk_name {
    char text[TD_METRIC_NAME_BYTES];
    struct td_step_set said; // steps
    uint64_t newest;         // number of its newest value, from 1; 0: it has none
};
struct td_talk_value {
    struct td_metric_point point;
    struct td_mono until; // it is open
    bool closed;
};
struct td_talk_values { // all zero: nothing was said
    struct td_talk_name *name;
    size_t n_names, names_cap;
    size_t last; // name that was found: they come in the same order at each step
    size_t n_runs;
    struct td_talk_value *value; // (n), those that wait; the first has the number `first`
    size_t n, cap, at;           // it is at value[at]
    uint64_t first;
    uint64_t dropped; // repeats, and what is past the bounds
};
void td_talk_values_finish(struct td_talk_values *v);

enum td_talk_said {
    TD_TALK_TAKEN,
    TD_TALK_REPEATED, // dropped: that value is closed
    TD_TALK_FULL,     // dropped: past the bounds, or no memory
    TD_TALK_SAID,     // how many
};
// open_ns: how long it is open, at most.
enum td_talk_said td_talk_values_say(struct td_talk_values *v, const struct td_metric_point *p,
                                     struct td_mono now, int64_t open_ns);
// The next that is closed by now; all: the rank says no more. False: there is none.
bool td_talk_values_take(struct td_talk_values *v, struct td_mono now, bool all,
                         struct td_metric_point *out_point);

#endif
