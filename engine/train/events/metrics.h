#ifndef TRAIND_ENGINE_TRAIN_EVENTS_METRICS_H
#define TRAIND_ENGINE_TRAIN_EVENTS_METRICS_H

// Metrics leave the loop through a single-producer ring: a point is one 64-byte record, well under
// a microsecond, and never waits. The first one of a long name is two (metric_names.h). A full ring
// drops the new point and counts it. The launcher drains the ring; without one, the background
// thread of the rank prints it as JSON lines.
//
// Values that merge over ranks carry (sum, count): the shown value is sum / count over all ranks.

#include "engine/train/config/config.h"
#include "lib/attempt/metric_names.h"

struct td_metrics {
    struct td_ring ring;
    struct td_metric_names names;   // long ones that are defined in the ring,
    struct td_metric_names printed; // and those that td_metrics_print found there
    struct td_rank_page *launcher;  // its page, where it drains the ring; NULL: printed
};

void td_metrics_finish(struct td_metrics *m); // the ring stays

// Pushes one point; name: td_metric_name_fits. Thread: the training thread.
void td_metrics_mean(struct td_metrics *m, const char *name, int64_t step, int64_t epoch,
                     double sum, double count);
// The same for values that are alike on all ranks or only make sense for one: last value counts.
void td_metrics_value(struct td_metrics *m, const char *name, int64_t step, int64_t epoch,
                      double value);
uint64_t td_metrics_drops(const struct td_metrics *m);

// The rank saves here, as all others do: counts that for its launcher. Its number, from 1; without
// a launcher 0. Thread: the training thread.
uint32_t td_metrics_pass(struct td_metrics *m);
// Everything that any rank pushed so far shall be kept, whoever is killed: ask early, await before
// that is relied on. Thread: the background thread.
uint32_t td_metrics_ask_drain(struct td_metrics *m);
TD_MUST_USE td_status td_metrics_await_drain(struct td_metrics *m, uint32_t asked);

// Drains the ring as JSON lines onto stdout, with one write for a batch of lines. Returns the
// number of points. Thread: one consumer.
size_t td_metrics_print(struct td_metrics *m);

#endif
