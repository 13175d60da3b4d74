// A coordinator of an older build sends no changes: then every key is shown.

#include "client/jobs/spec_yaml.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/screen/print.h"
#include "lib/base/files/files.h"
#include "lib/spec/yaml_print.h"

enum { ARENA_BYTES = 64 << 20, TEXT_BYTES = 64 << 20 };

td_status td_spec_yaml_get(struct td_session *s, struct td_rpc_message **out_job) {
    Traind__V1__GetJobRequest request = TRAIND__V1__GET_JOB_REQUEST__INIT;
    request.id = td_unconst(s->flags->args[0]);
    request.spec_changes = true;
    return td_session_call(s, "/traind.v1.JobService/GetJob", &request.base,
                           &traind__v1__job__descriptor, out_job);
}

const char *td_spec_changes(const Traind__V1__Job *job) {
    return job->spec_changes_json[0] ? job->spec_changes_json : job->spec_json;
}

// form: its YAML where NULL.
static td_status add(const char *json, const enum td_output *form, struct td_buf *out) {
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *v;
    TD_TRY(td_arena_create(ARENA_BYTES, &arena));
    TD_TRY_CTX(td_json_parse(arena, json, strlen(json), &v), "the spec");
    if (!form) return td_yaml_print(v, out);
    TD_TRY(td_json_print(v, *form == TD_OUTPUT_JSON, out));
    return td_buf_str(out, "\n");
}

td_status td_spec_write(const struct td_flags *f, const char *json) {
    TD_AUTO_BUF text;
    td_buf_init(&text, TEXT_BYTES);
    TD_TRY(add(json, td_output_is_json(f->output) ? &f->output : NULL, &text));
    return td_fs_write_stdout(text.data, text.len);
}

td_status td_spec_yaml_show(const Traind__V1__Job *job, bool wide) {
    TD_AUTO_BUF yaml;
    td_buf_init(&yaml, TEXT_BYTES);
    TD_TRY(add(wide ? job->spec_json : td_spec_changes(job), NULL, &yaml));
    td_print(stdout, "spec\n");
    for (const char *at = td_buf_cstr(&yaml); *at;) {
        const int len = (int)strcspn(at, "\n");
        td_print(stdout, "  %.*s\n", len, at);
        at += len + (at[len] == '\n');
    }
    return TD_OK;
}
