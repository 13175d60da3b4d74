#ifndef TRAIND_DAEMON_WORKER_REPORTS_BOARD_H
#define TRAIND_DAEMON_WORKER_REPORTS_BOARD_H

// Board: the source of TensorBoard's event files (`loggers_in.tensorboard`). What a program writes
// for TensorBoard becomes metrics of rank 0 while it writes it.
//
//   board.h        the clock, what a record becomes, the end
//   board_tree.h   the directory, and which files are in it
//   board_file.h   one file: how far it was read
//   board_event.h  the scalars of one event
//   board_notes.h  what is said of files that cannot be followed
//
// A series is the path of the file's directory below the root, '/', and the tag; the tag alone
// where the file is in the root itself. The step is the event's. It is progress of the rank where
// nothing else gives one.
//
// A record counts if its own time is not before the attempt began (`since`). What other runs and
// earlier attempts left in the directory is passed over by that, whichever file it is in. Rejected:
// the lengths of files at the beginning. To ask for them may take long, and a program has written
// by then.
//
// Directory and files are looked at each 100 ms, since no file system of another machine says when
// a file has grown. What is long is read in turns (board_file.h); other sources run between these.
// Each report carries how far its file was read. A child that takes this one's place gets these
// back first, and goes on there.
//
// Settings: {"dir": "/../runs", "rules": "{..}", "since": N}. `rules` are those of paths ("": there
// are none), `since` is in ns since 1970. Bounds: a buffer of 1 MiB, and those of the tree.
// Thread: the loop's.

#include "lib/base/json.h"
#include "lib/loop/loop.h"

struct td_report_sink;
struct td_board;
TD_MUST_USE td_status td_board_create(const struct td_json *settings, struct td_loop *loop,
                                      struct td_report_sink *sink, struct td_board **out_board);
void td_board_destroy(struct td_board *b); // accepts NULL; says nothing
TD_DEFINE_AUTO(td_board, td_board_destroy);
// Where the child before this one was: lines of TD_REPORT_KEPT_LINES. It begins to look then.
void td_board_begin(struct td_board *b, const char *lines, size_t bytes);
// Nothing more is written: reads what is there, for 3 s at most, and says what there is to say.
void td_board_end(struct td_board *b);

#endif
