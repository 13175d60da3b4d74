// AdminService's tokens: given out, listed, revoked. The text of a token is in one answer and
// nowhere else, so CreateToken is not idempotent: whose answer was lost revokes that token and asks
// again. So it is with certificates of people.

#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/api/api.h"
#include "daemon/coordinator/api/issue.h"
#include "daemon/coordinator/shell/access/access.h"
#include "daemon/coordinator/shell/access/tokens.h"
#include "lib/base/log.h"
#include "lib/tls/authority.h"

static Traind__V1__Token__State state_of(const struct td_credential *k, struct td_real now) {
    if (k->role == TD_ROLE_JOIN && k->use_ns) return TRAIND__V1__TOKEN__STATE__USED;
    if (k->revoke_ns) return TRAIND__V1__TOKEN__STATE__REVOKED;
    return td_credential_has_ended(k, now, 0) ? TRAIND__V1__TOKEN__STATE__EXPIRED
                                              : TRAIND__V1__TOKEN__STATE__VALID;
}

Traind__V1__Token *td_view_token(struct td_arena *a, const struct td_credential *k) {
    Traind__V1__Token *m = td_arena_alloc(a, sizeof *m);
    if (!m) return NULL;
    traind__v1__token__init(m);
    m->id = td_arena_strdup(a, k->id);
    m->name = td_arena_strdup(a, k->name);
    m->role = (Traind__V1__Token__Role)k->role;
    m->state = state_of(k, td_real_now());
    m->create_time = td_view_time(a, k->create_ns);
    m->expire_time = td_view_time(a, k->expire_ns);
    m->last_use_time = td_view_time(a, k->use_ns);
    m->revoke_time = td_view_time(a, k->revoke_ns);
    m->serial = td_arena_strdup(a, k->serial);
    bool whole =
        m->id && m->name && m->serial && m->create_time && m->expire_time && m->last_use_time;
    return whole && m->revoke_time ? m : NULL;
}

// ---- CreateToken --------------------------------------------------------------------------------
static const int64_t year_s = INT64_C(365) * 24 * 3600;

static td_status expiry(struct td_real now, const Traind__V1__CreateTokenRequest *r,
                        int64_t *out_ns) {
    const uint64_t most_s = UINT64_C(100) * 366 * 24 * 3600;
    uint64_t s = r->expires_in_s || !r->request[0] ? r->expires_in_s : (uint64_t)year_s;
    if (s > most_s) return td_shell_bad_field("expires_in_s", "at most 100 years");
    *out_ns = s ? now.ns + (int64_t)s * TD_NS_PER_S : 0;
    return TD_OK;
}

// Whose certificate it is: the request's own name, or the one that the admin gives, who may not say
// another.
static td_status name_of(const Traind__V1__CreateTokenRequest *r, char out[TD_TLS_NAME_BYTES]) {
    TD_TRY(td_authority_request_name(r->request, out));
    if (out[0] && r->name[0] && strcmp(out, r->name) != 0) {
        return td_status_with_reason(
            td_fail(TD_INVALID_ARGUMENT,
                    "the request asks for a certificate of '%s', and the name is '%.63s'", out,
                    r->name),
            "NAME_DIFFERS");
    }
    if (r->name[0]) snprintf(out, TD_TLS_NAME_BYTES, "%s", r->name);
    if (out[0]) return TD_OK;
    return td_shell_bad_field("name", "neither the request nor the call says whose it is");
}

