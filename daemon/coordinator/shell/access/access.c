// See the header. Time: a timer fires when the next credential expires, and at least once a minute
// while one will, because the real clock may be set. Judging a call looks at the clock itself.

#include "daemon/coordinator/shell/access/access.h"

#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/shell/access/audit.h"
#include "daemon/coordinator/shell/access/caps.h"
#include "daemon/coordinator/shell/access/members.h"
#include "daemon/coordinator/shell/access/tokens.h"
#include "lib/base/log.h"
#include "lib/rpc/identity.h"
#include "lib/tls/revoked.h"

static const uint64_t owner_identity = 1;
static const int64_t look_ns = 60 * TD_NS_PER_S;

struct td_access {
    uint32_t magic;
    struct td_coordinator *c;
    struct td_credential_table *credentials;
    struct td_tls_revoked *revoked; // serials that handshakes refuse
    struct td_audit *audit;
    struct td_caps *caps;
    struct td_loop_timer *timer; // the next credential expires
};
enum { td_access_magic = 0x54444143 }; // "TDAC"

// ---- ends of credentials ------------------------------------------------------------------------
static td_status why_ended(void *arg) {
    return td_credential_ended(arg);
}

static void refuse(struct td_access *a, const struct td_credential *k) {
    td_tls_revoked_add(a->revoked, k->serial);
    td_tls_revoked_add(a->revoked, k->before);
}

// What is past its end already is for the timer, too: its calls still run.
static void arm(struct td_access *a) {
    int64_t next = td_credential_table_next_expiry(a->credentials);
    if (next) {
        td_loop_timer_arm(a->timer, TD_MIN(next - td_real_now().ns, look_ns));
    } else if (td_loop_timer_is_armed(a->timer)) {
        td_loop_timer_disarm(a->timer);
    }
}

static void on_timer(void *arg) {
    struct td_access *a = TD_CAST(td_access, arg);
    const struct td_credential *k;
    while (a->c->server && (k = td_credential_table_expired(a->credentials, td_real_now()))) {
        if (k->kind == TD_CREDENTIAL_MEMBER) { // it may still renew, so handshakes take it
            td_log_warn("certificate expired node=%s name=%s", k->id, k->name);
        } else {
            td_log_info("token expired token=%s name=%s", k->id, k->name);
            refuse(a, k);
        }
        td_rpc_server_end_calls(a->c->server, k->identity, NULL, why_ended, td_unconst(k));
    }
    arm(a);
}

void td_access_cut(struct td_coordinator *c, const struct td_credential *credential,
                   const struct td_rpc_call *except) {
    refuse(c->access, credential);
    td_rpc_server_end_calls(c->server, credential->identity, except, why_ended,
                            td_unconst(credential));
}

struct td_credential_table *td_access_borrow_credentials(struct td_coordinator *c) {
    return c->access->credentials;
}

void td_access_changed(struct td_coordinator *c) {
    td_shell_records(c, td_credential_table_take(c->access->credentials));
    arm(c->access);
}

const struct td_credential *td_access_credential(const struct td_coordinator *c,
                                                 const struct td_rpc_call *call,
                                                 enum td_credential_kind kind) {
    const struct td_credential *k =
        td_credential_table_find(c->access->credentials, td_rpc_call_identity(call));
    return k && k->kind == kind ? k : NULL;
}

// ---- callers ------------------------------------------------------------------------------------
static struct td_caller caller_of(const struct td_access *a, uint64_t identity) {
    if (identity == owner_identity) {
        return (struct td_caller){"owner", "owner", TD_ROLE_ADMIN, true};
    }
    const struct td_credential *k = td_credential_table_find(a->credentials, identity);
    if (!k) return (struct td_caller){"", "", TD_ROLE_NONE, false};
    const bool is_member = k->kind == TD_CREDENTIAL_MEMBER;
    return (struct td_caller){is_member ? k->serial : k->id, is_member ? k->id : k->name, k->role,
                              false};
}

struct td_caller td_access_caller(const struct td_coordinator *c, const struct td_rpc_call *call) {
    return caller_of(c->access, td_rpc_call_identity(call));
}

// A last use that is not written while the disk refuses is written with a later one.
static void keep_use(struct td_coordinator *c) {
    if (td_databases_state_failing(c->store)) return;
    td_shell_records(c, td_credential_table_take(c->access->credentials));
}

