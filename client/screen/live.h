#ifndef TRAIND_CLIENT_SCREEN_LIVE_H
#define TRAIND_CLIENT_SCREEN_LIVE_H

// Live: a page of text that is drawn again and again on the alternate screen of the terminal, until
// somebody presses q or Ctrl-C. What was on the terminal before is there again afterwards: after an
// error, SIGTERM and while it is stopped with Ctrl-Z, too.

#include "lib/base/buf.h"
#include "lib/loop/loop.h"

struct td_live;

// Takes the terminal on stdout; keys come from stdin if that is a terminal. Signals are the loop's
// from now on, which must outlive it.
TD_MUST_USE td_status td_live_create(struct td_loop *loop, struct td_live **out_live);
void td_live_destroy(struct td_live *l); // gives it back
TD_DEFINE_AUTO(td_live, td_live_destroy);

// Lines of text, each at most as wide as the screen; more than it has rows are left out.
TD_MUST_USE td_status td_live_show(struct td_live *l, const struct td_buf *text);
// Waits, less if the terminal was resized or a key was pressed.
TD_MUST_USE td_status td_live_wait(struct td_live *l, int64_t ns);
// q, Ctrl-C, or the terminal is gone.
bool td_live_is_over(const struct td_live *l);
// SIGTERM or SIGHUP, which ends the program once the terminal is given back; else 0.
int td_live_signal(const struct td_live *l);

#endif
