// Environment of trainctl, and the two files through which daemon and client find each other. The
// daemon writes `address` after it listens and `token` with mode 0600, both in its state directory.
// The address is read again for each connection, because a restarted daemon may have another port.
// A daemon of this machine needs no file of the client's own: its directory says everything. One
// that is elsewhere has a context.

#include "client/session/config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "client/session/contexts.h"
#include "lib/base/files/files.h"
#include "lib/base/files/state_dir.h"
#include "lib/rpc/client.h"

static void trim(char *text) {
    size_t n = strlen(text);
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == ' ' || text[n - 1] == '\r')) {
        text[--n] = '\0';
    }
}

td_status td_client_read_line(const char *path, char *out, size_t out_bytes) {
    TD_AUTO_BUF text;
    td_buf_init(&text, 4096);
    TD_TRY(td_fs_read(path, 4096, &text));
    if (text.len >= out_bytes) {
        return td_fail(TD_FAILED_PRECONDITION, "'%s' holds %zu bytes, at most %zu are expected",
                       path, text.len, out_bytes - 1);
    }
    memcpy(out, td_buf_cstr(&text), text.len + 1);
    trim(out);
    return TD_OK;
}

static td_status state_dir(const struct td_flags *f, char *out, size_t out_bytes) {
    return td_state_dir_default(f->state_dir ? f->state_dir : getenv("TRAIND_STATE_DIR"),
                                getenv("XDG_STATE_HOME"), getenv("HOME"), geteuid() == 0, out,
                                out_bytes);
}

// Of a machine whose first process is systemd: elsewhere a unit that is there starts nothing.
static bool has_unit(void) {
    static const char *const units[] = {
        "/etc/systemd/system/traind.service", "/usr/local/lib/systemd/system/traind.service",
        "/usr/lib/systemd/system/traind.service", "/lib/systemd/system/traind.service"};
    if (!td_fs_exists("/run/systemd/system")) return false;
    for (size_t i = 0; i < TD_COUNTOF(units); i++) {
        if (td_fs_exists(units[i])) return true;
    }
    return false;
}

const char *td_client_start_hint(const struct td_client_config *c) {
    if (!has_unit()) return "`traind &`";
    const bool is_its = strcmp(c->state_dir, "/var/lib/traind") == 0;
    return is_its ? "`systemctl start traind`"
                  : "`systemctl start traind`, or one of your own with `traind &`";
}

static td_status find_address(const struct td_flags *f, struct td_client_config *c) {
    const char *given = f->address ? f->address : getenv("TRAIND_ADDRESS");
    if (given && *given) {
        if (strlen(given) >= sizeof c->address) {
            return td_fail(TD_INVALID_ARGUMENT, "the address is longer than %zu bytes",
                           sizeof c->address - 1);
        }
        snprintf(c->address, sizeof c->address, "%s", given);
        snprintf(c->address_source, sizeof c->address_source, "%s",
                 f->address ? "--address" : "TRAIND_ADDRESS");
        return TD_OK;
    }
    snprintf(c->address_source, sizeof c->address_source, "%s/address", c->state_dir);
    if (access(c->address_source, F_OK) != 0 && errno == EACCES) {
        return td_fail(
            TD_PERMISSION_DENIED,
            "the state directory '%s' may not be looked into: a traind serves who has its "
            "owner's token. Name your own with --state-dir, or --address and --token-file",
            c->state_dir);
    }
    if (!td_fs_exists(c->address_source)) {
        return td_status_with_reason(
            td_fail(
                TD_UNAVAILABLE,
                "no traind runs on the state directory '%s' (there is no file 'address' in it). "
                "Start one with %s, or name one with --address, --state-dir or TRAIND_STATE_DIR",
                c->state_dir, td_client_start_hint(c)),
            "NO_DAEMON");
    }
    return td_client_read_line(c->address_source, c->address, sizeof c->address);
}

// ---- contexts -----------------------------------------------------------------------------------
td_status td_client_contexts_path(char out[TD_CLIENT_PATH]) {
    const char *xdg = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    bool has_xdg = xdg && *xdg == '/';
    if (!has_xdg && !(home && *home)) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "neither XDG_CONFIG_HOME nor HOME says where contexts are kept");
    }
    int n = snprintf(out, TD_CLIENT_PATH, "%s%s/traind/contexts.json", has_xdg ? xdg : home,
                     has_xdg ? "" : "/.config");
    if (n < TD_CLIENT_PATH) return TD_OK;
    return td_fail(TD_INVALID_ARGUMENT, "the path of the contexts is longer than %d bytes",
                   TD_CLIENT_PATH - 1);
}

const char *td_client_home(void) {
    return getenv("HOME");
}

static bool is_set(const char *flag, const char *variable) {
    const char *value = flag ? flag : getenv(variable);
    return value && *value;
}

