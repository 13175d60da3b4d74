#ifndef TRAIND_LIB_RPC_FRONT_HELLO_H
#define TRAIND_LIB_RPC_FRONT_HELLO_H

// The handshake of one connection that came in, and its deadline. Private to lib/rpc; the thread of
// its loop.

#include "lib/base/base.h"

struct td_hello;
struct td_loop;
struct td_tls_context;
struct td_tls_session;

struct td_hello_options {
    int64_t deadline_ns; // from now to the end of the handshake
    // Once, from the loop, as the last thing: the session, or why there is none: an error of
    // td_tls_session_handshake, or DEADLINE_EXCEEDED HANDSHAKE_LATE. The callee may destroy.
    void (*on_done)(td_status take_failed, struct td_tls_session *take_session, void *owner);
    void *owner;
};

// fd is non-blocking, stays the caller's and must outlive it. The context is not kept.
TD_MUST_USE td_status td_hello_create(struct td_loop *loop, const struct td_tls_context *context,
                                      int fd, const struct td_hello_options *options,
                                      struct td_hello **out_hello);
void td_hello_destroy(struct td_hello *h);
TD_DEFINE_AUTO(td_hello, td_hello_destroy);

#endif
