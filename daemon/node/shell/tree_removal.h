#ifndef TRAIND_DAEMON_NODE_SHELL_TREE_REMOVAL_H
#define TRAIND_DAEMON_NODE_SHELL_TREE_REMOVAL_H

// Tree removal: a directory that a program wrote into goes, with all that is in it, by a thread of
// its own. It may hold a million files, or be on a server that does not answer, and the node's loop
// waits for neither. One at a time. Loop thread. A thread that hangs when the daemon ends is left.

#include "lib/base/base.h"

struct td_loop;
struct td_tree_removal;

// on_over: on the loop, when one has ended; take says how.
TD_MUST_USE td_status td_tree_removal_create(struct td_loop *loop, void (*on_over)(void *arg),
                                             void *arg, struct td_tree_removal **out_removal);
void td_tree_removal_destroy(struct td_tree_removal *t);
// Has this tree gone? False: it is going, or waits for another one; ask again when on_over comes.
// *out_failed: why it has not gone, where that is so. No link is followed.
bool td_tree_removal_done(struct td_tree_removal *t, const char *path, td_status *out_failed);

#endif
