#ifndef TRAIND_DAEMON_ROLES_H
#define TRAIND_DAEMON_ROLES_H

// What a daemon consists of in its role, and the order in which the parts start and stop.
//
//   coordinator, all:  coordinator, then (all) the node over the local transport
//   node:              channel to the coordinator, then the node over gRPC
//
// Stop: role all stops its ranks with a checkpoint and commits what they wrote; role node leaves
// them running for the next daemon; role coordinator ends its calls. Loop thread.

#include "daemon/home.h"

struct td_loop;
struct td_parts;

TD_MUST_USE td_status td_parts_start(struct td_loop *loop, const struct td_config *c,
                                     const struct td_home *h, struct td_parts **out_parts);
// Where the coordinator listens; NULL for role node.
const char *td_parts_address(const struct td_parts *p);
// The ranks of this machine save and go on.
void td_parts_save(struct td_parts *p);
// Ends what runs as the role says; on_stopped comes once, from the loop.
void td_parts_stop(struct td_parts *p, void (*on_stopped)(void *arg), void *arg);
void td_parts_destroy(struct td_parts *p);
TD_DEFINE_AUTO(td_parts, td_parts_destroy);

#endif
