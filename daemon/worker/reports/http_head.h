#ifndef TRAIND_DAEMON_WORKER_REPORTS_HTTP_HEAD_H
#define TRAIND_DAEMON_WORKER_REPORTS_HTTP_HEAD_H

// The head of an HTTP/1 request: what http.h needs of one, and nothing else.
//
// Its lines end in "\r\n" or "\n". Of the headers only Content-Length, Transfer-Encoding and
// Authorization count, each at most once. A line that is no header, one that goes on in the next
// line, and a byte 0 make it a bad request. So nothing that is read here can be read in two ways.
// Pure: the bytes come from anybody, any thread.

#include "lib/base/base.h"

enum { TD_HTTP_HEAD_MAX = 8 << 10 };

// The texts point into the request.
struct td_http_head {
    const char *path, *token; // of the request's line; of "Authorization: Bearer"
    size_t path_bytes, token_bytes;
    size_t bytes;       // of the head, with the empty line after it
    int64_t body_bytes; // -1: it does not say
};

// 0: more bytes are needed; 200: the head is whole; else the status to refuse it with.
// TD_HTTP_HEAD_MAX bytes without its end are refused.
int td_http_head_read(const char *data, size_t bytes, struct td_http_head *out_head);

#endif
