// See the header.

#include "client/nodes/listing.h"

#include <string.h>

#include "client/session/session.h"
#include "lib/base/clip.h"

td_status td_listing_read(struct td_session *s, struct td_pages *p) {
    Traind__V1__ListNodesRequest request = TRAIND__V1__LIST_NODES_REQUEST__INIT;
    return td_pages_read(s, "/traind.v1.NodeAdminService/ListNodes", &request.base,
                         &traind__v1__list_nodes_response__descriptor, "nodes", p);
}

const Traind__V1__Node *td_listing_with_id(const struct td_pages *p, const char *id) {
    for (size_t i = 0; i < p->n_items; i++) {
        const Traind__V1__Node *n = p->item[i];
        if (strcmp(n->id, id) == 0) return n;
    }
    return NULL;
}

// One of another build is not: it is listed for its refusal, or it gets no jobs.
static bool is_connected(const Traind__V1__Node *n) {
    return n->state == TRAIND__V1__NODE__STATE__READY ||
           n->state == TRAIND__V1__NODE__STATE__DRAINING ||
           n->state == TRAIND__V1__NODE__STATE__TROUBLED;
}

td_status td_listing_find(const struct td_pages *p, const char *said,
                          const Traind__V1__Node **out_node) {
    const Traind__V1__Node *found = td_listing_with_id(p, said), *named = NULL, *connected = NULL;
    char ids[256];
    struct td_clip_list list;
    size_t n_named = 0, n_connected = 0;
    td_clip_list_init(&list, ids, sizeof ids, ", ");
    for (size_t i = 0; !found && i < p->n_items; i++) {
        const Traind__V1__Node *n = p->item[i];
        if (strcmp(n->name, said) != 0) continue;
        named = n;
        n_named++;
        if (is_connected(n)) connected = n;
        n_connected += is_connected(n);
        td_clip_list_add(&list, "%s", n->id);
    }
    if (!found) found = n_named == 1 ? named : n_connected == 1 ? connected : NULL;
    if (found) {
        *out_node = found;
        return TD_OK;
    }
    if (n_named) {
        return td_fail(TD_INVALID_ARGUMENT, "%zu nodes are called '%s'; give the id of one: %s",
                       n_named, said, ids);
    }
    return td_fail(TD_NOT_FOUND, "no node has the name or id '%s'; `trainctl node list` has all",
                   said);
}
