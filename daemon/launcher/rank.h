#ifndef TRAIND_DAEMON_LAUNCHER_RANK_H
#define TRAIND_DAEMON_LAUNCHER_RANK_H

// One rank as its launcher sees it: shared page and ring, process, pipes, segment files.
//
// The launcher makes the memory (a sealed memfd, allocated before use) and starts the process
// through the trampoline. It drains what comes out of the process into the segment files, and reads
// its end. A rank is another program and may write anything into its page: indices are checked by
// the ring, text is cut and checked, numbers are brought into their range (td_rank_page_progress).
// Segment writes that fail are dropped and counted; training never waits for a disk. What becomes
// of its output: output.h.

#include "daemon/launcher/command/talk_values.h"
#include "daemon/launcher/journal.h"
#include "daemon/launcher/options.h"
#include "daemon/launcher/output.h"
#include "daemon/launcher/watchdog/killed.h"
#include "daemon/launcher/watchdog/silence.h"
#include "lib/attempt/metric_names.h"
#include "lib/attempt/segments.h"
#include "lib/base/machine/proc.h"

struct td_launch_rank {
    int32_t rank;
    struct td_launch_stream out, err;
    int events_fd;
    int metrics_fd;
    struct td_launch_file metrics_file;
    uint64_t metrics_bytes;
    struct td_metric_names names; // that came out of the ring,
    uint32_t names_written;       // of which so many are in the file
    uint64_t lost_points;         // popped from the ring, not written
    uint32_t boundary;            // the last one of which a line is written
    uint32_t undropped;           // bytes of the ring touched since its pages were last given back
    int page_fd;
    struct td_rank_page *page; // NULL: not mapped
    struct td_ring ring;
    struct td_proc proc; // pid 0: not started
    bool exited;
    int exit_code; // -1 after a signal
    int signal;
    bool kill_sent;          // SIGKILL, by td_launch_rank_kill
    struct td_killed killed; // what is known of a SIGKILL that somebody else sent
    // Samples a second, over windows of a second or more.
    struct td_mono window_start;
    int64_t window_samples;
    double samples_per_s;
    struct td_silence silence;
    bool stuck; // it was silent for too long
    // Of kinds command and program (command.h, talk.h).
    int answer_fd;    // of its trampoline; -1: answered
    int exec_errno;   // why the program could not be run; 0: it could
    bool speaks;      // it has written to TRAIND_FD; of a program: an event
    bool stepped;     // step1 is written
    bool terminated;  // SIGTERM was sent
    bool stopped;     // it ended as it was asked to
    uint32_t n_notes; // that are written
    struct td_talk_values values;
    bool noted[TD_TALK_SAID];          // what became of a value that was dropped
    struct td_metric_names said_names; // as their writer has them
    bool gives_steps;                  // it has named one,
    bool has_steps;                    // or what it printed or posted has
    int32_t said_step;                 // that it named last, or counted
    int32_t n_counted;                 // messages with metrics before it named one
    // From its "end" event, if one came; of a command, what its end means.
    bool said_end, said_failed;
    char end_class[24];
    char end_code[24];
    char end_message[TD_EVENT_TEXT_BYTES];
};

// Memory and files; nothing runs yet.
TD_MUST_USE td_status td_launch_rank_init(struct td_launch_rank *r, int32_t rank,
                                          const struct td_launch_options *o);
void td_launch_rank_finish(struct td_launch_rank *r); // kills nothing
// What a rank is handed besides its own page and pipes; -1: there is none.
struct td_launch_shared {
    int group_fd; // memory of the group
    int store_fd; // its end of the rendezvous store's socket
};
// self: path of this launcher.
TD_MUST_USE td_status td_launch_rank_start(struct td_launch_rank *r, int32_t idx,
                                           const struct td_launch_options *o, const char *self,
                                           const char *const *env,
                                           const struct td_launch_shared *shared);
// What differs between the programs that a rank can be. Its stdout and stderr are made here, and
// the socket for its events.
struct td_launch_spawn {
    const char *const *argv; // of this launcher, which becomes the program
    const char *const *env;
    const char *cwd;
    bool holds_stops;
    int events_at;             // the number that the socket gets there
    struct td_proc_fd more[4]; // further descriptors
    size_t n_more;
};
TD_MUST_USE td_status td_launch_rank_spawn(struct td_launch_rank *r,
                                           const struct td_launch_spawn *s);
// As the trampoline takes them: bytes of private memory, "0" none, and the list of its cores.
enum { TD_LAUNCH_NUMBER = 24, TD_LAUNCH_CORES = 8192 };
void td_launch_rank_limits(const struct td_launch_options *o, int32_t idx,
                           char out_memory[TD_LAUNCH_NUMBER], char out_cores[TD_LAUNCH_CORES]);
static inline bool td_launch_rank_runs(const struct td_launch_rank *r) {
    return r->proc.pid > 0 && !r->exited;
}
// SIGKILL to the rank and its whole session group.
void td_launch_rank_kill(struct td_launch_rank *r);

// Each takes what is there, bounded, without blocking.
void td_launch_rank_drain_out(struct td_launch_rank *r);
void td_launch_rank_drain_err(struct td_launch_rank *r);
void td_launch_rank_drain_metrics(struct td_launch_rank *r);
// Points that are not the rank's own: into its file, after what was drained.
void td_launch_rank_add_points(struct td_launch_rank *r, const struct td_metric_record *records,
                               size_t n);
void td_launch_rank_drain_events(struct td_launch_rank *r, struct td_journal *j);
// The process is gone: takes the rest of everything, closes the pipes, keeps how it ended. j NULL:
// its events were taken already.
void td_launch_rank_ended(struct td_launch_rank *r, struct td_journal *j, int wait_code,
                          int wait_status);
// Looks at the progress words, and at lines that are written over; call it often.
void td_launch_rank_look(struct td_launch_rank *r, struct td_mono now);
// Of its output, past the cap or where the disk did not take them.
static inline uint64_t td_launch_rank_dropped_bytes(const struct td_launch_rank *r) {
    return r->out.dropped_bytes + r->err.dropped_bytes;
}
uint64_t td_launch_rank_dropped_points(const struct td_launch_rank *r);

#endif
