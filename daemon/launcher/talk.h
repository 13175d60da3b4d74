#ifndef TRAIND_DAEMON_LAUNCHER_TALK_H
#define TRAIND_DAEMON_LAUNCHER_TALK_H

// Talk: what a rank of `kind: command` says on TRAIND_FD, and what is said to it there.
//
// TRAIND_FD is one end of a Unix socket that keeps messages apart (SOCK_SEQPACKET). A rank writes
// JSON objects, one a line, whole lines in one write of at most TD_EVENT_MAX bytes:
//
//   {"step": 10, "epoch": 0, "total_steps": 100, "samples": 640, "metrics": {"loss": 0.3}}
//   {"checkpoint": {"path": "/data/ckpt-10", "step": 10, "epoch": 0, "metrics": {"loss": 0.3}}}
//   {"note": "text for people"}
//
// Every key may be absent. The launcher sends {"stop": "checkpoint"} or {"stop": "now"}, once each,
// and {"save": true} when somebody asks for a checkpoint. Whoever never writes need not read.
//
// A line that is none of these is dropped, and a note says so: the first TD_TALK_NOTES of a rank,
// which are also all of its own that are kept. Metrics go through the ring, as a worker's do: a
// full one drops and counts. What is sent waits in the socket, which holds some hundred of them;
// one more is dropped, and SIGTERM says the same as the stop.
//
// Thread: the launcher's.

#include "daemon/launcher/state.h"

enum { TD_TALK_NOTES = 64 };

// Takes what is there, bounded, without blocking.
void td_talk_drain(struct td_launcher *l, struct td_launch_rank *r);
// Both: to ranks that run.
void td_talk_stop(struct td_launcher *l, int mode); // enum td_stop_mode
void td_talk_save(struct td_launcher *l);
// What the trampoline answered, of a program too: it runs, or errno.
void td_talk_answer(struct td_launcher *l, struct td_launch_rank *r);

#endif
