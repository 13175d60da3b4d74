#ifndef TRAIND_DAEMON_NODE_SHELL_MESSAGES_H
#define TRAIND_DAEMON_NODE_SHELL_MESSAGES_H

// Messages upward, each from what the node knows (node.proto says what they mean). One that the
// session does not take is dropped: the coordinator asks again, or the next session begins with
// Register. Loop thread.

#include "daemon/node/shell/shell.h"

// Identity, inventory and every attempt that is held. Where it cannot be sent the session is reset.
void td_messages_register(struct td_node_daemon *n);
void td_messages_heartbeat(struct td_node_daemon *n, uint32_t slots_used);
void td_messages_refused(struct td_node_daemon *n, const Traind__V1__AttemptId *id,
                         td_status borrow_why);
// What the probe found; nothing before it has ended.
void td_messages_plugins(struct td_node_daemon *n);
// The GPUs that are known; nothing before they are.
void td_messages_gpus(struct td_node_daemon *n);
// result_json is "" where the status is not TD_OK.
void td_messages_planned(struct td_node_daemon *n, const char *request, td_status borrow_status,
                         const char *result_json);
// Of what a kept plan has read: change "": nothing.
void td_messages_compared(struct td_node_daemon *n, const char *request, const char *change);

#endif
