// submit: the text of a spec and its overrides go to the coordinator, which is its only parser.
// A request id is always sent, so that a submission that is repeated after a lost answer makes one
// job. --dry-run has a node plan it, as a submission would, and prints the spec with every default,
// as `spec -o wide` does of a job; --follow stays to the end.

#include <stdio.h>
#include <string.h>

#include "client/jobs/cmd_plan.h"
#include "client/jobs/cmd_submit.h"
#include "client/jobs/follow.h"
#include "client/jobs/jobs.h"
#include "client/jobs/spec_yaml.h"
#include "client/jobs/submission.h"
#include "client/screen/print.h"
#include "lib/base/rng.h"

// The spec goes to stdout, because it is what scripts read and can be submitted; warnings do not.
static td_status dry_run(struct td_session *s, const struct td_flags *f) {
    TD_AUTO(td_rpc_message) *answer = NULL;
    TD_TRY(td_plan_ask(s, f, &answer));
    const Traind__V1__PlanJobResponse *r =
        (const Traind__V1__PlanJobResponse *)td_rpc_message_get(answer);
    td_plan_show_warnings(r, stderr);
    return td_spec_write(f, r->spec_json);
}

// Nobody knows whether the job was made: the id says to the coordinator that it is the same one.
static td_status say_request_id(td_status take_failure, const char *request_id) {
    const enum td_code code = td_status_code(take_failure);
    if (code != TD_UNAVAILABLE && code != TD_DEADLINE_EXCEEDED && code != TD_INTERNAL) {
        return take_failure;
    }
    return td_status_with_meta(take_failure, "to ask again",
                               "--request-id %s makes one job of both", request_id);
}

static td_status show(const struct td_session *s, const Traind__V1__Job *job) {
    if (td_output_is_json(s->flags->output)) return td_session_print_json(s, &job->base);
    if (s->flags->output == TD_OUTPUT_NAME) {
        td_print(stdout, "%s\n", job->id);
    } else {
        td_print(stdout, "submitted %s (%s), %s%s%s\n", job->id, job->name,
                 td_job_state_word(job->state), job->reason && job->reason->text[0] ? ": " : "",
                 job->reason ? job->reason->text : "");
        td_print(stdout, "follow it with `trainctl wait %s --follow`\n", job->id);
    }
    return td_fs_flush_stdout();
}

td_status td_submit_request(struct td_session *s, Traind__V1__CreateJobRequest *request,
                            int *out_exit) {
    const struct td_flags *f = s->flags;
    char request_id[37];
    td_uuid4(request_id);
    request->request_id = f->request_id ? td_unconst(f->request_id) : request_id;
    TD_AUTO(td_rpc_message) *answer = NULL;
    TD_TRY(say_request_id(td_session_call(s, "/traind.v1.JobService/CreateJob", &request->base,
                                          &traind__v1__job__descriptor, &answer),
                          request->request_id));
    const Traind__V1__Job *job = (const Traind__V1__Job *)td_rpc_message_get(answer);
    if (f->follow) {
        td_print(stderr, "submitted %s\n", job->id);
        return td_follow_to_end(s, job->id, TD_FOLLOW_SHOW | TD_FOLLOW_FROM_START, out_exit);
    }
    td_status unprinted = show(s, job);
    return unprinted ? td_status_with_meta(unprinted, "submitted", "%s", job->id) : TD_OK;
}

td_status td_cmd_submit(struct td_session *s, const struct td_flags *f, int *out_exit) {
    if (f->dry_run) return dry_run(s, f);
    TD_AUTO(td_submission) *handed_in = NULL;
    TD_TRY(td_submission_create(s, f, &handed_in));
    Traind__V1__CreateJobRequest request = TRAIND__V1__CREATE_JOB_REQUEST__INIT;
    request.spec = td_unconst(td_buf_cstr(&handed_in->spec));
    request.client = &handed_in->client;
    request.n_overrides = f->n_sets;
    request.overrides = td_unconst(f->sets);
    return td_submit_request(s, &request, out_exit);
}
