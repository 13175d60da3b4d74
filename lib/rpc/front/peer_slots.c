// A share lives as long as its source has a place. Its number of strangers is only what the last
// count has found, since a connection is trusted by a call in another thread.

#include "lib/rpc/front/peer_slots.h"

#include <stdlib.h>

struct td_peer_share {
    struct td_peer_share *next;
    struct td_source source;
    uint32_t n_places, n_strangers;
};

static struct td_peer_share **find(struct td_peer_share **at, const struct td_source *source) {
    while (*at && !td_source_equal(&(*at)->source, source)) {
        at = &(*at)->next;
    }
    return at;
}

td_status td_peer_slots_add(struct td_peer_slots *p, const struct td_source *source, void *owner,
                            struct td_peer_slot *out_place) {
    struct td_peer_share **share = find(&p->shares, source);
    if (!*share) {
        *share = td_calloc(1, sizeof **share);
        if (!*share) return td_fail_oom();
        (*share)->source = *source;
    }
    (*share)->n_places++;
    *out_place = (struct td_peer_slot){.share = *share, .owner = owner};
    struct td_peer_slot **last = &p->first;
    while (*last) {
        last = &(*last)->next;
    }
    *last = out_place;
    return TD_OK;
}

void td_peer_slots_remove(struct td_peer_slots *p, struct td_peer_slot *place) {
    struct td_peer_slot **at = &p->first;
    while (*at != place) {
        at = &(*at)->next;
    }
    *at = place->next;
    if (--place->share->n_places > 0) return;
    struct td_peer_share **share = find(&p->shares, &place->share->source);
    *share = place->share->next;
    free(place->share);
}

// The oldest stranger of this source; of any that has so many if it is NULL.
static void *oldest(const struct td_peer_slots *p, const struct td_peer_share *share,
                    uint32_t n_strangers) {
    for (const struct td_peer_slot *at = p->first; at; at = at->next) {
        bool is_there = share ? at->share == share : at->share->n_strangers == n_strangers;
        if (is_there && p->kind_of(at->owner) == TD_PEER_PLACE_STRANGER) return at->owner;
    }
    return NULL;
}

struct td_peer_slots_count td_peer_slots_count(const struct td_peer_slots *p,
                                               const struct td_source *newcomer) {
    struct td_peer_slots_count c = {0};
    struct td_peer_share *shares = p->shares;
    const struct td_peer_share *own = newcomer ? *find(&shares, newcomer) : NULL;
    uint32_t most = 0;
    for (struct td_peer_share *s = p->shares; s; s = s->next) {
        s->n_strangers = 0;
    }
    for (const struct td_peer_slot *at = p->first; at; at = at->next) {
        enum td_peer_slot_kind kind = p->kind_of(at->owner);
        if (kind == TD_PEER_PLACE_UNCOUNTED) continue;
        c.all++;
        c.of_source += at->share == own;
        if (kind == TD_PEER_PLACE_TRUSTED) continue;
        c.strangers++;
        most = TD_MAX(most, ++at->share->n_strangers);
    }
    if (own) c.strangers_of_source = own->n_strangers;
    if (c.strangers_of_source) c.oldest_of_source = oldest(p, own, 0);
    if (c.strangers) c.oldest_of_most = oldest(p, NULL, most);
    if (c.strangers_of_source + 1 > most && own) c.oldest_of_most = c.oldest_of_source;
    return c;
}
