// See the header. The coordinator takes positions of one attempt, and goes on with later ones.

#include "client/logs/log_positions.h"

#include <string.h>

enum { RANKS_MAX = 1 << 16 };

void td_log_positions_finish(struct td_log_positions *p) {
    free(p->offsets);
    *p = (struct td_log_positions){0};
}

size_t td_log_stream_of(const Traind__V1__ReadLogsResponse *r) {
    return 2 * (size_t)r->rank + (r->err ? 1 : 0);
}

td_status td_log_check(const Traind__V1__ReadLogsResponse *r) {
    if (r->rank < RANKS_MAX) return TD_OK;
    return td_fail(TD_INTERNAL, "the daemon named a rank %u", r->rank);
}

td_status td_log_positions_note(struct td_log_positions *p, const Traind__V1__ReadLogsResponse *r) {
    const size_t stream = td_log_stream_of(r);
    if (r->attempt != p->attempt) {
        p->attempt = r->attempt;
        p->n_streams = 0;
    }
    if (stream >= p->n_streams) {
        uint64_t *grown = td_realloc(p->offsets, (stream + 1) * sizeof *grown);
        if (!grown) return td_fail_oom();
        memset(grown + p->n_streams, 0, (stream + 1 - p->n_streams) * sizeof *grown);
        p->offsets = grown;
        p->n_streams = stream + 1;
    }
    p->offsets[stream] = r->offset + r->data.len;
    return TD_OK;
}

td_status td_log_positions_send(const struct td_log_positions *p,
                                Traind__V1__ReadLogsRequest *request,
                                struct td_rpc_stream *stream) {
    TD_AUTO_FREE Traind__V1__LogPosition *at = td_calloc(p->n_streams + 1, sizeof *at);
    TD_AUTO_FREE Traind__V1__LogPosition **rows = td_calloc(p->n_streams + 1, sizeof *rows);
    if (!at || !rows) return td_fail_oom();
    for (size_t i = 0; i < p->n_streams; i++) {
        at[i] = (Traind__V1__LogPosition)TRAIND__V1__LOG_POSITION__INIT;
        at[i].rank = (uint32_t)(i / 2);
        at[i].err = i % 2;
        at[i].offset = p->offsets[i];
        rows[i] = &at[i];
    }
    request->attempt = p->attempt;
    request->positions = rows;
    request->n_positions = p->n_streams;
    td_rpc_stream_send(stream, &request->base);
    td_rpc_stream_half_close(stream);
    return TD_OK;
}
