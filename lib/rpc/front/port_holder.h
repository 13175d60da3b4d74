#ifndef TRAIND_LIB_RPC_FRONT_PORT_HOLDER_H
#define TRAIND_LIB_RPC_FRONT_PORT_HOLDER_H

// Who listens on a TCP port of this machine, so that a refusal can name the process instead of
// sending people to other tools. Read from /proc: the listening socket's inode, then the process
// that has it open. Another user's process stays unnamed. Private to lib/rpc; any thread.

#include "lib/base/base.h"

// Writes "pid 1234 (traind)", or "" if it cannot be found; out should hold 64 bytes.
void td_rpc_port_holder(uint16_t port, char *out, size_t out_bytes);

#endif
