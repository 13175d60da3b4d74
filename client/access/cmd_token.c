// token create, request, list, revoke: credentials of people and nodes. The text of a new one, or
// its certificate, goes to standard output alone, so that `trainctl token create ... > file` keeps
// it; what it is goes to standard error. A request is made here, without a daemon: its key never
// leaves the machine of the person whose it is.

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/access/access.h"
#include "client/flag_values.h"
#include "client/screen/format.h"
#include "client/screen/print.h"
#include "client/screen/table.h"
#include "client/session/session.h"
#include "lib/base/files/files.h"
#include "lib/base/files/named_output.h"
#include "lib/tls/certificate.h"
#include "traind/v1/admin.pb-c.h"

static const char *role_of(const Traind__V1__Token *t) {
    return td_format_enum(&traind__v1__token__role__descriptor, (int)t->role);
}

static const char *state_of(const Traind__V1__Token *t) {
    return td_format_enum(&traind__v1__token__state__descriptor, (int)t->state);
}

static td_status parse_role(const char *text, Traind__V1__Token__Role *out) {
    const ProtobufCEnumDescriptor *of = &traind__v1__token__role__descriptor;
    char upper[16] = "";
    for (size_t i = 0; text && text[i] && i < sizeof upper - 1; i++) {
        upper[i] = (char)(text[i] >= 'a' && text[i] <= 'z' ? text[i] - 'a' + 'A' : text[i]);
    }
    const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value_by_name(of, upper);
    if (v && v->value > 0) {
        *out = (Traind__V1__Token__Role)v->value;
        return TD_OK;
    }
    return td_fail(TD_INVALID_ARGUMENT,
                   "--role takes viewer, submitter, operator, admin or node%s%s%s",
                   text ? ", not '" : "", text ? text : "", text ? "'" : "");
}

static td_status parse_span(const char *text, uint64_t *out_s) {
    if (td_span_parse(text, out_s)) return TD_OK;
    return td_fail(TD_INVALID_ARGUMENT, "--expires takes a span such as 30d, 12h or 90m, not '%s'",
                   text);
}

// A file here that cannot be used is wrong usage.
static td_status usage_of(const char *flag, td_status take_bad) {
    if (!take_bad) return TD_OK;
    td_status usage = td_fail(TD_INVALID_ARGUMENT, "%s: %s", flag, td_status_message(take_bad));
    td_status_free(take_bad);
    return usage;
}

static void describe(const Traind__V1__Token *t) {
    td_print(stderr, "trainctl: %s %s of '%s', role %s, %s%s%s\n",
             t->serial[0] ? "certificate" : "token", t->id, t->name, role_of(t),
             t->expire_time[0] ? "until " : "without an end", t->expire_time,
             t->serial[0] ? "" : "; its text is shown only now");
}

td_status td_cmd_token_create(struct td_session *s, const struct td_flags *f, int *out_exit) {
    (void)out_exit;
    TD_AUTO(td_rpc_message) *answer = NULL;
    Traind__V1__CreateTokenRequest request = TRAIND__V1__CREATE_TOKEN_REQUEST__INIT;
    TD_TRY(parse_role(f->role, &request.role));
    if (f->expires) TD_TRY(parse_span(f->expires, &request.expires_in_s));
    if (f->name) request.name = td_unconst(f->name);
    TD_AUTO_BUF csr;
    td_buf_init(&csr, TD_TLS_PEM_MAX);
    if (f->csr) TD_TRY(usage_of("--csr", td_fs_read(f->csr, TD_TLS_PEM_MAX, &csr)));
    if (f->csr) request.request = td_unconst(td_buf_cstr(&csr));
    TD_TRY(td_session_call(s, "/traind.v1.AdminService/CreateToken", &request.base,
                           &traind__v1__create_token_response__descriptor, &answer));
    const Traind__V1__CreateTokenResponse *r =
        (const Traind__V1__CreateTokenResponse *)td_rpc_message_get(answer);
    if (td_output_is_json(f->output)) return td_session_print_json(s, &r->base);
    td_print(stdout, "%s%s", r->certificate, r->certificate[0] ? "" : r->text);
    if (!r->certificate[0]) td_print(stdout, "\n");
    if (f->output != TD_OUTPUT_NAME) describe(r->token);
    return TD_OK;
}

// ---- request ------------------------------------------------------------------------------------
// A key that is there is used: whoever lost a certificate asks for another.
static td_status make_key(const char *path, struct td_buf *out) {
    if (td_fs_exists(path)) return td_fs_read(path, TD_TLS_PEM_MAX, out);
    TD_TRY(td_tls_key_make(out));
    return td_named_output_write(path, out->data, out->len, 0600, TD_FS_WRITE_DURABLE);
}

