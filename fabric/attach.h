#ifndef TRAIND_FABRIC_ATTACH_H
#define TRAIND_FABRIC_ATTACH_H

// Attach: the page, ring, sockets and group mapping that the launcher handed down as descriptors,
// or private ones for a run by hand. Everything that comes from outside is checked before use.

#include "fabric/configure/configure.h"
#include "engine/train/config/config.h"

struct td_rank_io {
    struct td_train_io train;
    struct td_store_client *store; // what train.store is; NULL: none
    void *page_map;
    size_t page_bytes;
};

TD_MUST_USE td_status td_rank_attach(const struct td_rank_args *args, struct td_rank_io *out_io);
void td_rank_detach(struct td_rank_io *io);
// Maps the group of this node's ranks, which one rank has no need of; its size was checked against
// the plan by whoever made it.
TD_MUST_USE td_status td_rank_attach_group(const struct td_rank_args *args,
                                           int32_t local_world_size, struct td_rank_io *io);

#endif
