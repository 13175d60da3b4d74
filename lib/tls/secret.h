#ifndef TRAIND_LIB_TLS_SECRET_H
#define TRAIND_LIB_TLS_SECRET_H

// A credential as whoever judges it keeps it: not the text, only its SHA-256. A secret of 256
// random bits needs no salt and no slow hash, because nobody can try them all. In a file of its
// own, so that trainctl, which judges nobody, is linked without it.

#include "lib/base/base.h"

enum { TD_TLS_DIGEST_BYTES = 32 };

// Any thread. INTERNAL: OpenSSL has no SHA-256.
TD_MUST_USE td_status td_tls_secret_digest(struct td_str secret, uint8_t out[TD_TLS_DIGEST_BYTES]);

#endif
