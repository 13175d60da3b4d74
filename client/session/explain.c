// The same words for trainctl and traind-run: a person sees one program. The exit code is a
// function of the code alone, but for an answer that could not be printed. A program that knows
// more (a job that can never run) decides before it asks here.

#include "client/session/explain.h"

#include <stdio.h>
#include <string.h>

#include "client/screen/print.h"

static int exit_of_code(enum td_code code) {
    switch (code) {
    case TD_CODE_OK:
        return TD_CTL_OK;
    case TD_INVALID_ARGUMENT:
    case TD_OUT_OF_RANGE:
        return TD_CTL_USAGE;
    case TD_NOT_FOUND:
        return TD_CTL_NOT_FOUND;
    case TD_UNAUTHENTICATED:
    case TD_PERMISSION_DENIED:
        return TD_CTL_DENIED;
    case TD_UNAVAILABLE:
        return TD_CTL_UNAVAILABLE;
    case TD_DEADLINE_EXCEEDED:
        return TD_CTL_TIMEOUT;
    case TD_ALREADY_EXISTS:
    case TD_ABORTED:
    case TD_FAILED_PRECONDITION:
        return TD_CTL_CONFLICT;
    case TD_CANCELLED:
    case TD_UNKNOWN:
    case TD_RESOURCE_EXHAUSTED:
    case TD_UNIMPLEMENTED:
    case TD_INTERNAL:
    case TD_DATA_LOSS:
        return TD_CTL_JOB_FAILED;
    }
    return TD_CTL_JOB_FAILED;
}

static bool is_unprinted(td_status borrow_status) {
    return strcmp(td_status_reason(borrow_status), TD_FS_NOT_PRINTED) == 0;
}

int td_explain_exit_of(td_status borrow_status) {
    if (is_unprinted(borrow_status)) return TD_CTL_NOT_PRINTED;
    return exit_of_code(td_status_code(borrow_status));
}

bool td_explain_job_fails(td_status borrow_status) {
    const char *reason = td_status_reason(borrow_status);
    return strcmp(reason, "UNSATISFIABLE") == 0 || strcmp(reason, "PLAN_FAILED") == 0;
}

// What one side has and the other has not.
static bool is_of_another_version(td_status borrow_status) {
    return strcmp(td_status_reason(borrow_status), "METHOD_UNKNOWN") == 0;
}

void td_explain(td_status borrow_status) {
    if (is_of_another_version(borrow_status)) {
        td_print(stderr,
                 "trainctl: the coordinator does not know what is asked of it, because it is of "
                 "another version. Compare `trainctl version` with `trainctl cluster info`, and "
                 "install the same release on both machines\n");
        return;
    }
    const char *done =
        is_unprinted(borrow_status) ? "done, but the answer cannot be printed: " : "";
    td_print(stderr, "trainctl: %s%s\n", done, td_status_message(borrow_status));
    size_t n = td_status_n_fields(borrow_status);
    for (size_t i = 0; i < n; i++) {
        const char *path, *text;
        td_status_field(borrow_status, i, &path, &text);
        if (n == 1 && strstr(td_status_message(borrow_status), text)) break; // it was said
        td_print(stderr, "  %s%s%s\n", path, path[0] ? ": " : "", text);
    }
    for (size_t i = 0; i < td_status_n_meta(borrow_status); i++) {
        const char *key, *value;
        td_status_meta(borrow_status, i, &key, &value);
        // That of the call; a submission's request id is another (--request-id).
        td_print(stderr, "  %s: %s\n", strcmp(key, "request_id") ? key : "call id", value);
    }
}
