#ifndef TRAIND_DAEMON_NODE_SHELL_SHARDS_PUT_H
#define TRAIND_DAEMON_NODE_SHELL_SHARDS_PUT_H

// Put: bytes of one file to the coordinator, as a client stream of chunks that ends with PutReply.
// Logs (PutLog) and checkpoint files (PutShard) differ only in the message that holds a chunk.
// At most 256 KiB are read at a time and the stream's queue pushes back, so memory is bounded.

#include "lib/base/base.h"
#include "lib/rpc/client.h"

enum { TD_PUT_CHUNK_BYTES = 256 << 10 };
struct td_put;

struct td_put_options {
    struct td_rpc_channel *channel;
    const char *method; // "/traind.v1.NodeService/PutLog"
    const char *path;   // opened at once, not kept
    size_t root_bytes;  // of path: a directory, below which nothing may be a link
    uint64_t from, to;  // bytes; from == to sends one empty chunk: how much is there already?
    // Fills a message around a chunk; it is packed before the next call.
    const ProtobufCMessage *(*chunk)(uint64_t offset, const uint8_t *data, size_t bytes, void *arg);
    // Once, from the loop; the put is gone. durable: what the coordinator has on disk.
    void (*on_done)(td_status take_status, uint64_t durable, void *arg);
    void *arg;
};
// Errors: the file cannot be opened, no memory.
TD_MUST_USE td_status td_put_start(const struct td_put_options *o, struct td_put **out_put);
// on_done is not called any more.
void td_put_cancel(struct td_put *p);

#endif
