// node token and node revoke: who may become a node, and who may not be one any more. node label:
// words by which jobs choose one.
//
// As of `token create`, the text of a join token goes to standard output alone, so that `trainctl
// node token > file` keeps it; what it is goes to standard error.

#include <stdio.h>
#include <string.h>

#include "client/nodes/listing.h"
#include "client/nodes/nodes.h"
#include "client/screen/print.h"
#include "client/session/session.h"
#include "traind/v1/admin.pb-c.h"

td_status td_cmd_node_token(struct td_session *s, const struct td_flags *f, int *out_exit) {
    (void)out_exit;
    TD_AUTO(td_rpc_message) *answer = NULL;
    Traind__V1__CreateJoinTokenRequest request = TRAIND__V1__CREATE_JOIN_TOKEN_REQUEST__INIT;
    if (f->name) request.name = td_unconst(f->name);
    TD_TRY(td_session_call(s, "/traind.v1.NodeAdminService/CreateJoinToken", &request.base,
                           &traind__v1__create_join_token_response__descriptor, &answer));
    const Traind__V1__CreateJoinTokenResponse *r =
        (const Traind__V1__CreateJoinTokenResponse *)td_rpc_message_get(answer);
    if (td_output_is_json(f->output)) return td_session_print_json(s, &r->base);
    td_print(stdout, "%s\n", r->text);
    if (f->output == TD_OUTPUT_NAME) return TD_OK;
    td_print(stderr,
             "trainctl: join token %s, for %s%s, once, until %s; its text is shown only now\n",
             r->token->id, f->name ? "the node " : "any node", f->name ? f->name : "",
             r->token->expire_time);
    return TD_OK;
}

td_status td_cmd_node_revoke(struct td_session *s, const struct td_flags *f, int *out_exit) {
    (void)out_exit;
    TD_AUTO(td_rpc_message) *answer = NULL;
    Traind__V1__RevokeNodeRequest request = TRAIND__V1__REVOKE_NODE_REQUEST__INIT;
    request.node = td_unconst(f->args[0]);
    TD_TRY(td_session_call(s, "/traind.v1.NodeAdminService/RevokeNode", &request.base,
                           &traind__v1__revoke_node_response__descriptor, &answer));
    const Traind__V1__RevokeNodeResponse *r =
        (const Traind__V1__RevokeNodeResponse *)td_rpc_message_get(answer);
    if (td_output_is_json(f->output)) return td_session_print_json(s, &r->base);
    if (f->output == TD_OUTPUT_NAME) {
        td_print(stdout, "%s\n", r->id);
    } else {
        td_print(stdout, "%s of '%s' REVOKED\n", r->id, r->name);
    }
    return TD_OK;
}

// ---- labels -------------------------------------------------------------------------------------
const char *td_node_labels_text(const Traind__V1__Node *n, char out[TD_LABELS_BYTES]) {
    out[0] = '\0';
    for (size_t i = 0; i < n->n_labels; i++) {
        td_labels_put(out, n->labels[i]->key, n->labels[i]->value);
    }
    return out;
}

static td_status show_labels(struct td_session *s, const Traind__V1__Node *n) {
    char labels[TD_LABELS_BYTES];
    const enum td_output output = s->flags->output;
    if (td_output_is_json(output)) return td_session_print_json(s, &n->base);
    td_node_labels_text(n, labels);
    td_print(stdout, "%s%s%s\n", n->name, output == TD_OUTPUT_NAME ? "" : " ",
             output == TD_OUTPUT_NAME ? ""
             : *labels                ? labels
                                      : "has no labels");
    return TD_OK;
}

static td_status read_labels(struct td_session *s, const char *said) {
    const Traind__V1__Node *n = NULL;
    struct td_pages pages = {0};
    td_status failed = td_listing_read(s, &pages);
    if (!failed) failed = td_listing_find(&pages, said, &n);
    if (!failed) failed = show_labels(s, n);
    td_pages_finish(&pages);
    return failed;
}

td_status td_cmd_node_label(struct td_session *s, const struct td_flags *f, int *out_exit) {
    (void)out_exit;
    TD_AUTO(td_rpc_message) *answer = NULL;
    Traind__V1__LabelNodeRequest request = TRAIND__V1__LABEL_NODE_REQUEST__INIT;
    if (f->n_args == 1) return read_labels(s, f->args[0]);
    request.node = td_unconst(f->args[0]);
    request.changes = td_unconst(f->args + 1);
    request.n_changes = (size_t)f->n_args - 1;
    TD_TRY(td_session_call(s, "/traind.v1.NodeAdminService/LabelNode", &request.base,
                           &traind__v1__node__descriptor, &answer));
    return show_labels(s, (const Traind__V1__Node *)td_rpc_message_get(answer));
}
