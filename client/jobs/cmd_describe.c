// describe: one job, everything: state with the reason's numbers, progress, metrics, failure with
// its last words and the last lines of who is to blame, notes, times. Then its spec, as far as it
// differs from defaults (-o wide: whole). Lines that would be empty are left out, but for the
// numbers, which are always there.

#include <stdio.h>
#include <string.h>

#include "client/jobs/job_gpus.h"
#include "client/jobs/jobs.h"
#include "client/jobs/spec_yaml.h"
#include "client/logs/last_lines.h"
#include "client/screen/format.h"
#include "client/screen/print.h"
#include "client/screen/progress.h"
#include "client/session/session.h"

static void line(const char *key, const char *value) {
    if (value && *value) td_print(stdout, "%-14s %s\n", key, value);
}

static void show_reason(const Traind__V1__Reason *r) {
    if (!r || !r->code[0]) return;
    td_print(stdout, "%-14s %s: %s\n", "reason", r->code, r->text);
    if (r->needed_slots) {
        td_print(stdout, "%-14s %u needed, %u free\n", "slots", r->needed_slots, r->free_slots);
    }
    if (r->needed_devices) {
        td_print(stdout, "%-14s %u needed, %u free of %u\n", "devices", r->needed_devices,
                 r->free_devices, r->all_devices);
    }
    if (r->queue_position) td_print(stdout, "%-14s %u\n", "queue position", r->queue_position);
    for (size_t i = 0; i < r->n_blockers; i++) {
        line("held by", r->blockers[i]);
    }
}

// Of one node there is nothing to say but its name.
static void show_parts(const Traind__V1__Job *job) {
    for (size_t i = 0; i < job->n_nodes && job->n_parts < 2; i++) {
        line("node", job->nodes[i]);
    }
    for (size_t i = 0; i < job->n_parts && job->n_parts > 1; i++) {
        const Traind__V1__Part *p = job->parts[i];
        char ranks[48];
        snprintf(ranks, sizeof ranks, p->n_ranks > 1 ? "ranks %u to %u" : "rank %u", p->first_rank,
                 p->first_rank + p->n_ranks - 1);
        td_print(stdout, "%-14s %s: %s on %u slots, %s\n", "node", p->node, ranks, p->slots,
                 p->state);
    }
}

// The traceback belongs to what is wrong now, not to an attempt before the one that runs.
static void show_last_lines(struct td_session *s, const Traind__V1__Job *job) {
    if (job->state != TRAIND__V1__JOB__STATE__FAILED &&
        job->state != TRAIND__V1__JOB__STATE__RECOVERING) {
        return;
    }
    char head[16];
    snprintf(head, sizeof head, "%-14s ", "stderr");
    td_last_lines_show(s, job, head);
}

static void show_failure(const Traind__V1__Failure *x) {
    if (!x || !x->class_[0]) return;
    td_print(stdout, "%-14s class %s, attempt %u, step %u", "failure", x->class_, x->attempt,
             x->step);
    if (x->rank >= 0) td_print(stdout, ", rank %d", x->rank);
    if (x->node[0]) td_print(stdout, ", node %s", x->node);
    td_print(stdout, "\n%-14s %s\n", "", x->message);
    if (x->last_words[0]) td_print(stdout, "%-14s %s\n", "last words", x->last_words);
}

static td_status show_job(struct td_session *s, const Traind__V1__Job *job) {
    char labels[TD_LABELS_BYTES];
    line("id", job->id);
    line("name", job->name);
    line("labels", td_job_labels_text(job, labels));
    line("state", td_job_state_word(job->state));
    show_reason(job->reason);
    td_print(stdout, "%-14s %u", "step", job->global_step);
    if (job->total_steps) td_print(stdout, " of %u", job->total_steps);
    td_print(stdout, "\n");
    td_print(stdout, "%-14s %u\n", "epoch", job->epoch);
    td_print(stdout, "%-14s %u (%u failed)\n", "attempt", job->attempt, job->restarts);
    td_print(stdout, "%-14s %u on %u slots\n", "ranks", job->n_ranks, job->slots);
    show_parts(job);
    for (size_t i = 0; i < job->n_devices; i++) {
        td_print(stdout, "%-14s %s of rank %zu\n", "device", job->devices[i], i);
    }
    td_job_gpus_show(job);
    const Traind__V1__Progress *p = job->progress;
    if (p && job->state == TRAIND__V1__JOB__STATE__RUNNING) {
        char rate[32], left[32];
        const bool moves = p->samples_per_s > 0; // else nothing is known of what is left
        td_print(stdout, "%-14s %s%s%s", "progress", p->phase, p->detail[0] ? " " : "", p->detail);
        if (moves || strcmp(p->phase, "training") == 0) {
            td_print(stdout, ", %s samples/s", td_format_count(p->samples_per_s, rate));
        }
        if (moves || p->eta_s > 0) td_print(stdout, ", ETA %s", td_format_seconds(p->eta_s, left));
        td_print(stdout, "\n");
    }
    for (size_t i = 0; i < job->n_metrics; i++) {
        char text[TD_FORMAT_VALUE_BYTES];
        td_print(stdout, "%-14s %s = %s\n", i == 0 ? "metrics" : "", job->metrics[i]->key,
                 td_format_value(job->metrics[i]->value, text));
    }
    line("checkpoint", job->checkpoint);
    line("weights", job->weights);
    show_failure(job->failure);
    show_last_lines(s, job);
    for (size_t i = 0; i < job->n_notes; i++) {
        line("note", job->notes[i]);
    }
    if (job->owner[0]) {
        td_print(stdout, "%-14s %s (token %s)\n", "owner", job->owner, job->owner_token);
    }
    line("created", job->create_time);
    line("started", job->start_time);
    line("ended", job->end_time);
    return td_spec_yaml_show(job, s->flags->wide);
}

td_status td_cmd_describe(struct td_session *s, const struct td_flags *f, int *out_exit) {
    (void)out_exit;
    TD_AUTO(td_rpc_message) *answer = NULL;
    TD_TRY(td_spec_yaml_get(s, &answer));
    const Traind__V1__Job *job = (const Traind__V1__Job *)td_rpc_message_get(answer);
    if (td_output_is_json(f->output)) {
        return td_session_print_json(s, &job->base);
    }
    if (f->output != TD_OUTPUT_NAME) return show_job(s, job);
    td_print(stdout, "%s\n", job->id);
    return TD_OK;
}
