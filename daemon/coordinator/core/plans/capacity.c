// See the header.

#include "daemon/coordinator/core/plans/capacity.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/core/model/hosts.h"
#include "daemon/coordinator/core/model/model.h"
#include "lib/base/clip.h"
#include "lib/job/labels.h"

uint32_t td_capacity_slots_of(const struct td_spec_resources *r, uint32_t n_ranks,
                              const struct td_host *n) {
    int32_t per_rank = td_spec_slots(r, (int32_t)n->cores, (int32_t)n->slots);
    return n_ranks * (uint32_t)TD_MAX(per_rank, 1);
}

td_status td_capacity_slots(const struct td_core *core, const char *labels, uint32_t n_ranks,
                            const struct td_spec_resources *r) {
    uint32_t most = 0, least = UINT32_MAX;
    const struct td_host *largest = NULL;
    const struct td_host *n;
    for (size_t cursor = 0; (n = td_map_each(core->nodes, &cursor));) {
        if (!td_labels_have(n->labels, labels)) continue;
        uint32_t needed = td_capacity_slots_of(r, n_ranks, n);
        if (needed <= n->slots) return TD_OK;
        least = TD_MIN(least, needed);
        if (n->slots > most) {
            most = n->slots;
            largest = n;
        }
    }
    if (!largest) return TD_OK; // no node is known yet: it waits
    td_status s = td_fail(TD_FAILED_PRECONDITION,
                          "%u ranks need %u slots on one node; the largest known node (%s) has %u. "
                          "Ask for fewer devices or threads, or start a larger node",
                          n_ranks, least, largest->name, most);
    s = td_status_with_class(td_status_with_reason(s, "UNSATISFIABLE"), TD_CLASS_BAD_SPEC);
    s = td_status_with_meta(s, "needed_slots", "%u", least);
    return td_status_with_meta(s, "largest_node_slots", "%u", most);
}

static uint64_t bytes_of(uint32_t n_ranks, const struct td_plan_entry *p) {
    return p->memory_bytes * n_ranks + p->beside_bytes;
}

uint64_t td_capacity_bytes(uint32_t n_ranks, const struct td_plan_entry *p, uint64_t asked_bytes) {
    const uint64_t planned = p && p->memory_bytes ? bytes_of(n_ranks, p) : 0;
    return TD_MAX(planned, asked_bytes * n_ranks);
}

bool td_capacity_on(const struct td_host *n, uint32_t n_ranks, const struct td_plan_entry *p,
                    uint64_t asked_bytes) {
    return !n->memory_bytes || td_capacity_bytes(n_ranks, p, asked_bytes) <= n->memory_bytes;
}

td_status td_capacity_memory(const struct td_core *core, const char *labels, uint32_t n_ranks,
                             const struct td_plan_entry *p) {
    if (!p || !p->memory_bytes) return TD_OK;
    uint64_t needed = bytes_of(n_ranks, p), most = 0;
    const struct td_host *n;
    for (size_t cursor = 0; (n = td_map_each(core->nodes, &cursor));) {
        if (!td_labels_have(n->labels, labels)) continue;
        most = TD_MAX(most, n->memory_bytes ? n->memory_bytes : UINT64_MAX);
    }
    if (!most || needed <= most) return TD_OK;
    const uint64_t order = p->order_bytes * n_ranks;
    td_status s =
        td_fail(TD_FAILED_PRECONDITION,
                "UNSATISFIABLE: %u %s %" PRIu64 " MiB, the largest known node has %" PRIu64
                " MiB; %slower trainer.devices, data.batch_size or the model's sizes, %sor "
                "add a node with more",
                n_ranks, n_ranks == 1 ? "rank needs" : "ranks need", needed >> 20, most >> 20,
                order && needed - order <= most
                    ? "set trainer.sampler: keyed, whose order of the samples takes no memory, "
                    : "",
                p->recomputes_all ? "" : "set trainer.recompute: full, ");
    return td_status_with_class(td_status_with_reason(s, "UNSATISFIABLE"), TD_CLASS_OUT_OF_MEMORY);
}

