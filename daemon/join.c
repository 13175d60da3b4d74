// A try that fails leaves the key, which the next one takes. Whose certificate was revoked removes
// tls/ and joins again.

#include "daemon/join.h"

#include <stdio.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/rpc/client.h"
#include "lib/rpc/contact.h"
#include "lib/tls/certificate.h"
#include "traind/v1/node.pb-c.h"

enum { TOKEN_BYTES = 256, ADDRESS_BYTES = 512 };
static const int64_t patience_ns = 15 * TD_NS_PER_S;

td_status td_join_find(const char *state_dir, struct td_join_files *out_files) {
    TD_TRY(td_fs_path(out_files->ca, "%s/tls/ca.pem", state_dir));
    TD_TRY(td_fs_path(out_files->certificate, "%s/tls/node.pem", state_dir));
    TD_TRY(td_fs_path(out_files->key, "%s/tls/node.key", state_dir));
    return td_fs_path(out_files->address, "%s/tls/coordinator", state_dir);
}

td_status td_join_address(const char *state_dir, char *out, size_t out_bytes) {
    struct td_join_files files;
    TD_AUTO_BUF text;
    td_buf_init(&text, ADDRESS_BYTES);
    TD_TRY(td_join_find(state_dir, &files));
    out[0] = '\0';
    if (!td_fs_exists(files.address)) return TD_OK;
    TD_TRY(td_fs_read(files.address, ADDRESS_BYTES - 1, &text));
    size_t len = strcspn(td_buf_cstr(&text), "\r\n");
    snprintf(out, out_bytes, "%.*s", (int)len, td_buf_cstr(&text));
    return TD_OK;
}

static td_status make_key(const struct td_join_files *files) {
    TD_AUTO_BUF key;
    td_buf_init(&key, TD_TLS_PEM_MAX);
    if (td_fs_exists(files->key)) return TD_OK;
    TD_TRY(td_tls_key_make(&key));
    return td_fs_write(files->key, key.data, key.len, 0600, TD_FS_WRITE_DURABLE);
}

td_status td_join_request(const struct td_join_files *files, const char *node_id,
                          struct td_buf *out_request) {
    TD_AUTO_BUF key;
    td_buf_init(&key, TD_TLS_PEM_MAX);
    TD_TRY_CTX(td_fs_read(files->key, TD_TLS_PEM_MAX, &key), "the node's key");
    return td_tls_request_make(td_buf_cstr(&key), node_id, out_request);
}

// "td_<id>_<secret>.<fingerprint>"
static td_status split(const char *text, char bearer[TOKEN_BYTES], const char **out_fingerprint) {
    const char *dot = strchr(text, '.');
    if (!dot || dot == text || dot - text >= TOKEN_BYTES ||
        strlen(dot + 1) != TD_TLS_FINGERPRINT_HEX - 1) {
        return td_status_with_reason(
            td_fail(TD_INVALID_ARGUMENT,
                    "--token-file holds no join token; `trainctl node token` gives one"),
            "TOKEN_INVALID");
    }
    snprintf(bearer, TOKEN_BYTES, "%.*s", (int)(dot - text), text);
    *out_fingerprint = dot + 1;
    return TD_OK;
}

static td_status ask(struct td_loop *loop, const struct td_join_files *files,
                     const struct td_join_options *o, const char *bearer,
                     struct td_rpc_message **out_answer) {
    TD_AUTO(td_rpc_channel) *channel = NULL;
    TD_AUTO_BUF csr;
    td_buf_init(&csr, TD_TLS_PEM_MAX);
    TD_TRY(td_join_request(files, o->node_id, &csr));
    const struct td_rpc_channel_options options = {
        .address = o->address, .ca = files->ca, .token = bearer};
    TD_TRY(td_rpc_channel_create(loop, &options, &channel));
    Traind__V1__JoinRequest request = TRAIND__V1__JOIN_REQUEST__INIT;
    request.node_id = td_unconst(o->node_id);
    request.name = td_unconst(o->name);
    request.request = td_unconst(td_buf_cstr(&csr));
    return td_rpc_unary_wait(channel, "/traind.v1.NodeService/Join", &request.base,
                             &traind__v1__join_response__descriptor, patience_ns, out_answer);
}

td_status td_join(struct td_loop *loop, const struct td_join_files *files,
                  const struct td_join_options *options) {
    TD_AUTO(td_rpc_message) *answer = NULL;
    TD_AUTO_BUF ca;
    const char *fingerprint = NULL;
    char bearer[TOKEN_BYTES], dir[TD_FS_PATH_BYTES], line[ADDRESS_BYTES];
    td_buf_init(&ca, TD_TLS_PEM_MAX);
    TD_TRY(split(options->token, bearer, &fingerprint));
    TD_TRY(td_rpc_fetch_ca(options->address, fingerprint, patience_ns, &ca));
    TD_TRY(td_fs_path(dir, "%.*s", (int)(strrchr(files->ca, '/') - files->ca), files->ca));
    TD_TRY(td_fs_mkdirs(dir, 0700));
    TD_TRY(make_key(files));
    TD_TRY(td_fs_write(files->ca, ca.data, ca.len, 0600, TD_FS_WRITE_DURABLE));
    TD_TRY(ask(loop, files, options, bearer, &answer));
    const Traind__V1__JoinResponse *r =
        (const Traind__V1__JoinResponse *)td_rpc_message_get(answer);
    TD_TRY_CTX(td_certificate_verify(td_buf_cstr(&ca), r->certificate, TD_TLS_CLIENT, NULL),
               "the certificate that the coordinator gave");
    TD_TRY(td_fs_write(files->certificate, r->certificate, strlen(r->certificate), 0600,
                       TD_FS_WRITE_DURABLE));
    int n = snprintf(line, sizeof line, "%s\n", options->address);
    TD_TRY(td_fs_write(files->address, line, (size_t)n, 0600, TD_FS_WRITE_DURABLE));
    td_log_info("joined coordinator=%s node=%s name=%s", options->address, options->node_id,
                options->name);
    return TD_OK;
}
