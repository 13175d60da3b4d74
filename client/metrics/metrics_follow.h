#ifndef TRAIND_CLIENT_METRICS_METRICS_FOLLOW_H
#define TRAIND_CLIENT_METRICS_METRICS_FOLLOW_H

// Follows the metrics of a job until it has ended: each point once, when all ranks have reported
// it, or when it is a second old. latest: of each series only the newest point, when it moved.

#include "client/session/session.h"

TD_MUST_USE td_status td_metrics_follow(struct td_session *s, const struct td_flags *f,
                                        bool latest);

#endif
