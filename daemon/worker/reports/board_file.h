#ifndef TRAIND_DAEMON_WORKER_REPORTS_BOARD_FILE_H
#define TRAIND_DAEMON_WORKER_REPORTS_BOARD_FILE_H

// One event file that is followed: how far it was read, and what comes next.
//
// It is followed as far as it is whole. A record whose end has not come is waited for. At one with
// a wrong checksum reading stops: where the next begins is not known. It is tried again when the
// file has changed, because a file system may show the pieces of a write one after another. It is
// said when it has been so for 5 s. A record over TD_BOARD_RECORD bytes is passed over unread: it
// is an image or a graph.
//
// A file that was cut or written again is read from its beginning. It is known by two things: it is
// shorter than what was read, or its first bytes are others. The first record has the time at which
// the file was made, so its checksum is another one in each file. A copy that takes the file's name
// is the same file.
//
// Bounds of a turn: 256 records, and 1 MiB and one record. So a long file holds up none of the
// others. Thread: one.

#include <sys/stat.h>

#include "lib/base/base.h"
#include "lib/base/clock.h"

struct td_board_notes;

enum {
    TD_BOARD_RECORD = 1 << 20,              // bytes of an event that is read
    TD_BOARD_BUFFER = TD_BOARD_RECORD + 16, // of a record
    TD_BOARD_PRINT = 24,                    // first bytes: their record's head, and its time
};

// Where a file is, and how far it was taken: all that another process needs to go on with it.
struct td_board_mark {
    uint64_t device, inode;
    uint64_t at;      // bytes that were taken
    uint32_t print;   // checksum of the first bytes,
    uint32_t n_print; // of so many; 0: nothing was taken
};

struct td_board_file {
    char *path;       // below the directory; its own
    size_t dir_bytes; // of the directory in it; 0: there is none
    struct td_board_mark mark;
    int64_t bytes, changed_ns; // as it was seen last
    bool more;                 // not all of that was read
    bool torn;                 // it ends within a record
    struct td_mono bad_since;  // it is damaged at mark.at; ns 0: it is not
    bool bad_said;
};

void td_board_file_finish(struct td_board_file *f);

// Is there anything to read, or to try again? st: of its name, links not followed.
bool td_board_file_calls(const struct td_board_file *f, const struct stat *st);

// As if it had been read like this.
void td_board_file_seen(struct td_board_file *f, const struct stat *st);

// What is done with an event; f->mark is after it.
typedef void td_board_take(void *arg, const struct td_board_file *f, struct td_str event);
// A turn of reading. fd: of the file; buffer: TD_BOARD_BUFFER bytes. An error is of the file
// system.
TD_MUST_USE td_status td_board_file_turn(struct td_board_file *f, int fd, char *buffer,
                                         struct td_board_notes *notes, struct td_mono now,
                                         td_board_take *take, void *arg);
// Says what is left of it, when nothing more comes.
void td_board_file_end(struct td_board_file *f, struct td_board_notes *notes);

#endif
