// See the header.

#include "lib/rpc/call_room.h"

// own: of that row alone; NULL: of several.
static td_status full(uint32_t most, const struct td_rpc_method *own) {
    td_status s = own ? td_fail(TD_RESOURCE_EXHAUSTED,
                                "%u calls of /%s/%s are being served already; try again later",
                                most, own->service, own->method)
                      : td_fail(TD_RESOURCE_EXHAUSTED,
                                "%u calls are being served already; try again later", most);
    return td_status_with_reason(s, "LIMIT_CALLS");
}

td_status td_rpc_room_take(struct td_rpc_server *server, const struct td_rpc_call *call,
                           struct td_rpc_route *route, struct td_rpc_place *out_place,
                           bool *out_yield) {
    const struct td_rpc_server_options *o = &server->options;
    const struct td_rpc_method *row = route->row;
    uint32_t own = row->own_calls;
    if (!own && !row->open && o->enter) {
        void *seat = NULL;
        TD_TRY(o->enter(call, o->ctx, &seat));
        *out_place = (struct td_rpc_place){.has_seat = true, .seat = seat};
        return TD_OK;
    }
    uint32_t *count = own ? &route->n_own : row->open ? &server->n_open : &server->n_admitted;
    uint32_t most = own ? own : row->open ? o->max_open_calls : o->max_calls;
    bool is_full = *count >= most;
    if (is_full && !row->yields) return full(most, own ? row : NULL);
    *out_yield = is_full;
    *out_place = (struct td_rpc_place){.count = count};
    ++*count;
    return TD_OK;
}

void td_rpc_room_leave(struct td_rpc_server *server, const struct td_rpc_call *call,
                       struct td_rpc_place *place) {
    const struct td_rpc_server_options *o = &server->options;
    if (place->count) --*place->count;
    if (place->has_seat) o->leave(call, place->seat, o->ctx);
    *place = (struct td_rpc_place){0};
}

enum td_peer_call td_rpc_room_kind(const struct td_rpc_route *route, td_status borrow_refused) {
    if (borrow_refused || (route && route->row->open)) return TD_PEER_STRANGER;
    bool apart = route && route->row->own_calls && !route->row->yields;
    return apart ? TD_PEER_APART : TD_PEER_TRUSTED;
}
