#ifndef TRAIND_LIB_ATTEMPT_STORE_CLIENT_H
#define TRAIND_LIB_ATTEMPT_STORE_CLIENT_H

// Store client: a rank's end of the rendezvous store (traind/store.h), over the socket that its
// launcher handed down (store_message.h).
//
// A call sends its request and waits for the answer, at most until its deadline. One that gave up
// leaves the launcher with a request that the next call replaces. When the launcher is gone, or
// says that the attempt is over, calls are ABORTED. Failures that end the attempt have class
// collective, as those of the connection have that the store is for. Thread: one at a time.

#include "lib/base/base.h"
#include "traind/store.h"

// Of set, which has no deadline of its caller: a coordinator or a node daemon that is started again
// is back by then.
#define TD_STORE_SET_NS (300 * TD_NS_PER_S)

struct td_store_client;
// fd is borrowed. set_timeout_ns: of set.
TD_MUST_USE td_status td_store_client_create(int fd, int64_t set_timeout_ns,
                                             struct td_store_client **out_client);
void td_store_client_destroy(struct td_store_client *c);
TD_DEFINE_AUTO(td_store_client, td_store_client_destroy);
struct td_store *td_store_client_store(struct td_store_client *c); // dies with the client

#endif
