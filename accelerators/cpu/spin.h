#ifndef TRAIND_ACCELERATORS_CPU_SPIN_H
#define TRAIND_ACCELERATORS_CPU_SPIN_H

// How long the team's threads spin for each other. While the cores are the rank's own, it is as the
// launcher set it. While something else takes turns on one of them, they hardly spin at all.
//
// A thread that spins on a core somebody else wants pays for it twice: its turn passes in waiting,
// and it is not moved to the core that is free. A two-thread mlp keeps a third of its speed beside
// a busy neighbour when it spins, and nearly a half when it does not. Alone it is the other way
// round. Being preempted is the sign: it hardly happens on cores of one's own. While it is taken to
// be so, a short window without is tried now and then, less and less often.
//
// Thread: the rank's training thread. The bits of a run do not depend on it.

#include "lib/base/base.h"
#include "traind/types.h"

struct td_spin_state {
    bool shares;         // the verdict: somebody else is on our cores
    int64_t since_ns;    // start of the window that is being watched; 0: none yet
    int64_t switches;    // preemptions until then
    int64_t until_ns;    // shares: when to try again
    int64_t patience_ns; // how long the next verdict holds
};

#define TD_SPIN_WINDOW_NS     (50 * TD_NS_PER_MS)
#define TD_SPIN_PATIENCE_NS   (TD_NS_PER_S / 2)
#define TD_SPIN_PATIENCE_MOST (8 * TD_NS_PER_S)
enum { TD_SPIN_PREEMPTED_MOST = 500 }; // times a second; alone 100, beside a busy neighbour 1400

// A window ends, or a verdict.
static inline bool td_spin_due(const struct td_spin_state *s, int64_t now_ns) {
    return s->shares ? now_ns >= s->until_ns : now_ns - s->since_ns >= TD_SPIN_WINDOW_NS;
}

// Looks at the window that ends now. preempted: of all threads so far.
static inline void td_spin_judge(struct td_spin_state *s, int64_t now_ns, int64_t preempted) {
    double seconds = (double)(now_ns - s->since_ns) / (double)TD_NS_PER_S;
    bool watched = s->since_ns && !s->shares;
    bool disturbed =
        watched && (double)(preempted - s->switches) > (int)TD_SPIN_PREEMPTED_MOST * seconds;
    if (disturbed) {
        s->patience_ns =
            TD_MIN(TD_MAX(2 * s->patience_ns, TD_SPIN_PATIENCE_NS), TD_SPIN_PATIENCE_MOST);
        s->until_ns = now_ns + s->patience_ns;
    } else if (watched) {
        s->patience_ns = 0;
    }
    s->shares = disturbed;
    s->since_ns = now_ns;
    s->switches = preempted;
}

struct td_spin; // applies the verdicts
TD_MUST_USE td_status td_spin_create(struct td_spin **out_spin);
void td_spin_destroy(struct td_spin *s); // accepts NULL
// After each run of a program.
void td_spin_watch(struct td_spin *s, int64_t now_ns);

#endif
