// How a machine becomes a node, and stays one: a join token, a certificate for it, the next
// certificate for that, and the end of them.
//
// A token is spent when its certificate is on disk with it, so that nobody holds one of the two
// twice. A refused request leaves it as it was. The answer may be lost on its way, or the machine
// may fail before it has stored the certificate. So the same machine may say the same again, with
// the same key, until the token's end. It gets another certificate, and the first is worth nothing.
// Of a node that was revoked meanwhile the token is spent. The name of a certificate is the node's
// id, which the request must ask for.

#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/api/api.h"
#include "daemon/coordinator/api/issue.h"
#include "daemon/coordinator/shell/access/access.h"
#include "daemon/coordinator/shell/access/members.h"
#include "daemon/coordinator/shell/access/tokens.h"
#include "lib/base/log.h"
#include "lib/rpc/identity.h"
#include "lib/tls/authority.h"
#include "lib/tls/certificate.h"
#include "traind/v1/node.pb-c.h"

// ---- certificates -------------------------------------------------------------------------------
static td_status check_name(const char *request, const char *id) {
    char asked[TD_TLS_NAME_BYTES];
    TD_TRY(td_authority_request_name(request, asked));
    if (strcmp(asked, id) == 0) return TD_OK;
    return td_status_with_reason(
        td_fail(TD_PERMISSION_DENIED,
                "the request asks for a certificate of '%s', and the node is '%.63s'", asked, id),
        "NAME_DIFFERS");
}

static td_status sign(const struct td_coordinator *c, const char *request, const char *id,
                      struct td_buf *out_pem, struct td_certificate *out_certificate) {
    return td_issue_sign(c, request, id, c->node_certificate_ns / TD_NS_PER_S, out_pem,
                         out_certificate);
}

static void reply(struct td_coordinator *c, struct td_rpc_call *call, struct td_arena *take_arena,
                  const struct td_buf *pem) {
    Traind__V1__JoinResponse *m = td_arena_alloc(take_arena, sizeof *m);
    if (m) {
        traind__v1__join_response__init(m);
        m->certificate = td_arena_strndup(take_arena, pem->data, pem->len);
        m->lifetime_s = (uint64_t)(c->node_certificate_ns / TD_NS_PER_S);
    }
    td_shell_reply_changed(c, call, take_arena, m && m->certificate ? &m->base : NULL);
}

// ---- CreateJoinToken ----------------------------------------------------------------------------
static td_status create(struct td_coordinator *c, struct td_rpc_call *call,
                        const Traind__V1__CreateJoinTokenRequest *r) {
    TD_AUTO(td_arena) *arena = NULL;
    TD_AUTO_BUF pem;
    const struct td_credential *k = NULL;
    struct td_certificate ca;
    char text[TD_TOKEN_TEXT];
    td_buf_init(&pem, TD_TLS_PEM_MAX);
    TD_TRY(td_shell_writable(c));
    TD_TRY(td_issue_check_tls(c));
    TD_TRY(td_issue_read(c, "ca.pem", &pem));
    TD_TRY(td_certificate_read(td_buf_cstr(&pem), &ca));
    TD_TRY(td_shell_arena(&arena));
    struct td_real now = td_real_now();
    TD_TRY(td_tokens_add(td_access_borrow_credentials(c), now, r->name, TD_ROLE_JOIN,
                         now.ns + c->join_token_ns, &k, text));
    td_access_changed(c);
    td_rpc_call_set_object(call, k->id);
    td_log_info("join token created token=%s name=%s", k->id, k->name);
    Traind__V1__CreateJoinTokenResponse *m = td_arena_alloc(arena, sizeof *m);
    if (m) {
        traind__v1__create_join_token_response__init(m);
        m->token = td_view_token(arena, k);
        m->text = td_arena_printf(arena, "%s.%s", text, ca.fingerprint);
    }
    td_shell_reply_changed(c, call, td_steal(arena), m && m->token && m->text ? &m->base : NULL);
    return TD_OK;
}

static void create_join_token(struct td_rpc_call *call, const ProtobufCMessage *request,
                              void *ctx) {
    struct td_coordinator *c = TD_CAST(td_coordinator, ctx);
    td_status s = create(c, call, (const Traind__V1__CreateJoinTokenRequest *)request);
    if (s) td_shell_fail(c, call, s);
}

