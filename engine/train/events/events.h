#ifndef TRAIND_ENGINE_TRAIN_EVENTS_EVENTS_H
#define TRAIND_ENGINE_TRAIN_EVENTS_EVENTS_H

// engine/train/events: what leaves a rank beside its checkpoints.
//
// In reading order:
//
//   events.h      events of a rank
//   metrics.h     points of a curve, by the thousand
//   tallies.h     the sums that they are made of
//   timeline.h    when it did what, where somebody wants to see that
//   background.h  the thread that prints them where there is no launcher, and writes snapshots
//
// Events of a rank: the few things that its launcher must know, as JSON objects
// (rows of lib/attempt/events.def). With a launcher each is one datagram on its socket; without
// one, a line on stdout.
//
// Sending never blocks for long: a full socket is given TD_EVENTS_PATIENCE_NS, then the event is
// dropped and counted (the exit code and the files still say what happened). Texts of
// TD_EVENT_TEXT_BYTES or more end in "...", so that an event fits its datagram. Any thread; a mutex
// keeps lines and datagrams whole.

#include <pthread.h>

#include "lib/attempt/outcome.h"
#include "lib/attempt/segments.h"
#include "lib/base/buf.h"
#include "lib/base/json.h"

#define TD_EVENTS_PATIENCE_NS (5 * TD_NS_PER_S)

// A line of the rank's log, which only the program that is the rank may write.
typedef void td_events_say_fn(const char *line);

struct td_events {
    int fd;                // -1: lines
    int lines_fd;          // where they go: stdout; -1: nowhere
    td_events_say_fn *say; // NULL: nobody reads what the rank says of itself
    _Atomic bool ended;
    _Atomic uint64_t drops;
    pthread_mutex_t lock;
};

void td_events_init(struct td_events *e, int fd);
void td_events_finish(struct td_events *e);

// One object, already printed. Too long, or nobody reads: dropped and counted.
void td_events_send(struct td_events *e, const char *json, size_t len);

void td_events_ready(struct td_events *e);
void td_events_step1(struct td_events *e, int64_t step);
void td_events_resumed(struct td_events *e, int64_t step, const char *inexact_reason); // "": exact
void td_events_skipped(struct td_events *e, const char *path, const char *reason);
void td_events_removed(struct td_events *e, int64_t step, const char *path);
void td_events_stage_start(struct td_events *e, const char *stage);
void td_events_stage_end(struct td_events *e, const char *stage, enum td_outcome outcome);
// Which weights validate, test and predict use, for people.
void td_events_weights(struct td_events *e, const char *text);
void td_events_memory(struct td_events *e, size_t state_bytes, size_t arena_bytes,
                      size_t scratch_bytes, const char *recompute);
void td_events_frozen(struct td_events *e, const struct td_json *plan);
void td_events_note(struct td_events *e, const char *fmt, ...) TD_PRINTF(2, 3);
// What the rank does now, for people who read its log: no event. At most TD_EVENT_TEXT_BYTES.
void td_events_say(struct td_events *e, const char *fmt, ...) TD_PRINTF(2, 3);
// The last event; only the first call sends. FAILED comes with its status (borrowed; TD_OK
// otherwise). Never NONE or KILLED.
void td_events_end(struct td_events *e, enum td_outcome outcome, td_status failure, int64_t step);

#endif
