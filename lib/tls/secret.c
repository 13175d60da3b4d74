// See the header. The one-shot call: a token is 80 bytes, so there is nothing to gain from keeping
// a context between calls.

#include "lib/tls/secret.h"

#include <openssl/evp.h>

td_status td_tls_secret_digest(struct td_str secret, uint8_t out[TD_TLS_DIGEST_BYTES]) {
    unsigned bytes = 0;
    if (EVP_Digest(secret.data, secret.len, out, &bytes, EVP_sha256(), NULL) == 1 &&
        bytes == TD_TLS_DIGEST_BYTES) {
        return TD_OK;
    }
    return td_fail(TD_INTERNAL, "OpenSSL gives no SHA-256; is its configuration (openssl.cnf) of "
                                "another version?");
}
