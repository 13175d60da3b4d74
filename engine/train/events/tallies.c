// Sums over batches. A batch weighs what it counts: its samples, or what the output after it says
// (labels that are not to be ignored). So a mean over an epoch is the mean over its samples. Labels
// may weigh 0 and have a loss all the same: of classes that do not count, smoothed.

#include "engine/train/events/tallies.h"

#include <stdio.h>
#include <string.h>

#include "traind/graph.h"

// What the batch counts in output i: its samples, unless the next output says otherwise.
static double weight_of(const struct td_graph *g, const double *outputs, uint32_t i, int64_t n) {
    enum td_output_kind next = TD_OUTPUT_MEAN;
    if (i + 1 < td_graph_n_outputs(g)) td_graph_output_at(g, i + 1, NULL, NULL, &next);
    return next == TD_OUTPUT_WEIGHT ? outputs[i + 1] : (double)n;
}

void td_tallies_add(struct td_tallies *t, const struct td_graph *g, const double *outputs,
                    int64_t n) {
    uint32_t n_outputs = td_graph_n_outputs(g);
    size_t at = 0;
    for (uint32_t i = 0; i < n_outputs && at < TD_TALLIES; i++) {
        const char *name;
        enum td_output_kind kind;
        td_graph_output_at(g, i, &name, NULL, &kind);
        if (kind != TD_OUTPUT_MEAN && kind != TD_OUTPUT_SUM) {
            continue; // of the step, not of its samples
        }
        struct td_tally *item = &t->item[at++];
        if (at > t->n) {
            *item = (struct td_tally){0};
            snprintf(item->name, sizeof item->name, "%s", name);
            t->n = at;
        }
        double weight = weight_of(g, outputs, i, n);
        item->sum += kind == TD_OUTPUT_MEAN && weight != 0 ? outputs[i] * weight : outputs[i];
        item->count += weight;
    }
}

double td_tallies_counted(const struct td_graph *g, const double *outputs, int64_t n) {
    for (uint32_t i = 0; i < td_graph_n_outputs(g); i++) {
        td_value v;
        td_graph_output_at(g, i, NULL, &v, NULL);
        if (v == td_graph_loss_value(g)) return weight_of(g, outputs, i, n);
    }
    return (double)n;
}

void td_tallies_merge(struct td_tallies *t, const struct td_tallies *from) {
    for (size_t i = 0; i < from->n; i++) {
        size_t at = 0;
        while (at < t->n && strcmp(t->item[at].name, from->item[i].name) != 0) {
            at++;
        }
        if (at == TD_TALLIES) continue;
        if (at == t->n) {
            t->item[t->n++] = from->item[i];
            continue;
        }
        t->item[at].sum += from->item[i].sum;
        t->item[at].count += from->item[i].count;
    }
}

const struct td_tally *td_tallies_find(const struct td_tallies *t, const char *name) {
    for (size_t i = 0; i < t->n; i++) {
        if (strcmp(t->item[i].name, name) == 0) return &t->item[i];
    }
    return NULL;
}
