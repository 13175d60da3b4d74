#ifndef TRAIND_DAEMON_RENEWAL_H
#define TRAIND_DAEMON_RENEWAL_H

// Keeps the certificate of a node that joined fresh. At two thirds of its life the node asks for
// the next, by the one it has, and the channel goes on with that. At the start it asks at once if
// less than a third is left, or if it has ended meanwhile; the coordinator gives one for a while
// after the end. What fails is tried again. After the first answer times come from the coordinator
// and the monotonic clock, so a clock that is wrong here costs one renewal. Loop's thread.

#include "daemon/join.h"

struct td_renewal;
struct td_rpc_channel;

// Strings and files are copied, the channel is borrowed: destroy comes before its. Errors: the
// certificate's file cannot be read, or holds none.
TD_MUST_USE td_status td_renewal_create(struct td_loop *loop, struct td_rpc_channel *channel,
                                        const struct td_join_files *files, const char *node_id,
                                        struct td_renewal **out_renewal);
void td_renewal_destroy(struct td_renewal *r);
TD_DEFINE_AUTO(td_renewal, td_renewal_destroy);

#endif
