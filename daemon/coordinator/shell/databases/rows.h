#ifndef TRAIND_DAEMON_COORDINATOR_SHELL_DATABASES_ROWS_H
#define TRAIND_DAEMON_COORDINATOR_SHELL_DATABASES_ROWS_H

// Rows of a table of the shell's own (credentials.h, audit.h) that changed, until somebody stores
// them. In their order. The loop's thread. Without memory the daemon starts again from the disk.

#include "daemon/coordinator/core/model/exchange.h"

struct td_rows {
    struct td_record *newest;
};

// body NULL: the row goes. Both are copied.
void td_rows_put(struct td_rows *r, enum td_record_kind kind, const char *key, const char *body);
// The taker owns them; oldest first. NULL: none.
struct td_record *td_rows_take(struct td_rows *r);
void td_rows_finish(struct td_rows *r);

#endif
