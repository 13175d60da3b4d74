// One connection to the coordinator per run of trainctl, made when a verb first needs it, so that
// `trainctl --help` and wrong flags never look for a daemon.
//
// Errors: the status of a call already says what happened. What is added here is the address that
// was tried, the field violations, one line each, and the request id that the daemon logged. The
// exit code is a function of the gRPC code alone.

#include "client/session/session.h"

#include <stdio.h>
#include <string.h>

#include "client/screen/json.h"
#include "client/screen/print.h"
#include "client/session/explain.h"
#include "lib/base/files/files.h"
#include "traind/v1/job.pb-c.h"

#define RETRY_NS (200 * TD_NS_PER_MS)

static td_status connect_channel(struct td_session *s) {
    TD_TRY(td_client_config_read(s->flags, &s->config));
    struct td_rpc_channel_options options = {
        .address = s->config.address,
        .token = s->config.token[0] ? s->config.token : NULL,
        .ca = s->config.ca[0] ? s->config.ca : NULL,
        .certificate = s->config.certificate[0] ? s->config.certificate : NULL,
        .key = s->config.key[0] ? s->config.key : NULL,
        .max_message_bytes = (size_t)64 << 20,
    };
    return td_rpc_channel_create(s->loop, &options, &s->channel);
}

td_status td_session_open(struct td_session *s) {
    if (s->channel) return TD_OK;
    if (!s->loop) TD_TRY(td_loop_create(&s->loop));
    return connect_channel(s);
}

static const char *span_of(int64_t ns, char out[32]) {
    const int64_t s = ns / TD_NS_PER_S;
    const bool minutes = s >= 60 && s % 60 == 0;
    snprintf(out, 32, "%lld %s", (long long)(minutes ? s / 60 : s), minutes ? "min" : "s");
    return out;
}

// A progress bar may be on the line.
static void clear_line(const struct td_session *s) {
    if (isatty(STDERR_FILENO) && !s->config.dumb) fputs("\r\033[K", stderr);
}

static void say_away(struct td_session *s) {
    char span[32];
    if (s->away) return;
    s->away = true;
    clear_line(s);
    td_print(stderr,
             "trainctl: the connection to traind at %s is lost; reconnecting for up to %s. The job "
             "goes on without it\n",
             s->config.address, span_of(s->flags->reconnect_ns, span));
    fflush(stderr);
}

void td_session_is_back(struct td_session *s) {
    if (!s->away) return;
    s->away = false;
    clear_line(s);
    td_print(stderr, "trainctl: connected again\n");
    fflush(stderr);
}

static td_status give_up(const struct td_session *s, td_status take_failed) {
    char span[32];
    return td_status_context(take_failed,
                             "gave up after %s (--reconnect); the job goes on without the daemon",
                             span_of(s->flags->reconnect_ns, span));
}

td_status td_session_reconnect(struct td_session *s, td_status take_failed,
                               struct td_mono last_answer) {
    if (td_mono_now().ns - last_answer.ns > s->flags->reconnect_ns) return give_up(s, take_failed);
    say_away(s);
    td_status_free(take_failed);
    TD_TRY(td_loop_run_for(s->loop, NULL, RETRY_NS));
    td_rpc_channel_destroy(td_steal(s->channel));
    td_status lost = connect_channel(s);
    if (td_status_code(lost) != TD_UNAVAILABLE) return lost;
    td_status_free(lost); // no address yet: the next round tries again
    return TD_OK;
}

void td_session_close(struct td_session *s) {
    td_rpc_channel_destroy(td_steal(s->channel));
    td_loop_destroy(td_steal(s->loop));
}

static void say_unsaved(const ProtobufCMessage *m) {
    const ProtobufCFieldDescriptor *f =
        protobuf_c_message_descriptor_get_field_by_name(m->descriptor, "unsaved");
    const char *why = f ? *(char *const *)(const void *)((const char *)m + f->offset) : NULL;
    if (!why || !*why) return;
    td_print(
        stderr,
        "trainctl: the coordinator cannot write its disk (%s): what is shown may not survive a "
        "restart\n",
        why);
}

