#ifndef TRAIND_FABRIC_GROUP_MEMORY_H
#define TRAIND_FABRIC_GROUP_MEMORY_H

// Group memory: what the ranks of a program share, whose size only they can know.
//
// They inherit a memfd of TD_GROUP_HEADER_BYTES zero bytes (lib/attempt/rank_env.h). Rank 0 makes
// it as large as it has to be, allocates all of it, and says so in the header. The others wait for
// that word. They have a deadline, and leave when a peer is gone. So neither a launcher nor a
// parent has to be asked. A process maps it once.
//
// Under resources.memory_bytes a rank pays for its share: its limit of private memory, which no
// mapping of a file counts for, is lowered by that much. So all ranks together have no more than a
// training of the same limit has, whose launcher knows the size beforehand. Thread: training.

#include "lib/attempt/rank_env.h"
#include "lib/attempt/rank_page.h"

struct td_group_memory {
    const struct td_rank_env *env;
    const struct td_rank_page *page;
    bool is_first;      // of the ranks of this node: it grows the memory
    size_t bytes;       // after the header, the same on all of them
    int64_t timeout_ns; // trainer.save_timeout
};

// out_map is the caller's to munmap.
// Errors: RESOURCE_EXHAUSTED, class out_of_memory, on every rank where the first finds no room.
// FAILED_PRECONDITION: ranks that need different amounts, a descriptor that is no such memory.
// DEADLINE_EXCEEDED: the first did not come. ABORTED: a peer is gone.
TD_MUST_USE td_status td_group_memory_map(const struct td_group_memory *m, void **out_map);
// Lowers RLIMIT_DATA, where there is one, by this rank's share. RESOURCE_EXHAUSTED, class
// out_of_memory: it is not above that.
TD_MUST_USE td_status td_group_memory_charge(size_t share_bytes);

#endif
