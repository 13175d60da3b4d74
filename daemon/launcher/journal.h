#ifndef TRAIND_DAEMON_LAUNCHER_JOURNAL_H
#define TRAIND_DAEMON_LAUNCHER_JOURNAL_H

// Journal: the one writer of an attempt's events.log (events.def lists its lines).
//
// A line is appended whole or not at all. While the disk is full, lines wait in memory (1 MiB, then
// further ones are dropped and logged) and are tried again with each append and each flush. The end
// of an attempt must not be lost to a full disk that somebody then clears.

#include "daemon/launcher/watchdog/file.h"
#include "lib/attempt/event_writer.h"

struct td_journal {
    int fd;
    struct td_launch_file file;
    uint64_t bytes; // in the file
    struct td_buf pending;
    size_t whole;           // bytes of pending before the line that is being written
    struct td_arena *arena; // of one line of a rank, reset each time
};

TD_MUST_USE td_status td_journal_init(struct td_journal *j, const char *dir);
void td_journal_finish(struct td_journal *j);

// Begins a line with its event and the time, at the end of pending: write its fields, then append,
// with nothing else of the journal in between.
void td_journal_begin(struct td_journal *j, enum td_event_kind kind,
                      struct td_event_writer *out_line);
void td_journal_append(struct td_journal *j, struct td_event_writer *line);
// A rank's own datagram: one event, to which rank and real_ns are added. *out_event is good until
// the next forward. INVALID_ARGUMENT: not an object with "event", one that does not fit its row, or
// one that is not a rank's to report.
TD_MUST_USE td_status td_journal_forward(struct td_journal *j, uint32_t rank, const char *text,
                                         size_t bytes, struct td_event *out_event);
void td_journal_flush(struct td_journal *j);
// Flush and fsync; an error is kept for the log only.
TD_MUST_USE td_status td_journal_sync(struct td_journal *j);

#endif
