// See the header.

#include "engine/train/rank/scores/validated.h"

#include <stdio.h>
#include <string.h>

#include "engine/train/checkpoint/manifest.h"

void td_validated_name(char out[TD_METRIC_NAME_BYTES], const char *prefix, const char *metric,
                       int loader) {
    if (loader < 0) {
        snprintf(out, TD_METRIC_NAME_BYTES, "%s_%s", prefix, metric);
    } else {
        snprintf(out, TD_METRIC_NAME_BYTES, "%s_%s/%d", prefix, metric, loader);
    }
}

// loader: -1 is all.
static const struct td_tallies *part_of(const struct td_validated *v, int loader) {
    return loader < 0 ? &v->all : &v->loader[loader];
}

const struct td_tally *td_validated_find(const struct td_validated *v, const char *name) {
    char own[TD_METRIC_NAME_BYTES];
    for (int loader = -1; loader < v->n_loaders; loader++) {
        const struct td_tallies *part = part_of(v, loader);
        for (size_t i = 0; i < part->n; i++) {
            td_validated_name(own, "val", part->item[i].name, loader);
            if (strcmp(own, name) == 0) return &part->item[i];
        }
    }
    return NULL;
}

void td_validated_describe(const struct td_validated *v, struct td_manifest *m) {
    char name[TD_METRIC_NAME_BYTES];
    for (int loader = -1; loader < v->n_loaders; loader++) {
        const struct td_tallies *part = part_of(v, loader);
        for (size_t i = 0; i < part->n; i++) {
            td_validated_name(name, "val", part->item[i].name, loader);
            td_manifest_add_metric(m, name, part->item[i].sum, part->item[i].count);
        }
    }
}

// The loader that a name ends with, which is cut off; -1: it is of all.
static int cut_loader(char *name, int n_loaders) {
    char *slash = strrchr(name, '/');
    if (!slash || slash[1] < '0' || slash[1] >= '0' + n_loaders || slash[2]) return -1;
    *slash = '\0';
    return slash[1] - '0';
}
_Static_assert(TD_LOADERS_MAX <= 10, "a loader's number is one digit");

void td_validated_recall(struct td_validated *v, const struct td_manifest *m, int n_loaders) {
    *v = (struct td_validated){.n_loaders = n_loaders > 1 ? n_loaders : 0};
    for (size_t i = 0; i < m->n_metrics; i++) {
        char name[sizeof m->metric[i].name];
        if (strncmp(m->metric[i].name, "val_", 4) != 0) continue;
        snprintf(name, sizeof name, "%s", m->metric[i].name + 4);
        int loader = cut_loader(name, v->n_loaders);
        struct td_tallies *part = loader < 0 ? &v->all : &v->loader[loader];
        if (part->n == TD_TALLIES) continue;
        struct td_tally *t = &part->item[part->n++];
        *t = (struct td_tally){.sum = m->metric[i].sum, .count = m->metric[i].count};
        snprintf(t->name, sizeof t->name, "%s", name);
    }
}