static bool is_method_of_nodes(const struct td_rpc_method *row, const char *method) {
    return row && strcmp(row->service, "traind.v1.NodeService") == 0 &&
           strcmp(row->method, method) == 0;
}

static td_status judge(struct td_coordinator *c, struct td_str token,
                       const struct td_rpc_method *row, uint64_t *out_identity) {
    struct td_str mine = {c->token, strlen(c->token)};
    const struct td_credential *k = NULL;
    if (td_rpc_secret_equal(token, mine)) {
        *out_identity = owner_identity;
        return TD_OK;
    }
    if (!token.len) {
        return td_status_with_reason(
            td_fail(TD_UNAUTHENTICATED, "no token: send one that `trainctl token create` gave, or "
                                        "the owner's (the file `token` in the state directory), "
                                        "as `authorization: Bearer <token>`"),
            "TOKEN_MISSING");
    }
    TD_TRY(td_tokens_judge(c->access->credentials, td_real_now(), token,
                           is_method_of_nodes(row, "Join"), &k));
    *out_identity = k->identity;
    keep_use(c);
    return TD_OK;
}

static td_status check_role(const struct td_caller *who, const struct td_rpc_method *row) {
    enum td_access_role needed = (enum td_access_role)row->role;
    bool also = row->also && td_access_role_allows(who->role, (enum td_access_role)row->also);
    if (td_access_role_allows(who->role, needed) || (who->is_owner && needed >= TD_ROLE_NODE)) {
        return TD_OK;
    }
    if (also) return TD_OK;
    td_status s =
        td_fail(TD_PERMISSION_DENIED,
                "this needs the role %s, and the credential %s of '%s' has the role %s; "
                "ask an admin for another",
                td_access_role_name(needed), who->token, who->name, td_access_role_name(who->role));
    s = td_status_with_meta(s, "role_needed", "%s", td_access_role_name(needed));
    s = td_status_with_meta(s, "role_held", "%s", td_access_role_name(who->role));
    return td_status_with_reason(s, "ROLE_NEEDED");
}

td_status td_access_authorize(struct td_str token, const struct td_rpc_method *row, void *ctx,
                              uint64_t *out_identity) {
    struct td_coordinator *c = TD_CAST(td_coordinator, ctx);
    td_status wrong = judge(c, token, row, out_identity);
    if (wrong) {
        c->rejected_calls++;
        return wrong;
    }
    struct td_caller who = caller_of(c->access, *out_identity);
    return row ? check_role(&who, row) : TD_OK;
}

// All that the certificate of a node is good for when it is over is its renewal.
static td_status judge_member(const struct td_coordinator *c, const struct td_peer_identity *peer,
                              const struct td_rpc_method *row, uint64_t *out_identity) {
    const struct td_credential *m = NULL;
    TD_TRY(td_members_judge(c->access->credentials, peer->name, peer->serial, &m));
    bool over = peer->valid_until_s * TD_NS_PER_S <= td_real_now().ns;
    if (over && !is_method_of_nodes(row, "Renew")) return td_credential_ended(m);
    *out_identity = m->identity;
    return TD_OK;
}

static td_status judge_peer(struct td_coordinator *c, const struct td_peer_identity *peer,
                            const struct td_rpc_method *row, uint64_t *out_identity) {
    const struct td_credential *k = NULL;
    struct td_credential_table *t = c->access->credentials;
    TD_TRY(td_tokens_judge_certificate(t, td_real_now(), peer->serial, &k));
    if (!k) return judge_member(c, peer, row, out_identity);
    *out_identity = k->identity;
    keep_use(c);
    return TD_OK;
}

td_status td_access_authorize_peer(const struct td_peer_identity *peer,
                                   const struct td_rpc_method *row, void *ctx,
                                   uint64_t *out_identity) {
    struct td_coordinator *c = TD_CAST(td_coordinator, ctx);
    td_status wrong = judge_peer(c, peer, row, out_identity);
    if (wrong) {
        c->rejected_calls++;
        return wrong;
    }
    struct td_caller who = caller_of(c->access, *out_identity);
    return row ? check_role(&who, row) : TD_OK;
}

td_status td_access_enter(const struct td_rpc_call *call, void *ctx, void **out_seat) {
    struct td_coordinator *c = TD_CAST(td_coordinator, ctx);
    const struct td_caller who = td_access_caller(c, call);
    struct td_seat *seat = NULL;
    TD_TRY(td_caps_enter(c->access->caps, &who, td_rpc_call_row(call)->method, &seat));
    *out_seat = seat;
    return TD_OK;
}

