// See the header. What a channel is allowed and how long it waits is here, too.

#include "lib/rpc/dial.h"

#include <grpc/grpc_security.h>

#include "lib/base/files/files.h"
#include "lib/tls/tls.h"

static grpc_arg int_arg(const char *key, int value) {
    return (grpc_arg){.type = GRPC_ARG_INTEGER, .key = td_unconst(key), .value.integer = value};
}

static grpc_channel *create_grpc_channel(const struct td_rpc_address *address,
                                         grpc_channel_credentials *credentials,
                                         size_t max_message_bytes) {
    int max_receive = (int)TD_MIN(max_message_bytes * 2, (size_t)INT32_MAX);
    grpc_arg args[] = {
        int_arg(GRPC_ARG_ENABLE_HTTP_PROXY, 0),
        int_arg(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1),
        int_arg(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1), // back-off is this channel's own
        int_arg(GRPC_ARG_ENABLE_RETRIES, 0),
        int_arg(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, max_receive),
        int_arg(GRPC_ARG_MAX_METADATA_SIZE, 64 << 10),
        // The second is that of unacknowledged bytes, too (TCP_USER_TIMEOUT).
        int_arg(GRPC_ARG_KEEPALIVE_TIME_MS, TD_RPC_KEEPALIVE_MS),
        int_arg(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, TD_RPC_KEEPALIVE_MS),
        int_arg(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1),
        int_arg(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0),
        int_arg(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100),
        int_arg(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000),
        int_arg(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000), // in truth the time to connect
        int_arg(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1),
        int_arg(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0),
        int_arg(GRPC_ARG_ENABLE_PER_MESSAGE_COMPRESSION, 0),
        int_arg(GRPC_ARG_ENABLE_CHANNELZ, 0),
        int_arg(GRPC_ARG_MAX_CHANNEL_TRACE_EVENT_MEMORY_PER_NODE, 0),
        // The last one, which only 0.0.0.0 needs.
        {.type = GRPC_ARG_STRING,
         .key = td_unconst(GRPC_SSL_TARGET_NAME_OVERRIDE_ARG),
         .value.string = td_unconst("localhost")},
    };
    size_t n_args = TD_COUNTOF(args) - !td_rpc_address_is_any(address);
    grpc_channel_args all = {n_args, args};
    char target[TD_RPC_TARGET_BYTES];
    td_rpc_address_target(address, target, sizeof target);
    return grpc_channel_create(target, credentials, &all);
}

static td_status read_pem(const char *path, struct td_buf *out) {
    return path ? td_fs_read(path, TD_TLS_PEM_MAX, out) : TD_OK;
}

// Loopback without a CA is plain.
static td_status make_credentials(const struct td_rpc_dial *o,
                                  grpc_channel_credentials **out_credentials) {
    if (!o->ca && o->address.reach != TD_RPC_LOOPBACK) {
        return td_status_with_reason(
            td_fail(
                TD_FAILED_PRECONDITION,
                "address '%s' is not loopback: without TLS the token would cross the network "
                "in clear. Name the coordinator's CA with --ca FILE or TRAIND_CA (tls/ca.pem in "
                "its state directory)",
                o->text),
            "ADDRESS_NOT_LOOPBACK");
    }
    if (!o->ca) {
        *out_credentials = grpc_insecure_credentials_create();
        return TD_OK;
    }
    TD_AUTO_BUF ca, certificate, key;
    td_buf_init(&ca, TD_TLS_PEM_MAX);
    td_buf_init(&certificate, TD_TLS_PEM_MAX);
    td_buf_init(&key, TD_TLS_PEM_MAX);
    TD_TRY_CTX(read_pem(o->ca, &ca), "the CA");
    TD_TRY_CTX(read_pem(o->certificate, &certificate), "the certificate");
    TD_TRY_CTX(read_pem(o->key, &key), "the certificate's key");
    grpc_ssl_pem_key_cert_pair pair = {td_buf_cstr(&key), td_buf_cstr(&certificate)};
    *out_credentials =
        grpc_ssl_credentials_create_ex(td_buf_cstr(&ca), o->certificate ? &pair : NULL, NULL, NULL);
    if (*out_credentials) return TD_OK;
    return td_fail(TD_FAILED_PRECONDITION, "gRPC takes no CA from '%s'; it must be PEM text",
                   o->ca);
}

static td_status copy(const char *path, char **out) {
    if (path && !(*out = td_strdup(path))) return td_fail_oom();
    return TD_OK;
}

td_status td_rpc_dial_copy(struct td_rpc_dial *d, const char *text, const char *ca,
                           const char *certificate, const char *key) {
    TD_TRY(copy(text, &d->text));
    TD_TRY(copy(ca, &d->ca));
    TD_TRY(copy(certificate, &d->certificate));
    return copy(key, &d->key);
}

void td_rpc_dial_finish(struct td_rpc_dial *d) {
    free(d->text);
    free(d->ca);
    free(d->certificate);
    free(d->key);
}

td_status td_rpc_dial_open(const struct td_rpc_dial *d, size_t max_message_bytes,
                           grpc_channel **out_channel) {
    grpc_channel_credentials *credentials = NULL;
    TD_TRY(make_credentials(d, &credentials));
    *out_channel = create_grpc_channel(&d->address, credentials, max_message_bytes);
    grpc_channel_credentials_release(credentials);
    return TD_OK;
}
