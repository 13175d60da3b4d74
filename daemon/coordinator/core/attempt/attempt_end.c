// See the header.

#include "daemon/coordinator/core/attempt/attempt_end.h"

#include "daemon/coordinator/core/attempt/attempt_messages.h"
#include "daemon/coordinator/core/attempt/device_errors.h"
#include "daemon/coordinator/core/attempt/rendezvous.h"
#include "daemon/coordinator/core/attempt/source.h"
#include "daemon/coordinator/core/attempt/transitions.h"
#include "daemon/coordinator/core/catalog/attempt_over.h"
#include "daemon/coordinator/core/catalog/catalog.h"
#include "daemon/coordinator/core/catalog/retain.h"
#include "daemon/coordinator/core/model/changes.h"
#include "daemon/coordinator/core/model/hosts.h"
#include "daemon/coordinator/core/model/job.h"
#include "daemon/coordinator/core/model/model.h"
#include "lib/attempt/rank_page.h"

enum { FREE_RESTARTS = 5 };

static const int64_t close_ns = 5 * TD_NS_PER_S;       // for metrics on their way
static const int64_t checkpoint_ns = 60 * TD_NS_PER_S; // then for checkpoints
static const int64_t late_ns = TD_NS_PER_S;            // for an error of a device that explains it

void td_attempt_stop(struct td_core *core, struct td_job *j, struct td_attempt *a,
                     enum td_stop_cause cause) {
    a->stop = cause;
    for (uint32_t i = 0; i < a->n_parts; i++) {
        a->parts[i].stop_sent = false;
    }
    td_core_save_attempt(core, j, a);
    td_attempt_send_stop(core, j, a);
}

void td_attempt_abort(struct td_core *core, struct td_job *j, struct td_attempt *a) {
    const struct td_host *n = a->failure.set ? td_nodes_find(core, a->failure.node) : NULL;
    td_reason_set(&j->reason, "ENDING",
                  "attempt %u has failed on node %s: its other ranks are ended", a->number,
                  n ? n->name : "?");
    td_core_touch(core, j);
    td_core_save_attempt(core, j, a);
    td_attempt_send_stop(core, j, a);
}

// ---- the end ------------------------------------------------------------------------------------
static uint32_t budget(const struct td_job *j) {
    return (uint32_t)TD_MAX(j->knobs.restart.max, 0);
}

// Another attempt could do better, whatever restart.max says.
static bool is_retried(enum td_class cls) {
    switch (cls) {
    case TD_CLASS_BAD_SPEC:
    case TD_CLASS_USER_CODE:
    case TD_CLASS_DATA:
    case TD_CLASS_NUMERIC:
        return false;
    case TD_CLASS_PREEMPTED:
    case TD_CLASS_NONE:
    case TD_CLASS_DISK:
    case TD_CLASS_DEVICE:
    case TD_CLASS_OUT_OF_MEMORY:
    case TD_CLASS_NODE_LOST:
    case TD_CLASS_COLLECTIVE:
    case TD_CLASS_STUCK:
    case TD_CLASS_INTERNAL:
    case TD_CLASS_KILLED:
    case TD_CLASS_COUNT:
        break;
    }
    return true;
}

static bool worth_retry(const struct td_job *j, enum td_class cls) {
    if (cls == TD_CLASS_PREEMPTED) return true; // not counted
    return is_retried(cls) && j->restarts < budget(j);
}

static void count_retry(struct td_core *core, struct td_job *j, enum td_class cls) {
    if (cls == TD_CLASS_PREEMPTED) return;
    j->disk_restarts += cls == TD_CLASS_DISK;
    j->restarts++;
    core->counters[TD_COUNT_RESTARTS]++;
}

