// See the header. Of the last 15 steps the median is taken, so that one that also validated, or
// wrote a checkpoint, does not count for all. Batches of an evaluation are counted apart, and for
// its phase only: many short ones would otherwise make the steps that follow look late.

#include "daemon/launcher/watchdog/silence.h"

#include <string.h>

#include "lib/attempt/rank_page.h"

static const int64_t pause_ns = TD_NS_PER_S; // looks come every 100 ms

static void add(struct td_silence_times *t, int64_t ns) {
    t->ns[t->n % TD_SILENCE_STEPS] = ns;
    t->n = t->n == UINT32_MAX ? TD_SILENCE_STEPS : t->n + 1;
}

static int64_t median(const struct td_silence_times *t) {
    int64_t sorted[TD_SILENCE_STEPS];
    uint32_t n = TD_MIN(t->n, (uint32_t)TD_SILENCE_STEPS);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = i;
        for (; at > 0 && sorted[at - 1] > t->ns[i]; at--) {
            sorted[at] = sorted[at - 1];
        }
        sorted[at] = t->ns[i];
    }
    return n ? sorted[n / 2] : 0;
}

static bool is_evaluation(int64_t phase) {
    return phase == TD_PHASE_VALIDATING || phase == TD_PHASE_TESTING ||
           phase == TD_PHASE_PREDICTING;
}

static bool beats_are_due(const struct td_silence *s) {
    switch (s->last.phase) {
    case TD_PHASE_TRAINING:
    case TD_PHASE_VALIDATING:
        return s->last.samples > 0;
    case TD_PHASE_TESTING:
    case TD_PHASE_PREDICTING:
        return s->n_beats > 1; // the first batch is compiled for
    default:
        return false;
    }
}

int64_t td_silence_limit_ns(const struct td_silence *s, const struct td_silence_limits *l) {
    if (!beats_are_due(s)) return TD_MAX(l->start_ns, l->floor_ns);
    int64_t usual_ns = TD_MAX(median(&s->steps), median(&s->batches));
    usual_ns = TD_MIN(usual_ns, INT64_MAX / (2 * TD_SILENCE_FACTOR));
    return TD_MAX(l->floor_ns, TD_SILENCE_FACTOR * usual_ns);
}

static void take(struct td_silence *s, const struct td_silence_page *page) {
    int64_t steps = page->step - s->last.step, beat_ns = page->heartbeat_ns;
    bool same_phase = page->phase == s->last.phase;
    // The first step counts from the beginning of its phase, what is compiled for it included.
    int64_t first_ns = same_phase ? s->last.heartbeat_ns : 0;
    int64_t from_ns = s->step_beat_ns ? s->step_beat_ns : first_ns;
    if (steps > 0 && from_ns > 0 && beat_ns > from_ns) add(&s->steps, (beat_ns - from_ns) / steps);
    if (steps > 0) s->step_beat_ns = beat_ns;
    s->n_beats = same_phase ? s->n_beats + 1 : 0;
    if (!same_phase) s->batches.n = 0;
    bool is_batch = same_phase && is_evaluation(page->phase) && beat_ns > s->last.heartbeat_ns;
    if (is_batch) add(&s->batches, beat_ns - s->last.heartbeat_ns);
    s->last = *page;
}

enum td_silence_change td_silence_look(struct td_silence *s, const struct td_silence_limits *l,
                                       struct td_mono now, const struct td_silence_page *page) {
    int64_t gap_ns = now.ns - s->looked.ns;
    if (s->looked.ns == 0) {
        s->moved = now;
        s->last = *page;
    } else if (gap_ns > pause_ns) { // nobody looked
        s->moved.ns += gap_ns;
        if (s->since.ns) s->since.ns += gap_ns;
    }
    s->looked = now;
    if (memcmp(page, &s->last, sizeof *page) != 0) {
        take(s, page);
        s->moved = now;
        bool was = s->since.ns != 0;
        s->since.ns = 0;
        return was ? TD_SILENCE_ENDED : TD_SILENCE_NONE;
    }
    if (!s->since.ns) {
        if (now.ns - s->moved.ns < td_silence_limit_ns(s, l)) return TD_SILENCE_NONE;
        s->since = now;
        return TD_SILENCE_BEGAN;
    }
    return l->stuck_ns && now.ns - s->since.ns >= l->stuck_ns ? TD_SILENCE_STUCK : TD_SILENCE_NONE;
}
