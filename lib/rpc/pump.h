#ifndef TRAIND_LIB_RPC_PUMP_H
#define TRAIND_LIB_RPC_PUMP_H

// One thread in grpc_completion_queue_next. It does nothing but take events (and, inside gRPC, the
// reading of sockets) and hand them to the loop, where each tag's `done` runs. A burst of events
// costs the loop one wake-up. A server or a channel owns one pump; a daemon has one or the other.
//
// Every batch goes through td_pump_start, because gRPC aborts the process when one is started on a
// queue that was shut down. Closing: whoever owns the pump cancels all its calls. Then
// td_pump_close shuts the queue down, waits for the thread (gRPC returns every started batch), and
// runs what is left, on the loop's thread. Private to lib/rpc.

#include <grpc/grpc.h>

#include "lib/base/base.h"

struct td_loop;
struct td_pump;

// The caller's memory, until `done` ran.
struct td_pump_tag {
    struct td_pump_tag *next; // the pump's
    void (*done)(struct td_pump_tag *tag, bool ok);
    bool ok;
};

// Also brings gRPC up, quietly.
TD_MUST_USE td_status td_pump_create(struct td_loop *loop, struct td_pump **out_pump);
// Idempotent; see above. From then on td_pump_start answers false.
void td_pump_close(struct td_pump *pump);
void td_pump_destroy(struct td_pump *pump); // closes
TD_DEFINE_AUTO(td_pump, td_pump_destroy);

// Ask for it right before each use: what was written until then is what its events may see.
grpc_completion_queue *td_pump_queue(struct td_pump *pump);
bool td_pump_is_closed(const struct td_pump *pump);
// False: closed; the tag will not come.
TD_MUST_USE bool td_pump_start(struct td_pump *pump, grpc_call *call, const grpc_op *ops,
                               size_t n_ops, struct td_pump_tag *tag);

#endif
