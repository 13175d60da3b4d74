// See the header. A rank that waits for its parent waits in poll(2), so that a parent that stopped
// reading is noticed.

#include "fabric/spawn/result_frame.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

enum { STALL_MS = 300 * 1000, READ_BYTES = 1 << 20 };

const char *td_result_kind_name(enum td_result_kind kind) {
    static const char *const names[] = {"nothing",         "result",  "metric",  "metric",
                                        "best checkpoint", "weights", "failure", "end"};
    _Static_assert(TD_COUNTOF(names) == TD_RESULT_KIND_END, "one name per kind");
    return kind < TD_RESULT_KIND_END ? names[kind] : "unknown";
}

// ---- the rank's side ----------------------------------------------------------------------------
static td_status send_all(int fd, const void *data, size_t bytes, int flags) {
    const char *p = data;
    while (bytes > 0) {
        ssize_t n = send(fd, p, bytes, flags | MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n >= 0) {
            p += n;
            bytes -= (size_t)n;
            continue;
        }
        if (errno == EINTR) continue;
        if (errno != EAGAIN && errno != ENOBUFS) {
            return td_fail_errno(TD_UNAVAILABLE, "the parent of this rank takes no more results");
        }
        struct pollfd wait = {.fd = fd, .events = POLLOUT};
        int ready = poll(&wait, 1, STALL_MS);
        if (ready < 0 && errno != EINTR) return td_fail_errno(TD_INTERNAL, "wait for the parent");
        if (ready == 0) {
            return td_fail(TD_DEADLINE_EXCEEDED, "the parent of this rank took no result for %d s",
                           STALL_MS / 1000);
        }
    }
    return TD_OK;
}

td_status td_result_send(int fd, enum td_result_kind kind, const char *name, const void *body,
                         size_t bytes) {
    struct td_result_header h = {.magic = TD_RESULT_MAGIC,
                                 .version = TD_RESULT_VERSION,
                                 .kind = (uint16_t)kind,
                                 .bytes = bytes};
    size_t len = strlen(name);
    if (len >= sizeof h.name) {
        return td_fail(TD_INVALID_ARGUMENT, "the name '%.32s...' has %zu bytes, at most %zu can be",
                       name, len, sizeof h.name - 1);
    }
    memcpy(h.name, name, len);
    TD_TRY_CTX(send_all(fd, &h, sizeof h, bytes > 0 ? MSG_MORE : 0), "give back a %s",
               td_result_kind_name(kind));
    TD_TRY_CTX(send_all(fd, body, bytes, 0), "give back a %s of %zu bytes",
               td_result_kind_name(kind), bytes);
    return TD_OK;
}

// ---- a status -----------------------------------------------------------------------------------
enum { STATUS_WORDS = 4 }; // code, class, pairs of metadata, fields

static td_status add_text(struct td_buf *b, const char *text) {
    return td_buf_append(b, text, strlen(text) + 1);
}

static td_status encode(td_status s, struct td_buf *b) {
    uint32_t words[STATUS_WORDS] = {(uint32_t)td_status_code(s), (uint32_t)td_status_class(s),
                                    (uint32_t)td_status_n_meta(s), (uint32_t)td_status_n_fields(s)};
    TD_TRY(td_buf_append(b, words, sizeof words));
    TD_TRY(add_text(b, td_status_reason(s)));
    TD_TRY(add_text(b, td_status_message(s)));
    const char *key, *value;
    for (size_t i = 0; i < td_status_n_meta(s); i++) {
        td_status_meta(s, i, &key, &value);
        TD_TRY(add_text(b, key));
        TD_TRY(add_text(b, value));
    }
    for (size_t i = 0; i < td_status_n_fields(s); i++) {
        td_status_field(s, i, &key, &value);
        TD_TRY(add_text(b, key));
        TD_TRY(add_text(b, value));
    }
    return TD_OK;
}

