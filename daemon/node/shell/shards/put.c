// See the header. The deadline of a call covers its bytes generously; a coordinator that is stuck
// is noticed earlier, by the age of a send.

#include "daemon/node/shell/shards/put.h"

#include <errno.h>
#include <fcntl.h>

#include "lib/base/files/files.h"
#include "traind/v1/node.pb-c.h"

enum { td_put_magic = 0x50555431, PUT_TIMEOUT_S = 300 };

struct td_put {
    uint32_t magic;
    int fd;
    uint64_t at, to, durable;
    bool replied, half_closed, cancelled;
    td_status failed; // found on our side
    struct td_put_options o;
    struct td_rpc_stream *stream;
    uint8_t buffer[TD_PUT_CHUNK_BYTES];
};

static void fail(struct td_put *p, td_status s) {
    if (p->failed) {
        td_status_free(s);
    } else {
        p->failed = s;
    }
    td_rpc_stream_cancel(p->stream);
}

static void pump(struct td_put *p) {
    if (p->cancelled) return; // o.arg may be gone
    bool empty = p->o.from == p->o.to && p->at == p->o.from;
    while (!p->half_closed && !p->failed && (p->at < p->to || empty)) {
        size_t want = (size_t)TD_MIN(p->to - p->at, (uint64_t)TD_PUT_CHUNK_BYTES);
        ssize_t n = want ? pread(p->fd, p->buffer, want, (off_t)p->at) : 0;
        if (n < 0 || (n == 0 && want)) {
            if (n == 0) errno = ENODATA;
            fail(p, td_fs_fail("read", "a file that is sent"));
            return;
        }
        enum td_rpc_send sent =
            td_rpc_stream_send(p->stream, p->o.chunk(p->at, p->buffer, (size_t)n, p->o.arg));
        if (sent == TD_RPC_SEND_REFUSED) return; // on_writable or on_done follows
        p->at += (uint64_t)n;
        if (empty || p->at == p->to) break;
        if (sent == TD_RPC_SEND_FULL) return;
    }
    if (p->half_closed || p->failed) return;
    p->half_closed = true;
    td_rpc_stream_half_close(p->stream);
}

static void on_message(struct td_rpc_stream *s, const ProtobufCMessage *message, void *arg) {
    (void)s;
    struct td_put *p = TD_CAST(td_put, arg);
    p->durable = ((const Traind__V1__PutReply *)message)->offset;
    p->replied = true;
}

static void on_writable(struct td_rpc_stream *s, void *arg) {
    (void)s;
    pump(TD_CAST(td_put, arg));
}

static void destroy(struct td_put *p) {
    td_auto_close(&p->fd);
    td_status_free(p->failed);
    p->magic = 0;
    free(p);
}

static void on_done(struct td_rpc_stream *s, td_status take_status, void *arg) {
    (void)s;
    struct td_put *p = TD_CAST(td_put, arg);
    td_status result = p->failed ? td_steal(p->failed) : td_steal(take_status);
    td_status_free(take_status);
    if (!result && !p->replied) result = td_fail(TD_UNAVAILABLE, "no reply to %s", p->o.method);
    struct td_put_options o = p->o;
    uint64_t durable = p->durable;
    bool cancelled = p->cancelled;
    destroy(p);
    if (cancelled) {
        td_status_free(result);
    } else {
        o.on_done(result, durable, o.arg);
    }
}

static const struct td_rpc_stream_ops ops = {
    .on_message = on_message, .on_writable = on_writable, .on_done = on_done};

td_status td_put_start(const struct td_put_options *o, struct td_put **out_put) {
    struct td_put *p = td_calloc(1, sizeof *p);
    if (!p) return td_fail_oom();
    p->magic = td_put_magic;
    p->o = *o;
    p->o.path = NULL; // the caller's
    p->at = o->from;
    p->to = o->to;
    p->fd = -1;
    td_status s = td_fs_open_below(o->path, o->root_bytes, &p->fd, NULL);
    if (!s) {
        s = td_rpc_stream_open(o->channel, o->method, &traind__v1__put_reply__descriptor,
                               PUT_TIMEOUT_S * TD_NS_PER_S, &ops, p, &p->stream);
    }
    if (s) {
        destroy(p);
        return s;
    }
    *out_put = p;
    pump(p);
    return TD_OK;
}

void td_put_cancel(struct td_put *p) {
    if (!p) return;
    p->cancelled = true;
    td_rpc_stream_cancel(p->stream); // freed in on_done
}
