#ifndef TRAIND_DAEMON_COORDINATOR_CORE_ATTEMPT_DEVICE_ERRORS_H
#define TRAIND_DAEMON_COORDINATOR_CORE_ATTEMPT_DEVICE_ERRORS_H

// What errors of devices (lib/attempt/xids.h) mean for an attempt that has them. The driver reports
// an error of a device; the rank that uses it mostly ends with another one, a moment later, in its
// own words. So a part keeps the worst error of its devices, and when the attempt fails, that
// decides whose fault it was: a device's (class `device`), or the program's (`user_code`). Failures
// that a device does not explain keep their class. An error that leaves the device in use explains
// only a failure within a minute.
//
// An error may also come a moment after the failure. So an attempt with GPUs that failed is closed
// a second later than others. The core's thread.

#include "lib/base/base.h"

struct td_attempt;
struct td_attempt_part;
struct td_core;
struct td_host;
struct td_job;

// A device of the part, or the whole GPU that it is cut from, had that error. Its job is noted.
void td_device_errors_hit(struct td_core *core, struct td_job *j, struct td_attempt *a,
                          struct td_attempt_part *p, const char *uuid, uint32_t xid);
// The class of its failure, by what its devices had. Called again it changes nothing more.
void td_device_errors_judge(struct td_core *core, struct td_attempt *a);
// Its failure is of class `device`: that is held against the device, where one alone is meant.
void td_device_errors_blame(struct td_core *core, struct td_job *j, const struct td_attempt *a);
// It has GPUs whose errors are known, so that one may come yet.
bool td_device_errors_may_come(const struct td_core *core, const struct td_attempt *a);

// The GPU is excluded from now on: said in the log, and its place is looked at.
void td_device_errors_excluded(struct td_core *core, const struct td_host *n, const char *uuid,
                               const char *reason);

#endif
