#ifndef TRAIND_DAEMON_WORKER_REPORTS_HTTP_H
#define TRAIND_DAEMON_WORKER_REPORTS_HTTP_H

// A small HTTP/1 server on a socket that listens on loopback: POSTs of some KiB, one a connection.
//
// Who posts is asked as soon as the head is there, before a byte of the body is read. A body has a
// Content-Length of at most max_body_bytes. The answer has a status and no body, and the connection
// ends with it. A socket that is closed with bytes in it takes the answer along. So what the other
// side still sends after a refusal is thrown away, up to TD_HTTP_DRAIN_MAX.
//
// Bounds: TD_HTTP_CONNECTIONS at once; one more ends the oldest, so that those who keep theirs open
// lose it to those who come. Each has deadline_ns from its beginning to its end, however often
// bytes come, then it gets 408 and is cut.
//
// Rejected: libevent's evhttp. Its time-out is of silence, so that a body of a byte a second is
// read for hours. It reads all of a body before the token can be looked at, bounds no connections,
// and would be a second home of libevent's headers.
// Thread: the loop's.

#include "daemon/worker/reports/http_head.h"
#include "lib/loop/loop.h"

enum { TD_HTTP_CONNECTIONS = 64, TD_HTTP_DRAIN_MAX = 1 << 20 };

struct td_http_options {
    int listen_fd; // the caller's to close; made non-blocking
    size_t max_body_bytes;
    int64_t deadline_ns;
    // 200: read the body, which is of *out_who; else the status to refuse it with.
    int (*admit)(void *arg, const struct td_http_head *head, int32_t *out_who);
    // All of a body; the status to answer.
    int (*take)(void *arg, int32_t who, const char *body, size_t bytes);
    // Optional: a request was refused or cut with this status. who: -1: it was not admitted.
    void (*refused)(void *arg, int32_t who, int status);
    void *arg;
};

struct td_http;
TD_MUST_USE td_status td_http_create(struct td_loop *loop, const struct td_http_options *o,
                                     struct td_http **out_http);
void td_http_destroy(struct td_http *h); // cuts what is open
TD_DEFINE_AUTO(td_http, td_http_destroy);

#endif
