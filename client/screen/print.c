// Formatted whole, escaped, and handed to stdio, whose failure is seen when stdout is flushed. Text
// that memory does not hold is cut, never printed as it came.

#include "client/screen/print.h"

#include <stdarg.h>

#include "lib/base/printable.h"

enum { PRINT_MAX = 64 << 20 };

void td_print(FILE *to, const char *fmt, ...) {
    TD_AUTO_FREE char *text = NULL;
    TD_AUTO_BUF out;
    td_buf_init(&out, PRINT_MAX);
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n < 0) {
        text = NULL;
        return;
    }
    td_status_free(td_printable_add(&out, text, (size_t)n, "\n"));
    (void)fwrite(out.data, 1, out.len, to);
}