static td_status certify(struct td_coordinator *c, struct td_arena *a,
                         const Traind__V1__CreateTokenRequest *r, int64_t expire_ns,
                         const struct td_credential **out_token,
                         Traind__V1__CreateTokenResponse *m) {
    char name[TD_TLS_NAME_BYTES];
    struct td_certificate certificate;
    TD_AUTO_BUF pem;
    td_buf_init(&pem, TD_TLS_PEM_MAX);
    struct td_real now = td_real_now();
    enum td_access_role role = (enum td_access_role)r->role;
    if (role == TD_ROLE_NODE) {
        return td_shell_bad_field("role", "a node gets its certificate by `trainctl node token`");
    }
    TD_TRY(td_issue_check_tls(c));
    TD_TRY(name_of(r, name));
    TD_TRY(td_tokens_may_add(td_access_borrow_credentials(c), now, name, role, expire_ns));
    TD_TRY(td_issue_sign(c, r->request, name, (expire_ns - now.ns + TD_NS_PER_S - 1) / TD_NS_PER_S,
                         &pem, &certificate));
    m->certificate = td_arena_strndup(a, pem.data, pem.len);
    if (!m->certificate) return td_fail_oom();
    return td_tokens_add_certificate(td_access_borrow_credentials(c), now, name, role, &certificate,
                                     out_token);
}

// A node that joined belongs to its id, the others to the name of their token: these never meet.
static td_status check_name(struct td_coordinator *c, const Traind__V1__CreateTokenRequest *r) {
    bool of_node =
        r->role == TRAIND__V1__TOKEN__ROLE__NODE &&
        td_credential_table_get(td_access_borrow_credentials(c), TD_CREDENTIAL_MEMBER, r->name);
    if (!of_node) return TD_OK;
    return td_status_with_reason(td_fail(TD_ALREADY_EXISTS,
                                         "'%s' is the id of a node that joined; give the token "
                                         "another name",
                                         r->name),
                                 "NAME_TAKEN");
}

static td_status give_text(struct td_coordinator *c, struct td_arena *a,
                           const Traind__V1__CreateTokenRequest *r, int64_t expire_ns,
                           const struct td_credential **out_token,
                           Traind__V1__CreateTokenResponse *m) {
    char text[TD_TOKEN_TEXT];
    TD_TRY(check_name(c, r));
    TD_TRY(td_tokens_add(td_access_borrow_credentials(c), td_real_now(), r->name,
                         (enum td_access_role)r->role, expire_ns, out_token, text));
    m->text = td_arena_strdup(a, text);
    return TD_OK;
}

static td_status create(struct td_coordinator *c, struct td_rpc_call *call,
                        const Traind__V1__CreateTokenRequest *r) {
    TD_AUTO(td_arena) *arena = NULL;
    const struct td_credential *k = NULL;
    int64_t expire_ns = 0;
    TD_TRY(td_shell_writable(c));
    TD_TRY(td_shell_arena(&arena));
    Traind__V1__CreateTokenResponse *m = td_arena_alloc(arena, sizeof *m);
    if (!m) return td_fail_oom();
    traind__v1__create_token_response__init(m);
    TD_TRY(expiry(td_real_now(), r, &expire_ns));
    if (r->role == TRAIND__V1__TOKEN__ROLE__JOIN) {
        return td_shell_bad_field("role", "join tokens come from `trainctl node token`");
    }
    TD_TRY(r->request[0] ? certify(c, arena, r, expire_ns, &k, m)
                         : give_text(c, arena, r, expire_ns, &k, m));
    td_access_changed(c);
    td_rpc_call_set_object(call, k->id);
    td_log_info("token created token=%s name=%s role=%s serial=%s", k->id, k->name,
                td_access_role_name(k->role), k->serial[0] ? k->serial : "-");
    m->token = td_view_token(arena, k);
    bool whole = m->token && m->text && m->certificate;
    td_shell_reply_changed(c, call, td_steal(arena), whole ? &m->base : NULL);
    return TD_OK;
}

static void create_token(struct td_rpc_call *call, const ProtobufCMessage *request, void *ctx) {
    struct td_coordinator *c = TD_CAST(td_coordinator, ctx);
    td_status s = create(c, call, (const Traind__V1__CreateTokenRequest *)request);
    if (s) td_shell_fail(c, call, s);
}

