// plan: what a spec would need (memory, FLOPs, steps), worked out by a worker on a node without
// training, and held against the limits of the nodes. A job that plan refuses would fail when it is
// submitted, in the same words and with the same exit code. `submit --dry-run` asks the same. -O
// writes the plan itself, every knob resolved, which `traind-worker run --plan FILE` takes on any
// machine, with no daemon at all. --dump-graph prints the graph of the job's main program instead
// of the numbers.

#include "client/jobs/cmd_plan.h"
#include "client/jobs/jobs.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/jobs/submission.h"
#include "client/screen/format.h"
#include "client/screen/print.h"
#include "client/session/session.h"
#include "lib/base/files/files.h"
#include "lib/base/files/named_output.h"
#include "traind/v1/job.pb-c.h"

static void show_precision(const Traind__V1__PlanJobResponse *r) {
    double own_ms = r->step_seconds * 1e3, other_ms = r->other_step_seconds * 1e3;
    const char *other = r->other_precision;
    if (!r->precision[0]) return; // a node of an older release
    td_print(stdout, "%-16s %s", "precision", r->precision);
    if (other[0] && own_ms > 0 && other_ms > 0 && other_ms < own_ms) {
        td_print(stdout, "; %s is faster here: %.3g ms a step against %.3g ms", other, other_ms,
                 own_ms);
    } else if (other[0] && own_ms > 0 && other_ms > 0) {
        td_print(stdout, ": %.3g ms a step, %s %.3g ms", own_ms, other, other_ms);
    }
    td_print(stdout, "\n");
}

struct part {
    uint64_t bytes;
    const char *name;
};

// "memory  61.4 MiB a rank: 1.2 MiB state, ..."; parts that are nothing are left out.
static void show_parts(const char *title, uint64_t bytes, const struct part *parts, size_t n,
                       FILE *to) {
    char text[32];
    const char *before = ": ";
    td_print(to, "%-16s %s a rank", title, td_format_bytes(bytes, text));
    for (size_t i = 0; i < n; i++) {
        if (!parts[i].bytes) continue;
        td_print(to, "%s%s %s", before, td_format_bytes(parts[i].bytes, text), parts[i].name);
        before = ", ";
    }
    td_print(to, "\n");
}

static void show_memory(const Traind__V1__PlanJobResponse *r, FILE *to) {
    static const Traind__V1__PlanMemory unknown;
    const Traind__V1__PlanMemory *m = r->memory ? r->memory : &unknown;
    const struct part parts[] = {
        {m->state_bytes, "state"},
        {m->arena_bytes, "activations"},
        {m->scratch_bytes, "scratch"},
        {m->shadow_bytes, "shadow of the snapshot"},
        {m->snapshot_bytes, "snapshot"},
        {m->batch_bytes, "batches"},
        {m->process_bytes, "process"},
        {m->staging_bytes, "gradients on their way"},
        {m->hook_bytes, "comm hook"},
        {m->order_bytes, "order of samples"},
        {r->shared_bytes, "shared with the group"},
    };
    const size_t n_device = m->device_bytes ? 4 : 0; // the first are the device's then
    show_parts("memory", r->memory_bytes, parts + n_device, TD_COUNTOF(parts) - n_device, to);
    if (n_device) show_parts("device memory", m->device_bytes, parts, n_device, to);
}

void td_plan_show_warnings(const Traind__V1__PlanJobResponse *r, FILE *to) {
    for (size_t i = 0; i < r->n_warnings; i++) {
        td_print(to, "warning: %s\n", r->warnings[i]);
    }
}

// An older daemon does not say it.
static void show_gradients(const Traind__V1__PlanJobResponse *r) {
    if (!r->accumulate[0]) return;
    td_print(stdout, "%-16s the mean %s (accumulate: %s)\n", "gradients",
             strcmp(r->accumulate, "tokens") == 0 ? "of all that a step's batches count"
                                                  : "of the means of a step's batches",
             r->accumulate);
}

