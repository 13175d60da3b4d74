// The coordinator is the only parser, so it says which paths were relative and what they became.
// That costs a call before the one that counts: what is misspelt is refused while nothing is
// queued, also where no node would look for it at once.

#include "client/jobs/submission.h"

#include <stdlib.h>

#include "client/jobs/spec_file.h"
#include "client/session/config.h"

static td_status look(const Traind__V1__ValidateJobResponse *r) {
    for (size_t i = 0; i < r->n_paths; i++) {
        const Traind__V1__ResolvedPath *p = r->paths[i];
        if (!p->output) TD_TRY(td_client_place_look(p->key, p->given, p->path));
    }
    return TD_OK;
}

static td_status ask(struct td_submission *m, struct td_session *s, const struct td_flags *f) {
    Traind__V1__ValidateJobRequest request = TRAIND__V1__VALIDATE_JOB_REQUEST__INIT;
    request.spec = td_unconst(td_buf_cstr(&m->spec));
    request.n_overrides = f->n_sets;
    request.overrides = td_unconst(f->sets);
    request.client = &m->client;
    TD_AUTO(td_rpc_message) *answer = NULL;
    TD_TRY(td_session_call(s, "/traind.v1.JobService/ValidateJob", &request.base,
                           &traind__v1__validate_job_response__descriptor, &answer));
    return look((const Traind__V1__ValidateJobResponse *)td_rpc_message_get(answer));
}

td_status td_submission_place(struct td_client_place *out_place,
                              Traind__V1__ClientPlace *out_client) {
    TD_TRY(td_client_place_find(td_client_home(), out_place));
    traind__v1__client_place__init(out_client);
    out_client->directory = out_place->directory;
    out_client->home = out_place->home;
    out_client->boot_id = out_place->boot_id;
    return TD_OK;
}

td_status td_submission_create(struct td_session *s, const struct td_flags *f,
                               struct td_submission **out_submission) {
    TD_AUTO(td_submission) *m = td_calloc(1, sizeof *m);
    if (!m) return td_fail_oom();
    td_buf_init(&m->spec, TD_SPEC_FILE_BUFFER);
    TD_TRY(td_spec_file_read(f->args[0], &m->spec));
    TD_TRY(td_submission_place(&m->place, &m->client));
    TD_TRY(ask(m, s, f));
    *out_submission = td_steal(m);
    return TD_OK;
}

void td_submission_destroy(struct td_submission *m) {
    if (m) td_buf_finish(&m->spec);
    free(m);
}
