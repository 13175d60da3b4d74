#ifndef TRAIND_CLIENT_SCREEN_TABLE_H
#define TRAIND_CLIENT_SCREEN_TABLE_H

// A table of text with aligned columns. Where standard output is a terminal, no line is longer than
// it is wide: columns that can be spared go first, then long texts end in an ellipsis. Some columns
// stay whole all the same. Anywhere else, and with -o wide, it is whole.

#include "lib/base/arena.h"

enum { TD_TABLE_COLUMNS = 72 }; // compare has one for each job

enum td_column_flag {
    TD_COLUMN_TEXT = 1 << 0,  // may be cut
    TD_COLUMN_MINOR = 1 << 1, // left out where there is no room, the last of them first
    TD_COLUMN_SPARE = 1 << 2, // left out where there is no room even without the minor ones
    TD_COLUMN_LATE = 1 << 3,  // left out where there is no room even without those
    TD_COLUMN_WHOLE = 1 << 4, // never cut: a line may be longer than the terminal for it
};

struct td_column {
    const char *heading;
    unsigned flags; // enum td_column_flag
};

struct td_table {
    struct td_arena *arena; // borrowed
    struct td_column column[TD_TABLE_COLUMNS];
    const char **cell;
    size_t n_columns, n_cells, cap;
};

// At most TD_TABLE_COLUMNS columns, rows until the arena is full.
void td_table_init(struct td_table *t, struct td_arena *arena, size_t n_columns,
                   const struct td_column *columns);
// The next cell, row by row, copied, with control characters as \xNN.
TD_MUST_USE td_status td_table_add(struct td_table *t, const char *fmt, ...) TD_PRINTF(2, 3);
// The heading and all rows, two spaces between columns, no blanks at an end. is_wide: -o wide.
TD_MUST_USE td_status td_table_print(const struct td_table *t, bool is_wide);

#endif
