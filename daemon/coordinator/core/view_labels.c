// See the header. Both messages have a map of texts, for which protobuf-c makes a type each.

#include "daemon/coordinator/core/view_labels.h"

#include "lib/base/arena.h"
#include "lib/job/labels.h"

bool td_view_job_labels(struct td_arena *a, const char *labels, Traind__V1__Job *m) {
    struct td_label label;
    if (!labels) return true;
    m->labels = td_arena_array(a, TD_LABELS_MAX, sizeof *m->labels);
    const char *at = labels;
    while (m->labels && m->n_labels < TD_LABELS_MAX && td_labels_next(&at, &label)) {
        Traind__V1__Job__LabelsEntry *e = td_arena_alloc(a, sizeof *e);
        if (!e) return false;
        traind__v1__job__labels_entry__init(e);
        e->key = td_arena_strndup(a, label.key.data, label.key.len);
        e->value = td_arena_strndup(a, label.value.data, label.value.len);
        m->labels[m->n_labels++] = e;
    }
    return m->labels != NULL;
}

bool td_view_node_labels(struct td_arena *a, const char *labels, Traind__V1__Node *m) {
    struct td_label label;
    if (!labels) return true;
    m->labels = td_arena_array(a, TD_LABELS_MAX, sizeof *m->labels);
    const char *at = labels;
    while (m->labels && m->n_labels < TD_LABELS_MAX && td_labels_next(&at, &label)) {
        Traind__V1__Node__LabelsEntry *e = td_arena_alloc(a, sizeof *e);
        if (!e) return false;
        traind__v1__node__labels_entry__init(e);
        e->key = td_arena_strndup(a, label.key.data, label.key.len);
        e->value = td_arena_strndup(a, label.value.data, label.value.len);
        m->labels[m->n_labels++] = e;
    }
    return m->labels != NULL;
}
