#ifndef TRAIND_DAEMON_LAUNCHER_STORE_H
#define TRAIND_DAEMON_LAUNCHER_STORE_H

// The rendezvous store as a launcher has it. It has a socket to each of its ranks, what these have
// set, what was seen of other nodes' ranks, and what its ranks wait for.
//
// With all ranks of the attempt here it answers by itself. Else a key that a rank set here is sure
// once the coordinator has taken it. Until then the call waits, and so do those that get the key.
// What waits is said to the daemon on the link (store_frames.h), at most TD_STORE_FLYING values
// without an answer. When another daemon or another coordinator is there, all that the ranks of
// this node ever set is said again, and what they wait for. So neither of them has to keep it.
//
// A rank has one call at a time; a further one takes its place. A message that is none, or a key
// past the bounds, is answered with an error. An answer that finds no room is dropped, as its rank
// does not read. Bounds: those of traind/store.h, and a call a rank. Nothing here waits.
// Thread: the launcher's.

#include "lib/attempt/store_message.h"
#include "lib/attempt/store_table.h"

enum { TD_STORE_FLYING = 4 };

// A rank's call that waits for its answer.
struct td_launch_store_call {
    int fd; // ours; -1: none
    bool waits, said;
    enum td_store_call call;
    uint32_t id;
    char key[TD_STORE_KEY_MAX + 1];
};

struct td_launch_store {
    struct td_store_table table;
    bool alone; // all ranks of the attempt are here
    bool over;
    struct td_launch_store_call *calls; // (n_ranks)
    int32_t n_ranks;
    struct td_store_item **own; // (n_own) set by ranks of this node, in their order
    size_t n_own, unsaid;       // the first that may be unsaid
    size_t n_flying;
};

// What the daemon is to receive: a set (item) or a get (key).
struct td_launch_store_news {
    const char *key;
    const struct td_store_item *item; // NULL: a rank waits for key
};

TD_MUST_USE td_status td_launch_store_init(struct td_launch_store *s, int32_t n_ranks, bool alone);
void td_launch_store_finish(struct td_launch_store *s);

// Makes the socket of a rank; *out_theirs is the caller's, for the rank.
TD_MUST_USE td_status td_launch_store_connect(struct td_launch_store *s, int32_t idx,
                                              int *out_theirs);
// Its socket is readable: takes what is there, bounded. False: the rank has closed it.
bool td_launch_store_drain(struct td_launch_store *s, int32_t idx);
// The attempt is over: calls that wait, and further ones, are ABORTED.
void td_launch_store_end(struct td_launch_store *s);

// What is to be said next; false: nothing now. It then counts as said.
bool td_launch_store_next(struct td_launch_store *s, struct td_launch_store_news *out_news);
// What was said is said again. all: of a daemon or coordinator that knows nothing; else what has no
// answer yet, because some of it was dropped.
void td_launch_store_again(struct td_launch_store *s, bool all);
// Answers: key was taken (TD_CODE_OK), or is refused for this reason.
void td_launch_store_done(struct td_launch_store *s, const char *key, enum td_code code,
                          const char *why);
// The value of a key that a rank waits for, or waited.
void td_launch_store_value(struct td_launch_store *s, const char *key, const void *data,
                           size_t bytes);

#endif
