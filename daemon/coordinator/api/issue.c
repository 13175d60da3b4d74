// See the header. The messages are for whoever set the coordinator up.

#include "daemon/coordinator/api/issue.h"

#include "lib/base/files/files.h"
#include "lib/rpc/client.h"
#include "lib/tls/authority.h"
#include "lib/tls/certificate.h"

td_status td_issue_read(const struct td_coordinator *c, const char *file, struct td_buf *out_pem) {
    char path[TD_FS_PATH_BYTES];
    TD_TRY(td_fs_path(path, "%s/tls/%s", c->state_dir, file));
    td_status s = td_fs_read(path, TD_TLS_PEM_MAX, out_pem);
    if (td_status_code(s) != TD_NOT_FOUND) return s;
    td_status_free(s);
    return td_status_with_reason(
        td_fail(TD_FAILED_PRECONDITION,
                "the coordinator has no '%s': make a CA with `traind init --state-dir %s --host "
                "NAME_OR_ADDRESS`",
                path, c->state_dir),
        "NO_TLS");
}

td_status td_issue_check_tls(const struct td_coordinator *c) {
    const char *address = td_rpc_server_address(c->server);
    if (td_rpc_address_needs_tls(address)) return TD_OK;
    return td_status_with_reason(
        td_fail(TD_FAILED_PRECONDITION,
                "the coordinator listens on %s, where there is no TLS, and so neither nodes nor "
                "people have certificates: start it with --listen NAME_OR_ADDRESS:PORT, or use "
                "tokens on this machine (a node: with --coordinator)",
                address),
        "NO_TLS");
}

td_status td_issue_sign(const struct td_coordinator *c, const char *request, const char *name,
                        int64_t lifetime_s, struct td_buf *out_pem,
                        struct td_certificate *out_certificate) {
    TD_AUTO(td_authority) *authority = NULL;
    TD_AUTO_BUF ca, key;
    td_buf_init(&ca, TD_TLS_PEM_MAX);
    td_buf_init(&key, TD_TLS_PEM_MAX);
    TD_TRY(td_issue_read(c, "ca.pem", &ca));
    TD_TRY(td_issue_read(c, "ca.key", &key));
    TD_TRY(td_authority_open(td_buf_cstr(&ca), td_buf_cstr(&key), &authority));
    const struct td_authority_terms terms = {
        .use = TD_TLS_CLIENT, .name = name, .lifetime_s = lifetime_s};
    TD_TRY(td_authority_issue(authority, request, &terms, out_pem));
    return td_certificate_read(td_buf_cstr(out_pem), out_certificate);
}
