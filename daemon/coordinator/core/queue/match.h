#ifndef TRAIND_DAEMON_COORDINATOR_CORE_QUEUE_MATCH_H
#define TRAIND_DAEMON_COORDINATOR_CORE_QUEUE_MATCH_H

// Where a waiting job could run: on as many nodes at once as it spans (trainer.num_nodes), each of
// which takes a part. All of them are free for it now, or it waits. Part of the core: pure, and
// nothing is changed. The slots that are free are those that no attempt holds and no job before it
// in the queue keeps (td_host.used and .reserved, which a pass of the queue sets). The same holds
// for devices (td_host_device.held).

#include "daemon/coordinator/core/model/job.h"

struct td_core;
struct td_host;
struct td_host_accel;

enum { TD_MATCH_NAMED = 4 };

// Nodes that cannot take a part, all for one reason: the first of them by name.
struct td_match_few {
    uint32_t n;                                  // of all of them
    const struct td_host *nodes[TD_MATCH_NAMED]; // as many as there are
};

struct td_match {
    // To run on now; NULL: nowhere. Of several nodes the one whose plan holds for all: of which not
    // all is known, else of the lowest CPU level.
    struct td_host *node;
    struct td_host *nearest; // is large enough for a part, is busy, and lacks the least
    uint32_t needed, free;   // slots of nearest
    uint32_t wanted;         // nodes that it spans
    uint32_t fit;            // nodes that have room for a part now
    uint32_t able;           // connected nodes that are large enough for one
    // Its devices, where it lacks some; needed 0: it does not.
    uint32_t needed_devices, free_devices, all_devices;
    uint32_t few_devices;           // a node has the slots and never so many devices: this many
    const struct td_host *withheld; // one of them has a build that gives ranks none
    struct td_match_few unlisted;   // have the slots, and have not said yet which GPUs they have
    uint32_t labelled;              // connected nodes that have the labels which it asks for
    bool any_ready;
    bool forbidden;                // a ready node does not allow its kind
    bool away;                     // its newest checkpoint is on a node that is not ready
    struct td_match_few apart;     // have no address for traffic between nodes, which the job needs
    struct td_match_few elsewhere; // have one that those of network do not reach
    struct td_match_few foreign;   // are of a build whose ranks those of network do not understand
    struct td_match_few cordoned;  // could take a part, and are cordoned
    const struct td_host *network; // all parts go to nodes that meet this one; NULL: to any
};

struct td_match td_match_choose(const struct td_core *core, const struct td_job *j);
// The nodes that have room for a part now, by name: at most as many as it spans, the best of them.
uint32_t td_match_nodes(const struct td_core *core, const struct td_job *j,
                        struct td_host *out_nodes[TD_SPEC_MAX_RANKS]);
// The highest CPU level that all of these nodes have; "": their builds do not say.
const char *td_match_common_level(struct td_host *const *nodes, uint32_t n_nodes);
uint32_t td_match_slots(const struct td_job *j, const struct td_host *n); // that it needs there
uint32_t td_match_free(const struct td_host *n);                          // for another job
// Its accelerator's devices there, or GPUs; NULL: it needs none, or it is not known
// (td_host_devices_known).
const struct td_host_accel *td_match_devices(const struct td_job *j, const struct td_host *n);
// Which of them, and how many; without any, those that it would need.
struct td_device_want td_match_want(const struct td_job *j);
// The only node that has its newest checkpoint, and so the only one for the job; NULL: any may do.
const char *td_match_pinned(const struct td_job *j);
const char *td_match_level(const struct td_job *j); // trainer.cpu_level; "": its spec was lost

#endif
