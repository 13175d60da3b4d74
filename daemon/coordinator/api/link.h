#ifndef TRAIND_DAEMON_COORDINATOR_API_LINK_H
#define TRAIND_DAEMON_COORDINATOR_API_LINK_H

// A node in the same process (nodes.c).
//
// The same messages as NodeService/Session, packed, without gRPC. Rank logs travel as Segments of
// kind OUT and ERR (there is no PutLog), checkpoints stay where they are (store fs). to_node gets
// packed CoordinatorMessages, always in a later turn of the loop, never from inside
// td_coordinator_link_send; the bytes die when it returns.

#include "lib/base/base.h"

struct td_coordinator;
struct td_coordinator_link;

TD_MUST_USE td_status td_coordinator_attach(struct td_coordinator *c,
                                            void (*to_node)(const void *packed, size_t bytes,
                                                            void *arg),
                                            void *arg, struct td_coordinator_link **out_link);
// A packed NodeMessage. INVALID_ARGUMENT: not a NodeMessage; the link stays usable.
TD_MUST_USE td_status td_coordinator_link_send(struct td_coordinator_link *link, const void *packed,
                                               size_t bytes);
// The session is over; to_node is not called any more.
void td_coordinator_detach(struct td_coordinator_link *link);

#endif