// One that is too long goes without its pairs, and then with the beginning of its message.
static td_status encode_short(td_status s, struct td_buf *b) {
    uint32_t words[STATUS_WORDS] = {(uint32_t)td_status_code(s), (uint32_t)td_status_class(s), 0,
                                    0};
    td_buf_clear(b);
    TD_TRY(td_buf_append(b, words, sizeof words));
    TD_TRY(add_text(b, td_status_reason(s)));
    TD_TRY(td_buf_printf(b, "%.8192s", td_status_message(s)));
    return td_buf_append(b, "", 1);
}

td_status td_result_send_status(int fd, td_status s) {
    TD_AUTO_BUF body;
    td_buf_init(&body, TD_RESULT_STATUS_BYTES);
    td_status failed = encode(s, &body);
    if (failed) {
        td_status_free(failed);
        TD_TRY(encode_short(s, &body));
    }
    return td_result_send(fd, TD_RESULT_FAILED, "", body.data, body.len);
}

// The next text; NULL: there is none.
static const char *next_text(const char **p, const char *end) {
    const char *text = *p, *nul = memchr(text, '\0', (size_t)(end - text));
    if (!nul) return NULL;
    *p = nul + 1;
    return text;
}

static td_status no_status(void) {
    return td_fail(TD_DATA_LOSS, "a failure that cannot be read");
}

// Consumes s.
static td_status parse_pairs(td_status s, const uint32_t words[STATUS_WORDS], const char *p,
                             const char *end, td_status *out_status) {
    for (uint64_t i = 0; i < (uint64_t)words[2] + words[3]; i++) {
        const char *key = next_text(&p, end), *value = key ? next_text(&p, end) : NULL;
        if (!value) {
            td_status_free(s);
            return no_status();
        }
        s = i < words[2] ? td_status_with_meta(s, key, "%s", value)
                         : td_status_with_field(s, key, "%s", value);
    }
    *out_status = s;
    return TD_OK;
}

td_status td_result_parse_status(const char *body, size_t bytes, td_status *out_status) {
    uint32_t words[STATUS_WORDS];
    if (bytes < sizeof words) return no_status();
    memcpy(words, body, sizeof words);
    const char *p = body + sizeof words, *end = body + bytes;
    const char *reason = next_text(&p, end), *message = reason ? next_text(&p, end) : NULL;
    if (!message || words[0] == TD_CODE_OK || words[0] > TD_UNAUTHENTICATED ||
        words[1] >= TD_CLASS_COUNT) {
        return no_status();
    }
    td_status s = td_fail((enum td_code)words[0], "%s", message);
    s = td_status_with_class(s, (enum td_class)words[1]);
    if (*reason) s = td_status_with_reason(s, reason);
    return parse_pairs(s, words, p, end, out_status);
}

// ---- the parent's side --------------------------------------------------------------------------
void td_result_reader_init(struct td_result_reader *r) {
    *r = (struct td_result_reader){.header_bytes = 0};
    td_buf_init(&r->body, SIZE_MAX / 4);
}

void td_result_reader_finish(struct td_result_reader *r) {
    td_buf_finish(&r->body);
}

void td_result_reader_next(struct td_result_reader *r) {
    td_buf_finish(&r->body);
    td_result_reader_init(r);
}

static td_status cut_off(struct td_result_reader *r) {
    r->cut = true;
    if (r->header_bytes < sizeof r->header) {
        return td_fail(TD_DATA_LOSS, "it ended within the head of a frame, after %zu bytes of %zu",
                       r->header_bytes, sizeof r->header);
    }
    return td_fail(TD_DATA_LOSS, "it ended within a %s, after %zu bytes of %" PRIu64,
                   td_result_kind_name(r->header.kind), r->body.len, r->header.bytes);
}

// What a kind may be long; UINT64_MAX: as long as there is room.
static uint64_t longest(enum td_result_kind kind) {
    switch (kind) {
    case TD_RESULT_BYTES:
        return UINT64_MAX;
    case TD_RESULT_DOUBLE:
    case TD_RESULT_INT:
        return sizeof(double);
    case TD_RESULT_BEST_PATH:
        return TD_RESULT_PATH_BYTES - 1;
    case TD_RESULT_FAILED:
        return TD_RESULT_STATUS_BYTES;
    case TD_RESULT_WEIGHTS:
    case TD_RESULT_DONE:
    case TD_RESULT_KIND_END:
        return 0;
    }
    return 0;
}

