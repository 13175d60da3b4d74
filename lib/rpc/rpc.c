// The few words that server and client share.
//
// Comparing secrets looks at every byte whatever the first ones are, so that the time of an answer
// does not show how much of a guess was right. Only the length shows. The volatile keeps the
// compiler from leaving the loop early. A library's function for this would bring OpenSSL into
// trainctl for six lines.

#include "lib/rpc/rpc.h"

bool td_rpc_secret_equal(struct td_str a, struct td_str b) {
    if (a.len != b.len) return false;
    volatile unsigned char diff = 0;
    for (size_t i = 0; i < a.len; i++) {
        diff |= (unsigned char)(a.data[i] ^ b.data[i]);
    }
    return diff == 0;
}

const char *td_rpc_kind_name(enum td_rpc_kind kind) {
    static const char *const name[] = {
        [TD_RPC_UNARY] = "UNARY",
        [TD_RPC_SERVER_STREAM] = "SERVER_STREAM",
        [TD_RPC_CLIENT_STREAM] = "CLIENT_STREAM",
        [TD_RPC_BIDI] = "BIDI",
    };
    return name[kind];
}
