#ifndef TRAIND_CLIENT_SCREEN_SCREEN_H
#define TRAIND_CLIENT_SCREEN_SCREEN_H

// Screen: how much room there is to show something, and which characters it has.

#include "lib/base/base.h"

enum { TD_SCREEN_COLUMNS = 80, TD_SCREEN_ROWS = 24, TD_SCREEN_MAX = 1000 };

// Of the terminal at fd, at most TD_SCREEN_MAX; 80 by 24 where there is none, or of which it does
// not say. A terminal narrower than 20 columns counts as 20.
void td_screen_size(int fd, int *out_columns, int *out_rows);
// Does the locale (LC_ALL, LC_CTYPE, LANG) write UTF-8?
bool td_screen_is_utf8(void);

#endif
