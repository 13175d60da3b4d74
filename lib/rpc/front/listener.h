#ifndef TRAIND_LIB_RPC_FRONT_LISTENER_H
#define TRAIND_LIB_RPC_FRONT_LISTENER_H

// The listening socket, and a spare descriptor: when the process has none left, the spare is given
// up for the moment that it takes to accept and close a connection. So its client learns at once
// that it is not served, and the backlog does not wake a loop that can do nothing about it.
// One thread at a time. Private to lib/rpc.

#include <sys/socket.h>

#include "lib/base/base.h"

struct td_listener {
    int fd;       // -1: closed
    int spare_fd; // -1: not got back yet
    char address[80];
    bool is_loopback; // nobody else can reach it
};

// Binds, with SO_REUSEADDR, and listens. Errors: those of td_rpc_address_parse; UNAVAILABLE
// ADDRESS_IN_USE, which names the holder.
TD_MUST_USE td_status td_listener_open(const char *address, struct td_listener *out_listener);
void td_listener_finish(struct td_listener *l); // also of one that is zeroed with fd -1

enum td_accept {
    TD_ACCEPTED,
    TD_ACCEPT_NONE, // nobody waits
    TD_ACCEPT_SHED, // no descriptor left: one connection was accepted and closed
    TD_ACCEPT_STUCK // no descriptor and no spare, or no memory: try again in a moment
};
// The socket is non-blocking, without delay, and probed by the kernel while it is silent.
enum td_accept td_listener_accept(struct td_listener *l, int *out_fd,
                                  struct sockaddr_storage *out_peer);

#endif
