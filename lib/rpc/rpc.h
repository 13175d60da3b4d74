#ifndef TRAIND_LIB_RPC_RPC_H
#define TRAIND_LIB_RPC_RPC_H

// lib/rpc: the only home of gRPC core. It moves messages and knows no policy.
//
//   pump.h            one thread in a gRPC completion queue; hands its events to the loop (private)
//   codec.h           protobuf-c messages <-> bytes, under a memory budget, UTF-8 checked
//   buffer.h          messages in gRPC's byte buffers (private)
//   server.h          table of methods, calls, streams, limits, drain (call.h, server_options.h)
//   server_call.c     one call of a server; server_private.h: what both files share (private)
//   credential.h      the credential of a call, and who is asked to judge it (private)
//   call_room.h       room for one more call, and what it takes of it (private)
//   client.h          channel, unary calls, streams, one blocking convenience for trainctl
//   contact.h         the first contact with a server whose CA is not trusted yet
//   dial.h            where a channel leads, and what it shows there (private)
//   health.h          grpc.health.v1 of a server
//   reflection.h      grpc.reflection.v1 and v1alpha of a server
//   descriptor_set.h  bounded reader of the descriptor set; descriptors.h is the embedded one
//   wire_status.h     td_status <-> grpc status with google.rpc details (private)
//   outbox.h          one send in flight, a bounded queue after it (private)
//   front/            accepts connections, in a thread of its own: caps, deadlines (private)
//   waits.c           waits of gRPC, by the monotonic clock
//   identity.h        who a connection's certificate says that it is
//   address.h         HOST:PORT, and whether it is loopback (private)
//
// Everything a caller sees runs on the loop's thread: handlers, callbacks, and every function here
// except those that loop.h names. One other thread sits in grpc_completion_queue_next with an
// infinite deadline, and a server's front waits for its sockets. So an idle process wakes for
// nothing but the listener's check of itself. gRPC 1.51's C API is private to this folder: no type
// of it appears in these headers, so that another HTTP/2 stack stays a change here.
//
// This header holds the few words that server and client share.

#include <protobuf-c/protobuf-c.h>

#include "lib/base/base.h"

enum td_rpc_kind {
    TD_RPC_UNARY,
    TD_RPC_SERVER_STREAM,
    TD_RPC_CLIENT_STREAM,
    TD_RPC_BIDI,
};

// What became of a message given to a stream. A stream has one send in flight and a queue of
// bounded bytes after it; the message is packed during the call and not referred to afterwards.
enum td_rpc_send {
    TD_RPC_SEND_MORE,    // accepted, and there is room for more
    TD_RPC_SEND_FULL,    // accepted, the queue is at its bound: wait for on_writable
    TD_RPC_SEND_REFUSED, // not accepted: the queue was full already, or the stream has ended
};

// What became of a server's connections since its start.
struct td_rpc_connections {
    uint32_t handshakes_failed; // of TLS
    uint32_t handshakes_late;
    uint32_t refused;  // at a cap
    uint32_t replaced; // strangers, by newer connections
    uint32_t cut;      // for what they sent, or did not read
};

// From then on before its end people are warned of a server's certificate, once a day.
#define TD_RPC_CERTIFICATE_WARN_S ((int64_t)14 * 86400)

// Defaults; each is an option of the server or the channel.
#define TD_RPC_MAX_MESSAGE_BYTES ((size_t)4 << 20)
#define TD_RPC_QUEUE_BYTES       ((size_t)1 << 20)
#define TD_RPC_STALL_NS          (30 * TD_NS_PER_S)
#define TD_RPC_DEADLINE_NS       (30 * TD_NS_PER_S)

// Compares in a time that depends on the lengths only.
bool td_rpc_secret_equal(struct td_str a, struct td_str b);

// "UNARY"; for messages.
const char *td_rpc_kind_name(enum td_rpc_kind kind);

#endif
