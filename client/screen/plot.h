#ifndef TRAIND_CLIENT_SCREEN_PLOT_H
#define TRAIND_CLIENT_SCREEN_PLOT_H

// Plot: curves as text.
//
//   train_loss_step
//    1.074 |*.
//          | ..
//   0.2361 |   *....
//          +---------
//           1      96
//
// In UTF-8 a cell has 2 by 4 dots of braille. Several series differ by colour. Without colours,
// or without UTF-8, each has a character of its own. Values that are no finite number leave a gap.

#include "lib/base/buf.h"

enum {
    TD_PLOT_SERIES = 6,
    TD_PLOT_COLUMNS = 1000, // at most
    TD_PLOT_ROWS = 12,      // of the curve; axis and title come on top
};

struct td_plot_series {
    const char *label;
    const double *x, *y; // (n), x ascending
    size_t n;
};

struct td_plot_range {
    double x_min, x_max, y_min, y_max;
    bool known; // a finite point was seen
};

struct td_plot {
    int columns; // of the whole, 20 or more
    bool utf8, color;
    struct td_plot_range range; // set by td_plot_widen
};

// Dots across: more points than these are not seen.
int td_plot_dots(const struct td_plot *p);
// Makes room for a series, before anything is drawn.
void td_plot_widen(struct td_plot *p, const struct td_plot_series *series);
// Appends the curves of at most TD_PLOT_SERIES series and a legend that names them.
TD_MUST_USE td_status td_plot_draw(const struct td_plot *p, const struct td_plot_series *series,
                                   size_t n_series, struct td_buf *out);

#endif
