// See the header.

#include "daemon/launcher/boundary.h"

#include <string.h>

#include "daemon/launcher/loggers/logger.h"
#include "lib/base/clock.h"

#define HOLD_NS TD_NS_PER_S // the loggers' files

void td_launcher_note_boundary(struct td_launcher *l, int32_t idx, uint32_t passed) {
    struct td_launch_rank *r = &l->ranks[idx];
    if (!td_launcher_counts_boundaries(l) || passed <= r->boundary) return;
    r->boundary = passed;
    struct td_event_writer line;
    td_journal_begin(&l->journal, TD_EVENT_BOUNDARY, &line);
    td_event_rank(&line, r->rank);
    td_event_boundary_number(&line, passed);
    td_event_boundary_metrics_bytes(&line, (int64_t)r->metrics_bytes);
    td_journal_append(&l->journal, &line);
    l->news = true; // a checkpoint waits for it
}

static void hold(struct td_launcher *l, const uint32_t *asked, const bool *due) {
    struct td_launch_held *h = &l->held;
    for (int32_t i = 0; i < l->o.n_ranks; i++) {
        h->is |= due[i] && asked[i] != h->asked[i];
    }
    if (!h->is) return;
    h->since = td_mono_now();
    memcpy(h->due, due, sizeof h->due);
    for (int32_t i = 0; i < l->o.n_ranks; i++) {
        if (due[i]) h->asked[i] = asked[i];
        h->bytes[i] = l->ranks[i].metrics_bytes;
    }
}

static void answer_held(struct td_launcher *l) {
    struct td_launch_held *h = &l->held;
    if (!h->is) return;
    const bool has = td_logger_has(l->logger, h->bytes);
    if (!has && !h->late && td_mono_now().ns - h->since.ns < HOLD_NS) return;
    h->late = !has;
    h->is = false;
    for (int32_t i = 0; i < l->o.n_ranks; i++) {
        if (h->due[i]) td_rank_page_answer_drain(l->ranks[i].page, h->asked[i]);
    }
}

void td_launcher_drain_metrics(struct td_launcher *l) {
    uint32_t asked[TD_LAUNCH_RANKS_MAX], passed[TD_LAUNCH_RANKS_MAX], least = UINT32_MAX;
    for (int32_t i = 0; i < l->o.n_ranks; i++) {
        const struct td_launch_rank *r = &l->ranks[i];
        asked[i] = td_rank_page_drain_asked(r->page);
        passed[i] = td_rank_page_boundary(r->page);
        if (!r->exited) least = TD_MIN(least, passed[i]);
    }
    for (int32_t i = 0; i < l->o.n_ranks; i++) {
        if (l->ranks[i].exited) continue;
        td_launch_rank_drain_metrics(&l->ranks[i]);
        td_launcher_note_boundary(l, i, passed[i]);
    }
    bool due[TD_LAUNCH_RANKS_MAX] = {0};
    for (int32_t i = 0; i < l->o.n_ranks; i++) {
        due[i] = passed[i] <= least;
    }
    if (!l->held.is) hold(l, asked, due);
    answer_held(l);
}
