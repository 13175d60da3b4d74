// node cordon, node uncordon and node drain: whether a node gets new attempts, and whether what
// runs there goes elsewhere. The answer is the node as it is then. A drain says of each job whether
// it leaves. With --wait the verb stays until nothing of any job is there, for --timeout at most.
// It asks for the node twice a second, as there is no watch of nodes. An operator may end the drain
// meanwhile, which is a failure.

#include <stdio.h>
#include <string.h>

#include "client/nodes/listing.h"
#include "client/nodes/node_state.h"
#include "client/nodes/nodes.h"
#include "client/screen/print.h"
#include "client/session/session.h"
#include "lib/base/clip.h"
#include "lib/base/files/files.h"

#define LOOK_NS (500 * TD_NS_PER_MS)
enum { ID_BYTES = 80, LEFT_BYTES = 400 };

static td_status decide(struct td_session *s, const char *method, const ProtobufCMessage *request,
                        struct td_rpc_message **out_answer) {
    return td_session_call(s, method, request, &traind__v1__node__descriptor, out_answer);
}

// json and name; false: a table is wanted.
static bool print_form(struct td_session *s, const Traind__V1__Node *n, td_status *out_failed) {
    const struct td_flags *f = s->flags;
    *out_failed = TD_OK;
    if (td_output_is_json(f->output)) {
        *out_failed = td_session_print_json(s, &n->base);
    } else if (f->output == TD_OUTPUT_NAME) {
        td_print(stdout, "%s\n", n->id);
    } else {
        return false;
    }
    return true;
}

td_status td_cmd_node_cordon(struct td_session *s, const struct td_flags *f, int *out_exit) {
    (void)out_exit;
    TD_AUTO(td_rpc_message) *answer = NULL;
    Traind__V1__CordonNodeRequest request = TRAIND__V1__CORDON_NODE_REQUEST__INIT;
    request.node = td_unconst(f->args[0]);
    if (f->reason) request.reason = td_unconst(f->reason);
    TD_TRY(decide(s, "/traind.v1.NodeAdminService/CordonNode", &request.base, &answer));
    const Traind__V1__Node *n = (const Traind__V1__Node *)td_rpc_message_get(answer);
    td_status failed;
    if (print_form(s, n, &failed)) return failed;
    td_print(stdout, "%s is cordoned: it gets no new jobs", n->name);
    if (n->n_jobs == 1) td_print(stdout, "; the one that runs there goes on");
    if (n->n_jobs > 1) td_print(stdout, "; the %zu that run there go on", n->n_jobs);
    td_print(stdout, "\n");
    return TD_OK;
}

td_status td_cmd_node_uncordon(struct td_session *s, const struct td_flags *f, int *out_exit) {
    (void)out_exit;
    TD_AUTO(td_rpc_message) *answer = NULL;
    Traind__V1__UncordonNodeRequest request = TRAIND__V1__UNCORDON_NODE_REQUEST__INIT;
    request.node = td_unconst(f->args[0]);
    TD_TRY(decide(s, "/traind.v1.NodeAdminService/UncordonNode", &request.base, &answer));
    const Traind__V1__Node *n = (const Traind__V1__Node *)td_rpc_message_get(answer);
    td_status failed;
    if (!print_form(s, n, &failed)) td_print(stdout, "%s gets jobs again\n", n->name);
    return failed;
}

// ---- drain --------------------------------------------------------------------------------------
static void say_job(const Traind__V1__DrainedJob *j) {
    if (!j->leaves) {
        td_print(stdout, "%s (%s) stays: %s; it goes on here until it ends, or is cancelled\n",
                 j->id, j->name, j->why);
    } else if (j->why[0]) {
        td_print(stdout, "%s (%s) leaves: %s\n", j->id, j->name, j->why);
    } else {
        td_print(stdout, "%s (%s) saves and stops, and goes on where it finds room\n", j->id,
                 j->name);
    }
}

static void say_drain(const Traind__V1__Node *n) {
    const Traind__V1__Cordon *c = n->cordon;
    td_print(stdout, "%s is drained: it gets no new jobs%s\n", n->name,
             c->empty ? ", and is empty" : "");
    for (size_t i = 0; i < c->n_jobs; i++) {
        say_job(c->jobs[i]);
    }
}