td_status td_capacity_kind(const struct td_core *core, const char *labels, enum td_job_kind kind,
                           uint32_t n_ranks, const struct td_spec_resources *r) {
    if (kind == TD_KIND_TRAIN) return TD_OK;
    const char *name = td_job_kind_name(kind);
    uint64_t needed = (uint64_t)r->memory_bytes * n_ranks, most = 0;
    const struct td_host *n;
    bool any = false, allowed = false;
    for (size_t cursor = 0; (n = td_map_each(core->nodes, &cursor));) {
        if (!td_labels_have(n->labels, labels)) continue;
        any = true;
        if (!td_job_kind_is_in(n->kinds, kind)) continue;
        allowed = true;
        most = TD_MAX(most, n->memory_bytes ? n->memory_bytes : UINT64_MAX);
    }
    if (!any) return TD_OK; // it waits
    if (!allowed) {
        td_status s = td_fail(TD_PERMISSION_DENIED,
                              "kind %s runs a program of the submitter's, and no known node "
                              "allows that: start one with --allow %ss (TRAIND_ALLOW)",
                              name, name);
        return td_status_with_class(td_status_with_reason(s, "NOT_ALLOWED"), TD_CLASS_BAD_SPEC);
    }
    if (needed <= most) return TD_OK;
    td_status s = td_fail(TD_FAILED_PRECONDITION,
                          "UNSATISFIABLE: resources.memory_bytes asks for %" PRIu64
                          " MiB for %u rank%s, the largest node that allows %ss has %" PRIu64
                          " MiB; lower it or trainer.devices, or add a node with more",
                          needed >> 20, n_ranks, n_ranks == 1 ? "" : "s", name, most >> 20);
    return td_status_with_class(td_status_with_reason(s, "UNSATISFIABLE"), TD_CLASS_OUT_OF_MEMORY);
}

static td_status no_devices(const struct td_host *n, const char *accelerator) {
    if (n->devices.withheld) {
        return td_fail(TD_FAILED_PRECONDITION,
                       "UNSATISFIABLE: no known node has a device of '%.*s'; node %s has an older "
                       "build, which gives ranks no devices. Update it",
                       td_accel_name_len(accelerator), accelerator, n->name);
    }
    return td_fail(TD_FAILED_PRECONDITION,
                   "UNSATISFIABLE: no known node has a device of '%.*s'. `trainctl plugins` lists "
                   "accelerators, and says why one does not load",
                   td_accel_name_len(accelerator), accelerator);
}

td_status td_capacity_devices(const struct td_core *core, const char *labels, uint32_t n_ranks,
                              const char *accelerator) {
    const struct td_host *largest = NULL;
    uint32_t most = 0;
    const struct td_host *n;
    if (td_accel_is_host(accelerator) || td_accel_is_gpu(accelerator)) return TD_OK;
    for (size_t cursor = 0; (n = td_map_each(core->nodes, &cursor));) {
        if (!td_labels_have(n->labels, labels)) continue;
        const struct td_host_accel *a = td_host_accel_find(&n->devices, accelerator);
        if (!a || a->is_host || a->n >= n_ranks) return TD_OK;
        const uint32_t has = n->devices.withheld ? 0 : a->n;
        if (!largest || has > most || (!most && n->devices.withheld)) {
            most = has;
            largest = n;
        }
    }
    if (!largest) return TD_OK;
    td_status s = !most ? no_devices(largest, accelerator)
                        : td_fail(TD_FAILED_PRECONDITION,
                                  "UNSATISFIABLE: %u %s a device of '%.*s'%s, node %s has %u%s. "
                                  "Ask for fewer devices, "
                                  "or start a node with more",
                                  n_ranks, n_ranks == 1 ? "rank needs" : "ranks need",
                                  td_accel_name_len(accelerator), accelerator,
                                  n_ranks == 1 ? "" : " each", largest->name, most,
                                  td_map_count(core->nodes) > 1 ? ", and no other has more" : "");
    s = td_status_with_class(td_status_with_reason(s, "UNSATISFIABLE"), TD_CLASS_BAD_SPEC);
    s = td_status_with_meta(s, "needed_devices", "%u", n_ranks);
    return td_status_with_meta(s, "largest_node_devices", "%u", most);
}

