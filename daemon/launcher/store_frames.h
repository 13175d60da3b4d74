#ifndef TRAIND_DAEMON_LAUNCHER_STORE_FRAMES_H
#define TRAIND_DAEMON_LAUNCHER_STORE_FRAMES_H

// Store frames: the rendezvous store on the launcher's link. What ranks set and wait for goes to
// the daemon while the link has room; answers and values come back. Thread: the launcher's.

#include "daemon/launcher/link.h"
#include "daemon/launcher/store.h"

// Puts on the link what it has room for; the caller flushes it.
void td_store_frames_put(struct td_launch_store *s, struct td_link *link);
// A frame of the daemon. False: it is none of the store's.
bool td_store_frames_take(struct td_launch_store *s, const struct td_frame *f);

#endif
