#ifndef TRAIND_LIB_RPC_FRONT_NOTICES_H
#define TRAIND_LIB_RPC_FRONT_NOTICES_H

// What the front says to the people of this machine, on its way from its thread to the home loop:
// one text per kind that waits to be taken. So a flood costs the log a line every few seconds, with
// a count. Private to lib/rpc.

#include "lib/base/base.h"

struct td_loop;
struct td_notices;

enum td_notice {
    TD_NOTICE_CUT,
    TD_NOTICE_REPLACED,
    TD_NOTICE_REFUSED,
    TD_NOTICE_NO_DESCRIPTORS,
    TD_NOTICE_HANDSHAKE_FAILED,
    TD_NOTICE_HANDSHAKE_LATE,
    TD_NOTICE_CERTIFICATES,
    TD_NOTICE_CERTIFICATE_ENDS,
    TD_NOTICE_LOOP_FAILED,
    TD_N_NOTICES
};

// on_notice is called on the home loop, where this is created and destroyed.
TD_MUST_USE td_status td_notices_create(struct td_loop *home,
                                        void (*on_notice)(const char *text, void *ctx), void *ctx,
                                        struct td_notices **out_notices);
void td_notices_destroy(struct td_notices *n);
TD_DEFINE_AUTO(td_notices, td_notices_destroy);

// The front's thread, and before it starts the home loop's. Counted always; the text is given
// unless one of its kind was a few seconds ago. Of the two about certificates each text is given,
// unless a newer one of its kind comes before the home loop has taken it.
TD_PRINTF(3, 4)
void td_notify_home(struct td_notices *n, enum td_notice kind, const char *fmt, ...);
// How many there were of a kind. Any thread.
uint32_t td_notices_total(const struct td_notices *n, enum td_notice kind);

#endif
