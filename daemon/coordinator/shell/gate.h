#ifndef TRAIND_DAEMON_COORDINATOR_SHELL_GATE_H
#define TRAIND_DAEMON_COORDINATOR_SHELL_GATE_H

// The output rule in one place. Whatever anybody receives waits here: a reply, a message to a node,
// a watcher's update. They leave in order, when the records that were handed to the store before
// them are committed. Things pass in the order they were put, at the end of a turn of the loop, so
// nothing that passes can re-enter the code that put it. The exception: while the disk refuses,
// answers to people do not wait (put_impatient); messages to nodes and watchers do.
//
// Bound: what waits is bounded by the calls and sessions that are open; a disk that hangs fills the
// limits of lib/rpc, not memory without end. Loop thread only.

#include "lib/base/base.h"

struct td_gate;
enum td_gate_pass {
    TD_GATE_DROPPED, // the gate is destroyed: free it
    TD_GATE_OPEN,    // what was handed over before it is on disk
    TD_GATE_STUCK,   // it is not, and will not be soon
};

TD_MUST_USE td_status td_gate_create(struct td_gate **out_gate);
// Drops what waits: each is called with DROPPED.
void td_gate_destroy(struct td_gate *g);
TD_DEFINE_AUTO(td_gate, td_gate_destroy);

// The ticket of the newest batch that was handed over; later puts wait for it.
void td_gate_issued(struct td_gate *g, uint64_t ticket);
// The store has committed everything up to ticket.
void td_gate_committed(struct td_gate *g, uint64_t ticket);
// The disk refuses: what is impatient passes as STUCK from now on, until it is written again.
void td_gate_set_stuck(struct td_gate *g, bool stuck);
// Does anything but the patient wait for that ticket?
bool td_gate_wants(const struct td_gate *g, uint64_t ticket);
// Lets pass what may; what that puts, too. To be called at the end of each turn.
void td_gate_open(struct td_gate *g);
// fn(take_arg, how), once.
typedef void td_gate_fn(void *take_arg, enum td_gate_pass pass);
void td_gate_put(struct td_gate *g, td_gate_fn *fn, void *take_arg);
// The same for an answer to a person, who must not wait for a disk that refuses.
void td_gate_put_impatient(struct td_gate *g, td_gate_fn *fn, void *take_arg);
// The same for what nobody waits for: on its account alone nothing is handed over early.
void td_gate_put_patient(struct td_gate *g, td_gate_fn *fn, void *take_arg);

#endif
