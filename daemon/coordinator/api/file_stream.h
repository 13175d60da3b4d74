#ifndef TRAIND_DAEMON_COORDINATOR_API_FILE_STREAM_H
#define TRAIND_DAEMON_COORDINATOR_API_FILE_STREAM_H

// Bytes of files to one client, as fast as it takes them. A thread of its own, which no write
// delays, reads a chunk. The chunk is sent, and the next one is read when the client's queue has
// place. A reader (of a shard, of logs) has this as a part and decides what is read next and how it
// is sent. The loop thread owns all of it. A call that ends while the disk reads leaves the reader
// until that read is back.

#include "daemon/coordinator/shell/disk/disk.h"
#include "daemon/coordinator/shell/shell.h"

struct td_file_stream_ops {
    // Starts the next read, ends the call, or does neither and is pumped later.
    void (*next)(void *reader);
    // Sends what was read. An error ends the call.
    td_status (*send)(void *reader, const void *data, size_t n, enum td_rpc_send *out_sent);
    void (*destroy)(void *reader);
};

struct td_file_stream {
    const struct td_file_stream_ops *ops;
    void *reader;
    struct td_rpc_call *call;
    bool busy; // a read is with the disk
    bool full; // the client's queue is
    bool gone; // the call is over
};

// From now on on_done destroys the reader.
void td_file_stream_begin(struct td_file_stream *s, const struct td_file_stream_ops *ops,
                          void *reader, struct td_rpc_call *call);
// Lets the reader go on, unless something is under way.
void td_file_stream_pump(struct td_file_stream *s);
// For `next`; as td_disk_read. If the disk takes no more, the call ends.
void td_file_stream_read(struct td_file_stream *s, struct td_disk *disk,
                         const struct td_disk_file *file, uint64_t offset, size_t bytes);

// The rest of the method's row.
void td_file_stream_on_writable(struct td_rpc_call *call, void *ctx);
void td_file_stream_on_done(struct td_rpc_call *call, void *ctx);

#endif
