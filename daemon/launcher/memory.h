#ifndef TRAIND_DAEMON_LAUNCHER_MEMORY_H
#define TRAIND_DAEMON_LAUNCHER_MEMORY_H

// Memory that ranks share: with their launcher, a page each; with each other, the group's mapping.
//
// Of a training the plan says how large the group's is. It is counted with the pages against the
// limit of the attempt, sealed and filled before use. Of a program nobody knows: its ranks get
// TD_GROUP_HEADER_BYTES of zeros (lib/attempt/rank_env.h), and grow that themselves; it cannot be
// made smaller, so that nobody loses what is mapped. A command has none.
//
// Thread: the launcher's. Errors: RESOURCE_EXHAUSTED, class out_of_memory.

#include "daemon/launcher/state.h"

// Ranks with their pages, and the mapping of the group.
TD_MUST_USE td_status td_launcher_make_memory(struct td_launcher *l);
// The kernel clears the group's pages, a millisecond for 4 MB: call it once ranks are started, who
// take longer until they write there.
TD_MUST_USE td_status td_launcher_fill_group(struct td_launcher *l);

#endif
