#ifndef TRAIND_CLIENT_METRICS_METRICS_PLOT_H
#define TRAIND_CLIENT_METRICS_METRICS_PLOT_H

// Metrics as curves on stdout, as wide as its terminal: what metrics --plot and compare --plot
// share.

#include "client/metrics/series.h"
#include "client/screen/plot.h"

// As stdout is: its width, its characters, its colours.
void td_metrics_plot_init(struct td_plot *p, struct td_session *s);

// A job's series as pictures that a plot can show. names: which, at most TD_PLOT_SERIES of them are
// drawn; none: the losses that it has, else its first series.
TD_MUST_USE td_status td_metrics_plot_read(struct td_session *s, const struct td_plot *p,
                                           const char *job, size_t n_names,
                                           const char *const *names, struct td_series **out_series);

// Curves in arrays of their own, in an arena.
struct td_arena;
TD_MUST_USE td_status td_metrics_plot_curve(const Traind__V1__Series *series, const char *label,
                                            struct td_arena *arena,
                                            struct td_plot_series *out_curve);

// What metrics --plot does.
TD_MUST_USE td_status td_metrics_plot(struct td_session *s, const struct td_flags *f);

#endif
