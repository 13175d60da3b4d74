#ifndef TRAIND_CLIENT_SCREEN_PRINT_H
#define TRAIND_CLIENT_SCREEN_PRINT_H

// What people read goes through here: characters that would act on a terminal are shown as \xNN
// (lib/base/printable.h), line ends stay. Every verb prints with it, because a name, a reason or an
// error may be anybody's text; make lint holds client/ to it. JSON escapes by its own rule.

#include <stdio.h>

#include "lib/base/base.h"

void td_print(FILE *to, const char *fmt, ...) TD_PRINTF(2, 3);

#endif
