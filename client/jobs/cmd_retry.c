// retry and clone: another job with the spec of one that is there. The spec is the canonical one,
// every knob resolved, so that a default that has changed meanwhile changes nothing.
//
// retry submits it as it is: from the start, or with --resume from the newest whole checkpoint of
// that job, which then is the new job's ckpt_path. Which of both is said on stderr. clone takes
// changes (--set), and never goes on from the job that it copies.

#include <stdio.h>
#include <string.h>

#include "client/jobs/cmd_submit.h"
#include "client/jobs/jobs.h"
#include "client/jobs/submission.h"
#include "client/screen/print.h"
#include "client/session/pages.h"
#include "lib/base/files/files.h"
#include "lib/base/json.h"
#include "traind/v1/checkpoint.pb-c.h"
#include "traind/v1/job.pb-c.h"

struct origin {
    struct td_rpc_message *answer;
    const Traind__V1__Job *job; // answer's
};

static td_status ask_for_origin(struct td_session *s, struct origin *o) {
    TD_TRY(td_session_get_job(s, &o->answer));
    o->job = (const Traind__V1__Job *)td_rpc_message_get(o->answer);
    if (o->job->spec_json[0]) return TD_OK;
    return td_fail(TD_FAILED_PRECONDITION, "the daemon does not know the spec of job %s any more",
                   o->job->id);
}

static td_status submit(struct td_session *s, const struct origin *o, const char *const *overrides,
                        size_t n_overrides, int *out_exit) {
    struct td_client_place place;
    Traind__V1__ClientPlace client;
    Traind__V1__CreateJobRequest request = TRAIND__V1__CREATE_JOB_REQUEST__INIT;
    request.spec = o->job->spec_json;
    request.overrides = td_unconst(overrides);
    request.n_overrides = n_overrides;
    TD_TRY(td_submission_place(&place, &client)); // of paths in the overrides
    request.client = &client;
    return td_submit_request(s, &request, out_exit);
}

// Checkpoints come newest first. A damaged one is passed over, and so is one that is on its way.
static td_status find_checkpoint(struct td_session *s, const char *job, char path[64],
                                 char directory[TD_FS_PATH_BYTES]) {
    struct td_pages pages = {0};
    Traind__V1__ListCheckpointsRequest request = TRAIND__V1__LIST_CHECKPOINTS_REQUEST__INIT;
    request.job = td_unconst(job);
    path[0] = directory[0] = '\0';
    td_status failed =
        td_pages_read(s, "/traind.v1.CheckpointService/ListCheckpoints", &request.base,
                      &traind__v1__list_checkpoints_response__descriptor, "checkpoints", &pages);
    for (size_t i = 0; i < pages.n_items && !failed; i++) {
        const Traind__V1__Checkpoint *c = pages.item[i];
        if (c->state != TRAIND__V1__CHECKPOINT__STATE__COMMITTED) continue;
        snprintf(path, 64, "%s", c->path);
        failed = td_fs_path(directory, "%s", c->directory);
        break;
    }
    td_pages_finish(&pages);
    return failed;
}

// A checkpoint brings the weights: the spec refuses to take them from elsewhere, too.
static td_status has_init_from(const char *spec, bool *out_has) {
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *root;
    TD_TRY(td_arena_create((size_t)64 << 20, &arena));
    TD_TRY(td_json_parse(arena, spec, strlen(spec), &root));
    const struct td_json *given = td_json_get(root, "init_from");
    *out_has = given && given->kind != TD_JSON_NULL;
    return TD_OK;
}

static td_status retry(struct td_session *s, const struct td_flags *f, const struct origin *o,
                       int *out_exit) {
    char path[64], directory[TD_FS_PATH_BYTES], from[TD_FS_PATH_BYTES + 16];
    const char *const overrides[] = {from, "init_from=null"};
    TD_TRY(find_checkpoint(s, o->job->id, path, directory));
    const bool resumes = f->resume && path[0];
    bool has_weights = false;
    if (resumes) TD_TRY(has_init_from(o->job->spec_json, &has_weights));
    if (resumes) {
        td_print(stderr, "trainctl: goes on from checkpoint %s of %s\n", path, o->job->id);
    } else {
        td_print(stderr, "trainctl: begins from the start; %s has %s%s%s\n", o->job->id,
                 path[0] ? "checkpoint " : "no whole checkpoint", path,
                 path[0] ? ", from which --resume would go on" : "");
    }
    snprintf(from, sizeof from, "ckpt_path=%s", directory);
    return submit(s, o, overrides, resumes ? 1 + (size_t)has_weights : 0, out_exit);
}

td_status td_cmd_retry(struct td_session *s, const struct td_flags *f, int *out_exit) {
    struct origin o = {0};
    td_status failed = ask_for_origin(s, &o);
    if (!failed) failed = retry(s, f, &o, out_exit);
    td_rpc_message_destroy(o.answer);
    return failed;
}

td_status td_cmd_clone(struct td_session *s, const struct td_flags *f, int *out_exit) {
    struct origin o = {0};
    td_status failed = ask_for_origin(s, &o);
    if (!failed) failed = submit(s, &o, f->sets, f->n_sets, out_exit);
    td_rpc_message_destroy(o.answer);
    return failed;
}
