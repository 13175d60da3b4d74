// compare: is what a plan was made from still what it was (fabric/configure/reads.h)? A node runs
// it before a plan that the coordinator has kept is used again. The file has the plan and what it
// read then: {"plan":{...},"read":[...]}. It prints {"change":"..."}: what has changed, "" for
// nothing.

#include "daemon/worker/worker.h"
#include "fabric/configure/reads.h"
#include "lib/base/files/files.h"
#include "lib/base/log.h"

enum { INPUT_MAX_BYTES = 8 << 20, OUTPUT_MAX_BYTES = 64 << 10 };

static td_status compare(const char *path) {
    TD_AUTO(td_arena) *arena = NULL;
    TD_AUTO_BUF text, change, out;
    td_buf_init(&text, INPUT_MAX_BYTES);
    td_buf_init(&change, OUTPUT_MAX_BYTES / 8);
    td_buf_init(&out, OUTPUT_MAX_BYTES);
    struct td_json *v = NULL;
    TD_TRY(td_fs_read(path, INPUT_MAX_BYTES, &text));
    TD_TRY(td_arena_create((size_t)INPUT_MAX_BYTES * 8, &arena));
    TD_TRY_CTX(td_json_parse(arena, text.data, text.len, &v), "'%s'", path);
    TD_TRY(td_reads_compare(td_json_get(v, "plan"), td_json_get(v, "read"), &change));
    TD_TRY(td_buf_str(&out, "{\"change\":"));
    TD_TRY(td_json_print_string(td_buf_cstr(&change), change.len, &out));
    TD_TRY(td_buf_str(&out, "}\n"));
    return td_fs_write_stdout(out.data, out.len);
}

int td_worker_compare(const struct td_rank_args *args) {
    td_status s = compare(args->plan_file);
    if (!s) return TD_EXIT_DONE;
    td_status_log(TD_LOG_ERROR, s, "the files of the plan cannot be compared");
    return TD_EXIT_BUG;
}
