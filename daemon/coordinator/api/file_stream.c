// One read at a time, and the end of the call at any moment between them.

#include "daemon/coordinator/api/file_stream.h"

void td_file_stream_begin(struct td_file_stream *s, const struct td_file_stream_ops *ops,
                          void *reader, struct td_rpc_call *call) {
    *s = (struct td_file_stream){.ops = ops, .reader = reader, .call = call};
    td_rpc_call_set_user(call, s);
}

void td_file_stream_pump(struct td_file_stream *s) {
    if (s->busy || s->full || s->gone || !td_rpc_call_is_live(s->call)) return;
    s->ops->next(s->reader);
}

static void on_read(td_status take_status, const void *data, size_t n, void *arg) {
    struct td_file_stream *s = arg;
    s->busy = false;
    if (s->gone) {
        td_status_free(take_status);
        s->ops->destroy(s->reader);
        return;
    }
    enum td_rpc_send sent = TD_RPC_SEND_MORE;
    td_status failed = take_status ? take_status : s->ops->send(s->reader, data, n, &sent);
    if (failed) {
        td_rpc_call_finish(s->call, failed);
        return;
    }
    s->full = sent != TD_RPC_SEND_MORE;
    td_file_stream_pump(s);
}

void td_file_stream_read(struct td_file_stream *s, struct td_disk *disk,
                         const struct td_disk_file *file, uint64_t offset, size_t bytes) {
    s->busy = true;
    td_status failed = td_disk_read(disk, file, offset, bytes, on_read, s);
    if (!failed) return;
    s->busy = false;
    td_rpc_call_finish(s->call, failed);
}

void td_file_stream_on_writable(struct td_rpc_call *call, void *ctx) {
    struct td_file_stream *s = td_rpc_call_user(call);
    (void)ctx;
    if (!s) return;
    s->full = false;
    td_file_stream_pump(s);
}

void td_file_stream_on_done(struct td_rpc_call *call, void *ctx) {
    struct td_file_stream *s = td_rpc_call_user(call);
    (void)ctx;
    if (!s) return;
    s->gone = true;
    if (!s->busy) s->ops->destroy(s->reader);
}
