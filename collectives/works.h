#ifndef TRAIND_COLLECTIVES_WORKS_H
#define TRAIND_COLLECTIVES_WORKS_H

// Works: the calls of one group that were started and not yet waited for.
//
// A thread of the group makes them, one after the other, with the functions that the group's own
// slots have. So a started call needs nothing in shared memory that others do not. It goes on while
// the caller computes, also while it waits for a slow rank. The thread begins with the first start
// and ends with the group. It has the affinity of the thread that started it, and no signals.
//
// One thread at a time is inside a group: each slot of it settles first, which waits until all that
// was started is done. Where no peer has to be waited for (one rank) there is no thread. Then start
// makes the call.
//
// Rejected: making the call in wait, which would start nothing; and a second set of stages, with
// which slots could overtake what was started. Ranks would then have to agree about that, too.
//
// Bounds: TD_OPEN_CALLS_MAX handles, after which start refuses. Waiting: each call has its
// deadline, so settle and destroy have one. Thread: start, wait, test and settle from the thread of
// the group's calls.

#include "lib/base/base.h"
#include "traind/collective.h"

struct td_works;

// How a group does what works needs.
struct td_works_ops {
    td_status (*make)(struct td_collective *c, const struct td_collective_start *call);
    void (*abort)(struct td_collective *c); // from any thread
    bool has_thread;
};

// Errors: RESOURCE_EXHAUSTED when there can be no thread.
TD_MUST_USE td_status td_works_create(struct td_collective *c, const struct td_works_ops *ops,
                                      struct td_works **out_works);
// Aborts the group when there is something that is not done. Accepts NULL.
void td_works_destroy(struct td_works *w);
// call was checked. Errors: RESOURCE_EXHAUSTED.
TD_MUST_USE td_status td_works_start(struct td_works *w, const struct td_collective_start *call,
                                     struct td_collective_work **out_work);
// The slots of these names; works may be NULL where nothing was ever started. out_late: nothing
// came in time, so the group was aborted. What is returned is then the end of the call.
TD_MUST_USE td_status td_works_wait(struct td_works *w, struct td_collective_work *work,
                                    int64_t timeout_ns, bool *out_late);
TD_MUST_USE td_status td_works_test(struct td_works *w, const struct td_collective_work *work,
                                    bool *out_done);
// Returns when nothing that was started is left to do. The thread of the works passes.
void td_works_settle(struct td_works *w);
int td_works_open(struct td_works *w); // handles; accepts NULL

#endif
