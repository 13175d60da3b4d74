// spec: the spec of a job, so that it can be submitted again or be the start of another.
//
// By default it has what differs from defaults, as a person would have written it; the coordinator
// says what that is, because it may be of another build. -o wide has every key, resolved, and JSON
// always has, because scripts look for keys and not for what somebody wrote.

#include <stdio.h>

#include "client/jobs/jobs.h"
#include "client/jobs/spec_yaml.h"
#include "client/screen/print.h"

td_status td_cmd_spec(struct td_session *s, const struct td_flags *f, int *out_exit) {
    (void)out_exit;
    TD_AUTO(td_rpc_message) *answer = NULL;
    TD_TRY(td_spec_yaml_get(s, &answer));
    const Traind__V1__Job *job = (const Traind__V1__Job *)td_rpc_message_get(answer);
    if (f->output == TD_OUTPUT_NAME) {
        td_print(stdout, "%s\n", job->id);
        return TD_OK;
    }
    const bool is_whole = f->wide || td_output_is_json(f->output);
    return td_spec_write(f, is_whole ? job->spec_json : td_spec_changes(job));
}
