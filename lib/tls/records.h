#ifndef TRAIND_LIB_TLS_RECORDS_H
#define TRAIND_LIB_TLS_RECORDS_H

// What comes from a socket, fed to an SSL object one record at a time.
//
// OpenSSL reads on by itself while records have no data: KeyUpdate, tickets, warnings, empty ones,
// pieces of a handshake. One call of it takes as long as the other end has more of them. Here a
// call finds the end of its input after one record, and such records are counted. Nobody needs many
// of them: beyond the bounds below the connection has failed.
//
// The socket is read ahead into a block that is freed when it is empty. Private to lib/tls; one
// thread at a time.

#include <openssl/ssl.h>

#include "lib/base/base.h"

enum {
    TD_TLS_HANDSHAKE_RECORDS_MAX = 64, // that do not end the handshake
    TD_TLS_IDLE_RECORDS_MAX = 64,      // without data, beside one for each MiB of data
    TD_TLS_IDLE_IN_A_ROW_MAX = 16,
    TD_TLS_RECORD_HEADER_BYTES = 5,
};

struct td_tls_records {
    SSL *ssl;       // the caller's
    int fd;         // the caller's
    uint8_t *ahead; // NULL: nothing is read ahead
    size_t at, end;
    // The record that OpenSSL is in: closed once it has the whole of it.
    bool open;
    uint8_t header[TD_TLS_RECORD_HEADER_BYTES];
    size_t n_header, n_left;
    bool ended; // the socket has
    int err;    // why, as errno says it; 0: in order
    uint32_t n_handshake, n_idle, n_idle_in_a_row;
    uint64_t n_data_bytes;
};

// Becomes where ssl reads from, and lets it write to fd. It must not move, and must outlive ssl.
// False: OpenSSL has no memory.
TD_MUST_USE bool td_tls_records_init(struct td_tls_records *r, SSL *ssl, int fd);
void td_tls_records_finish(struct td_tls_records *r);

// Both go on and return what SSL_get_error says, with errno as OpenSSL left it. SSL_ERROR_NONE: the
// handshake is over; or one record was read, with *out_n bytes of data, 0 as well. SSL_ERROR_SSL:
// also for too many records, which is td_tls_records_refusal then.
int td_tls_records_handshake(struct td_tls_records *r);
int td_tls_records_read(struct td_tls_records *r, void *out, size_t bytes, size_t *out_n);
// RESOURCE_EXHAUSTED TLS_FLOOD if there were too many records; NULL: it is something else.
TD_MUST_USE td_status td_tls_records_refusal(const struct td_tls_records *r);

#endif
