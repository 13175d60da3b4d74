// Which credential a call brings, and who is asked.

#include "lib/rpc/credential.h"

#include <strings.h>

#include "lib/rpc/buffer.h"
#include "lib/rpc/server_options.h"

static td_status unauthenticated(const char *why) {
    return td_status_with_reason(td_fail(TD_UNAUTHENTICATED,
                                         "%s; send a token that `trainctl token create` gave, or "
                                         "the owner's (the file `token` in the state directory), "
                                         "as metadata `authorization: Bearer <token>`",
                                         why),
                                 "TOKEN_INVALID");
}

td_status td_rpc_authorize(const struct td_rpc_server_options *o, const struct td_rpc_method *row,
                           const grpc_metadata_array *metadata,
                           const struct td_peer_identity *certificate, uint64_t *out_identity) {
    if (row && row->open) return TD_OK;
    struct td_str value = td_rpc_metadata_get(metadata, "authorization");
    if (!value.data && certificate->serial[0] && o->authorize_peer) {
        return o->authorize_peer(certificate, row, o->ctx, out_identity);
    }
    if (!value.data) return unauthenticated("this call needs exactly one credential");
    if (value.len < 7 || strncasecmp(value.data, "Bearer ", 7) != 0) {
        return unauthenticated("the credential is no bearer token");
    }
    struct td_str token = {value.data + 7, value.len - 7};
    return o->authorize(token, row, o->ctx, out_identity);
}

td_status td_rpc_connection_over(void) {
    return td_status_with_reason(
        td_fail(TD_UNAUTHENTICATED,
                "the connection of this call ended before it was read; call again over another"),
        "CONNECTION_OVER");
}