void td_access_leave(const struct td_rpc_call *call, void *seat, void *ctx) {
    struct td_coordinator *c = TD_CAST(td_coordinator, ctx);
    td_caps_leave(c->access->caps, seat, td_rpc_call_row(call)->method);
}

struct td_tls_guests td_access_guests(const struct td_access *a) {
    return (struct td_tls_guests){a->revoked, a->c->renew_grace_ns / TD_NS_PER_S};
}

td_status td_access_may_change(const struct td_coordinator *c, struct td_rpc_call *call,
                               const struct td_job *j) {
    struct td_caller who = td_access_caller(c, call);
    td_rpc_call_set_object(call, j->id);
    bool own = j->owner && strcmp(j->owner, who.name) == 0;
    if (own || td_access_role_allows(who.role, TD_ROLE_OPERATOR)) return TD_OK;
    td_status s = td_fail(TD_PERMISSION_DENIED,
                          "job %s belongs to %s%s%s; to change it needs the role operator, and the "
                          "credential %s of '%s' has the role %s",
                          j->id, j->owner ? "'" : "", j->owner ? j->owner : "nobody",
                          j->owner ? "'" : "", who.token, who.name, td_access_role_name(who.role));
    s = td_status_with_meta(s, "role_needed", "%s", td_access_role_name(TD_ROLE_OPERATOR));
    s = td_status_with_meta(s, "role_held", "%s", td_access_role_name(who.role));
    return td_status_with_reason(s, "NOT_THE_OWNER");
}

td_status td_access_may_read_checkpoints(const struct td_coordinator *c,
                                         const struct td_rpc_call *call, const struct td_job *j) {
    struct td_caller who = td_access_caller(c, call);
    return who.role == TD_ROLE_NODE ? td_core_check_reader(c->core, who.name, j) : TD_OK;
}

// ---- the audit log ------------------------------------------------------------------------------
// method: where its name is made.
enum { METHOD_BYTES = 128 };
static struct td_audit_entry entry_of(const struct td_coordinator *c,
                                      const struct td_rpc_call *call, td_status borrow_status,
                                      char method[METHOD_BYTES]) {
    const struct td_rpc_method *row = td_rpc_call_row(call);
    struct td_caller who = td_access_caller(c, call);
    enum td_code code = td_status_code(borrow_status);
    method[0] = '\0';
    if (row) snprintf(method, METHOD_BYTES, "%s/%s", row->service, row->method);
    return (struct td_audit_entry){
        .token = who.token,
        .name = who.name,
        .role = who.token[0] ? td_access_role_name(who.role) : "",
        .source = td_rpc_call_peer(call),
        .method = method,
        .object = td_rpc_call_object(call),
        .code = code ? td_code_name(code) : "OK",
        .reason = td_status_reason(borrow_status),
        .refused = code == TD_UNAUTHENTICATED || code == TD_PERMISSION_DENIED,
    };
}

static void note(const struct td_coordinator *c, const struct td_rpc_call *call,
                 td_status borrow_status) {
    char method[METHOD_BYTES];
    const struct td_audit_entry entry = entry_of(c, call, borrow_status, method);
    td_audit_add(c->access->audit, &entry);
}

struct committing {
    struct td_coordinator *c;
    uint64_t number;
};

static void on_committed(void *take_arg, enum td_gate_pass pass) {
    struct committing *w = take_arg;
    if (pass == TD_GATE_OPEN) td_audit_committed(w->c->access->audit, w->number);
    free(w);
}

// False: nothing is on its way to the disk, so the call changed nothing there.
static bool note_with_records(struct td_coordinator *c, const struct td_rpc_call *call) {
    char method[METHOD_BYTES];
    if (!c->records) return false;
    const struct td_audit_entry entry = entry_of(c, call, TD_OK, method);
    uint64_t number = td_audit_add_change(c->access->audit, &entry);
    if (!number) return true; // it is counted
    struct committing *w = td_calloc(1, sizeof *w);
    TD_CHECK(w && "out of memory: start again from the disk");
    *w = (struct committing){c, number};
    td_shell_records(c, td_audit_take(c->access->audit));
    td_gate_put_patient(c->gate, on_committed, w);
    return true;
}

void td_access_note_change(struct td_coordinator *c, struct td_rpc_call *call) {
    if (note_with_records(c, call)) td_rpc_call_set_logged(call);
}

