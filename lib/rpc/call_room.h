#ifndef TRAIND_LIB_RPC_CALL_ROOM_H
#define TRAIND_LIB_RPC_CALL_ROOM_H

// Room for one more call, and what it takes of it while it lives.
//
// Who only tries cannot use up what others need: calls that were refused take nothing, open rows
// have a count of their own, and so does each row with own_calls. All others share max_calls, or
// are let in by whoever owns the server (td_rpc_server_options.enter). Loop's thread. Private to
// lib/rpc.

#include "lib/rpc/front/peers.h"
#include "lib/rpc/server_private.h"

struct td_rpc_place {
    uint32_t *count; // the one that it is in; NULL: in none
    bool has_seat;   // `leave` gets it
    void *seat;
};

// RESOURCE_EXHAUSTED LIMIT_CALLS, or what `enter` says. Of a row that yields, above the limit, it
// is given all the same: *out_yield, and the caller ends the oldest.
TD_MUST_USE td_status td_rpc_room_take(struct td_rpc_server *server, const struct td_rpc_call *call,
                                       struct td_rpc_route *route, struct td_rpc_place *out_place,
                                       bool *out_yield);
// Once more does nothing.
void td_rpc_room_leave(struct td_rpc_server *server, const struct td_rpc_call *call,
                       struct td_rpc_place *place);
// What its connection is, by a call of it. route NULL: no such method.
enum td_peer_call td_rpc_room_kind(const struct td_rpc_route *route, td_status borrow_refused);

#endif