// ---- Join ---------------------------------------------------------------------------------------
// A token is for any node, or for the one of its name. Without a name it has its id as one.
static td_status check_token(const struct td_credential *k, const char *name) {
    if (!k || k->role != TD_ROLE_JOIN) {
        return td_status_with_reason(
            td_fail(TD_FAILED_PRECONDITION,
                    "to join needs a join token, which `trainctl node token` gives"),
            "JOIN_TOKEN_NEEDED");
    }
    if (strcmp(k->name, k->id) == 0 || strcmp(k->name, name) == 0) return TD_OK;
    return td_status_with_reason(
        td_fail(TD_PERMISSION_DENIED,
                "the token is for the node '%s', and this one is '%.71s' (--name)", k->name, name),
        "NAME_DIFFERS");
}

// A node belongs to the name of its token, or to its own id where it joined: these never meet.
static td_status check_id(struct td_coordinator *c, const char *id) {
    if (!td_tokens_names_nodes(td_access_borrow_credentials(c), id)) return TD_OK;
    return td_status_with_reason(
        td_fail(TD_ALREADY_EXISTS,
                "'%s' is the name of a node token, to which nodes belong; give this one a state "
                "directory of its own",
                id),
        "NAME_TAKEN");
}

// A token that was used: is this its user, who says the same again?
static td_status check_again(struct td_coordinator *c, const struct td_credential *k,
                             const Traind__V1__JoinRequest *r,
                             const uint8_t user[TD_TLS_DIGEST_BYTES]) {
    const struct td_credential *m =
        td_credential_table_get(td_access_borrow_credentials(c), TD_CREDENTIAL_MEMBER, r->node_id);
    bool same = m && !m->revoke_ns && strcmp(m->name, r->name) == 0 && td_tokens_is_of(k, user);
    if (same) return TD_OK;
    c->rejected_calls++;
    return td_tokens_used();
}

static td_status check_join(struct td_coordinator *c, const struct td_credential *k,
                            struct td_real now, const Traind__V1__JoinRequest *r,
                            uint8_t out_user[TD_TLS_DIGEST_BYTES]) {
    TD_TRY(check_token(k, r->name));
    TD_TRY(td_issue_check_tls(c));
    if (!k->use_ns) {
        TD_TRY(td_members_may_join(td_access_borrow_credentials(c), now, c->renew_grace_ns,
                                   r->node_id, r->name));
        TD_TRY(check_id(c, r->node_id));
    }
    TD_TRY(check_name(r->request, r->node_id));
    TD_TRY(td_authority_request_digest(r->request, r->node_id, out_user));
    return k->use_ns ? check_again(c, k, r, out_user) : TD_OK;
}

static td_status take_in(struct td_coordinator *c, struct td_rpc_call *call,
                         const Traind__V1__JoinRequest *r) {
    TD_AUTO(td_arena) *arena = NULL;
    TD_AUTO_BUF pem;
    struct td_certificate certificate;
    td_buf_init(&pem, TD_TLS_PEM_MAX);
    td_rpc_call_set_object(call, r->node_id);
    TD_TRY(td_shell_writable(c));
    const struct td_credential *k = td_access_credential(c, call, TD_CREDENTIAL_TOKEN);
    struct td_real now = td_real_now();
    uint8_t user[TD_TLS_DIGEST_BYTES];
    TD_TRY(check_join(c, k, now, r, user));
    TD_TRY(td_shell_arena(&arena));
    TD_TRY(sign(c, r->request, r->node_id, &pem, &certificate));
    td_tokens_spend(td_access_borrow_credentials(c), now, k, user);
    (void)td_members_join(td_access_borrow_credentials(c), now, r->node_id, r->name,
                          td_rpc_call_peer(call), &certificate);
    td_access_changed(c);
    td_log_info("node joined node=%s name=%s from=%s token=%s serial=%s", r->node_id, r->name,
                td_rpc_call_peer(call), k->id, certificate.serial);
    reply(c, call, td_steal(arena), &pem);
    return TD_OK;
}

static void join(struct td_rpc_call *call, const ProtobufCMessage *request, void *ctx) {
    struct td_coordinator *c = TD_CAST(td_coordinator, ctx);
    td_status s = take_in(c, call, (const Traind__V1__JoinRequest *)request);
    if (s) td_shell_fail(c, call, s);
}