static void show_plan(const Traind__V1__PlanJobResponse *r) {
    char text[32];
    if (r->kind[0] && strcmp(r->kind, "train") != 0) {
        td_print(stdout, "%-16s %s: there is no plan, resources say what it needs\n", "kind",
                 r->kind);
        td_print(stdout, "%-16s %s%s\n", "memory",
                 r->memory_bytes ? td_format_bytes(r->memory_bytes, text) : "no limit",
                 r->memory_bytes ? " a rank" : "");
        td_print(stdout, "%-16s %" PRIu32 "\n", "ranks", r->slots);
        if (r->gpus_per_rank) {
            td_print(stdout, "%-16s %" PRIu32 " a rank: %s\n", "GPUs", r->gpus_per_rank,
                     r->gpu_view);
        } else if (r->gpu_view[0]) {
            td_print(stdout, "%-16s %s\n", "GPUs", r->gpu_view);
        }
        return;
    }
    td_print(stdout, "%-16s %s\n", "parameters", td_format_count((double)r->parameters, text));
    show_memory(r, stdout);
    td_print(stdout, "%-16s %s a group\n", "shared memory", td_format_bytes(r->shared_bytes, text));
    td_print(stdout, "%-16s %s FLOP a step and rank\n", "arithmetic",
             td_format_count(r->flops_per_step, text));
    td_print(stdout, "%-16s %" PRIu32 " an epoch, %" PRIu32 " in all\n", "steps",
             r->steps_per_epoch, r->total_steps);
    if (r->step_seconds > 0) {
        td_print(stdout, "%-16s %.3g s a step, %.3g s an epoch, on undisturbed cores%s\n", "time",
                 r->step_seconds, r->step_seconds * r->steps_per_epoch,
                 strcmp(r->rates, "near") == 0 ? ", roughly: the node is busy and not measured yet"
                                               : "");
    }
    if (strcmp(r->rates, "none") == 0) {
        td_print(stdout, "%-16s unknown: the node is busy and not measured yet\n", "time");
    }
    show_precision(r);
    show_gradients(r);
    td_print(stdout, "%-16s %" PRIu32 "\n", "slots", r->slots);
}

td_status td_plan_ask(struct td_session *s, const struct td_flags *f,
                      struct td_rpc_message **out_answer) {
    TD_AUTO(td_submission) *handed_in = NULL;
    TD_TRY(td_submission_create(s, f, &handed_in));
    Traind__V1__PlanJobRequest request = TRAIND__V1__PLAN_JOB_REQUEST__INIT;
    request.spec = td_unconst(td_buf_cstr(&handed_in->spec));
    request.client = &handed_in->client;
    request.n_overrides = f->n_sets;
    request.overrides = td_unconst(f->sets);
    request.dump_graph = td_unconst(f->dump_graph ? f->dump_graph : "");
    return td_session_call(s, "/traind.v1.JobService/PlanJob", &request.base,
                           &traind__v1__plan_job_response__descriptor, out_answer);
}

td_status td_cmd_plan(struct td_session *s, const struct td_flags *f, int *out_exit) {
    (void)out_exit;
    TD_AUTO(td_rpc_message) *answer = NULL;
    TD_TRY(td_plan_ask(s, f, &answer));
    const Traind__V1__PlanJobResponse *r =
        (const Traind__V1__PlanJobResponse *)td_rpc_message_get(answer);
    if (f->out_path) {
        TD_TRY(td_session_local(
            td_named_output_write(f->out_path, r->plan_json, strlen(r->plan_json), 0666, 0)));
    }
    if (td_output_is_json(f->output)) {
        return td_session_print_json(s, &r->base);
    }
    if (f->output == TD_OUTPUT_NAME) {
        td_print(stdout, "%s\n", f->out_path ? f->out_path : "");
        return TD_OK;
    }
    if (f->dump_graph) {
        td_print(stdout, "%s", r->graph);
        return TD_OK;
    }
    show_plan(r);
    td_plan_show_warnings(r, stdout);
    if (f->out_path) {
        td_print(stdout, "written to %s; run it with `traind-worker run --plan %s`\n", f->out_path,
                 f->out_path);
    }
    return TD_OK;
}
