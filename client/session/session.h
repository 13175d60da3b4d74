#ifndef TRAIND_CLIENT_SESSION_SESSION_H
#define TRAIND_CLIENT_SESSION_SESSION_H

// Session: the loop, the channel to the coordinator, and how errors look to people.
//
// The room, in reading order:
//
//   config.h    the environment: where the daemon is, the token, colours (the only getenv)
//   contexts.h  coordinators by name, in a file of the person's own
//   explain.h   an error on stderr
//   states.h    states as words
//   pages.h     a listing from its first page to its last
//   find_job.h  the jobs that a word means

#include "client/session/config.h"
#include "lib/base/clock.h"
#include "lib/loop/loop.h"
#include "lib/rpc/client.h"

struct td_session {
    struct td_loop *loop;
    struct td_rpc_channel *channel;
    struct td_client_config config;
    const struct td_flags *flags;
    bool away; // the daemon is, and stderr says so
};

#define TD_RECONNECT_NS (10 * 60 * TD_NS_PER_S) // unless --reconnect says otherwise

// Reads the configuration and makes a channel (it connects with the first call).
TD_MUST_USE td_status td_session_open(struct td_session *s);
// After a stream broke because the daemon went away, which jobs do not notice: waits a moment and
// makes a new channel, as the address may have changed. The first time stderr says that the job
// goes on. Gives the failure back, with what was waited, when nothing was received from the daemon
// for --reconnect.
TD_MUST_USE td_status td_session_reconnect(struct td_session *s, td_status take_failed,
                                           struct td_mono last_answer);
// It has answered: stderr says so if it was away.
void td_session_is_back(struct td_session *s);
void td_session_close(struct td_session *s);

// One unary call with the flags' timeout (30 s by default). out_response may be NULL.
TD_MUST_USE td_status td_session_call(struct td_session *s, const char *method,
                                      const ProtobufCMessage *request,
                                      const ProtobufCMessageDescriptor *response_type,
                                      struct td_rpc_message **out_response);

// One that changes the state of a job, which the answer is: a Traind__V1__Job. *out_job stays as it
// is, with OK, where --all found nothing to do for this one; stderr says so.
TD_MUST_USE td_status td_session_change(struct td_session *s, const char *method,
                                        const ProtobufCMessage *request,
                                        struct td_rpc_message **out_job);

// The job that the first argument names, as it is now: a Traind__V1__Job. out_job may be NULL.
TD_MUST_USE td_status td_session_get_job(struct td_session *s, struct td_rpc_message **out_job);

// Runs the loop until *done, which a stream's on_done sets. On failure the channel is gone and with
// it the stream: on_done has come, so what its arg points to may go, too.
TD_MUST_USE td_status td_session_run_until(struct td_session *s, const bool *done,
                                           int64_t timeout_ns);

// A place here that cannot be written is wrong usage, not a job that was not found or access
// denied.
td_status td_session_local(td_status take_status);

// Explains a status on stderr and consumes it; the exit code that goes with it.
int td_session_explain(const struct td_session *s, td_status take_status);

// Writes a message to stdout as the flags ask (JSON or JSONL).
TD_MUST_USE td_status td_session_print_json(const struct td_session *s, const ProtobufCMessage *m);

#endif
