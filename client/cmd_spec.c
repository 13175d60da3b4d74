// spec: the spec of a job, so that it can be submitted again or be the start of another. It is
// written as it is, because a file is to be made of it: YAML's own escapes keep a terminal safe.
// By default it has what differs from defaults, as a person would have written it.

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/print.h"
#include "client/spec_yaml.h"
#include "lib/base/fsio.h"
#include "lib/base/json.h"

static td_status print_json(const Traind__V1__Job *job, bool indent) {
    TD_AUTO(td_arena) *arena = NULL;
    TD_AUTO_BUF out;
    struct td_json *v;
    td_buf_init(&out, (size_t)64 << 20);
    TD_TRY(td_arena_create((size_t)64 << 20, &arena));
    TD_TRY(td_json_parse(arena, job->spec_json, strlen(job->spec_json), &v));
    TD_TRY(td_json_print(v, indent, &out));
    TD_TRY(td_buf_str(&out, "\n"));
    return td_fd_write_all(STDOUT_FILENO, out.data, out.len, "stdout");
}

td_status td_cmd_spec(struct td_session *s, const struct td_flags *f, int *out_exit) {
    (void)out_exit;
    TD_AUTO(td_rpc_message) *answer = NULL;
    TD_AUTO_BUF yaml;
    td_buf_init(&yaml, (size_t)64 << 20);
    TD_TRY(td_spec_yaml_get(s, &answer));
    const Traind__V1__Job *job = (const Traind__V1__Job *)td_rpc_message_get(answer);
    if (td_output_is_json(f->output)) return print_json(job, f->output == TD_OUTPUT_JSON);
    if (f->output == TD_OUTPUT_NAME) {
        td_print(stdout, "%s\n", job->id);
        return TD_OK;
    }
    TD_TRY(td_spec_yaml_add(job, f->wide, &yaml));
    return td_fd_write_all(STDOUT_FILENO, yaml.data, yaml.len, "stdout");
}
