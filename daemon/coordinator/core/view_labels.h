#ifndef TRAIND_DAEMON_COORDINATOR_CORE_VIEW_LABELS_H
#define TRAIND_DAEMON_COORDINATOR_CORE_VIEW_LABELS_H

// Labels (lib/job/labels.h) as maps of messages, in the arena. labels: NULL: none. False: the arena
// is full. Bounds: TD_LABELS_MAX of them; further ones, which no rule lets in, are left out.

#include "lib/base/base.h"
#include "traind/v1/admin.pb-c.h"
#include "traind/v1/job.pb-c.h"

struct td_arena;

bool td_view_job_labels(struct td_arena *a, const char *labels, Traind__V1__Job *m);
bool td_view_node_labels(struct td_arena *a, const char *labels, Traind__V1__Node *m);

#endif