static void job_failed(struct td_core *core, struct td_job *j, struct td_attempt *a) {
    if (!a->failure.set) {
        struct td_failure f = {.cls = TD_CLASS_INTERNAL,
                               .code = TD_INTERNAL,
                               .attempt = a->number,
                               .rank = -1,
                               .node = a->parts[0].node,
                               .message = td_unconst("the attempt failed without a word")};
        TD_CHECK(!td_failure_set(&a->failure, &f));
    }
    td_device_errors_judge(core, a);
    TD_CHECK(!td_failure_set(&j->failure, &a->failure));
    enum td_class cls = j->failure.cls;
    if (cls == TD_CLASS_DEVICE) td_device_errors_blame(core, j, a);
    // Of a command: another attempt has another port. One that finds each taken is counted at last.
    bool lost_port = cls == TD_CLASS_PREEMPTED && j->failure.code == TD_UNAVAILABLE;
    if (lost_port && j->free_restarts++ >= FREE_RESTARTS) cls = TD_CLASS_INTERNAL;
    // Another job removed the checkpoint that this one began from: it begins from its newest then.
    bool lost_source = cls == TD_CLASS_DATA && td_source_moved(core, j);
    if (lost_source && j->free_restarts++ < FREE_RESTARTS) cls = TD_CLASS_PREEMPTED;
    bool retry = worth_retry(j, cls);
    if (retry) count_retry(core, j, cls);
    if (!retry && budget(j) && is_retried(cls)) {
        td_job_note(j, "the job is not restarted again: restart.max (%d) is used up",
                    j->knobs.restart.max);
    }
    td_core_apply(core, j, retry ? TD_JOB_ON_RETRY : TD_JOB_ON_FAIL);
    td_core_touch(core, j);
}

static void left_drained(const struct td_core *core, struct td_job *j, const struct td_attempt *a) {
    const struct td_host *first = NULL;
    for (uint32_t i = 0; i < a->n_parts && !first; i++) {
        const struct td_host *n = td_nodes_find(core, a->parts[i].node);
        if (n && n->cordon.drains) first = n;
    }
    const char *name = first ? first->name : "a node of it"; // the drain was ended meanwhile
    td_reason_set(&j->reason, "NODE_DRAINED", "attempt %u was stopped, as %s%s is drained",
                  a->number, first ? "node " : "", name);
    td_job_note(
        j, "attempt %u was stopped, as %s%s was drained; the job goes on with the next attempt",
        a->number, first ? "node " : "", name);
}

static void job_stopped(struct td_core *core, struct td_job *j, struct td_attempt *a) {
    td_core_apply(core, j, TD_JOB_ON_STOPPED);
    if (a->outcome == TD_OUTCOME_KILLED) {
        td_job_note(j,
                    "attempt %u did not stop in time and was killed; what it did since its "
                    "last checkpoint is lost",
                    a->number);
    }
    if (j->state != TD_JOB_QUEUED) return;
    if (a->stop == TD_STOP_CAUSE_DAEMON) {
        td_reason_set(&j->reason, "DAEMON_STOPPED",
                      "daemon stopped; attempt %u starts when it is back", a->number + 1);
    } else if (a->stop == TD_STOP_CAUSE_DRAIN) {
        left_drained(core, j, a);
    } else if (a->stop == TD_STOP_CAUSE_UPGRADE) {
        td_reason_set(&j->reason, "LAUNCHER_UPGRADED", "attempt %u ran under another build",
                      a->number);
        td_job_note(j,
                    "attempt %u ran under another version of traind: it was stopped with a "
                    "checkpoint, and the next one resumes from it",
                    a->number);
    } else {
        td_reason_set(&j->reason, "STOPPED_ON_NODE", "attempt %u was stopped on its node",
                      a->number);
        const struct td_host *n = td_nodes_find(core, a->parts[0].node);
        const bool alone = a->n_parts == 1; // of several, which one it was is not known here
        const char *name = n ? n->name : a->parts[0].node;
        td_job_note(j,
                    "attempt %u was stopped on %s%s, not by a command of `trainctl`; the job goes "
                    "on with the next attempt",
                    a->number, alone ? "node " : "one of its nodes", alone ? name : "");
    }
}

static void close_attempt(struct td_core *core, struct td_job *j, struct td_attempt *a) {
    a->state = TD_ATTEMPT_ENDED;
    a->closing = false;
    td_rendezvous_over(core, j, a);
    switch (a->outcome) {
    case TD_OUTCOME_DONE:
        j->progress.phase = TD_PHASE_ENDED;
        td_core_apply(core, j, TD_JOB_ON_DONE);
        break;
    case TD_OUTCOME_STOPPED:
        job_stopped(core, j, a);
        break;
    case TD_OUTCOME_KILLED:
        job_stopped(core, j, a);
        break;
    case TD_OUTCOME_NONE:
    case TD_OUTCOME_FAILED:
    case TD_OUTCOME_COUNT:
        job_failed(core, j, a);
        break;
    }
    core->queue_dirty = true; // its slots are free
    td_core_touch(core, j);
    td_core_save_attempt(core, j, a);
    if (td_attempt_over(a)) { // no node has anything of it that would be forgotten
        td_catalog_attempt_over(core, j, a);
    } else {
        td_attempt_maybe_forget(core, j, a);
    }
}

