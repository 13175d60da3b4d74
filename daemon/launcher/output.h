#ifndef TRAIND_DAEMON_LAUNCHER_OUTPUT_H
#define TRAIND_DAEMON_LAUNCHER_OUTPUT_H

// Output: what a rank prints, on its way from its pipes into out.R.log and err.R.log.
//
// The cap is of both together. Of it a part is each stream's own, so that one that prints without
// end leaves room for what the other says of it. Past the cap the last bytes of a stream are kept
// in memory. They go into its file when the rank has ended, after a line that counts what is left
// out. So the traceback of a script is there, whatever it printed before.
//
// A progress bar writes its line over and over: text, then a carriage return. Of these versions the
// file gets the first, one each ten seconds, and the last, each as a line. So a bar of days takes
// little of the cap, and a reader sees it move. Bars below each other end their lines with newline
// and go up again by an escape sequence (tqdm's); they are taken for the same. A carriage return
// before a newline is left alone. A version that is longer than TD_OUTPUT_VERSION is text.
// Everything else is written as it comes, byte for byte, also a line without an end.
//
// Thread: the launcher's. A write that fails is dropped and counted.

#include "daemon/launcher/watchdog/file.h"
#include "lib/base/clock.h"

enum {
    TD_OUTPUT_OWN = 8 << 20,   // bytes of TD_SEGMENT_LOG_MAX that the other stream cannot take
    TD_OUTPUT_TAIL = 32 << 10, // past the cap, of each
    TD_OUTPUT_VERSION = 1024,
    TD_OUTPUT_SHOW_S = 10, // between two versions of a line
};

// A line that is being written over.
struct td_output_line {
    bool is;
    bool cr;      // a carriage return has come; what it means is said by the next byte
    bool open;    // what is in the file does not end a line
    bool goes_up; // it is one of several, below each other
    bool below;   // and the next one may begin
    bool shown;   // text is in the file
    size_t n, n_kept;
    char text[TD_OUTPUT_VERSION + 1]; // the version that is being written
    char kept[TD_OUTPUT_VERSION + 1]; // the one before, not in the file; n_kept 0: none
    struct td_mono written, moved;    // when a version went into the file, and when a byte came
};

// A pipe from the rank and the file it is drained into.
struct td_launch_lines;
struct td_launch_stream {
    struct td_launch_lines *lines; // whose pattern its lines are matched with; NULL: none
    int pipe_fd;                   // -1: closed by the rank
    int file_fd;
    struct td_launch_file file;
    uint64_t file_bytes, dropped_bytes;
    char *tail;          // (TD_OUTPUT_TAIL) a ring; NULL: the cap is not reached
    uint64_t tail_bytes; // that went into it
    struct td_output_line line;
};

void td_output_finish(struct td_launch_stream *s); // accepts a zeroed one; closes nothing
// n bytes that the rank printed. other: its other stream.
void td_output_take(struct td_launch_stream *s, const struct td_launch_stream *other,
                    const char *data, size_t n);
// Now and then: a version that nothing follows is shown, too.
void td_output_look(struct td_launch_stream *s, const struct td_launch_stream *other,
                    struct td_mono now);
// Nothing more comes.
void td_output_end(struct td_launch_stream *s, const struct td_launch_stream *other);

#endif
