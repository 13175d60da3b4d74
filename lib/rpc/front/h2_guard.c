// Frame headers one after the other, and what each may be.
//
// Rates are leaky buckets held as one number each, the time at which the bucket is empty again. A
// frame adds its share of a second, and one that would lift the bucket above its burst is one too
// many. A connection thus starts with a whole burst, and the clock is read once per read, not per
// frame. Frames that answer data are paid first by what was sent to the client, so that a fast
// reader is never taken for a flood. A message has five bytes at least, and may be worth a
// WINDOW_UPDATE. Who measures the bandwidth sends a PING after a DATA frame.
//
// The server's direction is read for SETTINGS_MAX_FRAME_SIZE only: gRPC raises it while it runs.
// The largest value counts, because the client learns of a smaller one later than we do.

#include "lib/rpc/front/h2_guard.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    SETTINGS_BYTES_MAX = 600, // 100 entries; HTTP/2 knows fewer than ten
    SETTING_MAX_FRAME_SIZE = 5,
};

struct frame {
    uint32_t bytes, stream;
    uint8_t type, flags;
};

struct rate {
    const char *name;
    int64_t burst, per_s;
};

static const struct rate rates[TD_H2_N_KINDS] = {
    [TD_H2_SETTINGS] = {"SETTINGS", 100, 20},
    [TD_H2_PING] = {"PING", 500, 100},
    [TD_H2_RST_STREAM] = {"RST_STREAM", 1000, 200},
    [TD_H2_PRIORITY] = {"PRIORITY", 500, 100},
    [TD_H2_WINDOW_UPDATE] = {"WINDOW_UPDATE", 10000, 2000},
    [TD_H2_EMPTY_DATA] = {"empty DATA", 1000, 200},
    [TD_H2_OTHER] = {"unknown or GOAWAY", 100, 20},
};

enum { BYTES_PER_UPDATE = 5, FREE_UPDATES_MAX = 16 << 20, FREE_PINGS_MAX = 1 << 16 };

static td_status malformed(td_status s) {
    return td_status_with_reason(s, "HTTP2_MALFORMED");
}

static td_status flood(td_status s) {
    return td_status_with_reason(s, "HTTP2_FLOOD");
}

static td_status spend(struct td_h2_guard *g, struct td_mono now, enum td_h2_kind kind) {
    const struct rate *r = &rates[kind];
    uint64_t *paid = kind == TD_H2_WINDOW_UPDATE ? &g->free_updates
                     : kind == TD_H2_PING        ? &g->free_pings
                                                 : NULL;
    if (paid && *paid) {
        --*paid;
        return TD_OK;
    }
    int64_t each_ns = TD_NS_PER_S / r->per_s;
    int64_t empty_ns = TD_MAX(g->spent_ns[kind], now.ns) + each_ns;
    if (empty_ns - now.ns > r->burst * each_ns) {
        return flood(td_fail(TD_RESOURCE_EXHAUSTED,
                             "more than %" PRId64 " %s frames at once, or %" PRId64 " per second",
                             r->burst, r->name, r->per_s));
    }
    g->spent_ns[kind] = empty_ns;
    return TD_OK;
}

// ---- header blocks ------------------------------------------------------------------------------
static td_status take_block(struct td_h2_guard *g, const struct frame *f) {
    // An empty CONTINUATION costs work, too: its header counts.
    uint32_t bytes = f->bytes + (f->type == TD_H2_FRAME_CONTINUATION ? TD_H2_HEADER_BYTES : 0);
    if (bytes > TD_H2_BLOCK_MAX || g->block_bytes > TD_H2_BLOCK_MAX - bytes) {
        return flood(td_fail(TD_RESOURCE_EXHAUSTED,
                             "a header block with its CONTINUATION frames is above %d bytes",
                             TD_H2_BLOCK_MAX));
    }
    g->block_bytes += bytes;
    g->block_stream = f->stream;
    g->in_block = !(f->flags & TD_H2_END_HEADERS);
    if (g->in_block) return TD_OK;
    g->block_bytes = 0;
    if (f->stream > g->last_stream) { // else trailers
        g->last_stream = f->stream;
        g->n_requests++;
        if (++g->n_open > TD_H2_OPEN_MAX) {
            return flood(td_fail(TD_RESOURCE_EXHAUSTED,
                                 "more than %d requests at once on one connection",
                                 TD_H2_OPEN_MAX));
        }
    }
    return TD_OK;
}