static bool metrics_in(const struct td_attempt *a) {
    for (uint32_t r = 0; r < a->n_ranks; r++) {
        if (td_attempt_part_over(td_attempt_part_of(a, r))) continue;
        if (a->ranks[r].metrics < a->ranks[r].metrics_end) return false;
    }
    return true;
}

static bool has_failed(const struct td_attempt *a) {
    return a->outcome == TD_OUTCOME_FAILED || a->outcome == TD_OUTCOME_NONE;
}

// Who waited for the end of a job wants its last checkpoint, also of one that failed. Only where
// another attempt follows there is no such wait: the queue holds the job back, in its place
// (hold_until).
static bool checkpoints_in(const struct td_job *j, const struct td_attempt *a) {
    const enum td_class cls = a->failure.set ? a->failure.cls : TD_CLASS_INTERNAL;
    if (has_failed(a) && worth_retry(j, cls)) return true;
    for (uint32_t i = 0; i < j->n_checkpoints; i++) {
        if (!j->checkpoints[i]->committed && j->checkpoints[i]->attempt == a->number) return false;
    }
    return true;
}

void td_attempt_maybe_close(struct td_core *core, struct td_job *j, struct td_attempt *a) {
    if (!a->closing || !td_attempt_live(a)) return;
    struct td_mono last = td_mono_add(a->close_at, checkpoint_ns);
    struct td_mono late = td_mono_add(a->close_at, late_ns - close_ns);
    int64_t now = core->now.mono.ns;
    if (has_failed(a)) td_device_errors_judge(core, a);
    if (has_failed(a) && now < late.ns && td_device_errors_may_come(core, a)) {
        td_core_wake_at(core, late);
    } else if (!metrics_in(a) && now < a->close_at.ns) {
        td_core_wake_at(core, a->close_at);
    } else if (!checkpoints_in(j, a) && now < last.ns) {
        td_core_wake_at(core, last);
    } else {
        close_attempt(core, j, a);
    }
}

// All was done or agreed, but a part of its record is lost, which is a failure. Where all was done
// another attempt would find nothing to train, and bring nothing back.
enum td_outcome td_attempt_unless_lost(struct td_attempt *a, enum td_outcome outcome) {
    bool well = outcome == TD_OUTCOME_DONE || outcome == TD_OUTCOME_STOPPED;
    if (!well || !a->failure.set) return outcome;
    if (outcome == TD_OUTCOME_DONE) a->failure.cls = TD_CLASS_DATA;
    return TD_OUTCOME_FAILED;
}

// What the parts come to. A stop that was asked for has happened, if not in the way it was asked.
static enum td_outcome outcome_of(const struct td_attempt *a) {
    bool has[TD_OUTCOME_COUNT] = {0};
    for (uint32_t i = 0; i < a->n_parts; i++) {
        has[a->parts[i].outcome] = true;
    }
    if (a->stop && has[TD_OUTCOME_KILLED]) return TD_OUTCOME_KILLED;
    if (has[TD_OUTCOME_FAILED] || has[TD_OUTCOME_NONE]) return TD_OUTCOME_FAILED;
    if (has[TD_OUTCOME_KILLED]) return TD_OUTCOME_KILLED;
    return has[TD_OUTCOME_STOPPED] ? TD_OUTCOME_STOPPED : TD_OUTCOME_DONE;
}

// A part is over: the others end, too, or all are over.
static void part_over(struct td_core *core, struct td_job *j, struct td_attempt *a) {
    if (td_attempt_aborts(a)) {
        td_rendezvous_over(core, j, a); // nobody meets any more
        td_attempt_abort(core, j, a);
        return;
    }
    td_core_save_attempt(core, j, a);
    if (td_attempt_n_live(a)) return; // they come to the same end
    a->outcome = td_attempt_unless_lost(a, outcome_of(a));
    a->closing = true;
    a->close_at = td_mono_add(core->now.mono, close_ns);
    td_attempt_maybe_close(core, j, a);
}

void td_attempt_part_fails(struct td_core *core, struct td_job *j, struct td_attempt *a,
                           struct td_attempt_part *p) {
    if (p->failing || !td_attempt_part_live(p) || a->n_parts == 1) return;
    p->failing = true;
    td_rendezvous_over(core, j, a);
    td_attempt_abort(core, j, a);
}

void td_attempt_part_ended(struct td_core *core, struct td_job *j, struct td_attempt *a,
                           struct td_attempt_part *p, enum td_outcome outcome) {
    p->state = TD_ATTEMPT_ENDED;
    p->outcome = outcome;
    if (td_catalog_settle(core, j, a)) td_retain(core, j); // what it did not say, it does not say
    part_over(core, j, a);
}

