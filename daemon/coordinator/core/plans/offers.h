#ifndef TRAIND_DAEMON_COORDINATOR_CORE_PLANS_OFFERS_H
#define TRAIND_DAEMON_COORDINATOR_CORE_PLANS_OFFERS_H

// Offers: which modules, datasets, accelerators, strategies and precisions nodes have, as their
// probes reported them (PluginList). Nothing is stored: a node reports them after each
// registration. Nodes with equal lists share one copy. What clients see merges all nodes that are
// known here, away or not.

#include "traind/v1/admin.pb-c.h"
#include "traind/v1/node.pb-c.h"

struct td_arena;
struct td_core;
struct td_host;

void td_offers_set(struct td_core *core, const struct td_host *n, const Traind__V1__PluginList *m);
// The node is not known any more.
void td_offers_forget(struct td_core *core, const char *node);
void td_offers_finish(struct td_core *core);
// NULL: the arena is full.
Traind__V1__ListPluginsResponse *td_view_plugins(struct td_arena *a, const struct td_core *core);

#endif
