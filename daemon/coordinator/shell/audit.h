#ifndef TRAIND_DAEMON_COORDINATOR_SHELL_AUDIT_H
#define TRAIND_DAEMON_COORDINATOR_SHELL_AUDIT_H

// Who did what: `audit.log` in the state directory, one JSON object a line, opened for appending.
// Lines are written by a thread of their own, in their order, soon after the call was answered; no
// call waits for them. They are not synced: a crash of the machine may take the last ones.
//
// Bounds. A file that would pass TD_AUDIT_FILE_BYTES becomes audit.log.1, that one audit.log.2, and
// so on; of TD_AUDIT_FILES the oldest goes. Refused calls: TD_AUDIT_REFUSED_BURST lines at once and
// TD_AUDIT_REFUSED_PER_S a second, the others are counted and the count is a line. What the disk
// does not take yet: TD_AUDIT_WAITING_BYTES, later lines are counted likewise.
//
// The loop's thread.

#include "lib/base/base.h"

enum {
    TD_AUDIT_FILE_BYTES = 16 << 20,
    TD_AUDIT_FILES = 8, // with the newest
    TD_AUDIT_WAITING_BYTES = 256 << 10,
    TD_AUDIT_REFUSED_BURST = 100,
    TD_AUDIT_REFUSED_PER_S = 10,
};

struct td_audit;
struct td_loop;

// Texts are borrowed; "": not known.
struct td_audit_entry {
    const char *token, *name, *role; // whose call it was
    const char *source;              // "10.0.0.7:51000"
    const char *method;              // "traind.v1.JobService/CancelJob"
    const char *object;              // "j-0123456789ab"
    const char *code;                // "OK", "PERMISSION_DENIED"
    const char *reason;              // of a failure: "ROLE_NEEDED"
    bool refused;                    // for want of a credential or a role: under the rate
};

TD_MUST_USE td_status td_audit_create(struct td_loop *loop, const char *state_dir,
                                      struct td_audit **out_audit);
// Writes what waits, at most one try if the disk is full.
void td_audit_destroy(struct td_audit *a);
TD_DEFINE_AUTO(td_audit, td_audit_destroy);
void td_audit_add(struct td_audit *a, const struct td_audit_entry *entry);

#endif
