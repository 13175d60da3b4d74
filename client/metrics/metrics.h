#ifndef TRAIND_CLIENT_METRICS_METRICS_H
#define TRAIND_CLIENT_METRICS_METRICS_H

// The verb metrics, and questions about metrics.
//
//   cmd_metrics.c     metrics
//
//   series.h          the answer to a question about metrics
//   metrics_rows.h    shows it as rows
//   metrics_plot.h    as curves
//   metrics_follow.h  as it comes
//
// One thread. A verb gets its parsed flags (client/client.h).

#include "client/client.h"

TD_VERB(td_cmd_metrics);

#endif
