// What a metric point costs the training loop: one push into the ring, while a consumer drains it,
// and into a full ring, where the point is dropped and counted. One JSON line each, nanoseconds.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "engine/train/events/metrics.h"
#include "lib/attempt/rank_page.h"
#include "lib/base/clock.h"

enum { WINDOWS = 200, POINTS = 1000 };

struct bench {
    struct td_metrics metrics;
    struct td_ring reader;
    _Atomic bool over;
};

static void *drain(void *arg) {
    struct bench *b = arg;
    struct td_metric_record r;
    while (!atomic_load_explicit(&b->over, memory_order_relaxed)) {
        td_ring_pop(&b->reader, &r);
    }
    return NULL;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(struct bench *b, const char *what) {
    double ns[WINDOWS];
    uint64_t before = td_metrics_drops(&b->metrics);
    for (int w = 0; w < WINDOWS; w++) {
        int64_t start = td_mono_now().ns;
        for (int i = 0; i < POINTS; i++) {
            td_metrics_mean(&b->metrics, "train_loss_step", w * POINTS + i, 0, 1.0, 128.0);
        }
        ns[w] = (double)(td_mono_now().ns - start) / POINTS;
    }
    qsort(ns, WINDOWS, sizeof ns[0], by_value);
    printf(
        "{\"name\":\"metric point, %s\",\"median\":%.1f,\"min\":%.1f,\"max\":%.1f,\"unit\":\"ns\","
        "\"n\":%d,\"dropped\":%llu}\n",
        what, ns[WINDOWS / 2], ns[0], ns[WINDOWS - 1], WINDOWS,
        (unsigned long long)(td_metrics_drops(&b->metrics) - before));
}

int main(void) {
    static struct bench b;
    size_t bytes = td_ring_bytes(sizeof(struct td_metric_record), TD_METRIC_RING_RECORDS);
    void *memory = aligned_alloc(TD_LINE_BYTES, td_align_up(bytes, TD_LINE_BYTES));
    pthread_t consumer;
    if (!memory) return 1;
    td_status failed = td_ring_format(memory, bytes, sizeof(struct td_metric_record),
                                      TD_METRIC_RING_RECORDS, &b.metrics.ring);
    if (!failed) failed = td_ring_attach(memory, bytes, sizeof(struct td_metric_record), &b.reader);
    if (failed) {
        fprintf(stderr, "bench_metrics: %s\n", td_status_message(failed));
        td_status_free(failed);
        free(memory);
        return 1;
    }
    if (pthread_create(&consumer, NULL, drain, &b) != 0) return 1;
    measure(&b, "drained");
    atomic_store(&b.over, true);
    pthread_join(consumer, NULL);
    measure(&b, "full ring");
    free(memory);
    return 0;
}
