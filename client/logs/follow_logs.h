#ifndef TRAIND_CLIENT_LOGS_FOLLOW_LOGS_H
#define TRAIND_CLIENT_LOGS_FOLLOW_LOGS_H

// Follow logs: what ranks print, between the lines of who follows their job (--follow --logs). To
// stdout, whole lines only, so that no line of progress comes into the middle of one; a last line
// without an end gets one. Of all ranks each line begins with its rank.
//
// One stream of ReadLogs on the follower's channel and loop, from attempt to attempt. Where it
// breaks, which the job does not notice, the next change that is watched opens another, which goes
// on at the byte where this one ended.

#include "client/logs/log_positions.h"
#include "client/screen/progress.h"
#include "client/session/session.h"

enum { TD_FOLLOW_LOGS_NONE = -2, TD_FOLLOW_LOGS_ALL = -1 }; // else a rank

struct td_follow_logs {
    struct td_session *session;
    struct td_progress_line *progress;
    struct td_rpc_stream *stream; // unless idle
    int32_t rank;
    uint64_t tail_bytes; // of what was printed before; 0: all
    struct td_log_positions at;
    struct td_buf *lines; // (n_lines) of each stream, what has no end yet
    size_t n_lines;
    bool idle; // no stream is open
    bool over; // nothing more comes
};

// from_start: with what was printed before now.
void td_follow_logs_init(struct td_follow_logs *f, struct td_session *session,
                         struct td_progress_line *progress, int32_t rank, bool from_start);
void td_follow_logs_finish(struct td_follow_logs *f); // ends the stream
void td_follow_logs_see(struct td_follow_logs *f, const Traind__V1__Job *job);
// Nobody follows it any more. Where the job has ended: what is still to come, for a while.
void td_follow_logs_wait(struct td_follow_logs *f, const Traind__V1__Job *job);

#endif