// ---- labels -------------------------------------------------------------------------------------
enum { NEAR_BYTES = 400, KEY_SHOWN = TD_LABEL_BYTES };

// The first label that the node does not have; how many it has goes to *out_has.
static struct td_label first_missing(const char *wanted, const struct td_host *n,
                                     uint32_t *out_has) {
    struct td_label l, missing = {0};
    char one[2 * TD_LABEL_BYTES];
    *out_has = 0;
    while (td_labels_next(&wanted, &l)) {
        snprintf(one, sizeof one, "%.*s=%.*s", (int)l.key.len, l.key.data, (int)l.value.len,
                 l.value.data);
        if (td_labels_has(n->labels, one)) {
            ++*out_has;
        } else if (!missing.key.len) {
            missing = l;
        }
    }
    return missing;
}

// What nodes have in place of it: other values of the key, else a key that is spelled alike.
static void say_near(const struct td_core *core, const struct td_label *missing,
                     char out[NEAR_BYTES]) {
    char key[KEY_SHOWN], keys[KEY_SHOWN] = "";
    struct td_nearest near;
    struct td_label l;
    struct td_clip_list others; // of the key
    const struct td_host *n;
    snprintf(key, sizeof key, "%.*s", (int)missing->key.len, missing->key.data);
    td_nearest_init(&near, key);
    snprintf(out, NEAR_BYTES, "; ");
    td_clip_list_init(&others, out + 2, NEAR_BYTES - 2, ", ");
    for (size_t cursor = 0; (n = td_map_each(core->nodes, &cursor));) {
        for (const char *at = n->labels; td_labels_next(&at, &l);) {
            char other[KEY_SHOWN];
            snprintf(other, sizeof other, "%.*s", (int)l.key.len, l.key.data);
            const char *before = near.best;
            td_nearest_offer(&near, other);
            if (near.best != before) near.best = memcpy(keys, other, sizeof keys);
            if (strcmp(key, other) != 0) continue;
            td_clip_list_add(&others, "node %.71s has %s=%.*s", n->name, key, (int)l.value.len,
                             l.value.data);
        }
    }
    if (others.len) return;
    if (near.best) {
        snprintf(out, NEAR_BYTES, "; no node has a label %s, did you mean %s?", key, near.best);
    } else {
        snprintf(out, NEAR_BYTES, "; no node has a label %s", key);
    }
}

td_status td_capacity_labels(const struct td_core *core, const char *labels) {
    const struct td_host *nearest = NULL;
    uint32_t most = 0, has;
    bool connected = false;
    char near[NEAR_BYTES], lacks[3 * TD_LABEL_BYTES + 64] = "";
    const struct td_host *n;
    for (size_t cursor = 0; labels[0] && (n = td_map_each(core->nodes, &cursor));) {
        const struct td_label missing = first_missing(labels, n, &has);
        if (!missing.key.len) return TD_OK;
        connected |= td_host_connected(n);
        if (nearest && has <= most) continue;
        most = has;
        nearest = n;
    }
    if (!connected) return TD_OK; // it asks for none, or it waits
    const struct td_label missing = first_missing(labels, nearest, &has);
    const int key = (int)missing.key.len, value = (int)missing.value.len;
    say_near(core, &missing, near);
    if (most) {
        snprintf(lacks, sizeof lacks, "; node %.71s comes nearest, without %.*s=%.*s",
                 nearest->name, key, missing.key.data, value, missing.value.data);
    }
    td_status s = td_fail(TD_FAILED_PRECONDITION,
                          "UNSATISFIABLE: resources.labels: no known node has %s%.300s%s%s. Label "
                          "one: `trainctl node label NODE %.*s=%.*s`",
                          strchr(labels, ',') ? "all of " : "", labels, lacks, near, key,
                          missing.key.data, value, missing.value.data);
    s = td_status_with_class(td_status_with_reason(s, "UNSATISFIABLE"), TD_CLASS_BAD_SPEC);
    return td_status_with_meta(s, "missing_label", "%.*s=%.*s", key, missing.key.data, value,
                               missing.value.data);
}