// What is left, as "2 jobs are there: j-1 (a), j-2 (b) stays".
static void name_left(const Traind__V1__Cordon *c, char out[LEFT_BYTES]) {
    char text[LEFT_BYTES / 2];
    struct td_clip_list names;
    if (!c->n_jobs) {
        (void)td_clip(out, LEFT_BYTES, "logs and checkpoints are on their way from it");
        return;
    }
    td_clip_list_init(&names, text, sizeof text, ", ");
    for (size_t i = 0; i < c->n_jobs; i++) {
        td_clip_list_add(&names, "%s (%.40s)%s", c->jobs[i]->id, c->jobs[i]->name,
                         c->jobs[i]->leaves ? "" : " stays");
    }
    (void)td_clip(out, LEFT_BYTES, "%zu job%s there: %s", c->n_jobs,
                  c->n_jobs == 1 ? " is" : "s are", text);
}

// *out_is_empty: as the node is now. left: what is there, if it is not.
static td_status look(struct td_session *s, const char *id, bool *out_is_empty,
                      char left[LEFT_BYTES]) {
    struct td_pages p = {.quiet = true};
    td_status failed = td_listing_read(s, &p);
    const Traind__V1__Node *n = failed ? NULL : td_listing_with_id(&p, id);
    const Traind__V1__Cordon *c = n ? n->cordon : NULL;
    if (!failed && (!c || !c->drains)) {
        failed = td_fail(TD_ABORTED, "node %s is not drained any more: an operator ended that",
                         s->flags->args[0]);
    }
    if (!failed) {
        *out_is_empty = c->empty;
        name_left(c, left);
    }
    td_pages_finish(&p);
    return failed;
}

static bool may_come_back(td_status borrow_failure) {
    const enum td_code code = td_status_code(borrow_failure);
    return code == TD_UNAVAILABLE || code == TD_DEADLINE_EXCEEDED;
}

static td_status await_empty(struct td_session *s, const char *id) {
    const int64_t timeout_ns = s->flags->timeout_ns;
    const struct td_mono start = td_mono_now();
    struct td_mono last = start;
    char left[LEFT_BYTES] = "";
    for (bool is_empty = false; !is_empty;) {
        td_status failed = look(s, id, &is_empty, left);
        if (failed && !may_come_back(failed)) return failed;
        if (failed) {
            TD_TRY(td_session_reconnect(s, failed, last));
        } else {
            td_session_is_back(s);
            last = td_mono_now();
        }
        if (is_empty) break;
        if (timeout_ns && td_mono_now().ns - start.ns >= timeout_ns) {
            return td_fail(TD_DEADLINE_EXCEEDED,
                           "node %s is not empty within --timeout (%.9g s): %s; it is drained all "
                           "the same",
                           s->flags->args[0], (double)timeout_ns / TD_NS_PER_S, left);
        }
        TD_TRY(td_loop_run_for(s->loop, NULL, LOOK_NS));
    }
    return TD_OK;
}

// As it is at the end of the waiting.
static td_status print_again(struct td_session *s, const char *id) {
    struct td_pages p = {.quiet = true};
    td_status failed = td_listing_read(s, &p);
    const Traind__V1__Node *n = failed ? NULL : td_listing_with_id(&p, id);
    td_status printed = TD_OK;
    if (n && !print_form(s, n, &printed)) td_print(stdout, "%s is empty\n", n->name);
    td_pages_finish(&p);
    return failed ? failed : printed;
}

td_status td_cmd_node_drain(struct td_session *s, const struct td_flags *f, int *out_exit) {
    (void)out_exit;
    TD_AUTO(td_rpc_message) *answer = NULL;
    Traind__V1__DrainNodeRequest request = TRAIND__V1__DRAIN_NODE_REQUEST__INIT;
    request.node = td_unconst(f->args[0]);
    if (f->reason) request.reason = td_unconst(f->reason);
    TD_TRY(decide(s, "/traind.v1.NodeAdminService/DrainNode", &request.base, &answer));
    const Traind__V1__Node *n = (const Traind__V1__Node *)td_rpc_message_get(answer);
    td_status failed = TD_OK;
    if (f->output == TD_OUTPUT_TABLE) {
        say_drain(n);
    } else if (!f->wait) {
        (void)print_form(s, n, &failed);
    }
    if (failed || !f->wait) return failed;
    if (n->cordon->empty && f->output == TD_OUTPUT_TABLE) return TD_OK; // it was said
    char id[ID_BYTES];
    snprintf(id, sizeof id, "%s", n->id);
    TD_TRY(td_fs_flush_stdout()); // before the waiting
    TD_TRY(await_empty(s, id));
    return print_again(s, id);
}
