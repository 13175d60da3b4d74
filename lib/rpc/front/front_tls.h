#ifndef TRAIND_LIB_RPC_FRONT_FRONT_TLS_H
#define TRAIND_LIB_RPC_FRONT_FRONT_TLS_H

// The certificates of the front: taken when it is made, looked at again with each connection, and
// their end announced. Every connection looks, first of all those that the server makes to itself
// (self_check.h), so it needs no timer. Front's thread, and before it starts the home loop's.
// Private to lib/rpc.

#include <stdatomic.h>

#include "lib/base/base.h"

struct td_notices;
struct td_tls_context;
struct td_tls_guests;
struct td_tls_paths;

struct td_front_tls {
    struct td_tls_context *context; // NULL: plain
    int64_t told_days;              // what the last warning said; INT64_MAX: none
    _Atomic int64_t until_s;        // its end, since 1970; INT64_MAX: it has none. Any thread
};

// Of a listener that others than this machine reach; paths and guests may be NULL. Errors:
// FAILED_PRECONDITION ADDRESS_NOT_LOOPBACK: there are no certificates; td_tls_context_create's.
TD_MUST_USE td_status td_front_tls_init(struct td_front_tls *t, const char *listen,
                                        const struct td_tls_paths *paths,
                                        const struct td_tls_guests *guests);
void td_front_tls_finish(struct td_front_tls *t);
// New certificates hold from this connection on; with bad ones the old ones go on.
void td_front_tls_refresh(struct td_front_tls *t, struct td_notices *notices);
// Warns once for each day that is left, then for each day that it is over.
void td_front_tls_warn(struct td_front_tls *t, struct td_notices *notices);

#endif
