#ifndef TRAIND_DAEMON_COORDINATOR_CORE_MODEL_EFFECTS_H
#define TRAIND_DAEMON_COORDINATOR_CORE_MODEL_EFFECTS_H

// Output of the core, filled while an input is handled; td_core_take gives it to the shell.

#include "daemon/coordinator/core/model/exchange.h"

struct td_core;
struct td_host;

void *td_core_must(void *p);
char *td_core_dup(const char *s);
void td_core_record(struct td_core *core, enum td_record_kind kind, const char *key,
                    const char *body);
void td_core_points(struct td_core *core, struct td_points *take_points);
struct td_action *td_core_act(struct td_core *core, enum td_action_kind kind);
void td_core_close_session(struct td_core *core, uint64_t session, const char *why);
// The same, because whoever speaks in it may not: its client gets PERMISSION_DENIED.
void td_core_deny_session(struct td_core *core, uint64_t session, const char *why);
// The same, with what its client gets.
void td_core_refuse_session(struct td_core *core, uint64_t session, td_status take_why);
// A line for the daemon's log, at most 640 bytes.
void td_core_log(struct td_core *core, const char *fmt, ...) TD_PRINTF(2, 3);
// Deep-copies m. Does nothing without a session.
void td_core_send(struct td_core *core, const struct td_host *node,
                  Traind__V1__CoordinatorMessage *m);
void td_core_meta(struct td_core *core, const char *key, uint64_t value);
void td_core_attempt_id(const struct td_job *j, const struct td_attempt *a,
                        Traind__V1__AttemptId *out_id);

#endif
