// checkpoint create: asks the ranks of a job that runs for a checkpoint. The answer is that they
// are asked. With --wait the verb stays until the catalog has one that was taken since. Or it is
// known that none will come, because the attempt or the job has ended.
//
// A checkpoint of an earlier step, still on its way when the ranks were asked, is not the one. What
// a command registers counts at whatever step, as it counts them itself. With --all a job of the
// name that has no ranks which train is no failure.

#include <stdio.h>
#include <string.h>

#include "client/checkpoints/checkpoints.h"
#include "client/jobs/follow.h"
#include "client/screen/print.h"
#include "lib/attempt/checkpoint_name.h"
#include "traind/v1/checkpoint.pb-c.h"

enum { PATH_BYTES = 256, WHY_BYTES = 512, ID_BYTES = 64 };

struct saving {
    uint32_t attempt, step;  // as the job was when its ranks were asked
    char before[PATH_BYTES]; // its newest checkpoint then
    char path[PATH_BYTES];   // the one that came; "": none
    char why[WHY_BYTES];     // none will come; "": one may
};

static bool is_since(const struct saving *w, const char *path) {
    uint32_t attempt;
    int64_t step;
    if (!path[0] || strcmp(path, w->before) == 0) return false;
    if (!td_checkpoint_path_parse(path, &attempt, &step)) return true;
    return attempt == w->attempt && step >= w->step;
}

static bool on_change(const Traind__V1__WatchJobResponse *r, void *arg) {
    struct saving *w = arg;
    const Traind__V1__Job *j = r->job;
    if (is_since(w, j->checkpoint)) {
        snprintf(w->path, sizeof w->path, "%s", j->checkpoint);
        return true;
    }
    const bool goes_on = j->attempt == w->attempt && !td_job_state_terminal(j->state) &&
                         j->state != TRAIND__V1__JOB__STATE__RECOVERING &&
                         j->state != TRAIND__V1__JOB__STATE__QUEUED &&
                         j->state != TRAIND__V1__JOB__STATE__PAUSED;
    if (goes_on) return false;
    const char *failed = j->failure ? j->failure->message : "";
    const char *reason = failed[0] ? failed : j->reason ? j->reason->text : "";
    snprintf(w->why, sizeof w->why, "%s: attempt %u has ended%s%.256s", td_job_state_word(j->state),
             w->attempt, reason[0] ? ", " : "", reason);
    return true;
}

static td_status await(struct td_session *s, const char *id, struct saving *w) {
    const int64_t timeout_ns = s->flags->timeout_ns;
    td_status failed = td_follow(s, id, timeout_ns, on_change, w);
    if (td_status_code(failed) == TD_DEADLINE_EXCEEDED) {
        td_status_free(failed);
        return td_fail(TD_DEADLINE_EXCEEDED,
                       "job %s has not saved within --timeout (%.9g s); its ranks are asked, and "
                       "may still",
                       id, (double)timeout_ns / TD_NS_PER_S);
    }
    TD_TRY(failed);
    if (w->path[0]) return TD_OK;
    return td_fail(TD_ABORTED, "job %s has no checkpoint since it was asked: it is %s", id, w->why);
}

static td_status show_checkpoint(struct td_session *s, const char *id, const char *path) {
    TD_AUTO(td_rpc_message) *answer = NULL;
    Traind__V1__GetCheckpointRequest request = TRAIND__V1__GET_CHECKPOINT_REQUEST__INIT;
    request.job = td_unconst(id);
    request.path = td_unconst(path);
    TD_TRY(td_session_call(s, "/traind.v1.CheckpointService/GetCheckpoint", &request.base,
                           &traind__v1__checkpoint__descriptor, &answer));
    return td_session_print_json(s, td_rpc_message_get(answer));
}

static td_status show_asked(struct td_session *s, const Traind__V1__Job *j) {
    if (td_output_is_json(s->flags->output)) return td_session_print_json(s, &j->base);
    if (s->flags->output == TD_OUTPUT_NAME) {
        td_print(stdout, "%s\n", j->id);
    } else {
        td_print(stdout, "%s is asked to save; `trainctl checkpoint list %s` shows what it has\n",
                 j->id, j->id);
    }
    return TD_OK;
}

td_status td_cmd_checkpoint_create(struct td_session *s, const struct td_flags *f, int *out_exit) {
    (void)out_exit;
    TD_AUTO(td_rpc_message) *answer = NULL;
    Traind__V1__SaveJobRequest request = TRAIND__V1__SAVE_JOB_REQUEST__INIT;
    request.id = td_unconst(f->args[0]);
    TD_TRY(td_session_change(s, "/traind.v1.JobService/SaveJob", &request.base, &answer));
    if (!answer) return TD_OK;
    const Traind__V1__Job *j = (const Traind__V1__Job *)td_rpc_message_get(answer);
    if (!f->wait) return show_asked(s, j);
    char id[ID_BYTES];
    struct saving w = {.attempt = j->attempt, .step = j->global_step};
    snprintf(id, sizeof id, "%s", j->id);
    snprintf(w.before, sizeof w.before, "%s", j->checkpoint);
    TD_TRY(await(s, id, &w));
    if (td_output_is_json(f->output)) return show_checkpoint(s, id, w.path);
    td_print(stdout, f->output == TD_OUTPUT_NAME ? "%s\n" : "%s of %s\n", w.path, id);
    return TD_OK;
}
