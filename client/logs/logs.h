#ifndef TRAIND_CLIENT_LOGS_LOGS_H
#define TRAIND_CLIENT_LOGS_LOGS_H

// The verb logs, and what ranks printed, beside other views.
//
//   cmd_logs.c       logs
//
//   last_lines.h     the last lines of those who are to blame
//   log_positions.h  how far a reader of logs is
//   follow_logs.h    logs beside progress
//
// One thread. A verb gets its parsed flags (client/client.h).

#include "client/client.h"

TD_VERB(td_cmd_logs);

#endif
