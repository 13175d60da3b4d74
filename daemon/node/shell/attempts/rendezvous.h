#ifndef TRAIND_DAEMON_NODE_SHELL_ATTEMPTS_RENDEZVOUS_H
#define TRAIND_DAEMON_NODE_SHELL_ATTEMPTS_RENDEZVOUS_H

// Rendezvous: the node between its launchers and the coordinator, for the values that ranks of
// several nodes leave for each other (traind/store.h).
//
// The node keeps none of it. What a launcher says goes up as it comes; what the session has no room
// for is dropped, and the launcher says it again when there is room. After a registration all
// launchers say everything again. What comes down goes to the launcher's link, or is dropped where
// there is no connection: a launcher that is connected again says what its ranks wait for.
// Loop thread.

#include "daemon/node/shell/shell.h"

// From a launcher.
void td_rendezvous_set(struct td_local_attempt *a, const Traind__V1__LauncherStoreSet *m);
void td_rendezvous_want(struct td_local_attempt *a, const Traind__V1__LauncherStoreWant *m);
// Values that have left for it, or are lost with its connection.
void td_rendezvous_taken(struct td_local_attempt *a, uint32_t n_values);
// From the coordinator: a store_done or store_value for the attempt.
void td_rendezvous_deliver(struct td_local_attempt *a, const Traind__V1__CoordinatorMessage *m);
// The coordinator holds the attempt and may know nothing of it.
void td_rendezvous_again(struct td_local_attempt *a);
// There is room in the session again.
void td_rendezvous_poke(struct td_local_attempt *a);

#endif
