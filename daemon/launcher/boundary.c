// See the header.

#include "daemon/launcher/boundary.h"

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
    for (int32_t i = 0; i < l->o.n_ranks; i++) {
        if (passed[i] <= least) td_rank_page_answer_drain(l->ranks[i].page, asked[i]);
    }
}
