#ifndef TRAIND_DAEMON_COORDINATOR_CORE_MODEL_HOSTS_H
#define TRAIND_DAEMON_COORDINATOR_CORE_MODEL_HOSTS_H

// Questions about the nodes that are known. What happens to them is in nodes.h. No job
// and no other node is changed here, so every file of the core may ask.

#include "lib/base/base.h"

struct td_attempt;
struct td_attempt_part;
struct td_core;
struct td_host;

void td_host_destroy(void *host); // accepts NULL
struct td_host *td_nodes_find(const struct td_core *core, const char *id);
bool td_host_connected(const struct td_host *n);
bool td_host_ready(const struct td_host *n); // connected, and jobs and plans may go there
bool td_host_takes(const struct td_host *n); // ready, and not cordoned: new attempts may go there
void td_host_set_kinds(struct td_host *n, bool commands, bool programs);
// Why no node is ready, in a few words; one of another build is named.
void td_nodes_say_none(const struct td_core *core, char *out, size_t bytes);
// Its machine has the level, as far as it is known; "auto" has everyone.
bool td_host_has_level(const struct td_host *n, const char *level);
// Their ranks can reach each other, as far as their collective addresses say: both have one of the
// same family, and one that is loopback is of one machine. They also understand each other: both
// builds have one ranks_language.
bool td_hosts_understand(const struct td_host *a, const struct td_host *b);
bool td_hosts_meet(const struct td_host *a, const struct td_host *b);
// Does the node that holds the part send this, by its session or by its key (session 0)?
bool td_nodes_holds(const struct td_core *core, const struct td_attempt_part *p, uint64_t session,
                    const char *key);
// The coordinator's own node, if a part of the attempt is on it; else NULL.
struct td_host *td_nodes_embedded_of(const struct td_core *core, const struct td_attempt *a);

#endif
