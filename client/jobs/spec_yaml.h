#ifndef TRAIND_CLIENT_JOBS_SPEC_YAML_H
#define TRAIND_CLIENT_JOBS_SPEC_YAML_H

// The spec of a job as people read it: YAML, by default without what would be the same anyway. The
// coordinator, which knows the defaults, says what that is.

#include "client/session/session.h"
#include "lib/base/buf.h"
#include "traind/v1/job.pb-c.h"

// The job that the first argument names, with what td_spec_changes needs.
TD_MUST_USE td_status td_spec_yaml_get(struct td_session *s, struct td_rpc_message **out_job);
// Its spec as JSON, without what would be the same anyway.
const char *td_spec_changes(const Traind__V1__Job *job);
// Writes a spec to stdout as the flags want it: YAML, or JSON. It is written as it is, because a
// file is to be made of it: YAML's own escapes keep a terminal safe.
TD_MUST_USE td_status td_spec_write(const struct td_flags *f, const char *json);
// As a part of describe: under a line of its own, indented.
TD_MUST_USE td_status td_spec_yaml_show(const Traind__V1__Job *job, bool wide);

#endif
