#ifndef TRAIND_LIB_ATTEMPT_SEGMENTS_H
#define TRAIND_LIB_ATTEMPT_SEGMENTS_H

// lib/attempt: what an attempt leaves in memory and on disk. Whoever runs ranks, trains in one or
// reads of them agrees here.
//
// In reading order:
//
//   segments.h         the files
//   events.def         the lines of their log, one row each
//   events.h           what these rows make, and the parser
//   event_writer.h     writes them
//   events_page.c      prints them as docs/events.md
//   rank_page.h        the memory that a launcher and a rank share
//   metric_names.h     names of metrics in its ring, and in the segments
//   rank_env.h         how a program of somebody's own learns which rank it is
//   report_message.h   what a launcher says to the child that reads a script's output, and back
//   store_message.h    what a rank and its launcher say about the rendezvous store
//   store_table.h      keys of that store and their values
//   store_client.h     the rank's end of it
//   exit_codes.h       a rank's exit codes
//   outcome.h          how a rank, a stage or an attempt ended
//   checkpoint_name.h  names of checkpoints and of their files
//   languages.h        numbers of what ranks of several nodes, and nodes, say
//   retention.h        which checkpoints are kept
//   devices.h          names of devices, one a rank
//   xids.h             errors of GPUs by number (xids.def), and what follows of them
//
// Segments: the files of an attempt, the contract between a launcher, its node and the coordinator.
//
// An attempt is an append-only log. One process writes it, the launcher; the node forwards it from
// the offset that the coordinator committed. Files live in <state>/attempts/<job>/a<N>/:
//
//   plan.json       what the ranks read; written by the node
//   record.json     who the launcher is (below); written by the launcher before it answers anyone
//   events.log      JSON lines, events.def
//   metrics.R.seg   64-byte td_metric_records of rank R, as drained from its ring; those that
//                   define long names come before their points (metric_names.h)
//   out.R.log err.R.log  stdout and stderr of rank R; together at most TD_SEGMENT_LOG_MAX, then
//                   bytes before the last ones are dropped and counted (launcher/output.h)
//   launcher.log    stderr of the launcher itself, for people
//   token.R         by which rank R shows who it is to the reports child (0600; absent where none
//                   listens); of this attempt alone
//   lost            written when events.log itself is lost: text, which file and how
//   lock            held by the living launcher; its text names it
//
// A file holds whole records only: a write that fails half way is cut back. rank_exit and
// launcher_end are on disk (fsync) before anyone learns of them. Offsets are byte offsets in the
// files.
//
// Lines of events.log: rows of events.def. Ranks' own are forwarded with "rank" and "real_ns"
// added, the launcher's have them, too. The first line is launched, the last one launcher_end.
//
// The end may be the node's: when the launcher is surely gone (pidfd readable or another boot) and
// the log has no launcher_end. The node, now the log's single writer, cuts an unfinished last line
// and appends launcher_lost with fsync. Ranks die with their launcher (parent-death signal), so
// nothing of the attempt runs any more. Its class:
//
// - node_lost after a reboot;
// - internal when only the launcher was killed;
// - internal, too, when events.log itself was removed, replaced or cut. Then "message" names it and
//   "code" is DATA_LOSS.
//
// Before that line come "checkpoint" lines of those that are whole on disk and that the log does
// not name. Before it also come blank lines, in place of what had been sent and is lost.
//
// record.json: {"format":1,"major":1,"minor":0,"build":"0.1.0","pid":P,"start_ticks":T,
//   "boot_id":"..","socket":"..","job":"..","attempt":N,"epoch":E,"world_size":W,"first_rank":F,
//   "n_ranks":K,"cores":"0-1:2-3","threads":T}
// "major" is of the frames (proto/traind/v1/launcher.proto): a node that speaks another major can
// still stop the launcher (SIGTERM: with a checkpoint) and forward its files. "minor" is raised by
// what an older reader may ignore (languages.h). Versions so far: 1.0; 1.1
// names the plugin of a crash in the rank's page (rank_page.h); 1.2 makes metrics of samples of
// devices that its node sends (launcher.proto, LAUNCHER_GPUS).

enum {
    TD_LAUNCHER_MAJOR = 1,
    TD_LAUNCHER_MINOR = 2,
    TD_RECORD_FORMAT = 1,
    TD_SEGMENT_LINE_MAX = 64 << 10, // of one events.log line
    TD_EVENT_MAX = 48 << 10,        // of an event as its rank sends it
    TD_EVENT_TEXT_BYTES = 4 << 10,  // of a text in one, with its NUL; a longer one ends in "..."
    TD_SEGMENT_LOG_MAX = 64 << 20,  // bytes of a rank's out and err together
    TD_LAUNCH_RANKS_MAX = 256,      // of one launcher
    TD_RECORD_MAX = 64 << 10,       // bytes of record.json
    TD_TOKEN_HEX = 65,              // of a rank's token: 64 digits and a NUL
};

#define TD_SEGMENT_PLAN         "plan.json"
#define TD_SEGMENT_RECORD       "record.json"
#define TD_SEGMENT_EVENTS       "events.log"
#define TD_SEGMENT_METRICS      "metrics.%u.seg" // rank
#define TD_SEGMENT_OUT          "out.%u.log"
#define TD_SEGMENT_ERR          "err.%u.log"
#define TD_SEGMENT_TOKEN        "token.%u" // rank
#define TD_SEGMENT_LAUNCHER_LOG "launcher.log"
#define TD_SEGMENT_LOST         "lost"
#define TD_SEGMENT_LOCK         "lock"

#endif
