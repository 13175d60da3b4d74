// context add, use, list: coordinators by name, in a file of the person's own (contexts.h). None of
// them looks for a daemon, and none prints a token. A token is read from a file or from standard
// input, never from the command line, where every process of the machine could see it.

#include <stdio.h>
#include <string.h>

#include "client/access/access.h"
#include "client/screen/json.h"
#include "client/screen/print.h"
#include "client/screen/table.h"
#include "client/session/contexts.h"
#include "client/session/session.h"
#include "lib/base/files/files.h"
#include "lib/base/json.h"

static td_status copy_address(char out[TD_CONTEXT_ADDRESS], const char *address) {
    if (strlen(address) >= TD_CONTEXT_ADDRESS) {
        return td_fail(TD_INVALID_ARGUMENT, "the address is longer than %d bytes",
                       TD_CONTEXT_ADDRESS - 1);
    }
    snprintf(out, TD_CONTEXT_ADDRESS, "%s", address);
    return TD_OK;
}

static td_status read_token(const char *path, char out[TD_CONTEXT_TEXT]) {
    bool from_stdin = strcmp(path, "-") == 0;
    td_status bad = from_stdin ? TD_OK : td_client_read_line(path, out, TD_CONTEXT_TEXT);
    if (bad) {
        td_status usage = td_fail(TD_INVALID_ARGUMENT, "--token-file: %s", td_status_message(bad));
        td_status_free(bad);
        return usage;
    }
    if (from_stdin && !fgets(out, TD_CONTEXT_TEXT, stdin)) out[0] = '\0';
    out[strcspn(out, " \r\n")] = '\0';
    if (out[0]) return TD_OK;
    return td_fail(TD_INVALID_ARGUMENT, "there is no token %s%s", from_stdin ? "" : "in ",
                   from_stdin ? "on standard input" : path);
}

// From anywhere it must be found again.
static td_status copy_path(char out[TD_CONTEXT_TEXT], const char *flag, const char *path) {
    if (access(path, R_OK) != 0) {
        return td_fail_errno(TD_INVALID_ARGUMENT, "%s '%s'", flag, path);
    }
    return td_fs_absolute(path, out, TD_CONTEXT_TEXT);
}

td_status td_cmd_context_add(struct td_session *s, const struct td_flags *f, int *out_exit) {
    (void)s, (void)out_exit;
    char path[TD_CLIENT_PATH];
    struct td_context c = {.name = ""};
    bool has_both = f->certificate && f->key, has_one = f->certificate || f->key;
    if (!f->address || (f->token_file ? has_one : !has_both)) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "context add needs --address HOST:PORT, and either --token-file FILE (- "
                       "reads standard input) or --cert FILE and --key FILE");
    }
    TD_TRY(td_client_contexts_path(path));
    snprintf(c.name, sizeof c.name, "%s", strlen(f->args[0]) < sizeof c.name ? f->args[0] : "");
    TD_TRY(copy_address(c.address, f->address));
    if (f->ca) TD_TRY(copy_path(c.ca, "--ca", f->ca));
    if (f->token_file) TD_TRY(read_token(f->token_file, c.token));
    if (f->certificate) TD_TRY(copy_path(c.certificate, "--cert", f->certificate));
    if (f->key) TD_TRY(copy_path(c.key, "--key", f->key));
    TD_TRY(td_contexts_add(path, &c));
    td_print(stdout, "%s\n", c.name);
    return TD_OK;
}

td_status td_cmd_context_use(struct td_session *s, const struct td_flags *f, int *out_exit) {
    (void)s, (void)out_exit;
    char path[TD_CLIENT_PATH];
    TD_TRY(td_client_contexts_path(path));
    TD_TRY(td_contexts_use(path, f->args[0]));
    td_print(stdout, "%s\n", f->args[0]);
    return TD_OK;
}

// ---- list ---------------------------------------------------------------------------------------
struct listing {
    const struct td_flags *flags;
    struct td_table table;
    struct td_buf json;
    size_t n;
};

static td_status put(struct td_buf *out, const char *key, const char *text) {
    TD_TRY(td_buf_printf(out, "%s\"%s\":", out->data[out->len - 1] == '{' ? "" : ",", key));
    return td_json_print_string(text, strlen(text), out);
}

static td_status add_json(struct listing *l, const struct td_context *c, bool is_current) {
    bool lines = l->flags->output == TD_OUTPUT_JSONL;
    TD_TRY(td_buf_str(&l->json, l->n && !lines ? ",{" : "{"));
    TD_TRY(put(&l->json, "name", c->name));
    TD_TRY(put(&l->json, "address", c->address));
    TD_TRY(put(&l->json, "ca", c->ca));
    TD_TRY(put(&l->json, "certificate", c->certificate));
    return td_buf_printf(&l->json, ",\"current\":%s}%s", is_current ? "true" : "false",
                         lines ? "\n" : "");
}

static td_status add(const struct td_context *c, bool is_current, void *arg) {
    struct listing *l = arg;
    if (td_output_is_json(l->flags->output)) {
        TD_TRY(add_json(l, c, is_current));
    } else if (l->flags->output == TD_OUTPUT_NAME) {
        td_print(stdout, "%s\n", c->name);
    } else {
        TD_TRY(td_table_add(&l->table, "%s", is_current ? "*" : ""));
        TD_TRY(td_table_add(&l->table, "%s", c->name));
        TD_TRY(td_table_add(&l->table, "%s", c->address));
        TD_TRY(td_table_add(&l->table, "%s", c->ca[0] ? c->ca : "-"));
        TD_TRY(td_table_add(&l->table, "%s", c->certificate[0] ? c->certificate : "a token"));
    }
    l->n++;
    return TD_OK;
}

static td_status show(struct listing *l, const char *path) {
    bool whole = l->flags->output == TD_OUTPUT_JSON;
    if (whole) TD_TRY(td_buf_str(&l->json, "{\"contexts\":["));
    TD_TRY(td_contexts_each(path, add, l));
    if (whole) TD_TRY(td_buf_str(&l->json, "]}\n"));
    if (l->flags->output == TD_OUTPUT_TABLE) return td_table_print(&l->table, l->flags->wide);
    return td_fs_write_stdout(l->json.data, l->json.len);
}

td_status td_cmd_context_list(struct td_session *s, const struct td_flags *f, int *out_exit) {
    (void)s, (void)out_exit;
    static const struct td_column columns[] = {{"", 0},
                                               {"NAME", TD_COLUMN_TEXT},
                                               {"ADDRESS", TD_COLUMN_TEXT},
                                               {"CA", TD_COLUMN_TEXT | TD_COLUMN_MINOR},
                                               {"CREDENTIAL", TD_COLUMN_TEXT | TD_COLUMN_MINOR}};
    TD_AUTO(td_arena) *arena = NULL;
    char path[TD_CLIENT_PATH];
    struct listing l = {.flags = f};
    TD_TRY(td_client_contexts_path(path));
    TD_TRY(td_arena_create((size_t)8 << 20, &arena));
    td_table_init(&l.table, arena, TD_COUNTOF(columns), columns);
    td_buf_init(&l.json, (size_t)1 << 20);
    td_status failed = show(&l, path);
    td_buf_finish(&l.json);
    return failed;
}
