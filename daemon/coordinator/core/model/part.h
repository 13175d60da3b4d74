#ifndef TRAIND_DAEMON_COORDINATOR_CORE_MODEL_PART_H
#define TRAIND_DAEMON_COORDINATOR_CORE_MODEL_PART_H

// Part: what one node has of an attempt, which is some of its ranks, one after the other.
//
// An attempt has one launcher on each of its nodes, and each of these has an event log of its own.
// What is true of ranks, of slots and devices, and of messages to a node belongs to the part; what
// is true of the training belongs to the attempt. An attempt of one node has one part. That is no
// special case: whoever acts on nodes goes over the parts. Owned by the core. Pure.
// What is asked of all parts of an attempt is in job.h.
//
// A part lives until its launcher's end is here (ENDED), or until it is given up (FENCED): then
// whatever its node still says of it is stale. Where a rank of a part has failed, its launcher ends
// the others there, and parts on other nodes are aborted meanwhile. The attempt ends when the last
// of them has. The same where a part ends badly without a word of a rank, or is given up.

#include "lib/attempt/devices.h"
#include "lib/attempt/outcome.h"
#include "lib/base/buf.h"
#include "lib/base/json.h"

enum td_attempt_state {  // of a part, and of an attempt
    TD_ATTEMPT_ASSIGNED, // sent to the node, no answer yet; of an attempt: from none
    TD_ATTEMPT_STARTED,  // its launcher lives; of an attempt: of one part at least
    TD_ATTEMPT_ENDED,    // its launcher's end was ingested; of an attempt: of all
    TD_ATTEMPT_FENCED,   // given up: whatever it still says is stale
    TD_ATTEMPT_STATE_COUNT,
};
const char *td_attempt_state_name(enum td_attempt_state s);

enum td_part_boundaries {  // that its launcher writes (boundaries.h)
    TD_BOUNDARIES_UNKNOWN, // its first line is not here
    TD_BOUNDARIES_NONE,    // an older build, or ranks that have none
    TD_BOUNDARIES_WRITTEN,
};

struct td_attempt_part {
    char node[64];
    enum td_attempt_state state;
    enum td_outcome outcome; // once it is over: what its launcher's end said
    enum td_part_boundaries boundaries;
    uint32_t first_rank, n_ranks;
    uint32_t slots;
    char *devices;            // one a rank (lib/attempt/devices.h); NULL: none but the host
    uint64_t events;          // committed bytes of its launcher's event log
    bool stop_sent;           // since the session of its node began
    bool abort_sent;          // the same of the word to end at once
    bool failing;             // of several: one of its ranks has failed; not durable
    bool forgotten;           // everything of it is here, or its node has lost the rest
    double samples_per_s;     // of its ranks, by its last sample; not durable
    bool reconciled;          // its node's disk holds what the catalog says; not durable
    uint64_t reconcile;       // the newest Reconcile of its job to its node; not durable
    char *silent;             // which rank is, in its launcher's words; NULL: none. Not durable
    struct td_mono silent_at; // when that was said first
    // The worst error that a device of it had (device_errors.h). 0: none.
    uint32_t xid;
    char xid_device[TD_DEVICE_UUID];
    struct td_mono xid_at; // not durable
};

void td_attempt_part_finish(struct td_attempt_part *p);
bool td_attempt_part_live(const struct td_attempt_part *p);
bool td_attempt_part_over(const struct td_attempt_part *p); // nothing more comes of it
TD_MUST_USE td_status td_attempt_part_encode(const struct td_attempt_part *p, struct td_buf *out);
// From a record of a part, or from one of an attempt from before there were parts. p comes with the
// state and outcome of the attempt: a record from before parts had theirs has no other.
TD_MUST_USE td_status td_attempt_part_decode(const struct td_json *v, struct td_attempt_part *p);

#endif
