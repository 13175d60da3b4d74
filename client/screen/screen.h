#ifndef TRAIND_CLIENT_SCREEN_SCREEN_H
#define TRAIND_CLIENT_SCREEN_SCREEN_H

// Screen: how much room there is to show something, and which characters it has.
//
// The room, in reading order:
//
//   print.h     text on a terminal: control characters are shown
//   format.h    numbers, spans, ages
//   table.h     aligned columns, as wide as the terminal
//   plot.h      draws curves
//   tail.h      the last lines of streams
//   progress.h  a job that is followed, drawn
//   live.h      a terminal that is drawn again
//   json.h      messages of protobuf-c as proto3 JSON

#include "lib/base/base.h"

enum { TD_SCREEN_COLUMNS = 80, TD_SCREEN_ROWS = 24, TD_SCREEN_MAX = 1000 };

// Of the terminal at fd, at most TD_SCREEN_MAX; 80 by 24 where there is none, or of which it does
// not say. A terminal narrower than 20 columns counts as 20.
void td_screen_size(int fd, int *out_columns, int *out_rows);
// Does the locale (LC_ALL, LC_CTYPE, LANG) write UTF-8?
bool td_screen_is_utf8(void);

#endif
