// See the header.

#include "daemon/coordinator/core/catalog/boundaries.h"

static uint32_t newest(const struct td_rank_cursor *c) {
    return c->passed[1].number ? c->passed[1].number : c->passed[0].number;
}

// Also where its segment was lost: what there was of it has come, and the job's notes say so.
static bool is_stored(const struct td_rank_cursor *c, uint64_t metrics) {
    return c->metrics_done >= metrics || (c->final && c->metrics_done >= c->metrics_end);
}

static void look(struct td_rank_cursor *c) {
    while (c->passed[0].number && is_stored(c, c->passed[0].metrics)) {
        c->kept = c->passed[0].number;
        c->passed[0] = c->passed[1];
        c->passed[1] = (struct td_boundary){0};
    }
}

void td_boundary_passed(struct td_rank_cursor *c, uint32_t number, uint64_t metrics) {
    if (number <= c->kept || number <= newest(c)) return;
    c->passed[c->passed[0].number ? 1 : 0] = (struct td_boundary){number, metrics};
    look(c);
}

void td_boundaries_look(struct td_attempt *a) {
    for (uint32_t r = 0; r < a->n_ranks; r++) {
        look(&a->ranks[r]);
    }
}

static enum td_kept kept_of_rank(const struct td_attempt_part *p, const struct td_rank_cursor *c,
                                 uint32_t number) {
    if (c->kept >= number) return TD_KEPT;
    if (td_attempt_part_live(p)) return TD_KEPT_LATER;
    if (newest(c) < number) return TD_KEPT_NEVER;              // its last line is here
    bool gone = p->state == TD_ATTEMPT_FENCED || p->forgotten; // nothing comes any more
    const struct td_boundary *b = &c->passed[c->passed[0].number >= number ? 0 : 1];
    return gone && c->metrics < b->metrics ? TD_KEPT_NEVER : TD_KEPT_LATER;
}

static enum td_kept kept_of_part(const struct td_attempt *a, const struct td_attempt_part *p,
                                 uint32_t number) {
    enum td_kept worst = TD_KEPT;
    if (p->boundaries == TD_BOUNDARIES_NONE) return TD_KEPT;
    for (uint32_t r = p->first_rank; r < p->first_rank + p->n_ranks; r++) {
        worst = TD_MAX(worst, kept_of_rank(p, &a->ranks[r], number));
    }
    return worst;
}

enum td_kept td_boundaries_kept(const struct td_attempt *a, uint32_t number,
                                const struct td_attempt_part **out_part) {
    enum td_kept worst = TD_KEPT;
    for (uint32_t i = 0; number && a->n_parts > 1 && i < a->n_parts; i++) {
        enum td_kept kept = kept_of_part(a, &a->parts[i], number);
        if (kept <= worst) continue;
        worst = kept;
        *out_part = &a->parts[i];
    }
    return worst;
}

bool td_boundaries_wait(const struct td_attempt *a) {
    for (uint32_t r = 0; r < a->n_ranks; r++) {
        if (a->ranks[r].passed[0].number) return true;
    }
    return false;
}
