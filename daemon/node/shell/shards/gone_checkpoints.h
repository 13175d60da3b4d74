#ifndef TRAIND_DAEMON_NODE_SHELL_SHARDS_GONE_CHECKPOINTS_H
#define TRAIND_DAEMON_NODE_SHELL_SHARDS_GONE_CHECKPOINTS_H

// Checkpoints that an attempt wrote down and that are not on this disk any more, though its log
// does not say so. Either the rank was killed as it removed one, or somebody else removed it. What
// was not sent of them never will be, and the coordinator need not wait for it. Pure but for the
// files. Thread: the node's loop.

#include "lib/base/arena.h"

// dir: of the attempt. checkpoints: of its job. out_paths ("a1/step-50") live in the arena.
TD_MUST_USE td_status td_gone_checkpoints(const char *dir, const char *checkpoints,
                                          struct td_arena *a, char ***out_paths, size_t *out_n);

#endif
