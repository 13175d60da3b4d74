#ifndef TRAIND_DAEMON_COORDINATOR_SHELL_DATABASES_METRICS_QUERY_H
#define TRAIND_DAEMON_COORDINATOR_SHELL_DATABASES_METRICS_QUERY_H

// Questions to metrics.db: which points there are of some series of a job, in a range of steps.
//
// An answer holds TD_DB_STORE_MAX_POINTS points of TD_DB_STORE_MAX_SERIES series at most, and says
// what it leaves out. All its series end at the same step, so that the next page begins after it
// for all of them. The room is shared fairly: a series that needs less than its share leaves the
// rest to the others. A picture has no pages: each series becomes at most so many ranges of steps
// with the mean, the least and the largest of their points.
//
// Series come in the order of their names, those of devices last. A picture that names no series is
// without these. They are many, and would leave no room to what a job says of itself.
//
// The newest attempt's point of a step counts; older attempts repeated the same steps.
// Thread: the one that owns the connection, which is read alone (databases.h). An answer is of one
// moment: it is read in one transaction.

#include "daemon/coordinator/core/model/job.h"

struct sqlite3;

struct td_databases_point {
    uint32_t step, epoch, attempt, n_ranks; // of a picture: of the last point of the range
    double value;                           // NaN: over nothing, or some rank had none
    double min, max;                        // of a picture, NaN left out; else 0
    uint32_t n_points;                      // of a picture: in the range; else 0
    int64_t real_ns;
};
struct td_databases_series {
    char name[TD_METRIC_NAME_BYTES];
    struct td_databases_point *points; // by step
    size_t n_points;
    uint64_t left_out; // points older than the newest that were asked for
};
enum { TD_DB_STORE_MAX_SERIES = 64, TD_DB_STORE_MAX_POINTS = 24000 };

struct td_databases_query {
    char job[TD_JOB_ID_MAX];
    char names[TD_DB_STORE_MAX_SERIES][TD_METRIC_NAME_BYTES];
    size_t n_names;              // 0: all
    uint32_t from_step, to_step; // both included; to_step 0: no limit
    uint32_t newest;             // of each series only so many; 0: all
    uint32_t cursor;             // the page begins here; 0: the first
    uint32_t picture_points;     // of each series at most; 0: the points themselves
    // From the loop, once: also from inside td_databases_close, and from inside td_databases_query
    // when too many are waiting.
    void (*done)(struct td_databases_query *q, void *arg);
    void *arg;
    // the answer
    td_status failure; // owned
    struct td_databases_series series[TD_DB_STORE_MAX_SERIES];
    size_t n_series;
    bool more;                                // there is a page after this one,
    uint32_t next_cursor;                     // which begins here
    char (*more_names)[TD_METRIC_NAME_BYTES]; // series for which there was no room
    size_t n_more_names;
};

// Fills in the answer.
// Errors:  INVALID_ARGUMENT a picture with more points than an answer holds; DATA_LOSS, UNAVAILABLE
//          of the database; RESOURCE_EXHAUSTED out of memory. Then the answer so far means nothing.
TD_MUST_USE td_status td_metrics_query_read(struct sqlite3 *db, struct td_databases_query *q);
void td_databases_query_destroy(struct td_databases_query *q);

#endif
