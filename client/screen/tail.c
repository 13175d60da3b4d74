// See the header.

#include "client/screen/tail.h"

#include <stdlib.h>
#include <string.h>

static td_status grow(struct td_tail *t, size_t n_streams) {
    struct td_tail_stream *grown = td_realloc(t->stream, n_streams * sizeof *grown);
    if (!grown) return td_fail_oom();
    t->stream = grown;
    for (; t->n_streams < n_streams; t->n_streams++) {
        grown[t->n_streams] = (struct td_tail_stream){0};
        td_buf_init(&grown[t->n_streams].text, TD_TAIL_BYTES_MAX);
    }
    return TD_OK;
}

td_status td_tail_add(struct td_tail *t, size_t stream, uint64_t offset, const void *data,
                      size_t n) {
    if (stream >= t->n_streams) TD_TRY(grow(t, stream + 1));
    struct td_tail_stream *s = &t->stream[stream];
    const size_t over = n > TD_TAIL_BYTES_MAX ? n - TD_TAIL_BYTES_MAX : 0;
    n -= over;
    if (s->text.len + n > TD_TAIL_BYTES_MAX) { // a quarter at least, or each piece would move all
        const size_t gone = TD_MIN(s->text.len, TD_MAX(n, (size_t)TD_TAIL_BYTES_MAX / 4));
        td_buf_consume(&s->text, gone);
        s->offset += gone;
    }
    if (!s->text.len) s->offset = offset + over;
    return td_buf_append(&s->text, (const char *)data + over, n);
}

// Where the last n lines begin. False: there are fewer, so they begin at 0.
static bool last_lines(const char *text, size_t len, int64_t n, size_t *out_at) {
    size_t at = len;
    for (int64_t lines = 0; at > 0; at--) {
        const bool ends = text[at - 1] == '\n' && at < len; // the last line's end is its own
        if (ends && ++lines == n) break;
    }
    *out_at = n ? at : len;
    return at > 0 || n == 0;
}

bool td_tail_cut(struct td_tail *t) {
    bool enough = true;
    for (size_t i = 0; i < t->n_streams; i++) {
        struct td_tail_stream *s = &t->stream[i];
        size_t at;
        if (!s->text.len) continue;
        if (!last_lines(s->text.data, s->text.len, t->n_lines, &at) && s->offset) enough = false;
        td_buf_consume(&s->text, at);
        s->offset += at;
    }
    return enough;
}

void td_tail_clear(struct td_tail *t) {
    for (size_t i = 0; i < t->n_streams; i++) {
        td_buf_finish(&t->stream[i].text);
    }
    free(t->stream);
    t->stream = NULL;
    t->n_streams = 0;
}
