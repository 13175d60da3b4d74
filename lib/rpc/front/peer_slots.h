#ifndef TRAIND_LIB_RPC_FRONT_PEER_SLOTS_H
#define TRAIND_LIB_RPC_FRONT_PEER_SLOTS_H

// Connections by their source, oldest first, and which of them gives way where there are too many:
// the oldest stranger of the source that has the most strangers. So a source that connects without
// end takes places from itself, however far away the others are and however long they need.
//
// Who owns a connection has a place in it. Counting looks at each: they are few. Private to
// lib/rpc; one thread at a time.

#include "lib/rpc/front/source.h"

struct td_peer_share; // what one source has

struct td_peer_slot {
    struct td_peer_slot *next; // older ones first
    struct td_peer_share *share;
    void *owner;
};

enum td_peer_slot_kind {
    TD_PEER_PLACE_STRANGER,
    TD_PEER_PLACE_TRUSTED,
    TD_PEER_PLACE_UNCOUNTED, // about to go, or counted apart
};

// Zeroed but for kind_of: nobody is here.
struct td_peer_slots {
    struct td_peer_slot *first;
    struct td_peer_share *shares;
    enum td_peer_slot_kind (*kind_of)(void *owner);
};

// As the newest one.
TD_MUST_USE td_status td_peer_slots_add(struct td_peer_slots *p, const struct td_source *source,
                                        void *owner, struct td_peer_slot *out_place);
void td_peer_slots_remove(struct td_peer_slots *p, struct td_peer_slot *place);

struct td_peer_slots_count {
    uint32_t all, of_source, strangers, strangers_of_source;
    // Owners of strangers; NULL: there is none.
    void *oldest_of_source;
    void *oldest_of_most; // of the newcomer's source, if none has more
};
// Before a newcomer of that source is added; NULL: there is no newcomer.
struct td_peer_slots_count td_peer_slots_count(const struct td_peer_slots *p,
                                               const struct td_source *newcomer);

#endif
