#ifndef TRAIND_LIB_RPC_CONTACT_H
#define TRAIND_LIB_RPC_CONTACT_H

// The first contact with a server whose CA is known by its fingerprint alone
// (lib/tls/first_contact.h), by the address that a channel takes. Any thread; it blocks.

#include "lib/base/buf.h"

// Appends the CA. timeout_ns bounds connecting and the handshake, each; a name is looked up before,
// within the resolver's own time. Errors: INVALID_ARGUMENT ADDRESS_INVALID; UNAVAILABLE
// UNREACHABLE; td_tls_first_contact's.
TD_MUST_USE td_status td_rpc_fetch_ca(const char *address, const char *fingerprint,
                                      int64_t timeout_ns, struct td_buf *out_ca);

#endif
