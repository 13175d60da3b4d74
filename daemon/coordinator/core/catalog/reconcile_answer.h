#ifndef TRAIND_DAEMON_COORDINATOR_CORE_CATALOG_RECONCILE_ANSWER_H
#define TRAIND_DAEMON_COORDINATOR_CORE_CATALOG_RECONCILE_ANSWER_H

// A node's answer to a Reconcile (reconcile.h): what it removed, and what it misses.

#include "traind/v1/node.pb-c.h"

struct td_core;
struct td_host;

void td_reconcile_on_answer(struct td_core *core, struct td_host *n,
                            const Traind__V1__Reconciled *m);

#endif
