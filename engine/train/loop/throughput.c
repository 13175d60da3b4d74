// Counting and dividing; see throughput.h.

#include "engine/train/loop/throughput.h"

#include <string.h>

#include "engine/train/rank/data/shares.h"
#include "lib/base/clock.h"

enum { PROBES = 4 };

void td_throughput_init(struct td_throughput *t, const struct td_rank *r) {
    size_t n;
    const struct td_field *field = td_data_fields(r->data, &n);
    *t = (struct td_throughput){0};
    for (size_t i = 0; i < n; i++) { // a row of integers is a row of tokens; labels are single
        const struct td_shape *s = &field[i].sample_shape;
        bool is_row = field[i].dtype == TD_I32 && s->n_dims == 1;
        if (is_row && strcmp(field[i].name, "x") == 0) t->tokens_per_sample = s->dim[0];
    }
}

void td_throughput_begin(struct td_throughput *t, int64_t step) {
    t->since_ns = td_mono_now().ns;
    t->since_step = step;
    t->samples = 0;
    t->flops = 0;
}

void td_throughput_add(struct td_throughput *t, const struct td_graph *g, int64_t n_samples) {
    if (t->graph != g) t->graph_flops = td_graph_flops(g);
    t->graph = g;
    t->flops += t->graph_flops;
    t->samples += n_samples;
}

// A probe that something disturbed says too little, and a rate above it shows that: then it is
// asked again, a few times at most, and the largest counts.
static td_status ask_peak(struct td_throughput *t, struct td_rank *r, double rate) {
    struct td_accel_rates best, usual;
    if (!r->accel_ops->measure_peak || t->n_probes == PROBES || (t->n_probes && rate <= t->peak)) {
        return TD_OK;
    }
    t->n_probes++;
    TD_TRY(r->accel_ops->measure_peak(r->accel, 0, &best, &usual));
    enum td_dtype computes = r->precision_facts.compute;
    t->peak = TD_MAX(t->peak, computes == TD_F32 ? best.f32 : computes == TD_BF16 ? best.bf16 : 0);
    return TD_OK;
}

td_status td_throughput_log(struct td_throughput *t, struct td_rank *r, int64_t step,
                            int64_t epoch) {
    struct td_metrics *m = &r->metrics;
    int64_t steps = step - t->since_step;
    double seconds = (double)(td_mono_now().ns - t->since_ns) / 1e9;
    if (seconds > 0 && steps > 0) {
        TD_TRY(ask_peak(t, r, t->flops / seconds));
        const double world = (double)r->facts.world_size;
        const double rate = (double)t->samples * td_rank_n_trained_shares(r) / seconds;
        td_metrics_value(m, "samples_per_s", step, epoch, rate);
        if (t->tokens_per_sample) {
            td_metrics_value(m, "tokens_per_s", step, epoch, rate * (double)t->tokens_per_sample);
        }
        td_metrics_value(m, "step_time_s", step, epoch, seconds / (double)steps);
        td_metrics_value(m, "flops_per_s", step, epoch, t->flops * world / seconds);
        if (t->peak > 0) {
            td_metrics_value(m, "utilisation", step, epoch, t->flops / seconds / t->peak);
        }
    }
    td_throughput_begin(t, step);
    return TD_OK;
}
