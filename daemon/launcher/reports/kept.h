#ifndef TRAIND_DAEMON_LAUNCHER_REPORTS_KEPT_H
#define TRAIND_DAEMON_LAUNCHER_REPORTS_KEPT_H

// Kept: where the reports child is in what it reads, as its reports say (`kept` of
// lib/attempt/report_message.h). A child that takes its place gets it first.
//
// What the texts mean is the child's business. A name's newest text replaces the one before it.
// Bounds: TD_REPORT_KEPT_MAX names, further ones are dropped: what they are of is read again then,
// and its values are repeats. Thread: the launcher's.

#include "lib/attempt/report_message.h"
#include "lib/base/json.h"

struct td_launch_kept_one {
    char name[TD_REPORT_KEPT_NAME], text[TD_REPORT_KEPT];
};
struct td_launch_kept { // all zero: nothing
    struct td_launch_kept_one *one;
    size_t n, cap;
};
void td_launch_kept_finish(struct td_launch_kept *k);
// ["NAME", "TEXT"]; NULL, and all else that is no such list, is passed over.
void td_launch_kept_take(struct td_launch_kept *k, const struct td_json *pair);
// To a child, before all else: one message.
void td_launch_kept_give(const struct td_launch_kept *k, int fd);

#endif
