#ifndef TRAIND_CLIENT_METRICS_METRICS_ROWS_H
#define TRAIND_CLIENT_METRICS_METRICS_ROWS_H

// Points as rows: CSV for programs, lines of a fixed form for who follows. A picture's rows have
// MIN, MAX and POINTS besides.

#include "lib/base/buf.h"
#include "traind/v1/metric.pb-c.h"

// "name,step,epoch,attempt,value,n_ranks,time\n"; names and values as RFC 4180 and C write them.
TD_MUST_USE td_status td_csv_head(bool picture, struct td_buf *out);
TD_MUST_USE td_status td_csv_row(const char *name, const Traind__V1__MetricPoint *p, bool picture,
                                 struct td_buf *out);
// Appends one field, quoted where it has to be.
TD_MUST_USE td_status td_csv_text(const char *text, struct td_buf *out);

// The heading and a line of a table whose later rows are not known yet.
TD_MUST_USE td_status td_line_head(struct td_buf *out);
TD_MUST_USE td_status td_line_row(const char *name, const Traind__V1__MetricPoint *p,
                                  struct td_buf *out);

#endif
