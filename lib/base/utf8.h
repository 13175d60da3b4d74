#ifndef TRAIND_LIB_BASE_UTF8_H
#define TRAIND_LIB_BASE_UTF8_H

// UTF-8, as table 3-7 of the Unicode standard has it, because protobuf-c does not check and Python
// clients refuse what is not well-formed. Below status.h, whose messages are. Pure, any thread.

#include <stdbool.h>
#include <stddef.h>

// Length of the well-formed UTF-8 sequence at the start of the bytes; 0 if there is none.
size_t td_utf8_sequence(const void *data, size_t bytes);
// Bytes of the first n characters of text, and how many there are of them.
size_t td_utf8_prefix(const char *text, size_t bytes, int n, int *out_n);
// True if the bytes are well-formed UTF-8 (no surrogates, no overlong forms).
bool td_utf8_valid(const void *data, size_t bytes);
// Puts '?' for every byte that is part of no well-formed sequence, such as a character that was
// cut.
void td_utf8_scrub(char *text);

#endif
