#ifndef TRAIND_DAEMON_NODE_SHELL_PLANNER_PLANNER_H
#define TRAIND_DAEMON_NODE_SHELL_PLANNER_PLANNER_H

// Plans: `traind-worker plan` as a child, one at a time, under limits and a deadline. What it
// prints is the result; user code and device libraries are thereby kept out of the daemon. Requests
// queue up to TD_PLANNER_QUEUE; one more is refused with RESOURCE_EXHAUSTED. One that does not end
// in timeout_s is killed: DEADLINE_EXCEEDED, without a class. Loop thread.
//
// The room:
//
//   measurer.h     what the cores reach, measured while no rank runs, for plans
//   plugin_list.h  one-shot `traind-worker probe --plugins`: what specs can name here
//   inventory.h    cores, slots, memory, accelerators, identity

#include "lib/base/base.h"

struct td_loop;
struct td_planner;

enum { TD_PLANNER_QUEUE = 64, TD_PLANNER_RESULT_MAX = 2 << 20 };

// result_json is "" when take_status is not TD_OK; it dies when the callback returns. The status
// bears the class of the worker's exit code (bad_spec, data, out_of_memory, ...).
// Comes from the loop, but before submit returns when the child cannot be started.
typedef void td_planner_fn(const char *request, td_status take_status, const char *result_json,
                           void *arg);

struct td_planner_options { // strings are copied
    const char *verb;       // of the worker: NULL: "plan"; another one calls no plugin
    const char *bin_dir;
    const char *scratch_dir;     // exists; plan files are written there and removed
    const char *cache_dir;       // that of jobs: kernels are read, rates and decoded data kept
    const char *checkpoints_dir; // exists; of jobs that name no place
    const char *plugin_dirs;     // of the user's own plugins; "": none
    int32_t timeout_s;           // of one plan; half of it is its processor time. 0: 60 s
    bool (*idle)(void *arg);     // no rank is here: a plan may measure
    td_planner_fn *fn;
    void *arg; // of both
};
TD_MUST_USE td_status td_planner_create(struct td_loop *loop, const struct td_planner_options *o,
                                        struct td_planner **out_planner);
// Kills what runs, and waits 2 s at most for its end; callbacks of what is queued do not come.
// Accepts NULL.
void td_planner_destroy(struct td_planner *p);
TD_DEFINE_AUTO(td_planner, td_planner_destroy);
// The strings are copied. dump_graph: a pass whose graph the result shall have; "": none.
// path_rules: what the plan's paths may name (lib/base/files/path_rules.h).
TD_MUST_USE td_status td_planner_submit(struct td_planner *p, const char *request,
                                        const char *plan_json, const char *dump_graph,
                                        const char *path_rules);
// Nobody waits for it any more: it is taken out of the queue, or killed if it runs. Its callback
// does not come. request: NULL: all of them. One that is not here is ignored.
void td_planner_drop(struct td_planner *p, const char *request);

#endif
