#ifndef TRAIND_ENGINE_TRAIN_LOOP_THROUGHPUT_H
#define TRAIND_ENGINE_TRAIN_LOOP_THROUGHPUT_H

// Throughput: how fast a rank trains, between two points of the log.
//
// Samples, tokens (of data that has them) and FLOPs are counted as they are done, micro-batch by
// micro-batch. So a short last batch and an accumulating program count for what they are. Time
// spent elsewhere (validation, a start) does not count: begin again after it. Utilisation is this
// rank's FLOP/s over the peak of its threads. The accelerator measures the peak at the first point
// of the log, and again if it was surpassed. Where it measures none, or none in the type that the
// job computes in, no utilisation is given. Thread: the training thread.

#include "engine/train/rank/rank.h"

struct td_throughput {
    int64_t since_ns, since_step;
    int64_t samples; // of this rank, since then
    double flops;
    const struct td_graph *graph; // whose FLOPs were asked for last
    double graph_flops;
    int64_t tokens_per_sample; // 0: the data has none
    int n_probes;              // how often the peak was asked for
    double peak;               // FLOP/s; 0: not known
};

void td_throughput_init(struct td_throughput *t, const struct td_rank *r);
// Counts from now on.
void td_throughput_begin(struct td_throughput *t, int64_t step);
void td_throughput_add(struct td_throughput *t, const struct td_graph *g, int64_t n_samples);
// Metrics samples_per_s, tokens_per_s and flops_per_s (all ranks), step_time_s and utilisation
// (this rank); then begins again.
TD_MUST_USE td_status td_throughput_log(struct td_throughput *t, struct td_rank *r, int64_t step,
                                        int64_t epoch);

#endif