// *out_any: nothing else says where the daemon is, and a context is in use.
static td_status find_context(const struct td_flags *f, struct td_client_config *c, bool *out_any) {
    char path[TD_CLIENT_PATH];
    struct td_context context;
    *out_any = false;
    if (is_set(f->address, "TRAIND_ADDRESS") || is_set(f->state_dir, "TRAIND_STATE_DIR")) {
        return TD_OK;
    }
    td_status nowhere = td_client_contexts_path(path);
    td_status_free(nowhere); // then none was added
    if (nowhere) return TD_OK;
    TD_TRY(td_contexts_current(path, &context, out_any));
    if (!*out_any) return TD_OK;
    _Static_assert(sizeof c->address == sizeof context.address, "whole");
    memcpy(c->address, context.address, sizeof c->address);
    snprintf(c->address_source, sizeof c->address_source, "context %s", context.name);
    memcpy(c->token, context.token, sizeof c->token);
    memcpy(c->certificate, context.certificate, sizeof c->certificate);
    memcpy(c->key, context.key, sizeof c->key);
    _Static_assert(sizeof c->key == sizeof context.key, "whole");
    snprintf(c->ca, sizeof c->ca, "%s", context.ca);
    return TD_OK;
}

// ---- all of it ----------------------------------------------------------------------------------
static td_status read_token(const char *path, struct td_client_config *c) {
    c->certificate[0] = c->key[0] = '\0';
    td_status failed = td_client_read_line(path, c->token, sizeof c->token);
    if (!failed) return TD_OK;
    td_status denied = td_fail(TD_UNAUTHENTICATED,
                               "there is no token to show to %s: %s. The daemon's owner finds it "
                               "in its state directory; name it with --token-file or "
                               "TRAIND_TOKEN_FILE, or a certificate with --cert and --key",
                               c->address, td_status_message(failed));
    td_status_free(failed);
    return denied;
}

static td_status set_certificate(const char *certificate, const char *key, bool by_flag,
                                 struct td_client_config *c) {
    if (!certificate || !key || !*certificate || !*key) {
        return td_fail(TD_INVALID_ARGUMENT, "%s: a certificate and its key belong together",
                       by_flag ? "--cert and --key" : "TRAIND_CERT and TRAIND_KEY");
    }
    if (strlen(certificate) >= sizeof c->certificate || strlen(key) >= sizeof c->key) {
        return td_fail(TD_INVALID_ARGUMENT, "the path of a certificate is longer than %zu bytes",
                       sizeof c->key - 1);
    }
    snprintf(c->certificate, sizeof c->certificate, "%s", certificate);
    snprintf(c->key, sizeof c->key, "%s", key);
    c->token[0] = '\0';
    return TD_OK;
}

static td_status find_credential(const struct td_flags *f, struct td_client_config *c) {
    char path[600];
    const char *file = getenv("TRAIND_TOKEN_FILE"), *certificate = getenv("TRAIND_CERT"),
               *key = getenv("TRAIND_KEY");
    if (f->token_file) return read_token(f->token_file, c);
    if (f->certificate || f->key) return set_certificate(f->certificate, f->key, true, c);
    if (file && *file) return read_token(file, c);
    if ((certificate && *certificate) || (key && *key)) {
        return set_certificate(certificate, key, false, c);
    }
    if (c->token[0] || c->certificate[0]) return TD_OK; // the context's
    snprintf(path, sizeof path, "%s/token", c->state_dir);
    return read_token(path, c);
}

// Where there is no TLS nobody sees a certificate.
static td_status check_certificate(const struct td_client_config *c) {
    if (!c->certificate[0] || c->ca[0] || td_rpc_address_needs_tls(c->address)) return TD_OK;
    return td_fail(TD_INVALID_ARGUMENT,
                   "%s is on loopback, where there is no TLS and so no certificate is shown; use a "
                   "token there (--token-file), or name the CA with --ca if it does speak TLS",
                   c->address);
}

// A CA that is given counts for any address, the one of the state directory only where TLS is
// needed.
static td_status find_ca(const struct td_flags *f, struct td_client_config *c) {
    const char *given = f->ca ? f->ca : getenv("TRAIND_CA");
    if (given && strlen(given) >= sizeof c->ca) {
        return td_fail(TD_INVALID_ARGUMENT, "the path of the CA is longer than %zu bytes",
                       sizeof c->ca - 1);
    }
    if (given && *given) snprintf(c->ca, sizeof c->ca, "%s", given);
    if (c->ca[0] || !td_rpc_address_needs_tls(c->address)) return TD_OK;
    snprintf(c->ca, sizeof c->ca, "%s/tls/ca.pem", c->state_dir);
    if (!td_fs_exists(c->ca)) c->ca[0] = '\0';
    return TD_OK;
}

td_status td_client_config_read(const struct td_flags *f, struct td_client_config *out_config) {
    struct td_client_config c = {.color = isatty(STDERR_FILENO),
                                 .color_out = isatty(STDOUT_FILENO)};
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    c.dumb = term && !strcmp(term, "dumb");
    if ((no_color && *no_color) || c.dumb) {
        c.color = c.color_out = false;
    }
    bool in_context;
    TD_TRY(find_context(f, &c, &in_context));
    if (!in_context) {
        TD_TRY(state_dir(f, c.state_dir, sizeof c.state_dir));
        TD_TRY(find_address(f, &c));
    }
    TD_TRY(find_ca(f, &c));
    TD_TRY(find_credential(f, &c));
    TD_TRY(check_certificate(&c));
    *out_config = c;
    return TD_OK;
}
