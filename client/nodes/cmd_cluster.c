// node list and cluster info: what an operator looks at first; version: of this program, without
// asking anybody. Counters are shown as the coordinator names them, so that a new one needs no new
// client.

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/nodes/gpus.h"
#include "client/nodes/listing.h"
#include "client/nodes/node_state.h"
#include "client/nodes/nodes.h"
#include "client/screen/format.h"
#include "client/screen/print.h"
#include "client/screen/table.h"
#include "client/session/pages.h"
#include "client/session/session.h"
#include "lib/version/version.h"
#include "traind/v1/admin.pb-c.h"

// What its ranks use at most, and what the machine has where that is more.
static td_status add_level(struct td_table *t, const Traind__V1__Node *n) {
    if (!n->cpu_level[0]) return td_table_add(t, "-"); // a node of an older build
    if (!n->cpu_level_held[0] || strcmp(n->cpu_level, n->cpu_level_held) == 0) {
        return td_table_add(t, "%s", n->cpu_level);
    }
    return td_table_add(t, "%s of %s", n->cpu_level_held, n->cpu_level);
}

// "far 1/2" of each accelerator that has devices of its own: used and all.
static td_status add_devices(struct td_table *t, struct td_arena *arena,
                             const Traind__V1__Node *n) {
    const char *text = "";
    for (size_t i = 0; text && i < n->n_devices; i++) {
        const Traind__V1__AcceleratorDevices *a = n->devices[i];
        size_t used = 0;
        for (size_t k = 0; k < a->n_devices; k++) {
            used += a->devices[k]->used;
        }
        if (a->is_host || !a->n_devices) continue;
        text = td_arena_printf(arena, "%s%s%s %zu/%zu", text, *text ? ", " : "", a->accelerator,
                               used, a->n_devices);
    }
    return text ? td_table_add(t, "%s", *text ? text : "-") : td_fail_oom();
}

// "n1 is drained by alice since 2026-11-24T10:11:12.345Z: new disk"
static void say_cordon(const Traind__V1__Node *n) {
    const Traind__V1__Cordon *c = n->cordon;
    td_print(stdout, "%s is %s by %s since %s%s%s\n", n->name, c->drains ? "drained" : "cordoned",
             c->by, c->time, c->reason[0] ? ": " : "", c->reason);
    for (size_t i = 0; i < c->n_jobs; i++) {
        const Traind__V1__DrainedJob *j = c->jobs[i];
        if (!j->leaves) td_print(stdout, "  %s (%s) stays there: %s\n", j->id, j->name, j->why);
    }
}

static td_status add_gpus(struct td_table *t, struct td_arena *arena, const Traind__V1__Node *n) {
    const char *text = td_gpus_cell(arena, n->gpus);
    return text ? td_table_add(t, "%s", text) : td_fail_oom();
}

static td_status show_nodes(const struct td_pages *p, bool wide) {
    TD_AUTO(td_arena) *arena = NULL;
    TD_TRY(td_arena_create((size_t)64 << 20, &arena));
    static const struct td_column columns[] = {{"ID", TD_COLUMN_SPARE},
                                               {"NAME", TD_COLUMN_TEXT},
                                               {"STATE", 0},
                                               {"SLOTS", 0},
                                               {"CORES", TD_COLUMN_MINOR},
                                               {"CPU", TD_COLUMN_MINOR},
                                               {"MEMORY", TD_COLUMN_SPARE},
                                               {"DEVICES", TD_COLUMN_TEXT | TD_COLUMN_SPARE},
                                               {"GPUS", TD_COLUMN_TEXT | TD_COLUMN_SPARE},
                                               {"JOBS", TD_COLUMN_SPARE},
                                               {"VERSION", TD_COLUMN_SPARE},
                                               {"LABELS", TD_COLUMN_TEXT}}; // wide alone
    struct td_table t;
    td_table_init(&t, arena, TD_COUNTOF(columns) - !wide, columns);
    for (size_t i = 0; i < p->n_items; i++) {
        const Traind__V1__Node *n = p->item[i];
        char memory[32], state[TD_NODE_STATE_BYTES], labels[TD_LABELS_BYTES];
        TD_TRY(td_table_add(&t, "%s", n->id));
        TD_TRY(td_table_add(&t, "%s", n->name));
        TD_TRY(td_table_add(&t, "%s", td_node_state_words(n, state)));
        TD_TRY(td_table_add(&t, "%" PRIu32 "/%" PRIu32, n->slots_used, n->slots));
        TD_TRY(td_table_add(&t, "%" PRIu32, n->cores));
        TD_TRY(add_level(&t, n));
        TD_TRY(td_table_add(&t, "%s", td_format_bytes(n->memory_bytes, memory)));
        TD_TRY(add_devices(&t, arena, n));
        TD_TRY(add_gpus(&t, arena, n));
        TD_TRY(td_table_add(&t, "%zu", n->n_jobs));
        TD_TRY(td_table_add(&t, "%s", n->version));
        if (wide) TD_TRY(td_table_add(&t, "%s", td_node_labels_text(n, labels)));
    }
    TD_TRY(td_table_print(&t, wide));
    for (size_t i = 0; i < p->n_items; i++) {
        const Traind__V1__Node *n = p->item[i];
        if (n->state_reason[0]) td_print(stdout, "%s gets no jobs: %s\n", n->name, n->state_reason);
        if (n->cordon) say_cordon(n);
    }
    if (wide) return td_gpus_table(arena, (Traind__V1__Node *const *)p->item, p->n_items);
    return TD_OK;
}

