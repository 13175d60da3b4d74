// cancel, pause, resume and delete: one request each, which differ by a word; the answer is the job
// in its new state. What the ranks do about it is seen with `trainctl watch`: they stop at an
// agreed step, so PAUSING and STOPPING take as long as a step and a save. `pause --wait` stays as
// long. With --all a job of the name whose state leaves nothing to do is no failure. Of a deleted
// job nothing is left to watch: the answer names the nodes that are away and still have files of
// it. With
// --force a refusal is answered by cancelling the job that it names, until nothing is in the way:
// this job, or one that begins with a checkpoint of it.

#include <stdio.h>
#include <string.h>

#include "client/jobs/follow.h"
#include "client/jobs/jobs.h"
#include "client/screen/print.h"

enum {
    JOB_BYTES = 64,
    FORCE_S = 60,  // for all that is in the way, unless --timeout says another
    ROUNDS = 1000, // jobs that are cancelled at most
};

static td_status show(struct td_session *s, const struct td_flags *f, const Traind__V1__Job *job) {
    if (td_output_is_json(f->output)) return td_session_print_json(s, &job->base);
    if (f->output == TD_OUTPUT_NAME) {
        td_print(stdout, "%s\n", job->id);
    } else {
        td_print(stdout, "%s %s\n", job->id, td_job_state_word(job->state));
    }
    return TD_OK;
}

static td_status steer(struct td_session *s, const struct td_flags *f, const char *method,
                       const ProtobufCMessage *request) {
    TD_AUTO(td_rpc_message) *answer = NULL;
    TD_TRY(td_session_change(s, method, request, &answer));
    return answer ? show(s, f, (const Traind__V1__Job *)td_rpc_message_get(answer)) : TD_OK;
}

td_status td_cmd_cancel(struct td_session *s, const struct td_flags *f, int *out_exit) {
    (void)out_exit;
    Traind__V1__CancelJobRequest request = TRAIND__V1__CANCEL_JOB_REQUEST__INIT;
    request.id = td_unconst(f->args[0]);
    if (f->reason) request.reason = td_unconst(f->reason);
    return steer(s, f, "/traind.v1.JobService/CancelJob", &request.base);
}

td_status td_cmd_pause(struct td_session *s, const struct td_flags *f, int *out_exit) {
    static const Traind__V1__Job__State paused = TRAIND__V1__JOB__STATE__PAUSED;
    TD_AUTO(td_rpc_message) *answer = NULL;
    Traind__V1__PauseJobRequest request = TRAIND__V1__PAUSE_JOB_REQUEST__INIT;
    request.id = td_unconst(f->args[0]);
    TD_TRY(td_session_change(s, "/traind.v1.JobService/PauseJob", &request.base, &answer));
    if (!answer) return TD_OK;
    const Traind__V1__Job *job = (const Traind__V1__Job *)td_rpc_message_get(answer);
    return f->wait ? td_follow_to(s, job->id, 0, &paused, 1, out_exit) : show(s, f, job);
}

td_status td_cmd_resume(struct td_session *s, const struct td_flags *f, int *out_exit) {
    (void)out_exit;
    Traind__V1__ResumeJobRequest request = TRAIND__V1__RESUME_JOB_REQUEST__INIT;
    request.id = td_unconst(f->args[0]);
    return steer(s, f, "/traind.v1.JobService/ResumeJob", &request.base);
}

// ---- delete -------------------------------------------------------------------------------------
static bool has_ended(const Traind__V1__WatchJobResponse *r, void *arg) {
    (void)arg;
    return td_job_state_terminal(r->job->state);
}

// Cancels a job, unless it has just ended, and stays until its ranks are gone.
static td_status cancel_and_wait(struct td_session *s, const char *id, int64_t timeout_ns) {
    TD_AUTO(td_rpc_message) *answer = NULL;
    Traind__V1__CancelJobRequest request = TRAIND__V1__CANCEL_JOB_REQUEST__INIT;
    request.id = td_unconst(id);
    request.reason = td_unconst("delete --force");
    td_status failed = td_session_call(s, "/traind.v1.JobService/CancelJob", &request.base,
                                       &traind__v1__job__descriptor, &answer);
    if (failed && td_status_code(failed) != TD_FAILED_PRECONDITION) return failed;
    if (!failed) td_print(stderr, "trainctl: %s is cancelled\n", id);
    td_status_free(failed);
    TD_TRY_CTX(td_follow(s, id, timeout_ns, has_ended, NULL), "wait until %s has ended", id);
    return TD_OK;
}

// The job that a refusal names; false: none.
static bool job_in_the_way(td_status borrow_refusal, char out[JOB_BYTES]) {
    if (td_status_code(borrow_refusal) != TD_FAILED_PRECONDITION) return false;
    for (size_t i = 0; i < td_status_n_meta(borrow_refusal); i++) {
        const char *key, *value;
        td_status_meta(borrow_refusal, i, &key, &value);
        if (strcmp(key, "job") != 0) continue;
        const int n = snprintf(out, JOB_BYTES, "%s", value);
        return n > 0 && n < JOB_BYTES;
    }
    return false;
}

static td_status delete_job(struct td_session *s, const struct td_flags *f,
                            struct td_rpc_message **out_answer) {
    Traind__V1__DeleteJobRequest request = TRAIND__V1__DELETE_JOB_REQUEST__INIT;
    request.id = td_unconst(f->args[0]);
    request.keep_checkpoints = f->keep_checkpoints;
    const int64_t timeout_ns = f->timeout_ns ? f->timeout_ns : FORCE_S * TD_NS_PER_S;
    const int64_t end_ns = td_mono_now().ns + timeout_ns;
    for (int round = 0;; round++) {
        char id[JOB_BYTES];
        td_status failed =
            td_session_call(s, "/traind.v1.JobService/DeleteJob", &request.base,
                            &traind__v1__delete_job_response__descriptor, out_answer);
        const int64_t left_ns = end_ns - td_mono_now().ns;
        if (!f->force || round == ROUNDS || left_ns <= 0) return failed;
        if (!job_in_the_way(failed, id)) return failed;
        td_status_free(failed);
        TD_TRY(cancel_and_wait(s, id, left_ns));
    }
}

td_status td_cmd_delete(struct td_session *s, const struct td_flags *f, int *out_exit) {
    (void)out_exit;
    TD_AUTO(td_rpc_message) *answer = NULL;
    TD_TRY(delete_job(s, f, &answer));
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
