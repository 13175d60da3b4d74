// top: nodes with their slots, and the jobs that have ranks, with step and speed. On a terminal it
// is drawn again each second until q or Ctrl-C; with --once, or where stdout is none or TERM is
// dumb, it is printed once. While the daemon is away the last page stays, and a line on it says so,
// for as long as
// --reconnect.

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "client/nodes/listing.h"
#include "client/nodes/nodes.h"
#include "client/nodes/top_page.h"
#include "client/screen/json.h"
#include "client/screen/live.h"
#include "client/screen/print.h"
#include "client/screen/screen.h"
#include "client/session/pages.h"
#include "client/session/session.h"
#include "lib/base/files/files.h"

#define AGAIN_NS  (1 * TD_NS_PER_S)
#define ANSWER_NS (3 * TD_NS_PER_S) // of a page that is drawn again; keys are read meanwhile
enum { JOBS_MAX = 1000, PAGE_BYTES = 4 << 20 };

struct top {
    struct td_session *session;
    struct td_rpc_message *cluster; // of the last page; NULL: there was none
    struct td_pages nodes, jobs;
};

static Traind__V1__Job__State active[] = {
    TRAIND__V1__JOB__STATE__STARTING, TRAIND__V1__JOB__STATE__RUNNING,
    TRAIND__V1__JOB__STATE__RECOVERING, TRAIND__V1__JOB__STATE__PAUSING,
    TRAIND__V1__JOB__STATE__STOPPING};

static void forget(struct top *t) {
    td_rpc_message_destroy(td_steal(t->cluster));
    td_pages_finish(&t->nodes);
    td_pages_finish(&t->jobs);
}

// ---- asking -------------------------------------------------------------------------------------
static td_status call(struct top *t, int64_t timeout_ns, const char *method,
                      const ProtobufCMessage *request, const ProtobufCMessageDescriptor *type,
                      struct td_rpc_message **out) {
    TD_TRY(td_session_open(t->session));
    return td_rpc_unary_wait(t->session->channel, method, request, type, timeout_ns, out);
}

// A page is whole or the last one stays.
static td_status ask(struct top *t, int64_t timeout_ns) {
    struct top next = {.session = t->session,
                       .nodes = {.quiet = true, .timeout_ns = timeout_ns},
                       .jobs = {.limit = JOBS_MAX, .quiet = true, .timeout_ns = timeout_ns}};
    Traind__V1__GetClusterInfoRequest info = TRAIND__V1__GET_CLUSTER_INFO_REQUEST__INIT;
    Traind__V1__ListJobsRequest jobs = TRAIND__V1__LIST_JOBS_REQUEST__INIT;
    jobs.states = active;
    jobs.n_states = TD_COUNTOF(active);
    td_status s = call(t, timeout_ns, "/traind.v1.AdminService/GetClusterInfo", &info.base,
                       &traind__v1__cluster_info__descriptor, &next.cluster);
    if (!s) s = td_listing_read(t->session, &next.nodes);
    if (!s) {
        s = td_pages_read(t->session, "/traind.v1.JobService/ListJobs", &jobs.base,
                          &traind__v1__list_jobs_response__descriptor, "jobs", &next.jobs);
    }
    if (s) {
        forget(&next);
        return s;
    }
    forget(t);
    *t = next;
    return TD_OK;
}

struct answers {
    Traind__V1__ListNodesResponse nodes;
    Traind__V1__ListJobsResponse jobs;
};

static struct answers answers_of(const struct top *t) {
    struct answers a = {TRAIND__V1__LIST_NODES_RESPONSE__INIT,
                        TRAIND__V1__LIST_JOBS_RESPONSE__INIT};
    td_pages_fill(&t->nodes, &a.nodes.base, "nodes");
    td_pages_fill(&t->jobs, &a.jobs.base, "jobs");
    return a;
}

static td_status draw(const struct top *t, const char *notice, int columns, int rows,
                      struct td_buf *out) {
    const struct answers a = answers_of(t);
    const struct td_top page = {.cluster =
                                    (const Traind__V1__ClusterInfo *)td_rpc_message_get(t->cluster),
                                .nodes = &a.nodes,
                                .jobs = &a.jobs,
                                .notice = notice};
    return td_top_page(&page, columns, rows, out);
}

// ---- once ---------------------------------------------------------------------------------------
// {"cluster":{...},"nodes":{...},"jobs":{...}}: the three answers, as other verbs print them.
static td_status print_json(const struct top *t) {
    const struct answers a = answers_of(t);
    TD_AUTO_BUF text;
    td_buf_init(&text, (size_t)64 << 20);
    TD_TRY(td_buf_str(&text, "{\"cluster\":"));
    TD_TRY(td_message_json(td_rpc_message_get(t->cluster), false, &text));
    TD_TRY(td_buf_str(&text, ",\"nodes\":"));
    TD_TRY(td_message_json(&a.nodes.base, false, &text));
    TD_TRY(td_buf_str(&text, ",\"jobs\":"));
    TD_TRY(td_message_json(&a.jobs.base, false, &text));
    TD_TRY(td_buf_str(&text, "}\n"));
    return td_fs_write_stdout(text.data, text.len);
}

