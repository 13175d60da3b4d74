// Names of phases; asking for a drain.
//
// A drain is a ticket: the rank raises drain_asked, the launcher copies it to drain_done when it
// has drained. The copy alone says nothing to the launcher, so a rank that writes nonsense there
// hurts nobody but itself.

#include "lib/attempt/rank_page.h"

#include "lib/base/futex.h"

const char *td_rank_phase_name(int64_t phase) {
    static const char *const names[] = {"starting", "loading", "training", "validating",
                                        "testing",  "saving",  "ended",    "predicting"};
    _Static_assert(TD_COUNTOF(names) == TD_PHASE_PREDICTING + 1, "one name per phase");
    return phase >= 0 && phase < (int64_t)TD_COUNTOF(names) ? names[phase] : "unknown";
}

uint32_t td_rank_page_ask_drain(struct td_rank_page *p) {
    return atomic_fetch_add(&p->drain_asked, 1) + 1;
}

td_status td_rank_page_await_drain(struct td_rank_page *p, uint32_t asked, int64_t timeout_ns) {
    int64_t deadline_ns = td_mono_now().ns + timeout_ns;
    for (;;) {
        uint32_t done = atomic_load(&p->drain_done);
        int64_t left_ns = deadline_ns - td_mono_now().ns;
        if ((int32_t)(done - asked) >= 0) return TD_OK;
        if (left_ns <= 0) {
            return td_fail(TD_DEADLINE_EXCEEDED, "the launcher took no metric points for %.1f s",
                           (double)timeout_ns / TD_NS_PER_S);
        }
        td_futex_wait(&p->drain_done, done, left_ns);
    }
}

uint32_t td_rank_page_drain_asked(const struct td_rank_page *p) {
    return atomic_load(&p->drain_asked);
}

void td_rank_page_answer_drain(struct td_rank_page *p, uint32_t asked) {
    if (atomic_exchange(&p->drain_done, asked) != asked) td_futex_wake_all(&p->drain_done);
}
