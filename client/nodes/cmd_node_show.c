// node show: everything that is known of one node, a fact a line, so that grep finds it.
//
// A fact that is not known has no line. GPUs have theirs in gpus.c.

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/nodes/gpus.h"
#include "client/nodes/listing.h"
#include "client/nodes/node_state.h"
#include "client/nodes/nodes.h"
#include "client/screen/format.h"
#include "client/screen/print.h"
#include "client/session/session.h"
#include "traind/v1/admin.pb-c.h"

static void fact(const char *key, const char *value) {
    if (value[0]) td_print(stdout, "%-18s %s\n", key, value);
}

static void show_devices(const Traind__V1__Node *n) {
    for (size_t i = 0; i < n->n_devices; i++) {
        const Traind__V1__AcceleratorDevices *a = n->devices[i];
        for (size_t k = 0; !a->is_host && k < a->n_devices; k++) {
            td_print(stdout, "%-18s %s of %s, %s\n", "device", a->devices[k]->uuid, a->accelerator,
                     a->devices[k]->used ? "used" : "free");
        }
    }
}

static void show_cordon(const Traind__V1__Cordon *c) {
    fact(c->drains ? "drained by" : "cordoned by", c->by);
    fact("since", c->time);
    fact("because", c->reason);
    for (size_t i = 0; i < c->n_jobs; i++) {
        const Traind__V1__DrainedJob *j = c->jobs[i];
        if (!j->leaves) td_print(stdout, "%-18s %s (%s): %s\n", "stays", j->id, j->name, j->why);
    }
}

static void show_node(const Traind__V1__Node *n) {
    char bytes[32], seen[32], state[TD_NODE_STATE_BYTES], labels[TD_LABELS_BYTES];
    fact("id", n->id);
    fact("name", n->name);
    fact("state", td_node_state_words(n, state));
    fact("reason", n->state_reason);
    if (n->cordon) show_cordon(n->cordon);
    fact("address", n->address);
    fact("version", n->version);
    td_print(stdout, "%-18s %s ago\n", "last seen", td_format_seconds(n->last_seen_ms / 1e3, seen));
    fact("certificate until", n->certificate_end_time);
    fact("labels", td_node_labels_text(n, labels));
    td_print(stdout, "%-18s %" PRIu32 " of %" PRIu32 " used\n", "slots", n->slots_used, n->slots);
    td_print(stdout, "%-18s %" PRIu32 "\n", "cores", n->cores);
    fact("cpu", n->cpu_level);
    fact("cpu, held to", n->cpu_level_held);
    fact("memory", td_format_bytes(n->memory_bytes, bytes));
    fact("memory of jobs", td_format_bytes(n->memory_used_bytes, bytes));
    for (size_t i = 0; i < n->n_jobs; i++) {
        fact("job", n->jobs[i]);
    }
    show_devices(n);
    td_gpus_facts(n->gpus);
}

static td_status show(struct td_session *s, const struct td_flags *f, const struct td_pages *p) {
    const Traind__V1__Node *n = NULL;
    TD_TRY(td_listing_find(p, f->args[0], &n));
    if (td_output_is_json(f->output)) return td_session_print_json(s, &n->base);
    if (f->output == TD_OUTPUT_NAME) {
        td_print(stdout, "%s\n", n->id);
    } else {
        show_node(n);
    }
    return TD_OK;
}

td_status td_cmd_node_show(struct td_session *s, const struct td_flags *f, int *out_exit) {
    (void)out_exit;
    struct td_pages pages = {0};
    td_status failed = td_listing_read(s, &pages);
    if (!failed) failed = show(s, f, &pages);
    td_pages_finish(&pages);
    return failed;
}
