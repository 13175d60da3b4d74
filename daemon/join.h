#ifndef TRAIND_DAEMON_JOIN_H
#define TRAIND_DAEMON_JOIN_H

// How this machine becomes a node of a cluster, once, over a network that nobody trusts. What comes
// of it is in tls/ of the state directory, mode 0600: the node's key and certificate, the cluster's
// CA, and, written last, where the coordinator is. With them a node starts without a token
// (renewal.h keeps the certificate fresh).
//
// The join token has the fingerprint of the CA. So the first contact asks the other end for that
// CA, and only a connection that is judged by it gets the token.

#include "lib/base/files/files.h"

struct td_loop;

struct td_join_files {
    char ca[TD_FS_PATH_BYTES], certificate[TD_FS_PATH_BYTES], key[TD_FS_PATH_BYTES],
        address[TD_FS_PATH_BYTES]; // "HOST:PORT"
};
// INVALID_ARGUMENT: the path is too long.
TD_MUST_USE td_status td_join_find(const char *state_dir, struct td_join_files *out_files);
// Where the node of this state directory has joined; "" if it has not.
TD_MUST_USE td_status td_join_address(const char *state_dir, char *out, size_t out_bytes);

struct td_join_options {
    const char *address;        // "HOST:PORT"
    const char *token;          // as `trainctl node token` gives it
    const char *node_id, *name; // its own
};
// Runs the loop until it has the certificate, half a minute at most; never inside a callback.
// Errors: INVALID_ARGUMENT TOKEN_INVALID: it is no join token; td_rpc_fetch_ca's; those of
// NodeService/Join; writing the files.
TD_MUST_USE td_status td_join(struct td_loop *loop, const struct td_join_files *files,
                              const struct td_join_options *options);
// Appends a request for a certificate of this node, signed with its key.
TD_MUST_USE td_status td_join_request(const struct td_join_files *files, const char *node_id,
                                      struct td_buf *out_request);

#endif
