#ifndef TRAIND_CLIENT_TABLE_H
#define TRAIND_CLIENT_TABLE_H

// A table of text with aligned columns, and small formats that people read.

#include "lib/base/arena.h"

enum { TD_TABLE_COLUMNS = 10 };

struct td_table {
    struct td_arena *arena; // borrowed
    const char **cell;
    size_t n_columns, n_cells, cap;
};

// The first row is the heading. At most TD_TABLE_COLUMNS columns; rows until the arena is full.
void td_table_init(struct td_table *t, struct td_arena *arena, size_t n_columns,
                   const char *const *heading);
// The next cell, row by row, copied, with control characters as \xNN.
TD_MUST_USE td_status td_table_add(struct td_table *t, const char *fmt, ...) TD_PRINTF(2, 3);
// Two spaces between columns; no trailing blanks.
TD_MUST_USE td_status td_table_print(const struct td_table *t);

const char *td_format_bytes(uint64_t bytes, char out[32]);   // "2.7 MiB"
const char *td_format_count(double n, char out[32]);         // "41.2k"
const char *td_format_seconds(double seconds, char out[32]); // "1:05", "2:03:04"
// How long ago a time of an answer was: "12s", "5m", "3h", "2d". What is no such time is given
// back, as far as there is room; one that is still to come, because clocks differ, is "0s".
const char *td_format_age(const char *time, char out[32]);

#endif