// ---- ListTokens ---------------------------------------------------------------------------------
static td_status list(struct td_coordinator *c, struct td_rpc_call *call) {
    TD_AUTO(td_arena) *arena = NULL;
    TD_TRY(td_shell_arena(&arena));
    Traind__V1__ListTokensResponse *m = td_arena_alloc(arena, sizeof *m);
    if (!m) return td_fail_oom();
    traind__v1__list_tokens_response__init(m);
    m->tokens = td_arena_array(arena, 2 * TD_TOKENS_MAX + 1, sizeof *m->tokens);
    if (!m->tokens) return td_fail_oom();
    size_t cursor = 0;
    const struct td_credential *k;
    while ((k = td_credential_table_next(td_access_borrow_credentials(c), TD_CREDENTIAL_TOKEN,
                                         &cursor))) {
        m->tokens[m->n_tokens] = td_view_token(arena, k);
        if (!m->tokens[m->n_tokens++]) return td_fail_oom();
    }
    td_shell_reply(c, call, td_steal(arena), &m->base);
    return TD_OK;
}

static void list_tokens(struct td_rpc_call *call, const ProtobufCMessage *request, void *ctx) {
    struct td_coordinator *c = TD_CAST(td_coordinator, ctx);
    (void)request;
    td_status s = list(c, call);
    if (s) td_shell_fail(c, call, s);
}

// ---- RevokeToken --------------------------------------------------------------------------------
// Also while the disk refuses: a token that leaked must not wait for room. The answer then says
// that it is not on disk yet.
static td_status take_back(struct td_coordinator *c, struct td_rpc_call *call, const char *id) {
    TD_AUTO(td_arena) *arena = NULL;
    const struct td_credential *k = NULL;
    td_rpc_call_set_object(call, id);
    TD_TRY(td_shell_arena(&arena));
    TD_TRY(td_tokens_revoke(td_access_borrow_credentials(c), td_real_now(), id, &k));
    td_access_changed(c);
    td_access_cut(c, k, call);
    td_log_info("token revoked token=%s name=%s", k->id, k->name);
    Traind__V1__Token *m = td_view_token(arena, k);
    td_shell_reply_changed(c, call, td_steal(arena), m ? &m->base : NULL);
    return TD_OK;
}

static void revoke_token(struct td_rpc_call *call, const ProtobufCMessage *request, void *ctx) {
    struct td_coordinator *c = TD_CAST(td_coordinator, ctx);
    td_status s = take_back(c, call, ((const Traind__V1__RevokeTokenRequest *)request)->id);
    if (s) td_shell_fail(c, call, s);
}

static const struct td_rpc_method rows[] = {
    {.service = "traind.v1.AdminService",
     .method = "CreateToken",
     .role = TD_ROLE_ADMIN,
     .changes = true,
     .kind = TD_RPC_UNARY,
     .request = &traind__v1__create_token_request__descriptor,
     .response = &traind__v1__create_token_response__descriptor,
     .on_call = create_token},
    {.service = "traind.v1.AdminService",
     .method = "ListTokens",
     .role = TD_ROLE_ADMIN,
     .kind = TD_RPC_UNARY,
     .request = &traind__v1__list_tokens_request__descriptor,
     .response = &traind__v1__list_tokens_response__descriptor,
     .on_call = list_tokens},
    {.service = "traind.v1.AdminService",
     .method = "RevokeToken",
     .role = TD_ROLE_ADMIN,
     .own_calls = 64, // whatever else is open
     .yields = true,
     .changes = true,
     .kind = TD_RPC_UNARY,
     .request = &traind__v1__revoke_token_request__descriptor,
     .response = &traind__v1__token__descriptor,
     .on_call = revoke_token},
};

td_status td_api_tokens_add(struct td_coordinator *c) {
    return td_access_add_rows(c, rows, TD_COUNTOF(rows));
}
