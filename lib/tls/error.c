// The newest entry of the queue is the most general one; the oldest names the cause. What else
// waits there belongs to the same failure, and is dropped: the next call of this thread must not
// find it.

#include "lib/tls/error.h"

#include <stdarg.h>
#include <stdio.h>

#include <openssl/err.h>

td_status td_tls_fail(enum td_code code, const char *fmt, ...) {
    char doing[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(doing, sizeof doing, fmt, args);
    va_end(args);
    unsigned long err = ERR_get_error();
    const char *why = err ? ERR_reason_error_string(err) : NULL;
    ERR_clear_error();
    return td_status_with_reason(
        td_fail(code, "%s: %s", doing, why ? why : "OpenSSL gives no reason"), "TLS");
}
