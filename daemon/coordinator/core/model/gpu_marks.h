#ifndef TRAIND_DAEMON_COORDINATOR_CORE_MODEL_GPU_MARKS_H
#define TRAIND_DAEMON_COORDINATOR_CORE_MODEL_GPU_MARKS_H

// What is held against GPUs of a node, by uuid: that one is excluded and why, or that a job failed
// by it. A broken card stays broken. So marks are stored with what operators decided, and stay when
// the node, its machine or the coordinator starts again (node_admin.h). They go when an operator
// enables the device. The marks also know which errors of the node were looked at: one that the
// node sends again, after a session broke, excludes no device that was enabled since.
//
// A device is excluded when the second of two jobs of two owners fails by it: one job alone may be
// at fault itself. Bounds: TD_GPU_MARKS; a full list drops the oldest, and one that excludes only
// where all do. Pure; the core's thread.

#include "lib/attempt/devices.h"
#include "lib/base/base.h"

struct td_buf;
struct td_json;

enum { TD_GPU_MARKS = 2 * TD_DEVICES_MAX, TD_GPU_MARK_REASON = 384 };

struct td_gpu_mark {
    char uuid[TD_DEVICE_UUID];
    bool excludes;                   // else it is the first failure
    uint32_t xid;                    // that it follows from; 0: none
    int64_t time_ns;                 // real
    char by[64];                     // who asked for it; "": traind itself
    char reason[TD_GPU_MARK_REASON]; // of one that excludes
    char job[16], owner[64];         // of a first failure: its job and owner; "": unknown
};
struct td_gpu_marks { // all zero: none
    struct td_gpu_mark *mark;
    uint32_t n;
    char daemon[33]; // the start of the node's daemon whose errors were looked at
    uint64_t seen;   // up to that number
    bool unsaved;    // the row on the disk has others
};

void td_gpu_marks_finish(struct td_gpu_marks *m);
bool td_gpu_marks_any(const struct td_gpu_marks *m); // something is to be stored
// That the device itself is excluded; NULL: it is not.
const struct td_gpu_mark *td_gpu_marks_excluded(const struct td_gpu_marks *m, const char *uuid);
// An exclusion takes the place of what there was of the device. One that is excluded stays so: of a
// second one nothing is kept, unless a person asks for it. True: it was not excluded before.
bool td_gpu_marks_exclude(struct td_gpu_marks *m, const struct td_gpu_mark *mark);
// A job failed by the device. True: the device is excluded now, by this second one.
bool td_gpu_marks_blame(struct td_gpu_marks *m, const char *uuid, const char *job,
                        const char *owner, int64_t now_ns);
// False: there was nothing.
bool td_gpu_marks_clear(struct td_gpu_marks *m, const char *uuid);
// True: an error of that number was not looked at yet, and is now. Numbers come in their order.
bool td_gpu_marks_see(struct td_gpu_marks *m, const char *daemon, uint64_t number);

// As a member's value of the row.
TD_MUST_USE td_status td_gpu_marks_encode(const struct td_gpu_marks *m, struct td_buf *out);
void td_gpu_marks_decode(struct td_gpu_marks *m, const struct td_json *v);

#endif
