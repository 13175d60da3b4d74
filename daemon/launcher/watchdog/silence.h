#ifndef TRAIND_DAEMON_LAUNCHER_WATCHDOG_SILENCE_H
#define TRAIND_DAEMON_LAUNCHER_WATCHDOG_SILENCE_H

// Silence: does a rank still beat? A pure function of what its page says and when it was looked at.
//
// A rank beats at each step boundary and at each batch of an evaluation or prediction. It is silent
// when nothing of that moved for the longer of the floor (30 s) and 8 median steps. While it
// evaluates or predicts, 8 median batches of that phase count, too: the longest of the three holds.
// Before the first step, and where no beat is due (loading, saving), start_ns (20 min) holds
// instead.
//
// The observer's own stall does not count. If it did not look for PAUSE (the machine slept, or
// everything on it was stopped), what it did not see is taken as time that did not pass. Times are
// the observer's; only durations of steps and batches come from the rank's own stamps.
//
// One struct a rank, in the caller's memory, zero at first. No failure.

#include "lib/base/base.h"

enum { TD_SILENCE_STEPS = 15, TD_SILENCE_FACTOR = 8 };

struct td_silence_limits {
    int64_t floor_ns, start_ns;
    int64_t stuck_ns; // from the hint on; 0: never
};

struct td_silence_page { // of td_rank_page_progress: no difference of two overflows
    int64_t heartbeat_ns, step;
    int64_t samples; // trained by this rank in this attempt; 0: no step yet
    int64_t phase;   // enum td_rank_phase
};

struct td_silence_times { // the last ones, in a ring
    int64_t ns[TD_SILENCE_STEPS];
    uint32_t n; // counted
};

struct td_silence {
    struct td_silence_page last;
    struct td_mono looked; // the last look; 0: none yet
    struct td_mono moved;  // something moved
    struct td_mono since;  // silent since this look, or blamed by the watchdog; 0: neither
    int64_t step_beat_ns;  // the rank's stamp at the last new step; 0: none yet
    struct td_silence_times steps;
    struct td_silence_times batches; // of an evaluation, in this phase
    uint32_t n_beats;                // in this phase
};

enum td_silence_change {
    TD_SILENCE_NONE,  // as before
    TD_SILENCE_BEGAN, // it is silent from now on
    TD_SILENCE_ENDED, // it beats again
    TD_SILENCE_STUCK, // silent for stuck_ns since; said at each look
};
enum td_silence_change td_silence_look(struct td_silence *s, const struct td_silence_limits *l,
                                       struct td_mono now, const struct td_silence_page *page);

// How long the rank may be quiet now.
int64_t td_silence_limit_ns(const struct td_silence *s, const struct td_silence_limits *l);

#endif
