#ifndef TRAIND_CLIENT_JOBS_FOLLOW_H
#define TRAIND_CLIENT_JOBS_FOLLOW_H

// Follows a job with WatchJob until it ends, across restarts of the daemon. After a lost connection
// the address is read again and the watch goes on from the last token (an expired one starts
// again).

#include "client/screen/progress.h"
#include "client/session/session.h"

// Called for each response; return true to stop following.
typedef bool td_follow_fn(const Traind__V1__WatchJobResponse *response, void *arg);

// DEADLINE_EXCEEDED after timeout_ns (0: none). A lost daemon is waited for as long as --reconnect
// says, then UNAVAILABLE.
TD_MUST_USE td_status td_follow(struct td_session *s, const char *job, int64_t timeout_ns,
                                td_follow_fn *fn, void *arg);

enum td_follow_flags {
    TD_FOLLOW_SHOW = 1 << 0,       // progress on stderr
    TD_FOLLOW_FROM_START = 1 << 1, // with every epoch from the first, not only those to come
};

// Follows until the job is in one of these states, or has ended, and says how it is on stdout.
// *out_exit is TD_CTL_OK if it is in one of them, else TD_CTL_JOB_FAILED. Ctrl-C ends the program
// with a word about the job, which goes on. flags: enum td_follow_flags.
TD_MUST_USE td_status td_follow_to(struct td_session *s, const char *job, int flags,
                                   const Traind__V1__Job__State *states, size_t n_states,
                                   int *out_exit);
// The same until it has ended: TD_CTL_OK if it succeeded.
TD_MUST_USE td_status td_follow_to_end(struct td_session *s, const char *job, int flags,
                                       int *out_exit);

#endif
