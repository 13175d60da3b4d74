#ifndef TRAIND_STORE_H
#define TRAIND_STORE_H

// Store: small values that the ranks of one attempt leave for each other before they have a
// connection of their own, such as the addresses at which they listen. The ranks may be on several
// nodes. A launcher gives each of its ranks one; a rank that was started by hand has none.
//
// A key is set once, by any rank, and stays until the attempt is over. The next attempt begins with
// an empty store. Bounds: TD_STORE_*; past one of them a call fails, and nothing is dropped.
// The values go through the daemons, so this is for the start of a group and not for training.
// Thread: one at a time. Ownership: the store belongs to whoever hands it out; data are copied.

#include "traind/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TD_STORE_KEY_MAX = 127,        // bytes of a key, of [A-Za-z0-9/_.-]; at least 1
    TD_STORE_VALUE_MAX = 64 << 10, // bytes of a value
    TD_STORE_KEYS_MAX = 4096,      // of an attempt
    TD_STORE_BYTES_MAX = 16 << 20, // of all values of an attempt
};

struct td_store {
    // Sets key to bytes of data, which may be none. Returns when no other rank can have set it to
    // something else. On one node that is at once; over several nodes, when the coordinator has
    // it.
    // Errors: INVALID_ARGUMENT for a key or a length that cannot be. FAILED_PRECONDITION names a
    // key that was set to other bytes; the same ones again are no error. RESOURCE_EXHAUSTED names
    // the bound. ABORTED once the attempt is over. DEADLINE_EXCEEDED names the key and the wait,
    // which is the store's own (minutes).
    td_status (*set)(struct td_store *s, const char *key, const void *data, size_t bytes);
    // Waits until any rank has set key. *out_bytes is the length of its value; out_data holds
    // cap_bytes. timeout_ns counts from now, and is more than 0.
    // Errors: as set's. DEADLINE_EXCEEDED after timeout_ns. RESOURCE_EXHAUSTED for a value of more
    // than cap_bytes. out_data and *out_bytes are written only on success.
    td_status (*get)(struct td_store *s, const char *key, int64_t timeout_ns, void *out_data,
                     size_t cap_bytes, size_t *out_bytes);
};

#ifdef __cplusplus
}
#endif
#endif
