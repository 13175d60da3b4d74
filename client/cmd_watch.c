// watch: every change of a job as it comes, one line or one JSON object each, until it has ended.
// wait: nothing until it has ended, then how; with --follow its progress meanwhile. Both survive a
// restart of the daemon (follow.c), and exit 1 if the job did not succeed.

#include <stdio.h>

#include "client/print.h"
#include "client/follow.h"

struct watch {
    struct td_session *session;
    td_status failed;
    Traind__V1__Job__State last;
};

static bool show_change(const Traind__V1__WatchJobResponse *r, void *arg) {
    struct watch *w = arg;
    const struct td_flags *f = w->session->flags;
    const Traind__V1__Job *job = r->job;
    if (td_output_is_json(f->output)) {
        w->failed = td_session_print_json(w->session, &r->base);
    } else if (f->output == TD_OUTPUT_NAME) {
        td_print(stdout, "%s\n", job->id);
    } else {
        double loss = 0;
        td_print(stdout, "%s %s attempt %u epoch %u step %u/%u", job->id,
                 td_job_state_word(job->state), job->attempt, job->epoch, job->global_step,
                 job->total_steps);
        if (td_job_metric(job, "train_loss_step", &loss)) {
            td_print(stdout, " train_loss_step %.4f", loss);
        }
        if (job->reason && job->reason->text[0]) td_print(stdout, " (%s)", job->reason->text);
        td_print(stdout, "\n");
    }
    fflush(stdout);
    w->last = job->state;
    return w->failed || td_job_state_terminal(job->state);
}

td_status td_cmd_watch(struct td_session *s, const struct td_flags *f, int *out_exit) {
    struct watch w = {.session = s};
    TD_TRY(td_follow(s, f->args[0], f->timeout_ns, show_change, &w));
    if (w.last != TRAIND__V1__JOB__STATE__SUCCEEDED) *out_exit = TD_CTL_JOB_FAILED;
    return w.failed;
}

td_status td_cmd_wait(struct td_session *s, const struct td_flags *f, int *out_exit) {
    return td_follow_to_end(s, f->args[0], f->follow ? TD_FOLLOW_SHOW : 0, out_exit);
}