td_status td_cmd_node_list(struct td_session *s, const struct td_flags *f, int *out_exit) {
    (void)out_exit;
    struct td_pages pages = {0};
    td_status failed = td_listing_read(s, &pages);
    if (!failed && f->output == TD_OUTPUT_TABLE) {
        failed = show_nodes(&pages, f->wide);
    } else if (!failed) {
        Traind__V1__ListNodesResponse all = TRAIND__V1__LIST_NODES_RESPONSE__INIT;
        failed = td_pages_print(s, &pages, f->output, &all.base, "nodes", "id");
    }
    td_pages_finish(&pages);
    return failed;
}

static void show_cluster(const Traind__V1__ClusterInfo *c) {
    char up[32];
    td_print(stdout, "%-10s %s (role %s, pid %" PRIu32 ", up %s)\n", "traind", c->version, c->role,
             c->pid, td_format_seconds(c->uptime_s, up));
    td_print(stdout, "%-10s %s\n%-10s %s\n", "address", c->address, "state", c->state_dir);
    td_print(stdout, "%-10s %" PRIu32 ", slots %" PRIu32 " of %" PRIu32 " used\n", "nodes",
             c->nodes, c->slots_used, c->slots);
    td_print(stdout, "%-10s %" PRIu32 " running, %" PRIu32 " queued\n", "jobs", c->jobs_running,
             c->jobs_queued);
    if (c->certificate_end_time[0]) {
        td_print(stdout, "%-10s certificate until %s\n", "TLS", c->certificate_end_time);
    }
    for (size_t i = 0; i < c->n_troubles; i++) {
        td_print(stdout, "%-10s %s\n", i == 0 ? "troubles" : "", c->troubles[i]);
    }
    for (size_t i = 0; i < c->n_counters; i++) {
        td_print(stdout, "%-10s %s %" PRIu32 "\n", i == 0 ? "counters" : "", c->counters[i]->key,
                 c->counters[i]->value);
    }
}

td_status td_cmd_cluster_info(struct td_session *s, const struct td_flags *f, int *out_exit) {
    (void)out_exit;
    Traind__V1__GetClusterInfoRequest request = TRAIND__V1__GET_CLUSTER_INFO_REQUEST__INIT;
    TD_AUTO(td_rpc_message) *answer = NULL;
    TD_TRY(td_session_call(s, "/traind.v1.AdminService/GetClusterInfo", &request.base,
                           &traind__v1__cluster_info__descriptor, &answer));
    const Traind__V1__ClusterInfo *c = (const Traind__V1__ClusterInfo *)td_rpc_message_get(answer);
    if (td_output_is_json(f->output)) {
        return td_session_print_json(s, &c->base);
    }
    if (f->output == TD_OUTPUT_NAME) {
        td_print(stdout, "%s\n", c->address);
    } else {
        show_cluster(c);
    }
    return TD_OK;
}

td_status td_cmd_version(struct td_session *s, const struct td_flags *f, int *out_exit) {
    (void)s, (void)out_exit;
    if (f->output == TD_OUTPUT_NAME) {
        td_print(stdout, "%s\n", td_version);
    } else if (f->output == TD_OUTPUT_TABLE) {
        td_print(stdout, "trainctl %s\n", td_version);
    } else {
        td_print(stdout, "{\"version\":\"%s\"}\n", td_version);
    }
    return TD_OK;
}
