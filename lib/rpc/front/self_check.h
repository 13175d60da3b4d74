#ifndef TRAIND_LIB_RPC_FRONT_SELF_CHECK_H
#define TRAIND_LIB_RPC_FRONT_SELF_CHECK_H

// Does our own listener still answer? Now and then it is dialled as a client would, and has to send
// what every HTTP/2 server sends first, its SETTINGS. That takes the listener, the front's thread
// and gRPC's. With TLS it has to end a handshake, with a certificate that is still good. A process
// that was stopped itself learns nothing. One that has no descriptor for the check has none for a
// client, either: its listener does not answer.
//
// on_change comes when that changes: with what is wrong, and with NULL when it answers again. Home
// loop's thread. Private to lib/rpc.

#include "lib/base/base.h"

struct td_loop;
struct td_self_check;

struct td_self_check_options {
    const char *address; // "127.0.0.1:41234"
    const char *ca;      // file of the CA whose TLS it speaks; NULL: plain
    int64_t every_ns;
    int64_t patience_ns; // for one answer
    void (*on_change)(const char *trouble, void *ctx);
    void *ctx;
};

TD_MUST_USE td_status td_self_check_create(struct td_loop *loop,
                                           const struct td_self_check_options *o,
                                           struct td_self_check **out_check);
void td_self_check_destroy(struct td_self_check *c);
TD_DEFINE_AUTO(td_self_check, td_self_check_destroy);

#endif