void td_access_answered(const struct td_rpc_call *call, td_status borrow_status, void *ctx) {
    struct td_coordinator *c = TD_CAST(td_coordinator, ctx);
    const struct td_rpc_method *row = td_rpc_call_row(call);
    enum td_code code = td_status_code(borrow_status);
    bool refused = code == TD_UNAUTHENTICATED || code == TD_PERMISSION_DENIED;
    bool told = td_rpc_call_is_logged(call) && (!code || code == TD_CANCELLED);
    if (!told && (refused || (row && row->changes))) note(c, call, borrow_status);
}

void td_access_note(struct td_coordinator *c, const struct td_rpc_call *call) {
    if (!note_with_records(c, call)) note(c, call, TD_OK);
}

// ---- rows ---------------------------------------------------------------------------------------
td_status td_access_add_rows(struct td_coordinator *c, const struct td_rpc_method *rows,
                             size_t n_rows) {
    for (size_t i = 0; i < n_rows; i++) {
        if (rows[i].role > TD_ROLE_NONE && rows[i].role < TD_ROLE_COUNT) continue;
        return td_fail(TD_INTERNAL, "method table: /%s/%s names no role that it needs",
                       rows[i].service, rows[i].method);
    }
    return td_rpc_server_add(c->server, rows, n_rows, c);
}

// ---- life ---------------------------------------------------------------------------------------
td_status td_access_create(struct td_coordinator *c, struct td_access **out_access) {
    struct td_access *a = td_calloc(1, sizeof *a);
    if (!a) return td_fail_oom();
    a->magic = td_access_magic;
    a->c = c;
    td_status s = td_credential_table_create(&a->credentials);
    if (!s) s = td_tls_revoked_create(&a->revoked);
    if (!s) s = td_audit_create(c->loop, c->state_dir, &a->audit);
    if (!s) s = td_caps_create(&a->caps);
    if (!s) s = td_loop_timer_create(c->loop, on_timer, a, &a->timer);
    if (s) {
        td_access_destroy(a);
        return s;
    }
    *out_access = a;
    return TD_OK;
}

void td_access_destroy(struct td_access *a) {
    if (!a) return;
    td_loop_timer_destroy(a->timer);
    td_caps_destroy(a->caps);
    td_audit_destroy(a->audit);
    td_credential_table_destroy(a->credentials);
    td_tls_revoked_destroy(a->revoked);
    a->magic = 0;
    free(a);
}

struct reading {
    struct td_access *access;
    bool salvage;
};

static td_status load_line(enum td_record_kind kind, const char *key, const char *body, void *arg) {
    const struct reading *r = arg;
    (void)kind;
    td_status bad = td_audit_load(r->access->audit, key, body);
    if (!bad || !r->salvage) return bad;
    td_status_log(TD_LOG_WARN, bad, "salvage: left out: a line of the audit log");
    return TD_OK;
}

static td_status load_row(enum td_record_kind kind, const char *key, const char *body, void *arg) {
    const struct reading *r = arg;
    bool is_token = kind == TD_RECORD_TOKEN;
    td_status bad = td_credential_table_load(
        r->access->credentials, is_token ? TD_CREDENTIAL_TOKEN : TD_CREDENTIAL_MEMBER, key, body);
    if (!bad || !r->salvage) return bad;
    td_status_log(TD_LOG_WARN, bad,
                  is_token ? "salvage: left out: a token, which is refused from now on"
                           : "salvage: left out: a node that joined, which must join again");
    return TD_OK;
}

// Those that have expired meanwhile follow with the timer.
static void refuse_revoked(struct td_access *a) {
    const struct td_credential *k;
    for (enum td_credential_kind kind = 0; kind < TD_CREDENTIAL_KINDS; kind++) {
        size_t cursor = 0;
        while ((k = td_credential_table_next(a->credentials, kind, &cursor))) {
            if (k->revoke_ns) refuse(a, k);
        }
    }
}

td_status td_access_load(struct td_coordinator *c, bool salvage) {
    struct reading r = {c->access, salvage};
    TD_TRY(td_databases_load_table(c->store, TD_RECORD_TOKEN, load_row, &r));
    TD_TRY(td_databases_load_table(c->store, TD_RECORD_MEMBER, load_row, &r));
    TD_TRY(td_databases_load_table(c->store, TD_RECORD_AUDIT, load_line, &r));
    td_audit_start(c->access->audit);
    refuse_revoked(c->access);
    td_loop_timer_arm(c->access->timer, 0); // also what expired meanwhile is taken note of
    return TD_OK;
}
