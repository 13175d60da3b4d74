// Watch says in which epoch a job is, from the page that its ranks write; its metrics come another
// way and later, batched. A line made of both would show an epoch with the numbers of the one
// before, and never the last one. So the watch only says when to ask, and the line is made of
// points, which bear their epoch. An epoch is over when all ranks have logged its metrics, which
// are the last that they log of it, or when the job has succeeded.
//
// One question at a time, on the follower's channel and loop. One that brought no line is repeated
// after a second at the earliest, because the next point of a slow job may be minutes away. A
// question that fails costs a line, never the following: the next one asks for the same epochs.

#include "client/jobs/epochs.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/metrics/series.h"
#include "client/screen/format.h"
#include "client/screen/print.h"
#include "lib/base/clock.h"

#define ASK_AGAIN_NS (1 * TD_NS_PER_S)
#define ANSWER_NS    (2 * TD_NS_PER_S)

static char *const shown[] = {(char[]){"train_loss_epoch"}, (char[]){"train_accuracy_epoch"},
                              (char[]){"val_loss"}, (char[]){"val_accuracy"}};

void td_epochs_init(struct td_epochs *e, struct td_session *session,
                    struct td_progress_line *progress, bool from_start) {
    *e = (struct td_epochs){
        .session = session, .progress = progress, .known = from_start, .idle = true};
}

// One past the last epoch that is over.
static uint32_t epochs_over(const struct td_epochs *e, const Traind__V1__Series *train) {
    uint32_t over = e->next;
    for (size_t i = 0; train && i < train->n_points; i++) {
        const Traind__V1__MetricPoint *p = train->points[i];
        if (e->over || p->n_ranks >= e->n_ranks) over = TD_MAX(over, p->epoch + 1);
    }
    return over;
}

static const Traind__V1__MetricPoint *last_of(const Traind__V1__Series *s, uint32_t epoch) {
    const Traind__V1__MetricPoint *found = NULL;
    for (size_t i = 0; s && i < s->n_points; i++) {
        if (s->points[i]->epoch == epoch) found = s->points[i];
    }
    return found;
}

static void say_epoch(struct td_epochs *e, const Traind__V1__QueryMetricsResponse *r) {
    const char *before = NULL;
    char text[TD_FORMAT_VALUE_BYTES];
    for (size_t i = 0; i < TD_COUNTOF(shown); i++) {
        const Traind__V1__MetricPoint *p = last_of(td_series_find(r, shown[i]), e->next);
        if (!p) continue;
        if (!before) {
            td_progress_line_end(e->progress);
            td_print(stderr, "epoch %" PRIu32, e->next);
        }
        td_print(stderr, "%s%s %s", before ? before : ": ", shown[i],
                 td_format_value(p->value, text));
        e->from_step = TD_MAX(e->from_step, p->step + 1);
        before = ", ";
    }
    if (before) td_print(stderr, "\n");
}

static void on_points(td_status take_status, const ProtobufCMessage *response, void *arg) {
    struct td_epochs *e = arg;
    const Traind__V1__QueryMetricsResponse *r = (const Traind__V1__QueryMetricsResponse *)response;
    uint32_t over = r ? epochs_over(e, td_series_find(r, "train_loss_epoch")) : e->next;
    if (over == e->next) e->not_before.ns = td_mono_now().ns + ASK_AGAIN_NS;
    for (; e->next < over; e->next++) {
        say_epoch(e, r);
    }
    e->idle = true;
    td_status_free(take_status);
}

static void ask(struct td_epochs *e, const Traind__V1__Job *job) {
    if (!e->session->channel) return;
    Traind__V1__QueryMetricsRequest request = TRAIND__V1__QUERY_METRICS_REQUEST__INIT;
    request.job = job->id;
    request.n_names = TD_COUNTOF(shown);
    request.names = td_unconst(shown);
    request.from_step = e->from_step;
    e->n_ranks = job->n_ranks;
    td_status s = td_rpc_unary(e->session->channel, "/traind.v1.MetricService/QueryMetrics",
                               &request.base, &traind__v1__query_metrics_response__descriptor,
                               ANSWER_NS, on_points, e, NULL);
    e->idle = s != TD_OK;
    td_status_free(s);
}

void td_epochs_see(struct td_epochs *e, const Traind__V1__Job *job) {
    if (!e->known) {
        e->next = job->epoch;
        e->from_step = job->global_step;
        e->known = true;
    }
    if (job->epoch > e->next && e->idle && td_mono_now().ns >= e->not_before.ns) ask(e, job);
}

// Answered, failed, or cancelled with the channel.
void td_epochs_wait(struct td_epochs *e) {
    if (e->idle) return;
    td_status_free(td_session_run_until(e->session, &e->idle, 2 * ANSWER_NS));
}

void td_epochs_finish(struct td_epochs *e, const Traind__V1__Job *job) {
    if (!e->known) return;
    e->over = job->state == TRAIND__V1__JOB__STATE__SUCCEEDED;
    ask(e, job);
    td_epochs_wait(e);
}