void td_attempt_tick(struct td_core *core, struct td_job *j) {
    struct td_attempt *a = td_job_live(j);
    if (!a || !a->closing) return;
    if (!a->close_at.ns) a->close_at = td_mono_add(core->now.mono, close_ns); // after a restart
    td_attempt_maybe_close(core, j, a);
}

// The last of its parts is given up, and no launcher's end is known.
static void fence(struct td_core *core, struct td_job *j, struct td_attempt *a, bool counted) {
    a->state = TD_ATTEMPT_FENCED;
    td_rendezvous_over(core, j, a);
    td_catalog_attempt_over(core, j, a);
    if (counted) {
        job_failed(core, j, a);
    } else if (j->state != TD_JOB_RECOVERING) { // a recovering one just waits again
        td_core_apply(core, j, TD_JOB_ON_STOPPED);
    }
    core->queue_dirty = true;
    td_core_touch(core, j);
    td_core_save_attempt(core, j, a);
}

static bool all_fenced(const struct td_attempt *a) {
    for (uint32_t i = 0; i < a->n_parts; i++) {
        if (a->parts[i].state != TD_ATTEMPT_FENCED) return false;
    }
    return true;
}

// Its ranks are a cause, and not only a consequence of what is known. Not counted: nothing of it
// had begun there, so that parts which had end for no fault of theirs.
static void blame_loss(struct td_core *core, struct td_job *j, struct td_attempt *a,
                       const struct td_attempt_part *p, bool counted, const char *why) {
    struct td_failure f = {.cls = counted ? TD_CLASS_NODE_LOST : TD_CLASS_PREEMPTED,
                           .code = counted ? TD_UNAVAILABLE : TD_ABORTED,
                           .attempt = a->number,
                           .rank = -1,
                           .step = j->progress.step,
                           .node = td_unconst(p->node),
                           .message = td_unconst(why)};
    bool first = !a->failure.set || a->failure.secondary || a->n_parts == 1;
    if (first && (counted || a->n_parts > 1)) TD_CHECK(!td_failure_set(&a->failure, &f));
    if (counted) td_job_exclude(j, p->node);
    core->counters[TD_COUNT_LOST]++;
}

void td_attempt_lost(struct td_core *core, struct td_job *j, struct td_attempt *a,
                     struct td_attempt_part *p, bool counted, const char *why) {
    p->state = TD_ATTEMPT_FENCED;
    p->outcome = TD_OUTCOME_FAILED;
    blame_loss(core, j, a, p, counted, why);
    if (all_fenced(a)) {
        fence(core, j, a, counted);
    } else {
        td_catalog_part_lost(core, j, a, p);
        part_over(core, j, a);
    }
}

static bool is_here(const struct td_attempt *a, const struct td_attempt_part *p) {
    for (uint32_t r = p->first_rank; r < p->first_rank + p->n_ranks; r++) {
        const struct td_rank_cursor *c = &a->ranks[r];
        if (!c->final || c->metrics_done < c->metrics_end || c->out < c->out_end ||
            c->err < c->err_end) {
            return false;
        }
    }
    return true;
}

void td_attempt_rest_lost(struct td_core *core, struct td_job *j, struct td_attempt *a,
                          struct td_attempt_part *p, const char *why) {
    if (!is_here(a, p)) {
        td_job_note(j, "%s: metrics and logs that were still to come from it are lost", why);
    }
    p->forgotten = true;
    td_catalog_part_lost(core, j, a, p);
    td_core_touch(core, j);
    td_core_save_attempt(core, j, a);
    td_attempt_maybe_close(core, j, a);
}

void td_attempt_maybe_forget(struct td_core *core, struct td_job *j, struct td_attempt *a) {
    bool some = false;
    if (a->state != TD_ATTEMPT_ENDED) return;
    for (uint32_t i = 0; i < j->n_checkpoints; i++) {
        if (!j->checkpoints[i]->committed && j->checkpoints[i]->attempt == a->number) return;
    }
    for (uint32_t i = 0; i < a->n_parts; i++) {
        struct td_attempt_part *p = &a->parts[i];
        if (p->state == TD_ATTEMPT_FENCED || p->forgotten || !is_here(a, p)) continue;
        some = p->forgotten = true;
        td_attempt_send_forget(core, j, a, p); // before its node learns what stays
    }
    if (!some) return;
    if (td_attempt_over(a)) td_catalog_attempt_over(core, j, a);
    td_core_save_attempt(core, j, a);
}