td_status td_session_call(struct td_session *s, const char *method, const ProtobufCMessage *request,
                          const ProtobufCMessageDescriptor *response_type,
                          struct td_rpc_message **out_response) {
    TD_TRY(td_session_open(s));
    int64_t timeout_ns = s->flags->timeout_ns ? s->flags->timeout_ns : 30 * TD_NS_PER_S;
    td_status failed =
        td_rpc_unary_wait(s->channel, method, request, response_type, timeout_ns, out_response);
    if (!failed) say_unsaved(td_rpc_message_get(*out_response));
    bool silent = td_status_code(failed) == TD_DEADLINE_EXCEEDED && !td_status_reason(failed)[0];
    if (!silent) return failed;
    return td_status_context(
        failed,
        "traind at %s has not answered within %.9g s (--timeout) and may yet do "
        "what was asked; its log says what holds it up, a full disk perhaps",
        s->config.address, (double)timeout_ns / TD_NS_PER_S);
}

// Of all jobs of a name: the state of this one leaves nothing to do.
static bool is_nothing_left(const struct td_flags *f, td_status borrow_failure) {
    const char *reason = td_status_reason(borrow_failure);
    return f->all && td_status_code(borrow_failure) == TD_FAILED_PRECONDITION &&
           (strncmp(reason, "STATE_", 6) == 0 || strncmp(reason, "PHASE_", 6) == 0);
}

td_status td_session_change(struct td_session *s, const char *method,
                            const ProtobufCMessage *request, struct td_rpc_message **out_job) {
    td_status failed = td_session_call(s, method, request, &traind__v1__job__descriptor, out_job);
    if (!failed || !is_nothing_left(s->flags, failed)) return failed;
    td_print(stderr, "trainctl: %s\n", td_status_message(failed));
    td_status_free(failed);
    return TD_OK;
}

td_status td_session_get_job(struct td_session *s, struct td_rpc_message **out_job) {
    Traind__V1__GetJobRequest request = TRAIND__V1__GET_JOB_REQUEST__INIT;
    request.id = td_unconst(s->flags->args[0]);
    return td_session_call(s, "/traind.v1.JobService/GetJob", &request.base,
                           &traind__v1__job__descriptor, out_job);
}

td_status td_session_local(td_status take_status) {
    enum td_code code = td_status_code(take_status);
    if (code != TD_NOT_FOUND && code != TD_PERMISSION_DENIED) return take_status;
    td_status usage =
        td_fail(TD_INVALID_ARGUMENT, "%s; -O names another place", td_status_message(take_status));
    td_status_free(take_status);
    return usage;
}

td_status td_session_run_until(struct td_session *s, const bool *done, int64_t timeout_ns) {
    td_status waited = td_loop_run_until(s->loop, done, timeout_ns);
    if (waited) td_rpc_channel_destroy(td_steal(s->channel));
    return waited;
}

// Nobody listens there: every verb, unary or stream, says what to do about it in the same words.
static td_status blame_absence(const struct td_session *s, td_status take_status) {
    if (strcmp(td_status_reason(take_status), "UNREACHABLE") != 0) return take_status;
    return td_status_context(take_status,
                             "traind at %s (from %s) does not answer; start one with %s or look at "
                             "its log",
                             s->config.address, s->config.address_source,
                             td_client_start_hint(&s->config));
}

static int exit_of_failure(const struct td_session *s, td_status borrow_status) {
    bool of_a_job = td_explain_job_fails(borrow_status) && !s->flags->dump_graph;
    if (of_a_job) return TD_CTL_JOB_FAILED;
    return td_explain_exit_of(borrow_status);
}

int td_session_explain(const struct td_session *s, td_status take_status) {
    if (!take_status) return TD_CTL_OK;
    take_status = blame_absence(s, take_status);
    int code = exit_of_failure(s, take_status);
    td_explain(take_status);
    td_status_free(take_status);
    return code;
}

td_status td_session_print_json(const struct td_session *s, const ProtobufCMessage *m) {
    TD_AUTO_BUF out;
    td_buf_init(&out, (size_t)256 << 20);
    TD_TRY(td_message_json(m, s->flags->output == TD_OUTPUT_JSON, &out));
    TD_TRY(td_buf_str(&out, "\n"));
    return td_fs_write_stdout(out.data, out.len);
}
