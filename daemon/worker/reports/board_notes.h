#ifndef TRAIND_DAEMON_WORKER_REPORTS_BOARD_NOTES_H
#define TRAIND_DAEMON_WORKER_REPORTS_BOARD_NOTES_H

// What is said of event files that cannot be followed as they are. The first of each kind is a note
// of the job. All are counted, and a note at the end has the numbers. Thread: one.

#include "lib/base/base.h"

struct td_report_sink;

enum td_board_odd {
    TD_BOARD_LINK,      // a link, or no regular file
    TD_BOARD_UNREAD,    // an error of the file system
    TD_BOARD_REWRITTEN, // begun again
    TD_BOARD_DAMAGED,   // a checksum that is not of its bytes
    TD_BOARD_LARGE,     // a record past the bound
    TD_BOARD_NO_EVENT,  // a record that is no event, or a step that no metric can have
    TD_BOARD_MANY,      // files and directories past the bounds
    TD_BOARD_TORN,      // at the end: a file that ends within a record
    TD_BOARD_ODDS,
};

struct td_board_notes {
    struct td_report_sink *sink;
    uint64_t n[TD_BOARD_ODDS];
};
// Counts one. Of the first of its kind it is also said; path is of the file, below the directory.
void td_board_note(struct td_board_notes *notes, enum td_board_odd odd, const char *path,
                   const char *fmt, ...) TD_PRINTF(4, 5);
// Nothing where no kind came twice: then all is said.
void td_board_notes_end(struct td_board_notes *notes);

#endif
