// A size is asked for each time, because a terminal may be resized. A locale that cannot be loaded
// counts as one of ASCII.

#include "client/screen/screen.h"

#include <langinfo.h>
#include <locale.h>
#include <string.h>
#include <sys/ioctl.h>

enum { LEAST_COLUMNS = 20, LEAST_ROWS = 5 };

void td_screen_size(int fd, int *out_columns, int *out_rows) {
    struct winsize w;
    *out_columns = TD_SCREEN_COLUMNS;
    *out_rows = TD_SCREEN_ROWS;
    if (ioctl(fd, TIOCGWINSZ, &w) != 0) return;
    if (w.ws_col) *out_columns = TD_MAX(LEAST_COLUMNS, TD_MIN((int)w.ws_col, TD_SCREEN_MAX));
    if (w.ws_row) *out_rows = TD_MAX(LEAST_ROWS, TD_MIN((int)w.ws_row, TD_SCREEN_MAX));
}

bool td_screen_is_utf8(void) {
    if (!setlocale(LC_CTYPE, "")) return false;
    return strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}
