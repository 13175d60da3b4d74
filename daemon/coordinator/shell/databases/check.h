#ifndef TRAIND_DAEMON_COORDINATOR_SHELL_DATABASES_CHECK_H
#define TRAIND_DAEMON_COORDINATOR_SHELL_DATABASES_CHECK_H

// Looks for damage in both databases while nobody waits: SQLite's own check of its pages, of
// state.db also its indexes and the digests of its rows. A thread of its own with connections of
// its own that only read; a minute after the start, then each day. What it finds is reported on the
// loop, once for each database.
//
// metrics.db is marked, so that the next start moves it aside; a damaged state.db is for people to
// decide (`traind --salvage`).

#include "lib/base/base.h"

struct td_checker;
struct td_loop;

// after_ms 0: never. Strings are copied. on_damage from the loop; text dies when it returns.
TD_MUST_USE td_status td_checker_create(struct td_loop *loop, const char *dir, int64_t after_ms,
                                        void (*on_damage)(const char *text, void *arg), void *arg,
                                        struct td_checker **out_checker);
// Breaks a check off, joins.
void td_checker_destroy(struct td_checker *c);
TD_DEFINE_AUTO(td_checker, td_checker_destroy);

#endif