static td_status check_header(const struct td_result_header *h, uint64_t max_body) {
    if (h->magic != TD_RESULT_MAGIC) {
        return td_fail(TD_DATA_LOSS,
                       "what it wrote to its results is no frame: it begins with %08x, not %08x",
                       h->magic, (unsigned)TD_RESULT_MAGIC);
    }
    if (h->version != TD_RESULT_VERSION) {
        return td_fail(TD_DATA_LOSS, "its frames have version %u, this program reads %d",
                       h->version, TD_RESULT_VERSION);
    }
    if (h->kind == 0 || h->kind >= TD_RESULT_KIND_END) {
        return td_fail(TD_DATA_LOSS, "it wrote a frame of the unknown kind %u", h->kind);
    }
    if (!memchr(h->name, '\0', sizeof h->name) || h->bytes > longest(h->kind)) {
        return td_fail(TD_DATA_LOSS,
                       "it wrote a %s with a name without an end or a length that cannot be: "
                       "%" PRIu64,
                       td_result_kind_name(h->kind), h->bytes);
    }
    if (h->kind == TD_RESULT_BYTES && h->bytes > max_body) {
        return td_fail(TD_RESOURCE_EXHAUSTED,
                       "a result of %" PRIu64 " bytes is more than the %" PRIu64
                       " that max_bytes leaves: raise it",
                       h->bytes, max_body);
    }
    return TD_OK;
}

// At most once what is wanted; 0: later, -1: the end.
static td_status take(int fd, void *out, size_t wanted, ssize_t *out_n, bool *out_later) {
    ssize_t n;
    do {
        n = recv(fd, out, wanted, MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    *out_later = n < 0 && errno == EAGAIN;
    // A rank that ended with unread bytes on its side resets the connection: an end, too.
    if (n < 0 && !*out_later && errno != ECONNRESET) {
        return td_fail_errno(TD_INTERNAL, "read its results");
    }
    *out_n = n < 0 ? 0 : n;
    return TD_OK;
}

static td_status read_header(struct td_result_reader *r, int fd, uint64_t max_body,
                             enum td_result_read *out_what, bool *out_whole) {
    ssize_t n;
    bool later;
    *out_whole = false;
    TD_TRY(take(fd, (char *)&r->header + r->header_bytes, sizeof r->header - r->header_bytes, &n,
                &later));
    if (n == 0) {
        if (!later && r->header_bytes > 0) return cut_off(r);
        *out_what = later ? TD_RESULT_READ_LATER : TD_RESULT_READ_END;
        return TD_OK;
    }
    r->header_bytes += (size_t)n;
    *out_what = TD_RESULT_READ_LATER;
    if (r->header_bytes < sizeof r->header) return TD_OK;
    *out_whole = true;
    return check_header(&r->header, max_body);
}

td_status td_result_read(struct td_result_reader *r, int fd, uint64_t max_body,
                         enum td_result_read *out_what) {
    if (r->header_bytes < sizeof r->header) {
        bool whole;
        TD_TRY(read_header(r, fd, max_body, out_what, &whole));
        if (!whole) return TD_OK;
    }
    while (r->body.len < r->header.bytes) {
        size_t wanted = (size_t)TD_MIN(r->header.bytes - r->body.len, (uint64_t)READ_BYTES);
        ssize_t n;
        bool later;
        TD_TRY(td_buf_reserve(&r->body, wanted));
        TD_TRY(take(fd, r->body.data + r->body.len, wanted, &n, &later));
        if (n == 0 && !later) return cut_off(r);
        *out_what = TD_RESULT_READ_LATER;
        if (n == 0) return TD_OK;
        r->body.len += (size_t)n;
        r->body.data[r->body.len] = '\0';
    }
    *out_what = TD_RESULT_READ_FRAME;
    return TD_OK;
}
