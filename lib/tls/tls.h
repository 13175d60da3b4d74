#ifndef TRAIND_LIB_TLS_TLS_H
#define TRAIND_LIB_TLS_TLS_H

// lib/tls: the only home of OpenSSL. It makes and judges certificates, and runs TLS 1.3 on sockets
// that somebody else waits for. It knows no loop, no gRPC and no policy.
//
//   certificate.h  keys and requests made; certificates read and judged
//   authority.h    a CA of one's own: made, opened, issues certificates
//   context.h      what a listener or a dialler brings to its handshakes; new files are noticed
//   revoked.h      certificates that were taken back, and ends that are excused
//   first_contact.h  the CA of a server that nobody trusts yet
//   session.h      one connection: its handshake, then bytes in and out
//   records.h      what a socket brings, fed to OpenSSL one record at a time (private)
//   secret.h       SHA-256 of a credential, for whoever judges it
//   x509.h         OpenSSL's objects, and why a certificate is refused (private)
//   error.h        OpenSSL's errors as a td_status (private)
//
// Everything that travels or is kept is PEM text. Keys are EC P-256. Functions may be called by any
// thread; an object belongs to one thread at a time.
//
// Rejected: a library of commands around `openssl`, which is not installed everywhere; and RSA,
// whose keys take longer to make than a whole start of the daemon.

#include "lib/base/buf.h"

// What a certificate is good for. A listener's is refused when a client shows it, and the reverse.
enum td_tls_use { TD_TLS_SERVER, TD_TLS_CLIENT };

enum {
    TD_TLS_PEM_MAX = 64 << 10,  // of a file with certificates or a key
    TD_TLS_NAME_BYTES = 65,     // of a common name, which X.509 bounds by 64
    TD_TLS_SERIAL_BYTES = 41,   // hexadecimal digits of a serial number
    TD_TLS_FINGERPRINT_HEX = 65 // hexadecimal digits of SHA-256
};

// What people and programs ask of a certificate. Times are seconds since 1970, for display and for
// the choice of a time to renew.
struct td_certificate {
    char name[TD_TLS_NAME_BYTES];     // common name; "" without one
    char serial[TD_TLS_SERIAL_BYTES]; // upper-case hexadecimal
    char fingerprint[TD_TLS_FINGERPRINT_HEX];
    int64_t valid_from_s, valid_until_s;
    int64_t left_s; // until it ends, by this machine's clock; negative: it has ended
};

#endif
