#ifndef TRAIND_CLIENT_NODES_TOP_PAGE_H
#define TRAIND_CLIENT_NODES_TOP_PAGE_H

// The page of `trainctl top`: the coordinator, its nodes, its jobs.
//
//   traind 0.1.0 at 127.0.0.1:7070, up 1:05: 1 running, 2 queued, slots 4 of 4
//
//   NODE              STATE     SLOTS  JOBS              MEMORY
//   node-a            READY       4/4     1  1.2 GiB/15.6 GiB
//   node-b            draining    2/4     1  1.2 GiB/15.6 GiB
//
//   JOB             NAME             STATE      SLOTS  EPOCH          STEP  ...  SAMPLES/S  ETA

#include "lib/base/buf.h"
#include "traind/v1/admin.pb-c.h"
#include "traind/v1/job.pb-c.h"

struct td_top {
    const Traind__V1__ClusterInfo *cluster;
    const Traind__V1__ListNodesResponse *nodes;
    const Traind__V1__ListJobsResponse *jobs; // that have ranks, or are about to
    const char *notice;                       // a line on top; NULL: none
};

// Lines of at most `columns` characters: some columns are left out where they have no room. rows:
// nodes and jobs that do not fit are counted instead; 0: all are shown.
TD_MUST_USE td_status td_top_page(const struct td_top *t, int columns, int rows,
                                  struct td_buf *out);

#endif
