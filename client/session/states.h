#ifndef TRAIND_CLIENT_SESSION_STATES_H
#define TRAIND_CLIENT_SESSION_STATES_H

// States of jobs as people write them after a flag: "running,QUEUED", in any case, several with ','
// between. The names are those of job.proto, so that a state which is added there is known here.

#include "lib/base/base.h"
#include "traind/v1/job.pb-c.h"

enum { TD_STATES_MAX = 16 };

// flag: its name, for the refusal, which lists the states.
TD_MUST_USE td_status td_states_parse(const char *flag, const char *text,
                                      Traind__V1__Job__State out_states[TD_STATES_MAX],
                                      size_t *out_n);
bool td_states_have(const Traind__V1__Job__State *states, size_t n, Traind__V1__Job__State state);

#endif