td_status td_cmd_token_request(struct td_session *s, const struct td_flags *f, int *out_exit) {
    (void)s, (void)out_exit;
    TD_AUTO_BUF key, request;
    td_buf_init(&key, TD_TLS_PEM_MAX);
    td_buf_init(&request, TD_TLS_PEM_MAX);
    if (!f->key || !f->name) {
        return td_fail(TD_INVALID_ARGUMENT, "token request needs --key FILE and --name NAME");
    }
    TD_TRY(usage_of("--key", make_key(f->key, &key)));
    TD_TRY(usage_of("--key", td_tls_request_make(td_buf_cstr(&key), f->name, &request)));
    td_print(stdout, "%s", td_buf_cstr(&request));
    return TD_OK;
}

// ---- list and revoke ----------------------------------------------------------------------------
static td_status show(const Traind__V1__ListTokensResponse *r, bool wide) {
    static const struct td_column columns[] = {{"ID", 0},
                                               {"KIND", TD_COLUMN_MINOR},
                                               {"NAME", TD_COLUMN_TEXT},
                                               {"ROLE", TD_COLUMN_SPARE},
                                               {"STATE", 0},
                                               {"CREATED", TD_COLUMN_MINOR},
                                               {"EXPIRES", TD_COLUMN_MINOR},
                                               {"LAST USE", TD_COLUMN_MINOR}};
    TD_AUTO(td_arena) *arena = NULL;
    struct td_table t;
    TD_TRY(td_arena_create((size_t)64 << 20, &arena));
    td_table_init(&t, arena, TD_COUNTOF(columns), columns);
    for (size_t i = 0; i < r->n_tokens; i++) {
        const Traind__V1__Token *k = r->tokens[i];
        TD_TRY(td_table_add(&t, "%s", k->id));
        TD_TRY(td_table_add(&t, "%s", k->serial[0] ? "certificate" : "token"));
        TD_TRY(td_table_add(&t, "%s", k->name));
        TD_TRY(td_table_add(&t, "%s", role_of(k)));
        TD_TRY(td_table_add(&t, "%s", state_of(k)));
        TD_TRY(td_table_add(&t, "%s", k->create_time));
        TD_TRY(td_table_add(&t, "%s", k->expire_time[0] ? k->expire_time : "never"));
        TD_TRY(td_table_add(&t, "%s", k->last_use_time[0] ? k->last_use_time : "-"));
    }
    return td_table_print(&t, wide);
}

td_status td_cmd_token_list(struct td_session *s, const struct td_flags *f, int *out_exit) {
    (void)out_exit;
    TD_AUTO(td_rpc_message) *answer = NULL;
    Traind__V1__ListTokensRequest request = TRAIND__V1__LIST_TOKENS_REQUEST__INIT;
    TD_TRY(td_session_call(s, "/traind.v1.AdminService/ListTokens", &request.base,
                           &traind__v1__list_tokens_response__descriptor, &answer));
    const Traind__V1__ListTokensResponse *r =
        (const Traind__V1__ListTokensResponse *)td_rpc_message_get(answer);
    if (f->output == TD_OUTPUT_TABLE) return show(r, f->wide);
    if (f->output == TD_OUTPUT_JSON) return td_session_print_json(s, &r->base);
    for (size_t i = 0; i < r->n_tokens; i++) {
        if (f->output == TD_OUTPUT_NAME) {
            td_print(stdout, "%s\n", r->tokens[i]->id);
        } else {
            TD_TRY(td_session_print_json(s, &r->tokens[i]->base));
        }
    }
    return TD_OK;
}

td_status td_cmd_token_revoke(struct td_session *s, const struct td_flags *f, int *out_exit) {
    (void)out_exit;
    TD_AUTO(td_rpc_message) *answer = NULL;
    Traind__V1__RevokeTokenRequest request = TRAIND__V1__REVOKE_TOKEN_REQUEST__INIT;
    request.id = td_unconst(f->args[0]);
    TD_TRY(td_session_call(s, "/traind.v1.AdminService/RevokeToken", &request.base,
                           &traind__v1__token__descriptor, &answer));
    const Traind__V1__Token *t = (const Traind__V1__Token *)td_rpc_message_get(answer);
    if (td_output_is_json(f->output)) return td_session_print_json(s, &t->base);
    if (f->output == TD_OUTPUT_NAME) {
        td_print(stdout, "%s\n", t->id);
    } else {
        td_print(stdout, "%s of '%s' %s\n", t->id, t->name, state_of(t));
    }
    return TD_OK;
}
