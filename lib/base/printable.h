#ifndef TRAIND_LIB_BASE_PRINTABLE_H
#define TRAIND_LIB_BASE_PRINTABLE_H

// Text of strangers (names, reasons, what a rank printed) on its way to a terminal: what would act
// on the terminal instead of being read is shown as \xNN. That is C0, DEL, C1 (as U+0080 to U+009F
// in UTF-8, and as raw bytes) and bytes that are no UTF-8. Other UTF-8 stays as it is. Pure, any
// thread.

#include "lib/base/buf.h"

enum { TD_PRINTABLE_MAX = 4 }; // bytes of a character

// Bytes of the character at text (1 to 4) that can be shown as it is; 0: its first byte cannot.
size_t td_printable_bytes(const char *text, size_t bytes);
// Could more bytes make a character of all of these? False of none.
bool td_printable_is_begun(const char *text, size_t bytes);
// Appends text; the characters of `kept` ("\n\t", all of them C0) stay as they are.
TD_MUST_USE td_status td_printable_add(struct td_buf *out, const char *text, size_t bytes,
                                       const char *kept);

#endif
