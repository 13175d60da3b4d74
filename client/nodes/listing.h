#ifndef TRAIND_CLIENT_NODES_LISTING_H
#define TRAIND_CLIENT_NODES_LISTING_H

// Listing: all nodes, as ListNodes gives them, and one among them. Verbs that show a node look here
// and ask for no node alone, so that an older coordinator can be asked, too.

#include "client/session/pages.h"
#include "traind/v1/admin.pb-c.h"

// All pages. p is all zero, or quiet; the caller's to finish, also after a failure.
TD_MUST_USE td_status td_listing_read(struct td_session *s, struct td_pages *p);
// NULL: it is not there. Borrowed from p, as the next.
const Traind__V1__Node *td_listing_with_id(const struct td_pages *p, const char *id);
// By its id, else by its name. Of several with that name the one that is connected is meant, as the
// coordinator takes it. Errors: NOT_FOUND; INVALID_ARGUMENT, with the ids.
TD_MUST_USE td_status td_listing_find(const struct td_pages *p, const char *said,
                                      const Traind__V1__Node **out_node);

#endif
