// What the shell asks and reports of bytes, and of files here. It asks whether they may come from
// whoever sends them. It reports that they are on disk, whole, gone or damaged, and that what a
// forgotten job owned is gone. Each report is one input as core.c has it.

#include <inttypes.h>
#include <string.h>

#include "daemon/coordinator/core/attempt/attempt.h"
#include "daemon/coordinator/core/attempt/attempt_end.h"
#include "daemon/coordinator/core/attempt/attempt_messages.h"
#include "daemon/coordinator/core/attempt/forget.h"
#include "daemon/coordinator/core/catalog/catalog.h"
#include "daemon/coordinator/core/catalog/retain.h"
#include "daemon/coordinator/core/core.h"
#include "daemon/coordinator/core/frame.h"
#include "daemon/coordinator/core/model/changes.h"
#include "daemon/coordinator/core/model/checkpoint.h"
#include "daemon/coordinator/core/model/hosts.h"
#include "daemon/coordinator/core/model/job.h"
#include "daemon/coordinator/core/model/model.h"

td_status td_core_check_attempt(struct td_core *core, const Traind__V1__AttemptId *id) {
    struct td_job *j = NULL;
    if (!id || !id->job[0]) {
        td_status s = td_fail(TD_INVALID_ARGUMENT, "id: which attempt it is of is missing");
        return td_status_with_field(td_status_with_reason(s, "FIELD_INVALID"), "id", "is missing");
    }
    if (td_attempt_find(core, id, &j)) return TD_OK;
    td_status s = td_fail(TD_ABORTED,
                          "attempt %u of job %s (epoch %" PRIu64
                          ") was given up; what it sends is not taken any more",
                          id->attempt, id->job, id->epoch);
    return td_status_with_reason(s, "FENCED");
}

static td_status check_holder(struct td_core *core, const Traind__V1__AttemptId *id,
                              const struct td_attempt_part *part, uint64_t session,
                              const char *key) {
    if (td_nodes_holds(core, part, session, key)) return TD_OK;
    td_status s = td_fail(TD_PERMISSION_DENIED,
                          "this part of attempt %u of job %s belongs to node %s: only its session, "
                          "or its session's key, may send for it",
                          id->attempt, id->job, part->node);
    return td_status_with_reason(s, "NOT_THE_HOLDER");
}

static td_status check_rank(struct td_core *core, const Traind__V1__AttemptId *id, uint32_t rank,
                            uint64_t session, const char *key) {
    TD_TRY(td_core_check_attempt(core, id));
    const struct td_attempt *a = td_job_attempt(td_core_job(core, id->job), id->attempt);
    if (rank < a->n_ranks) {
        return check_holder(core, id, td_attempt_part_of(a, rank), session, key);
    }
    td_status s = td_fail(TD_INVALID_ARGUMENT, "rank: attempt %u has no rank %u", a->number, rank);
    return td_status_with_field(td_status_with_reason(s, "FIELD_INVALID"), "rank", "is too large");
}

td_status td_core_check_session(struct td_core *core, uint64_t session,
                                const Traind__V1__AttemptId *id, uint32_t rank) {
    return check_rank(core, id, rank, session, "");
}

td_status td_core_check_key(struct td_core *core, const Traind__V1__AttemptId *id, const char *key,
                            uint32_t rank) {
    return check_rank(core, id, rank, 0, key);
}

td_status td_core_check_shard(struct td_core *core, const Traind__V1__AttemptId *id,
                              const char *key, const char *path, const char *file,
                              const char *digest, bool *out_here) {
    TD_TRY(td_core_check_attempt(core, id));
    const struct td_job *j = td_core_job(core, id->job);
    const struct td_attempt *a = td_job_attempt(j, id->attempt);
    const struct td_checkpoint *c = td_catalog_find(j, path);
    const struct td_attempt_part *part = c ? td_attempt_part_on(a, c->node) : NULL;
    TD_TRY(check_holder(core, id, part ? part : td_attempt_part_of(a, 0), 0, key));
    bool here = false;
    for (uint32_t i = 0; c && i < c->n_files; i++) {
        const struct td_checkpoint_file *f = &c->files[i];
        if (strcmp(f->name, file) != 0) continue;
        if (strcmp(f->digest, digest) != 0) {
            td_status s =
                td_fail(TD_DATA_LOSS, "%s/%s: the rank wrote digest %s, the node sends %s", path,
                        file, f->digest, digest);
            return td_status_with_reason(s, "HASH_MISMATCH");
        }
        here = f->here;
    }
    *out_here = here;
    return TD_OK;
}

