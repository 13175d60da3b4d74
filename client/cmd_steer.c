// cancel, pause, resume and delete: one request each, which differ by a word; the answer is the job
// in its new state. What the ranks do about it is seen with `trainctl watch`: they stop at an
// agreed step, so PAUSING and STOPPING take as long as a step and a save. Of a deleted job nothing
// is left to watch: the answer names the nodes that are away and still have files of it.

#include <stdio.h>

#include "client/print.h"
#include "client/progress.h"
#include "client/session.h"

static td_status steer(struct td_session *s, const struct td_flags *f, const char *method,
                       const ProtobufCMessage *request) {
    TD_AUTO(td_rpc_message) *answer = NULL;
    TD_TRY(td_session_call(s, method, request, &traind__v1__job__descriptor, &answer));
    const Traind__V1__Job *job = (const Traind__V1__Job *)td_rpc_message_get(answer);
    if (td_output_is_json(f->output)) {
        return td_session_print_json(s, &job->base);
    }
    if (f->output == TD_OUTPUT_NAME) {
        td_print(stdout, "%s\n", job->id);
    } else {
        td_print(stdout, "%s %s\n", job->id, td_job_state_word(job->state));
    }
    return TD_OK;
}

td_status td_cmd_cancel(struct td_session *s, const struct td_flags *f, int *out_exit) {
    (void)out_exit;
    Traind__V1__CancelJobRequest request = TRAIND__V1__CANCEL_JOB_REQUEST__INIT;
    request.id = td_unconst(f->args[0]);
    if (f->reason) request.reason = td_unconst(f->reason);
    return steer(s, f, "/traind.v1.JobService/CancelJob", &request.base);
}

td_status td_cmd_pause(struct td_session *s, const struct td_flags *f, int *out_exit) {
    (void)out_exit;
    Traind__V1__PauseJobRequest request = TRAIND__V1__PAUSE_JOB_REQUEST__INIT;
    request.id = td_unconst(f->args[0]);
    return steer(s, f, "/traind.v1.JobService/PauseJob", &request.base);
}

td_status td_cmd_resume(struct td_session *s, const struct td_flags *f, int *out_exit) {
    (void)out_exit;
    Traind__V1__ResumeJobRequest request = TRAIND__V1__RESUME_JOB_REQUEST__INIT;
    request.id = td_unconst(f->args[0]);
    return steer(s, f, "/traind.v1.JobService/ResumeJob", &request.base);
}

td_status td_cmd_delete(struct td_session *s, const struct td_flags *f, int *out_exit) {
    (void)out_exit;
    TD_AUTO(td_rpc_message) *answer = NULL;
    Traind__V1__DeleteJobRequest request = TRAIND__V1__DELETE_JOB_REQUEST__INIT;
    request.id = td_unconst(f->args[0]);
    request.keep_checkpoints = f->keep_checkpoints;
    TD_TRY(td_session_call(s, "/traind.v1.JobService/DeleteJob", &request.base,
                           &traind__v1__delete_job_response__descriptor, &answer));
    const Traind__V1__DeleteJobResponse *r =
        (const Traind__V1__DeleteJobResponse *)td_rpc_message_get(answer);
    if (td_output_is_json(f->output)) return td_session_print_json(s, &r->base);
    if (f->output == TD_OUTPUT_NAME) {
        td_print(stdout, "%s\n", r->id);
        return TD_OK;
    }
    td_print(stdout, "%s deleted\n", r->id);
    for (size_t i = 0; i < r->n_nodes_waiting; i++) {
        td_print(stdout, "what node %s has of it goes when the node is back\n",
                 r->nodes_waiting[i]);
    }
    return TD_OK;
}
