#ifndef TRAIND_DAEMON_COORDINATOR_SHELL_ACCESS_AUDIT_H
#define TRAIND_DAEMON_COORDINATOR_SHELL_ACCESS_AUDIT_H

// Who did what: `audit.log` in the state directory, one JSON object a line, opened for appending.
// Lines are written by a thread of their own, in their order, soon after the call was answered, and
// synced within a second; no call waits for them.
//
// The line of a change is as durable as the change. It has a number, and is a row of state.db
// (TD_RECORD_AUDIT) that is committed with the records of the change. When that is done it goes to
// the file, and when the file is synced the row goes, with a later commit. So it costs no commit of
// its own. A start puts into the file what is in rows alone: the number of the file's last line
// says which those are. The other rows go when the file was synced once more: who wrote it may have
// been killed before. Rejected: a sync of the file before the answer, which would cost each call
// a second wait for the disk.
//
// Bounds. A file that would pass TD_AUDIT_FILE_BYTES becomes audit.log.1, that one audit.log.2, and
// so on; of TD_AUDIT_FILES the oldest goes. Refused calls: TD_AUDIT_REFUSED_BURST lines at once and
// TD_AUDIT_REFUSED_PER_S a second, the others are counted and the count is a line. What the disk
// does not take yet: TD_AUDIT_WAITING_BYTES, later lines are counted likewise.
//
// The loop's thread.

#include "daemon/coordinator/core/model/exchange.h"
#include "daemon/coordinator/shell/access/audit_file.h"
#include "lib/base/base.h"

enum {
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
// A line of what is no change, or of a change that is nowhere on disk.
void td_audit_add(struct td_audit *a, const struct td_audit_entry *entry);

// ---- lines of changes ---------------------------------------------------------------------------
// Rows of an earlier start, in their order, then start, before any line is added. DATA_LOSS: it is
// no row.
TD_MUST_USE td_status td_audit_load(struct td_audit *a, const char *key, const char *body);
void td_audit_start(struct td_audit *a);
// The number of the line; its row comes with the next take. 0: there is no memory for it, and it
// is counted as lost.
uint64_t td_audit_add_change(struct td_audit *a, const struct td_audit_entry *entry);
// Rows to store in the commit of that change, and some that may go; the taker owns them.
struct td_record *td_audit_take(struct td_audit *a);
// The rows up to this number are committed: their lines go to the file.
void td_audit_committed(struct td_audit *a, uint64_t number);

#endif
