#ifndef TRAIND_DAEMON_LAUNCHER_JOURNAL_H
#define TRAIND_DAEMON_LAUNCHER_JOURNAL_H

// Journal: the one writer of an attempt's events.log (segments.h lists its lines).
//
// A line is appended whole or not at all. While the disk is full, lines wait in memory (1 MiB, then
// further ones are dropped and logged) and are tried again with each append and each flush: the
// end of an attempt must not be lost to a full disk that somebody then clears.

#include "daemon/launcher/file.h"
#include "lib/base/json.h"

struct td_journal {
    int fd;
    struct td_launch_file file;
    uint64_t bytes; // in the file
    struct td_buf pending;
    struct td_arena *arena; // of one line, reset each time
};

TD_MUST_USE td_status td_journal_init(struct td_journal *j, const char *dir);
void td_journal_finish(struct td_journal *j);

// A new object {"event": name, "real_ns": now} in the journal's arena; add members, then append.
// NULL when memory is out; append accepts that.
struct td_json *td_journal_begin(struct td_journal *j, const char *name);
void td_journal_set_str(struct td_journal *j, struct td_json *line, const char *key,
                        const char *value);
void td_journal_set_int(struct td_journal *j, struct td_json *line, const char *key, int64_t value);
void td_journal_append(struct td_journal *j, const struct td_json *line);
// A rank's own datagram: one JSON object, to which rank and real_ns are added. *out_line is good
// until the next begin or forward. INVALID_ARGUMENT: not an object with "event", or an event that
// is not a rank's to report.
TD_MUST_USE td_status td_journal_forward(struct td_journal *j, uint32_t rank, const char *text,
                                         size_t bytes, const struct td_json **out_line);
void td_journal_flush(struct td_journal *j);
// Flush and fsync; an error is kept for the log only.
TD_MUST_USE td_status td_journal_sync(struct td_journal *j);

#endif
