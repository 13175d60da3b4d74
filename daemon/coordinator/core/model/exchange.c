// See the header. Everything put into a list is owned by it.

#include "daemon/coordinator/core/model/exchange.h"

#include <stdlib.h>

void td_record_destroy(struct td_record *r) {
    if (!r) return;
    free(r->key);
    free(r->body);
    free(r);
}

void td_points_destroy(struct td_points *p) {
    if (!p) return;
    free(p->points);
    free(p->names);
    free(p);
}

void td_action_destroy(struct td_action *a) {
    if (!a) return;
    free(a->text);
    td_status_free(a->failure);
    if (a->message) traind__v1__coordinator_message__free_unpacked(a->message, NULL);
    free(a);
}

void td_core_effects_finish(struct td_core_effects *out) {
    while (out->records) {
        struct td_record *r = out->records;
        out->records = r->next;
        td_record_destroy(r);
    }
    while (out->points) {
        struct td_points *p = out->points;
        out->points = p->next;
        td_points_destroy(p);
    }
    while (out->actions) {
        struct td_action *a = out->actions;
        out->actions = a->next;
        td_action_destroy(a);
    }
}

static const char *const counter_names[] = {
    "stale_messages", "segment_gaps",    "bad_event_lines",    "bad_points", "attempts_lost",
    "restarts",       "registrations",   "plans_asked",        "stalls",     "queue_passes",
    "queue_looks",    "reconcile_looks", "node_stale_messages"};
_Static_assert(TD_COUNTOF(counter_names) == TD_COUNT_COUNT, "one name per counter");

const char *td_core_counter_name(enum td_core_counter c) {
    TD_CHECK((unsigned)c < TD_COUNT_COUNT);
    return counter_names[c];
}