static td_status print_once(struct top *t) {
    const struct td_flags *f = t->session->flags;
    int columns, rows;
    TD_AUTO_BUF text;
    td_buf_init(&text, PAGE_BYTES);
    TD_TRY(ask(t, f->timeout_ns ? f->timeout_ns : 30 * TD_NS_PER_S));
    if (td_output_is_json(f->output)) return print_json(t);
    if (f->output == TD_OUTPUT_NAME) {
        for (size_t i = 0; i < t->jobs.n_items; i++) {
            td_print(stdout, "%s\n", ((const Traind__V1__Job *)t->jobs.item[i])->id);
        }
        return TD_OK;
    }
    td_screen_size(STDOUT_FILENO, &columns, &rows);
    const bool cuts = isatty(STDOUT_FILENO) && !f->wide;
    TD_TRY(draw(t, NULL, cuts ? columns : TD_SCREEN_MAX, 0, &text));
    return td_fs_write_stdout(text.data, text.len);
}

// ---- again and again ----------------------------------------------------------------------------
// Takes a failure that time may mend, and makes a new connection with the next question.
static td_status wait_for_daemon(struct top *t, td_status take_failed, struct td_mono last,
                                 char notice[160]) {
    const enum td_code code = td_status_code(take_failed);
    const int64_t away_ns = td_mono_now().ns - last.ns, most_ns = t->session->flags->reconnect_ns;
    if (code != TD_UNAVAILABLE && code != TD_DEADLINE_EXCEEDED) return take_failed;
    if (away_ns > most_ns) {
        return td_status_context(take_failed, "gave up after %.9g s (--reconnect)",
                                 (double)most_ns / TD_NS_PER_S);
    }
    td_status_free(take_failed);
    snprintf(notice, 160,
             "traind does not answer since %lld s; reconnecting. Jobs go on without it",
             (long long)(away_ns / TD_NS_PER_S));
    td_rpc_channel_destroy(td_steal(t->session->channel));
    return TD_OK;
}

static td_status redraw(const struct top *t, struct td_live *live, const char *notice) {
    int columns, rows;
    TD_AUTO_BUF text;
    td_buf_init(&text, PAGE_BYTES);
    td_screen_size(STDOUT_FILENO, &columns, &rows);
    TD_TRY(draw(t, *notice ? notice : NULL, columns, rows, &text));
    return td_live_show(live, &text);
}

static td_status go_on(struct top *t, struct td_live *live) {
    const int64_t timeout_ns = t->session->flags->timeout_ns;
    const struct td_mono start = td_mono_now();
    struct td_mono last = start;
    char notice[160] = "";
    while (!td_live_is_over(live)) {
        TD_TRY(redraw(t, live, notice));
        const int64_t left_ns = timeout_ns ? timeout_ns - (td_mono_now().ns - start.ns) : AGAIN_NS;
        if (left_ns <= 0) return TD_OK; // as long as it was wanted
        TD_TRY(td_live_wait(live, TD_MIN(left_ns, (int64_t)AGAIN_NS)));
        if (td_live_is_over(live)) break;
        td_status s = ask(t, ANSWER_NS);
        if (!s) last = td_mono_now();
        if (!s) notice[0] = '\0';
        if (s) TD_TRY(wait_for_daemon(t, s, last, notice));
    }
    return TD_OK;
}

// The first page comes before the terminal is taken, so that an error is seen where it is read.
static td_status show_live(struct top *t) {
    const struct td_flags *f = t->session->flags;
    struct td_live *live = NULL;
    TD_TRY(ask(t, f->timeout_ns ? f->timeout_ns : 30 * TD_NS_PER_S));
    td_status s = td_live_create(t->session->loop, &live);
    if (!s) s = go_on(t, live);
    const int ended_by = live ? td_live_signal(live) : 0;
    td_live_destroy(live);
    if (ended_by) raise(ended_by);
    return s;
}

td_status td_cmd_top(struct td_session *s, const struct td_flags *f, int *out_exit) {
    struct top t = {.session = s};
    (void)out_exit;
    TD_TRY(td_session_open(s));
    const bool live =
        !f->once && f->output == TD_OUTPUT_TABLE && isatty(STDOUT_FILENO) && !s->config.dumb;
    td_status failed = live ? show_live(&t) : print_once(&t);
    forget(&t);
    return failed;
}
