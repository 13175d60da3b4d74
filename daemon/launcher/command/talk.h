#ifndef TRAIND_DAEMON_LAUNCHER_COMMAND_TALK_H
#define TRAIND_DAEMON_LAUNCHER_COMMAND_TALK_H

// Talk: what a rank of `kind: command` says on TRAIND_FD, and what is said to it there.
//
// TRAIND_FD is one end of a Unix socket that keeps messages apart (SOCK_SEQPACKET). A rank writes
// JSON objects, one a line, whole lines in one write of at most TD_EVENT_MAX bytes:
//
//   {"step": 10, "epoch": 0, "total_steps": 100, "samples": 640, "metrics": {"loss": 0.3}}
//   {"checkpoint": {"path": "/data/ckpt-10", "step": 10, "epoch": 0, "metrics": {"loss": 0.3}}}
//   {"note": "text for people"}
//
// Every key may be absent. A line without a step belongs to the rank's last one; a rank that never
// named any counts its lines with metrics. A value may be the text "nan", "inf" or "-inf". What
// becomes of a value that is said again: talk_values.h. A registered checkpoint closes all values
// of its rank, as they are to be in the files before it is. The launcher sends {"stop":
// "checkpoint"} or {"stop": "now"}, once each, and {"save": true} when somebody asks for a
// checkpoint. Whoever never writes need not read.
//
// A line that has anything else is dropped whole, and a note says so: the first TD_TALK_NOTES of a
// rank, which are also all of its own that are kept. Metrics go through the ring, as a worker's do:
// a full one drops and counts. What is sent waits in the socket, which holds some hundred of them;
// one more is dropped, and SIGTERM says the same as the stop.
//
// Thread: the launcher's.

#include "daemon/launcher/state.h"
#include "lib/base/json.h"

enum { TD_TALK_NOTES = 64 };

// Takes what is there, bounded, without blocking.
void td_talk_drain(struct td_launcher *l, struct td_launch_rank *r);
void td_talk_end(struct td_launcher *l, struct td_launch_rank *r); // it is gone: takes the rest
// What the reports child found out of a rank: an object with "rank", and of a line above step,
// epoch, total_steps and metrics. With "aside" the step is progress only while neither the rank nor
// another report has named one.
void td_talk_report(struct td_launcher *l, const struct td_json *v);
void td_talk_look(struct td_launcher *l); // often: values that are closed by now leave
// Both: to ranks that run.
void td_talk_stop(struct td_launcher *l, int mode); // enum td_stop_mode
void td_talk_save(struct td_launcher *l);
// What the trampoline answered, of a program too: it runs, or errno.
void td_talk_answer(struct td_launcher *l, struct td_launch_rank *r);

#endif
