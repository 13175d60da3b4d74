// watch: every change of a job as it comes, one line or one JSON object each, until it has ended.
// wait: nothing until it has ended, or is in a state of --for, then how; with --follow its progress
// meanwhile. Both survive a restart of the daemon (follow.c), and exit 1 if the job did not
// succeed, or did not come to that state.

#include <stdio.h>

#include "client/jobs/jobs.h"
#include "client/screen/format.h"
#include "client/screen/print.h"
#include "client/jobs/follow.h"
#include "client/session/states.h"

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
        char text[TD_FORMAT_VALUE_BYTES];
        td_print(stdout, "%s %s attempt %u epoch %u step %u", job->id,
                 td_job_state_word(job->state), job->attempt, job->epoch, job->global_step);
        if (job->total_steps) td_print(stdout, "/%u", job->total_steps);
        if (job->progress && job->progress->detail[0]) {
            td_print(stdout, " %s %s", job->progress->phase, job->progress->detail);
        }
        if (td_job_metric(job, "train_loss_step", &loss)) {
            td_print(stdout, " train_loss_step %s", td_format_value(loss, text));
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
    Traind__V1__Job__State states[TD_STATES_MAX];
    size_t n;
    const int flags = f->follow ? TD_FOLLOW_SHOW : 0;
    if (!f->state) return td_follow_to_end(s, f->args[0], flags, out_exit);
    TD_TRY(td_states_parse("for", f->state, states, &n));
    return td_follow_to(s, f->args[0], flags, states, n, out_exit);
}
