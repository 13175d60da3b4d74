#ifndef TRAIND_LIB_TLS_ERROR_H
#define TRAIND_LIB_TLS_ERROR_H

// OpenSSL's errors, which wait in a queue of the thread, as a td_status. Private to lib/tls.

#include "lib/base/base.h"

// "<doing>: <what OpenSSL says>", reason TLS. Empties the thread's queue. Never NULL.
TD_MUST_USE td_status td_tls_fail(enum td_code code, const char *fmt, ...) TD_PRINTF(2, 3);

#endif