// ---- frames of the client -----------------------------------------------------------------------
// What a type's payload must measure, or may at most.
static td_status check_size(const struct td_h2_guard *g, const struct frame *f) {
    static const uint32_t exact[TD_H2_N_FRAME_TYPES] = {[TD_H2_FRAME_PRIORITY] = 5,
                                                        [TD_H2_FRAME_RST_STREAM] = 4,
                                                        [TD_H2_FRAME_PING] = 8,
                                                        [TD_H2_FRAME_WINDOW_UPDATE] = 4};
    uint32_t most = f->type == TD_H2_FRAME_SETTINGS ? SETTINGS_BYTES_MAX
                    : f->type == TD_H2_FRAME_DATA   ? g->max_frame
                                                    : TD_H2_FRAME_MIN;
    if (f->type < TD_H2_N_FRAME_TYPES && exact[f->type] && f->bytes != exact[f->type]) {
        return malformed(td_fail(TD_INVALID_ARGUMENT,
                                 "a frame of type %d has %" PRIu32 " bytes instead of %" PRIu32,
                                 f->type, f->bytes, exact[f->type]));
    }
    if (f->bytes > most) {
        return malformed(td_fail(TD_INVALID_ARGUMENT,
                                 "a frame of type %d has %" PRIu32 " bytes, at most %" PRIu32
                                 " are allowed",
                                 f->type, f->bytes, most));
    }
    return TD_OK;
}

static td_status check_order(const struct td_h2_guard *g, const struct frame *f) {
    if (!g->has_settings && (f->type != TD_H2_FRAME_SETTINGS || (f->flags & TD_H2_ACK))) {
        return malformed(td_fail(TD_INVALID_ARGUMENT, "the first frame is not SETTINGS"));
    }
    bool continues =
        g->in_block && f->type == TD_H2_FRAME_CONTINUATION && f->stream == g->block_stream;
    if (g->in_block != (f->type == TD_H2_FRAME_CONTINUATION) || (g->in_block && !continues)) {
        return malformed(td_fail(TD_INVALID_ARGUMENT,
                                 "a frame of type %d where a header block is %s", f->type,
                                 g->in_block ? "not complete" : "not open"));
    }
    if (f->type == TD_H2_FRAME_PUSH_PROMISE) {
        return malformed(td_fail(TD_INVALID_ARGUMENT, "a client cannot send PUSH_PROMISE"));
    }
    return TD_OK;
}

static td_status judge(struct td_h2_guard *g, struct td_mono now, const struct frame *f) {
    TD_TRY(check_order(g, f));
    if (f->type == TD_H2_FRAME_HEADERS || f->type == TD_H2_FRAME_CONTINUATION) {
        return take_block(g, f);
    }
    TD_TRY(check_size(g, f));
    g->has_settings = true;
    switch (f->type) {
    case TD_H2_FRAME_DATA:
        if (f->bytes || (f->flags & TD_H2_END_STREAM)) return TD_OK;
        return spend(g, now, TD_H2_EMPTY_DATA);
    case TD_H2_FRAME_PRIORITY:
        return spend(g, now, TD_H2_PRIORITY);
    case TD_H2_FRAME_RST_STREAM:
        if (g->n_open) g->n_open--;
        return spend(g, now, TD_H2_RST_STREAM);
    case TD_H2_FRAME_SETTINGS:
        return spend(g, now, TD_H2_SETTINGS);
    case TD_H2_FRAME_PING:
        return spend(g, now, TD_H2_PING);
    case TD_H2_FRAME_WINDOW_UPDATE:
        return spend(g, now, TD_H2_WINDOW_UPDATE);
    default:
        return spend(g, now, TD_H2_OTHER);
    }
}

// ---- bytes --------------------------------------------------------------------------------------
// Goes to the end of the next frame header. False: the bytes ended before. *at is moved on.
static bool next_header(struct td_h2_scan *s, const uint8_t *data, size_t bytes, size_t *at,
                        struct frame *out_frame) {
    size_t skipped = TD_MIN((size_t)s->n_left, bytes - *at);
    s->n_left -= (uint32_t)skipped;
    *at += skipped;
    if (s->n_left) return false;
    size_t n = TD_MIN((size_t)(TD_H2_HEADER_BYTES - s->n_header), bytes - *at);
    memcpy(s->header + s->n_header, data + *at, n);
    s->n_header += (uint8_t)n;
    *at += n;
    if (s->n_header < TD_H2_HEADER_BYTES) return false;
    const uint8_t *h = s->header;
    *out_frame = (struct frame){
        .bytes = (uint32_t)h[0] << 16 | (uint32_t)h[1] << 8 | h[2],
        .type = h[3],
        .flags = h[4],
        .stream =
            ((uint32_t)h[5] << 24 | (uint32_t)h[6] << 16 | (uint32_t)h[7] << 8 | h[8]) & INT32_MAX,
    };
    s->n_header = 0;
    s->n_left = out_frame->bytes;
    return true;
}

