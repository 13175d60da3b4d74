#ifndef TRAIND_DAEMON_COORDINATOR_GATE_H
#define TRAIND_DAEMON_COORDINATOR_GATE_H

// The output rule in one place: whatever tells anybody anything (a reply, a message to a node, a
// watcher's update) waits here, in order, until the records that were handed to the store before
// it are committed. Things pass in the order they were put, in a later turn of the loop, so nothing
// that passes can re-enter who put it.
//
// Bound: what waits is bounded by the calls and sessions that are open; a disk that hangs fills the
// limits of lib/rpc, not memory without end. Loop thread only.

#include "lib/base/base.h"

struct td_gate;
struct td_loop;

TD_MUST_USE td_status td_gate_create(struct td_loop *loop, struct td_gate **out_gate);
// Drops what waits: each is called with pass = false.
void td_gate_destroy(struct td_gate *g);
TD_DEFINE_AUTO(td_gate, td_gate_destroy);

// The ticket of the newest batch that was handed over; later puts wait for it.
void td_gate_issued(struct td_gate *g, uint64_t ticket);
// The store has committed everything up to ticket.
void td_gate_committed(struct td_gate *g, uint64_t ticket);
// fn(take_arg, true) when the gate opens, or fn(take_arg, false) when it is destroyed: free it.
void td_gate_put(struct td_gate *g, void (*fn)(void *take_arg, bool pass), void *take_arg);

#endif
