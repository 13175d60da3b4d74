// See the header.

#include "lib/attempt/store_client.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "lib/attempt/store_message.h"
#include "lib/base/clock.h"

enum { td_store_client_magic = 0x53544f43 };

struct td_store_client {
    struct td_store base; // first: it is what callers have
    uint32_t magic;
    int fd;
    uint32_t last_id;
    int64_t set_timeout_ns;
    uint8_t message[TD_STORE_MESSAGE_MAX];
};

struct wait {
    struct td_mono until;
    int64_t timeout_ns;
    const struct td_store_request *request;
};

// ---- failures -----------------------------------------------------------------------------------
static td_status gone(const struct wait *w) {
    return td_status_with_class(
        td_fail(TD_ABORTED,
                "key '%s' of the rendezvous store: the launcher is gone, the attempt is "
                "over",
                w->request->key),
        TD_CLASS_COLLECTIVE);
}

static td_status late(const struct wait *w) {
    const double s = (double)TD_MAX(w->timeout_ns, INT64_C(0)) / 1e9;
    td_status late =
        w->request->call == TD_STORE_GET
            ? td_fail(TD_DEADLINE_EXCEEDED,
                      "key '%s' of the rendezvous store was set by no rank within %.3g s: a rank "
                      "has not come so far, or coordinator or node daemon is away",
                      w->request->key, s)
            : td_fail(TD_DEADLINE_EXCEEDED,
                      "key '%s' of the rendezvous store was not taken within %.3g s: coordinator "
                      "or node daemon is away",
                      w->request->key, s);
    return td_status_with_class(late, TD_CLASS_COLLECTIVE);
}

// ---- the socket ---------------------------------------------------------------------------------
static td_status wait_for(const struct td_store_client *c, short events, const struct wait *w) {
    for (;;) {
        const int64_t left_ns = TD_MAX(w->until.ns - td_mono_now().ns, INT64_C(0));
        const int64_t left_ms = (left_ns + TD_NS_PER_MS - 1) / TD_NS_PER_MS;
        struct pollfd p = {.fd = c->fd, .events = events};
        const int n = poll(&p, 1, (int)TD_MIN(left_ms, (int64_t)60000));
        if (n > 0) return TD_OK;
        if (n < 0 && errno != EINTR) return td_fail_errno(TD_INTERNAL, "wait for the launcher");
        if (left_ns == 0) return late(w);
    }
}

static td_status send_request(struct td_store_client *c, const struct wait *w) {
    const size_t bytes = td_store_request_write(w->request, c->message);
    for (;;) {
        const ssize_t n = send(c->fd, c->message, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n == (ssize_t)bytes) return TD_OK;
        if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) return gone(w);
        if (n < 0 && errno == EAGAIN) {
            TD_TRY(wait_for(c, POLLOUT, w));
        } else if (n >= 0 || errno != EINTR) {
            return td_fail_errno(TD_INTERNAL, "ask the launcher for key '%s'", w->request->key);
        }
    }
}

// Answers to earlier requests are skipped. The data of *out are within the client.
static td_status receive(struct td_store_client *c, const struct wait *w,
                         struct td_store_answer *out) {
    for (;;) {
        const ssize_t n = recv(c->fd, c->message, sizeof c->message, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno == ECONNRESET)) return gone(w);
        if (n < 0 && errno == EAGAIN) {
            TD_TRY(wait_for(c, POLLIN, w));
        } else if (n < 0 && errno != EINTR) {
            return td_fail_errno(TD_INTERNAL, "key '%s': read the launcher's answer",
                                 w->request->key);
        } else if (n > 0 && td_store_answer_read(c->message, (size_t)n, out) &&
                   out->id == w->request->id) {
            return TD_OK;
        }
    }
}

static td_status call(struct td_store_client *c, struct td_store_request *r, const char *key,
                      int64_t timeout_ns, struct td_store_answer *out) {
    TD_TRY(td_store_check_key(key));
    snprintf(r->key, sizeof r->key, "%s", key);
    r->id = ++c->last_id;
    const int64_t wait_ns = TD_MAX(timeout_ns, INT64_C(0));
    const struct td_mono now = td_mono_now();
    const struct wait w = {.until = {wait_ns > INT64_MAX - now.ns ? INT64_MAX : now.ns + wait_ns},
                           .timeout_ns = timeout_ns,
                           .request = r};
    TD_TRY(send_request(c, &w));
    TD_TRY(receive(c, &w, out));
    if (out->code == TD_CODE_OK) return TD_OK;
    td_status s = td_fail(out->code, "%.*s", (int)out->bytes, (const char *)out->data);
    return out->code == TD_ABORTED ? td_status_with_class(s, TD_CLASS_COLLECTIVE) : s;
}

// ---- the store ----------------------------------------------------------------------------------
static struct td_store_client *self_of(struct td_store *s) {
    return TD_CAST(td_store_client, (struct td_store_client *)(void *)s);
}

static td_status set(struct td_store *s, const char *key, const void *data, size_t bytes) {
    struct td_store_client *c = self_of(s);
    struct td_store_request r = {.call = TD_STORE_SET, .data = data, .bytes = bytes};
    struct td_store_answer a;
    TD_TRY(td_store_check_key(key));
    TD_TRY(td_store_check_value(key, bytes));
    return call(c, &r, key, c->set_timeout_ns, &a);
}

static td_status get(struct td_store *s, const char *key, int64_t timeout_ns, void *out_data,
                     size_t cap_bytes, size_t *out_bytes) {
    struct td_store_request r = {.call = TD_STORE_GET};
    struct td_store_answer a;
    TD_TRY(call(self_of(s), &r, key, timeout_ns, &a));
    if (a.bytes > cap_bytes) {
        return td_fail(TD_RESOURCE_EXHAUSTED,
                       "key '%s' of the rendezvous store has %zu bytes, the caller takes %zu", key,
                       a.bytes, cap_bytes);
    }
    if (a.bytes) memcpy(out_data, a.data, a.bytes);
    *out_bytes = a.bytes;
    return TD_OK;
}

td_status td_store_client_create(int fd, int64_t set_timeout_ns,
                                 struct td_store_client **out_client) {
    struct td_store_client *c = td_calloc(1, sizeof *c);
    if (!c) return td_fail_oom();
    c->base = (struct td_store){.set = set, .get = get};
    c->magic = td_store_client_magic;
    c->fd = fd;
    c->set_timeout_ns = set_timeout_ns;
    *out_client = c;
    return TD_OK;
}

void td_store_client_destroy(struct td_store_client *c) {
    if (!c) return;
    c->magic = 0;
    free(c);
}

struct td_store *td_store_client_store(struct td_store_client *c) {
    return &c->base;
}