void td_h2_guard_init(struct td_h2_guard *g) {
    *g = (struct td_h2_guard){.max_frame = TD_H2_FRAME_MIN};
}

td_status td_h2_guard_take(struct td_h2_guard *g, struct td_mono now, const void *data,
                           size_t bytes) {
    size_t at = TD_MIN((size_t)(TD_H2_PREFACE_BYTES - g->n_preface), bytes);
    if (at && memcmp(data, &TD_H2_PREFACE[g->n_preface], at) != 0) {
        return malformed(td_fail(TD_INVALID_ARGUMENT, "the client does not speak HTTP/2"));
    }
    g->n_preface += (uint8_t)at;
    struct frame f;
    while (next_header(&g->in, data, bytes, &at, &f)) {
        TD_TRY(judge(g, now, &f));
    }
    return TD_OK;
}

// The type of the frame that `out` is in is still in its header.
static void watch_settings(struct td_h2_guard *g, const uint8_t *data, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        g->entry[g->n_entry++] = data[i];
        if (g->n_entry < sizeof g->entry) continue;
        g->n_entry = 0;
        uint32_t value = (uint32_t)g->entry[2] << 24 | (uint32_t)g->entry[3] << 16 |
                         (uint32_t)g->entry[4] << 8 | g->entry[5];
        bool is_size = g->entry[0] == 0 && g->entry[1] == SETTING_MAX_FRAME_SIZE;
        if (is_size) g->max_frame = TD_MAX(g->max_frame, value);
    }
}

void td_h2_guard_watch(struct td_h2_guard *g, const void *data, size_t bytes) {
    const uint8_t *p = data;
    size_t at = 0;
    struct frame f;
    g->out_begun |= bytes > 0;
    for (;;) {
        if (g->out.n_left && g->out.header[3] == TD_H2_FRAME_SETTINGS) {
            watch_settings(g, p + at, TD_MIN((size_t)g->out.n_left, bytes - at));
        }
        if (!next_header(&g->out, p, bytes, &at, &f)) return;
        bool ends = f.type == TD_H2_FRAME_RST_STREAM ||
                    (f.type == TD_H2_FRAME_HEADERS && (f.flags & TD_H2_END_STREAM));
        if (ends && g->n_open) g->n_open--;
        if (f.type != TD_H2_FRAME_DATA) continue;
        uint64_t updates = g->free_updates + f.bytes / BYTES_PER_UPDATE + 2; // stream, connection
        g->free_updates = TD_MIN(updates, (uint64_t)FREE_UPDATES_MAX);
        g->free_pings = TD_MIN(g->free_pings + 1, (uint64_t)FREE_PINGS_MAX);
    }
}

uint32_t td_h2_guard_n_requests(const struct td_h2_guard *g) {
    return g->n_requests;
}

bool td_h2_guard_is_between(const struct td_h2_guard *g) {
    return g->out.n_left == 0 && g->out.n_header == 0;
}

static size_t put_frame(uint8_t *out, size_t bytes, enum td_h2_frame_type type) {
    memset(out, 0, TD_H2_HEADER_BYTES);
    out[1] = (uint8_t)(bytes >> 8);
    out[2] = (uint8_t)bytes;
    out[3] = (uint8_t)type;
    return TD_H2_HEADER_BYTES;
}

static size_t put_u32(uint8_t *out, uint32_t v) {
    for (int i = 0; i < 4; i++) {
        out[i] = (uint8_t)(v >> (24 - 8 * i));
    }
    return 4;
}

size_t td_h2_goaway(const struct td_h2_guard *g, uint32_t last_stream, enum td_h2_error code,
                    const char *text, uint8_t out[TD_H2_GOAWAY_MAX]) {
    TD_CHECK(td_h2_guard_is_between(g));
    size_t at = g->out_begun ? 0 : put_frame(out, 0, TD_H2_FRAME_SETTINGS);
    size_t text_bytes =
        TD_MIN(strlen(text), (size_t)TD_H2_GOAWAY_MAX - at - 8 - TD_H2_HEADER_BYTES);
    at += put_frame(out + at, 8 + text_bytes, TD_H2_FRAME_GOAWAY);
    at += put_u32(out + at, last_stream);
    at += put_u32(out + at, code);
    memcpy(out + at, text, text_bytes);
    return at + text_bytes;
}
