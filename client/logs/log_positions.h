#ifndef TRAIND_CLIENT_LOGS_LOG_POSITIONS_H
#define TRAIND_CLIENT_LOGS_LOG_POSITIONS_H

// Log positions: how far a reader of logs is in the streams of an attempt. So it comes back to the
// byte where it was cut off, when the daemon was restarted.

#include "lib/rpc/client.h"
#include "traind/v1/log.pb-c.h"

struct td_log_positions {
    uint32_t attempt;  // that is being read; 0: the newest, none yet
    uint64_t *offsets; // (n_streams) in it: what comes next
    size_t n_streams;
};

void td_log_positions_finish(struct td_log_positions *p);
// Out and err of rank 0, of rank 1 ...
size_t td_log_stream_of(const Traind__V1__ReadLogsResponse *r);
// INTERNAL: of a rank that no job has.
TD_MUST_USE td_status td_log_check(const Traind__V1__ReadLogsResponse *r);
// r, which is checked, was shown.
TD_MUST_USE td_status td_log_positions_note(struct td_log_positions *p,
                                            const Traind__V1__ReadLogsResponse *r);
// The request, which goes on at these positions, and nothing after it.
TD_MUST_USE td_status td_log_positions_send(const struct td_log_positions *p,
                                            Traind__V1__ReadLogsRequest *request,
                                            struct td_rpc_stream *stream);

#endif
