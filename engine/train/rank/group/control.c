// Flags out, agreement in. A checkpoint request is a counter in the page of each rank; any rank may
// have one, by a signal of its own. Where several have the same wish they see it at different
// steps, so a save uses up all that were there before it. Of a checkpoint that is due by the clock
// rank 0's clock alone decides.

#include "engine/train/rank/group/control.h"

#include <string.h>

#include "lib/base/clock.h"

void td_control_init(struct td_control *c, struct td_rank_page *page, bool is_zero,
                     int64_t max_time_s, int64_t elapsed_ns) {
    *c = (struct td_control){.page = page, .is_zero = is_zero};
    if (max_time_s > 0) c->timer_ns = td_mono_now().ns + max_time_s * TD_NS_PER_S - elapsed_ns;
}

void td_control_save_every(struct td_control *c, int64_t interval_s) {
    c->interval_ns = c->is_zero && interval_s > 0 ? interval_s * TD_NS_PER_S : 0;
    td_control_saved(c);
}

void td_control_saved(struct td_control *c) {
    if (c->interval_ns) c->due_ns = td_mono_now().ns + c->interval_ns;
}

static bool is_due(const struct td_control *c) {
    return c->interval_ns && td_mono_now().ns >= c->due_ns;
}

static int32_t requests(const struct td_control *c) {
    return atomic_load_explicit(&c->page->checkpoint_request, memory_order_relaxed);
}

void td_control_raise(struct td_control *c, float *flags, bool step_follows) {
    memset(flags, 0, TD_CONTROL_FLAGS * sizeof *flags);
    flags[TD_CONTROL_RANKS] = 1;
    int32_t stop = atomic_load_explicit(&c->page->stop, memory_order_relaxed);
    if (stop != TD_STOP_NONE) flags[TD_CONTROL_STOP] = 1;
    if (stop == TD_STOP_NOW) flags[TD_CONTROL_NOW] = 1;
    if (c->timer_ns && td_mono_now().ns >= c->timer_ns) flags[TD_CONTROL_TIMER] = 1;
    int32_t request = requests(c);
    if (step_follows && request != c->seen_checkpoint) {
        c->seen_checkpoint = request;
        flags[TD_CONTROL_CHECKPOINT] = 1;
    }
    if (step_follows && is_due(c)) {
        td_control_saved(c); // one that is left out is not asked for again at the next step
        flags[TD_CONTROL_DUE] = 1;
    }
}

void td_control_agreed(struct td_control *c) {
    for (int i = 0; i < TD_CONTROL_FLAGS; i++) {
        c->agreed[i] += c->flags[i];
    }
}

bool td_control_has_agreed(const struct td_control *c) {
    return c->agreed[TD_CONTROL_RANKS] > 0;
}

bool td_control_is_pending(const struct td_control *c) {
    const struct td_agreement a = td_control_read(c->agreed);
    return a.stop || a.save || a.timer || a.due;
}

struct td_agreement td_control_take(struct td_control *c) {
    const struct td_agreement a = td_control_read(c->agreed);
    memset(c->agreed, 0, sizeof c->agreed);
    if (a.save) c->seen_checkpoint = requests(c);
    return a;
}

struct td_agreement td_control_read(const float *flags) {
    struct td_agreement a = {
        .stop = flags[TD_CONTROL_STOP] != 0,
        .now = flags[TD_CONTROL_NOW] != 0,
        .timer = flags[TD_CONTROL_TIMER] != 0,
        .due = flags[TD_CONTROL_DUE] != 0,
    };
    a.save = flags[TD_CONTROL_CHECKPOINT] != 0 || (a.stop && !a.now);
    return a;
}

td_status td_control_check_abort(const struct td_control *c) {
    if (!atomic_load_explicit(&c->page->abort, memory_order_relaxed)) return TD_OK;
    return td_status_with_class(td_fail(TD_ABORTED, "a peer of this rank is gone"),
                                TD_CLASS_COLLECTIVE);
}

void td_control_beat(struct td_control *c) {
    atomic_store_explicit(&c->page->heartbeat_ns, td_mono_now().ns, memory_order_relaxed);
}

void td_control_phase(struct td_control *c, enum td_rank_phase phase) {
    atomic_store_explicit(&c->page->phase, phase, memory_order_relaxed);
    td_control_beat(c);
}

void td_control_progress(struct td_control *c, const struct td_progress *p, int64_t own_samples,
                         float loss) {
    struct td_rank_page *page = c->page;
    uint32_t bits;
    memcpy(&bits, &loss, sizeof bits);
    atomic_store_explicit(&page->epoch, (int32_t)p->epoch, memory_order_relaxed);
    atomic_store_explicit(&page->step, p->step, memory_order_relaxed);
    atomic_store_explicit(&page->samples, own_samples, memory_order_relaxed);
    atomic_store_explicit(&page->last_loss_bits, bits, memory_order_relaxed);
    atomic_store_explicit(&page->heartbeat_ns, td_mono_now().ns, memory_order_relaxed);
}
