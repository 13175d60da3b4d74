#ifndef TRAIND_CLIENT_JOBS_SUBMISSION_H
#define TRAIND_CLIENT_JOBS_SUBMISSION_H

// What submit and plan hand in: the text of a spec, and the place that its relative paths begin at.

#include "client/session/session.h"
#include "client/jobs/place.h"
#include "lib/base/buf.h"
#include "traind/v1/job.pb-c.h"

struct td_submission {
    struct td_buf spec;
    struct td_client_place place;
    Traind__V1__ClientPlace client; // borrows the place
};

// Where this program is, for a request: out_client borrows out_place.
TD_MUST_USE td_status td_submission_place(struct td_client_place *out_place,
                                          Traind__V1__ClientPlace *out_client);

// Reads args[0] of the flags and has the coordinator check it. INVALID_ARGUMENT: the file cannot be
// one, the spec is wrong, or something that the spec names relative to here is not there.
TD_MUST_USE td_status td_submission_create(struct td_session *s, const struct td_flags *f,
                                           struct td_submission **out_submission);
void td_submission_destroy(struct td_submission *m);
TD_DEFINE_AUTO(td_submission, td_submission_destroy);

#endif
