// A coordinator of an older build sends no changes: then every key is shown.

#include "client/spec_yaml.h"

#include <stdio.h>
#include <string.h>

#include "client/print.h"
#include "lib/spec/yaml_print.h"

enum { ARENA_BYTES = 64 << 20, YAML_BYTES = 64 << 20 };

td_status td_spec_yaml_get(struct td_session *s, struct td_rpc_message **out_job) {
    Traind__V1__GetJobRequest request = TRAIND__V1__GET_JOB_REQUEST__INIT;
    request.id = td_unconst(s->flags->args[0]);
    request.spec_changes = true;
    return td_session_call(s, "/traind.v1.JobService/GetJob", &request.base,
                           &traind__v1__job__descriptor, out_job);
}

td_status td_spec_yaml_add(const Traind__V1__Job *job, bool wide, struct td_buf *out) {
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *v;
    const bool is_whole = wide || !job->spec_changes_json[0];
    const char *json = is_whole ? job->spec_json : job->spec_changes_json;
    TD_TRY(td_arena_create(ARENA_BYTES, &arena));
    TD_TRY_CTX(td_json_parse(arena, json, strlen(json), &v), "the spec of %s", job->id);
    return td_yaml_print(v, out);
}

td_status td_spec_yaml_show(const Traind__V1__Job *job, bool wide) {
    TD_AUTO_BUF yaml;
    td_buf_init(&yaml, YAML_BYTES);
    TD_TRY(td_spec_yaml_add(job, wide, &yaml));
    td_print(stdout, "spec\n");
    for (const char *at = td_buf_cstr(&yaml); *at;) {
        const int len = (int)strcspn(at, "\n");
        td_print(stdout, "  %.*s\n", len, at);
        at += len + (at[len] == '\n');
    }
    return TD_OK;
}
