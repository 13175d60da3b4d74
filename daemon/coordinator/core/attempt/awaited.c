// See the header.

#include "daemon/coordinator/core/attempt/awaited.h"

#include "daemon/coordinator/core/model/hosts.h"
#include "daemon/coordinator/core/model/model.h"
#include "lib/attempt/rank_page.h"

static uint64_t rest(uint64_t have, uint64_t end) {
    return end > have ? end - have : 0;
}

static void add_rank(const struct td_rank_cursor *c, uint32_t rank, const struct td_log_choice *l,
                     struct td_awaited *out) {
    const bool wanted = l->rank < 0 || (uint32_t)l->rank == rank;
    out->unknown = out->unknown || !c->final;
    out->points += rest(c->metrics, c->metrics_end) / sizeof(struct td_metric_record);
    if (wanted && l->out) out->log_bytes += rest(c->out, c->out_end);
    if (wanted && l->err) out->log_bytes += rest(c->err, c->err_end);
}

bool td_awaited_of(const struct td_core *core, const struct td_attempt *a, uint32_t part,
                   const struct td_log_choice *logs, struct td_awaited *out) {
    const struct td_attempt_part *p = &a->parts[part];
    if (td_attempt_live(a) || p->state != TD_ATTEMPT_ENDED || p->forgotten) return false;
    const struct td_host *n = td_nodes_find(core, p->node);
    *out = (struct td_awaited){.node = n ? n->name : p->node, .away = !n || !n->session};
    for (uint32_t r = p->first_rank; r < p->first_rank + p->n_ranks; r++) {
        add_rank(&a->ranks[r], r, logs, out);
    }
    return out->unknown || out->log_bytes || out->points;
}
