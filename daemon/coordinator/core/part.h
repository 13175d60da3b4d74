#ifndef TRAIND_DAEMON_COORDINATOR_CORE_PART_H
#define TRAIND_DAEMON_COORDINATOR_CORE_PART_H

// Part: what one node has of an attempt, which is some of its ranks, one after the other.
//
// An attempt has one launcher on each of its nodes, and each of these has an event log of its own.
// What is true of ranks, of slots and devices, and of messages to a node belongs to the part; what
// is true of the training belongs to the attempt. An attempt of one node has one part. That is no
// special case: whoever acts on nodes goes over the parts. Owned by the core. Pure.
// What is asked of all parts of an attempt is in job.h.

#include "lib/base/buf.h"
#include "lib/base/json.h"

struct td_attempt_part {
    char node[64];
    uint32_t first_rank, n_ranks;
    uint32_t slots;
    char *devices;      // one a rank (lib/attempt/devices.h); NULL: none but the host
    uint64_t events;    // committed bytes of its launcher's event log
    bool stop_sent;     // since the session of its node began
    bool forgotten;     // everything of it is here
    bool reconciled;    // its node's disk holds what the catalog says; not durable
    uint64_t reconcile; // the newest Reconcile of its job to its node; not durable
    char *silent;       // which rank is, in its launcher's words; NULL: none. Not durable
};

void td_attempt_part_finish(struct td_attempt_part *p);
TD_MUST_USE td_status td_attempt_part_encode(const struct td_attempt_part *p, struct td_buf *out);
// From a record of a part, or from one of an attempt from before there were parts.
TD_MUST_USE td_status td_attempt_part_decode(const struct td_json *v, struct td_attempt_part *p);

#endif
