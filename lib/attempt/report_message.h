#ifndef TRAIND_LIB_ATTEMPT_REPORT_MESSAGE_H
#define TRAIND_LIB_ATTEMPT_REPORT_MESSAGE_H

// Messages between a launcher and its child that turns what a script says into metrics
// (daemon/launcher/reports, daemon/worker/reports), on one socket that keeps messages apart
// (SOCK_SEQPACKET).
//
// The launcher sends a byte that says what follows:
//
//   TD_REPORT_KEPT_LINES  once, first: what the child before this one left, a line "NAME TEXT" each
//   TD_REPORT_LINES       whole lines of stdout, each with its end, "\n" or "\r"
//   TD_REPORT_END         nothing: no more comes, and all that is known is to be said now
//
// It never waits: where the socket is full, lines are dropped. A line that is longer than
// TD_REPORT_LINE is cut to one byte more than that, so that it is seen to be too long.
//
// The child sends JSON objects, one a line, several in a message of at most TD_REPORT_MAX bytes:
//
//   {"ready": true}                   once, first
//   {"rank": 0, "step": 10, "total_steps": 100, "epoch": 0, "metrics": {"loss": 0.3}}
//   {"rank": 0, "step": 10, "metrics": {"loss": 0.3}, "aside": true, "kept": ["NAME", "TEXT"]}
//   {"note": "text for people"}
//   {"over": true}                    after TD_REPORT_END, last
//
// `aside`: the step is progress only where nothing else has said one. `kept`: where the child goes
// on after this report. The launcher keeps the newest TEXT of a NAME, TD_REPORT_KEPT_MAX names, and
// hands them to a child that takes this one's place. As both are in one line, no report is lost or
// comes twice by that.
//
// A report means what it would mean on TRAIND_FD (daemon/launcher/command/talk.h). The child waits
// where the socket is full, and the launcher takes a bounded amount at a time. Both ends are of one
// build, so there is no version.

enum {
    TD_REPORT_KEPT_LINES = 'K',
    TD_REPORT_LINES = 'L',
    TD_REPORT_END = 'E',
    TD_REPORT_LINE = 4096,
    TD_REPORT_MAX = 16 << 10,
    TD_REPORT_BLOCK = 80 << 10, // the largest message of lines
    TD_REPORT_KEPT_MAX = 1024,
    TD_REPORT_KEPT_NAME = 36, // with their zeros
    TD_REPORT_KEPT = 32,
};
_Static_assert(TD_REPORT_KEPT_MAX *(TD_REPORT_KEPT_NAME + TD_REPORT_KEPT) < TD_REPORT_BLOCK,
               "all that is kept is one message");

#endif
