#ifndef TRAIND_CLIENT_NODES_NODE_STATE_H
#define TRAIND_CLIENT_NODES_NODE_STATE_H

// The state of a node in a word or two: what the coordinator sees of it, and what operators
// decided.

#include "traind/v1/admin.pb-c.h"

enum { TD_NODE_STATE_BYTES = 48 };
// "READY"; "READY, cordoned"; "READY, draining"; "LOST, drained": nothing of a job is there.
const char *td_node_state_words(const Traind__V1__Node *n, char out[TD_NODE_STATE_BYTES]);
// The one of the two that matters more: "draining" of a node that is ready.
const char *td_node_state_word(const Traind__V1__Node *n);

#endif