static bool has_part(const struct td_core *core, const struct td_attempt *a, const char *holder) {
    for (uint32_t i = 0; i < a->n_parts; i++) {
        const struct td_host *n = td_nodes_find(core, a->parts[i].node);
        bool lives = td_attempt_part_live(&a->parts[i]);
        if (n && lives && n->holder[0] && strcmp(n->holder, holder) == 0) return true;
    }
    return false;
}

td_status td_core_check_reader(const struct td_core *core, const char *holder,
                               const struct td_job *j) {
    for (uint32_t i = 0; i < core->n_live; i++) {
        const struct td_job *k = core->live[i];
        const struct td_attempt *a = td_job_live(k);
        if (a && (k == j || td_retain_names(k, j)) && has_part(core, a, holder)) return TD_OK;
    }
    td_status s = td_fail(TD_PERMISSION_DENIED,
                          "no node of '%s' has an attempt that may begin from a checkpoint of job "
                          "%s",
                          holder, j->id);
    return td_status_with_reason(s, "NOT_THE_HOLDER");
}

static struct td_host *node_of(const struct td_core *core, const struct td_attempt *a,
                               uint32_t rank) {
    return td_nodes_find(core, td_attempt_part_of(a, rank)->node);
}

// A checkpoint may have waited for these points, and the end of its attempt for that.
static void settle(struct td_core *core, struct td_job *j, struct td_attempt *a) {
    bool committed = td_catalog_settle(core, j, a);
    if (committed) td_retain(core, j);
    td_attempt_maybe_close(core, j, a);
}

void td_core_points_committed(struct td_core *core, struct td_now now, const char *job,
                              uint32_t attempt, uint32_t rank, uint64_t offset) {
    td_core_enter(core, now);
    struct td_job *j = td_core_job(core, job);
    struct td_attempt *a = j ? td_job_attempt(j, attempt) : NULL;
    if (a && rank < a->n_ranks) {
        a->ranks[rank].metrics_done = offset;
        td_rank_cursor_look(&a->ranks[rank]);
        td_attempt_ack(core, node_of(core, a, rank), j, a, TRAIND__V1__SEGMENT__KIND__METRICS, rank,
                       offset);
        if (a->n_parts > 1) settle(core, j, a);
        td_attempt_maybe_forget(core, j, a);
    }
    td_core_leave(core);
}

void td_core_log_committed(struct td_core *core, struct td_now now, const char *job,
                           uint32_t attempt, uint32_t rank, Traind__V1__Segment__Kind kind,
                           uint64_t offset) {
    td_core_enter(core, now);
    td_core_load_offset(core, job, attempt, rank, kind, offset);
    struct td_job *j = td_core_job(core, job);
    struct td_attempt *a = j ? td_job_attempt(j, attempt) : NULL;
    if (a && rank < a->n_ranks) {
        td_attempt_ack(core, node_of(core, a, rank), j, a, kind, rank, offset);
        td_attempt_maybe_forget(core, j, a);
    }
    td_core_leave(core);
}

td_status td_core_shard_durable(struct td_core *core, struct td_now now,
                                const Traind__V1__AttemptId *id, const char *path, const char *file,
                                uint64_t bytes, const char *digest) {
    bool committed = false;
    TD_TRY(td_core_check_attempt(core, id));
    td_core_enter(core, now);
    struct td_job *j = td_core_job(core, id->job);
    td_status s = td_catalog_on_shard(core, j, path, file, bytes, digest, &committed);
    if (!s && committed) td_retain(core, j); // it stays: its attempt is not over
    struct td_attempt *a = td_job_attempt(j, id->attempt);
    if (!s && a) td_attempt_tick(core, j); // it may have been what its end waited for
    if (!s && a) td_attempt_maybe_forget(core, j, a);
    td_core_leave(core);
    return s;
}

void td_core_checkpoint_missing(struct td_core *core, struct td_now now, const char *job,
                                const char *path, const char *why) {
    td_core_enter(core, now);
    struct td_job *j = td_core_job(core, job);
    struct td_checkpoint *c = j ? td_catalog_find(j, path) : NULL;
    if (c && c->streamed) {
        td_catalog_on_missing(core, j, c, "the coordinator", why);
        td_retain(core, j);
    }
    td_core_leave(core);
}

void td_core_checkpoint_damaged(struct td_core *core, struct td_now now, const char *job,
                                const char *path, const char *why) {
    td_core_enter(core, now);
    struct td_job *j = td_core_job(core, job);
    if (j) td_catalog_on_damaged(core, j, path, why);
    td_core_leave(core);
}

void td_core_forgotten(struct td_core *core, struct td_now now, const char *job, bool all_gone) {
    td_core_enter(core, now);
    td_forget_answered(core, job, all_gone);
    td_core_leave(core);
}