// ---- Renew --------------------------------------------------------------------------------------
static td_status extend(struct td_coordinator *c, struct td_rpc_call *call,
                        const Traind__V1__RenewRequest *r) {
    TD_AUTO(td_arena) *arena = NULL;
    TD_AUTO_BUF pem;
    struct td_certificate certificate;
    td_buf_init(&pem, TD_TLS_PEM_MAX);
    const struct td_credential *m = td_access_credential(c, call, TD_CREDENTIAL_MEMBER);
    if (!m) {
        return td_status_with_reason(
            td_fail(TD_FAILED_PRECONDITION,
                    "a node renews by its certificate, and this call came with a token"),
            "CERTIFICATE_NEEDED");
    }
    td_rpc_call_set_object(call, m->id);
    TD_TRY(td_shell_writable(c));
    TD_TRY(check_name(r->request, m->id));
    TD_TRY(td_shell_arena(&arena));
    TD_TRY(sign(c, r->request, m->id, &pem, &certificate));
    td_members_renew(td_access_borrow_credentials(c), m, td_rpc_call_certificate(call)->serial,
                     td_rpc_call_peer(call), &certificate);
    td_access_changed(c);
    td_log_info("certificate renewed node=%s name=%s serial=%s", m->id, m->name,
                certificate.serial);
    reply(c, call, td_steal(arena), &pem);
    return TD_OK;
}

static void renew(struct td_rpc_call *call, const ProtobufCMessage *request, void *ctx) {
    struct td_coordinator *c = TD_CAST(td_coordinator, ctx);
    td_status s = extend(c, call, (const Traind__V1__RenewRequest *)request);
    if (s) td_shell_fail(c, call, s);
}

// ---- RevokeNode ---------------------------------------------------------------------------------
// Also while the disk refuses, as of tokens.
static td_status take_back(struct td_coordinator *c, struct td_rpc_call *call, const char *node) {
    TD_AUTO(td_arena) *arena = NULL;
    const struct td_credential *k = NULL;
    td_rpc_call_set_object(call, node);
    TD_TRY(td_shell_arena(&arena));
    TD_TRY(td_members_revoke(td_access_borrow_credentials(c), td_real_now(), node, &k));
    td_rpc_call_set_object(call, k->id);
    td_access_changed(c);
    td_access_cut(c, k, call);
    td_log_info("node revoked node=%s name=%s", k->id, k->name);
    Traind__V1__RevokeNodeResponse *m = td_arena_alloc(arena, sizeof *m);
    if (m) {
        traind__v1__revoke_node_response__init(m);
        m->id = td_arena_strdup(arena, k->id);
        m->name = td_arena_strdup(arena, k->name);
        m->revoke_time = td_view_time(arena, k->revoke_ns);
    }
    bool whole = m && m->id && m->name && m->revoke_time;
    td_shell_reply_changed(c, call, td_steal(arena), whole ? &m->base : NULL);
    return TD_OK;
}

static void revoke_node(struct td_rpc_call *call, const ProtobufCMessage *request, void *ctx) {
    struct td_coordinator *c = TD_CAST(td_coordinator, ctx);
    td_status s = take_back(c, call, ((const Traind__V1__RevokeNodeRequest *)request)->node);
    if (s) td_shell_fail(c, call, s);
}

static const struct td_rpc_method rows[] = {
    {.service = "traind.v1.NodeAdminService",
     .method = "CreateJoinToken",
     .role = TD_ROLE_OPERATOR,
     .changes = true,
     .kind = TD_RPC_UNARY,
     .request = &traind__v1__create_join_token_request__descriptor,
     .response = &traind__v1__create_join_token_response__descriptor,
     .on_call = create_join_token},
    {.service = "traind.v1.NodeAdminService",
     .method = "RevokeNode",
     .role = TD_ROLE_OPERATOR,
     .changes = true,
     .kind = TD_RPC_UNARY,
     .request = &traind__v1__revoke_node_request__descriptor,
     .response = &traind__v1__revoke_node_response__descriptor,
     .on_call = revoke_node},
    {.service = "traind.v1.NodeService",
     .method = "Join",
     .role = TD_ROLE_JOIN,
     .changes = true,
     .kind = TD_RPC_UNARY,
     .request = &traind__v1__join_request__descriptor,
     .response = &traind__v1__join_response__descriptor,
     .on_call = join},
    {.service = "traind.v1.NodeService",
     .method = "Renew",
     .role = TD_ROLE_NODE,
     .changes = true,
     .kind = TD_RPC_UNARY,
     .request = &traind__v1__renew_request__descriptor,
     .response = &traind__v1__join_response__descriptor,
     .on_call = renew},
};

td_status td_api_join_add(struct td_coordinator *c) {
    return td_access_add_rows(c, rows, TD_COUNTOF(rows));
}
