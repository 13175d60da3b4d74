#ifndef TRAIND_LIB_LOOP_LOOP_H
#define TRAIND_LIB_LOOP_LOOP_H

// Event loop: one thread that owns all the state of a daemon. libevent, wrapped.
//
// The thread that creates a loop owns it until another one calls td_loop_run. Everything here is
// for the owner, but for td_loop_post, td_loop_wakeup_send and td_loop_stop, which any thread may
// call. They push onto a lock-free list (many producers, one consumer) and write an eventfd when
// the list was empty. Posts of one thread run in their order. What is posted from the loop's own
// thread runs in the next turn: that is the deferred call.
//
// Callbacks may create and destroy any watch, timer, signal or wake-up, their own included. Timers
// count with the kernel's monotonic clock and are not touched by td_clock_fake; pure cores are
// given `now` by their shell. The loop never polls: idle, it sleeps in epoll_wait without a
// timeout.
//
// Rejected: libevent's own thread support (locks on every call), and one pipe per producer.

#include "lib/base/base.h"

struct td_loop;
struct td_loop_fd;
struct td_loop_timer;
struct td_loop_signal;
struct td_loop_wakeup;
struct td_loop_turn;

typedef void td_loop_fn(void *arg);

TD_MUST_USE td_status td_loop_create(struct td_loop **out_loop);
// Runs what is still posted, then frees. Watches, timers, signals and wake-ups must be gone.
void td_loop_destroy(struct td_loop *loop);
TD_DEFINE_AUTO(td_loop, td_loop_destroy);

// Runs callbacks until td_loop_stop; the caller becomes the owner. INTERNAL: epoll failed.
TD_MUST_USE td_status td_loop_run(struct td_loop *loop);
// The same until *done is true, at most timeout_ns (then DEADLINE_EXCEEDED). CANCELLED:
// td_loop_stop was called. For command line tools and tests; never from inside a callback.
TD_MUST_USE td_status td_loop_run_until(struct td_loop *loop, const bool *done, int64_t timeout_ns);
// The same, but all of the time may pass: that is no failure. done: NULL for nothing but the time.
TD_MUST_USE td_status td_loop_run_for(struct td_loop *loop, const bool *done, int64_t ns);
// Ends the current run, or the next one if none is going on. Any thread; not from signal handlers.
void td_loop_stop(struct td_loop *loop);

bool td_loop_is_owner(const struct td_loop *loop);
#define TD_ON_LOOP(loop) TD_CHECK(td_loop_is_owner(loop))

// ---- posts, from any thread -------------------------------------------------------------------
// Runs fn once. RESOURCE_EXHAUSTED: out of memory, it will not run.
TD_MUST_USE td_status td_loop_post(struct td_loop *loop, td_loop_fn *fn, void *arg);

// For a thread that leaves its results in a list of its own: fn runs in the next turn, once for all
// that was sent before it began. Sending cannot fail; fn may send again, and destroy. Destroyed on
// the loop, when nobody sends any more; what is on its way is dropped then.
TD_MUST_USE td_status td_loop_wakeup_create(struct td_loop *loop, td_loop_fn *fn, void *arg,
                                            struct td_loop_wakeup **out_wakeup);
void td_loop_wakeup_send(struct td_loop_wakeup *wakeup);
void td_loop_wakeup_destroy(struct td_loop_wakeup *wakeup);
TD_DEFINE_AUTO(td_loop_wakeup, td_loop_wakeup_destroy);

// ---- the end of a turn ------------------------------------------------------------------------
// fn runs at the end of each turn, after everything that the turn brought and before the loop
// waits. It is for what is done once for all of that. A run begins with it, too, because something
// may have come before. What fn leaves for later needs a timer or a post. Neither is called from
// within fn.
TD_MUST_USE td_status td_loop_turn_create(struct td_loop *loop, td_loop_fn *fn, void *arg,
                                          struct td_loop_turn **out_turn);
void td_loop_turn_destroy(struct td_loop_turn *turn);
TD_DEFINE_AUTO(td_loop_turn, td_loop_turn_destroy);

// ---- descriptors ------------------------------------------------------------------------------
// Calls when a descriptor is readable, which a hang-up or error is, too: the next read says so. The
// descriptor stays the caller's and must outlive the watch. Level-triggered unless EDGE. WRITE:
// calls when it is writable instead; a descriptor with a watch of either kind has both EDGE or
// neither.
enum td_loop_fd_create_flags { TD_LOOP_FD_EDGE = 1 << 0, TD_LOOP_FD_WRITE = 1 << 1 };
typedef void td_loop_fd_fn(int fd, void *arg);
TD_MUST_USE td_status td_loop_fd_create(struct td_loop *loop, int fd, int flags, td_loop_fd_fn *fn,
                                        void *arg, struct td_loop_fd **out_fd);
void td_loop_fd_destroy(struct td_loop_fd *watch);
TD_DEFINE_AUTO(td_loop_fd, td_loop_fd_destroy);

// ---- timers -----------------------------------------------------------------------------------
// Created disarmed. Arming an armed timer replaces its time; after_ns <= 0 fires in the next turn.
TD_MUST_USE td_status td_loop_timer_create(struct td_loop *loop, td_loop_fn *fn, void *arg,
                                           struct td_loop_timer **out_timer);
void td_loop_timer_arm(struct td_loop_timer *timer, int64_t after_ns);
void td_loop_timer_disarm(struct td_loop_timer *timer);
bool td_loop_timer_is_armed(const struct td_loop_timer *timer);
void td_loop_timer_destroy(struct td_loop_timer *timer);
TD_DEFINE_AUTO(td_loop_timer, td_loop_timer_destroy);

// ---- signals ----------------------------------------------------------------------------------
// fn runs on the loop, not in the handler. One loop of a process may watch signals.
TD_MUST_USE td_status td_loop_signal_create(struct td_loop *loop, int signo, td_loop_fn *fn,
                                            void *arg, struct td_loop_signal **out_signal);
void td_loop_signal_destroy(struct td_loop_signal *signal);
TD_DEFINE_AUTO(td_loop_signal, td_loop_signal_destroy);

#endif
