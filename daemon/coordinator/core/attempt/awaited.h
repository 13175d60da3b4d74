#ifndef TRAIND_DAEMON_COORDINATOR_CORE_ATTEMPT_AWAITED_H
#define TRAIND_DAEMON_COORDINATOR_CORE_ATTEMPT_AWAITED_H

// Awaited: what a node still has to send of an attempt that has ended.
//
// A job ends when its metrics are here, or after five seconds without them. Its logs come by a way
// of their own, and a node may be away with some of both. So who reads what a job left is shown
// what is still to come, and from where. Pure.

#include "daemon/coordinator/core/model/job.h"

struct td_core;

struct td_log_choice {
    int32_t rank; // -1: all
    bool out, err;
};
struct td_awaited {
    const char *node; // its name; of the core
    bool away;        // it is not connected
    bool unknown;     // how much it has is not known: it has more than the numbers say, or nothing
    uint64_t log_bytes, points;
};
// Of a part. False: nothing is to come, or the attempt lives.
bool td_awaited_of(const struct td_core *core, const struct td_attempt *a, uint32_t part,
                   const struct td_log_choice *logs, struct td_awaited *out);

#endif
