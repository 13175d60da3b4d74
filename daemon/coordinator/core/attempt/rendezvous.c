// See the header. Wants are a list in the order in which they came: there are few, because a rank
// has one at a time.

#include "daemon/coordinator/core/attempt/rendezvous.h"

#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/core/model/changes.h"
#include "daemon/coordinator/core/model/effects.h"
#include "daemon/coordinator/core/model/hosts.h"
#include "daemon/coordinator/core/model/model.h"
#include "lib/attempt/store_message.h"
#include "lib/attempt/store_table.h"
#include "lib/base/clip.h"

struct want {
    struct want *next;
    char node[64];
    char key[TD_STORE_KEY_MAX + 1];
};

struct td_rendezvous {
    char job[TD_JOB_ID_MAX];
    uint32_t attempt;
    uint64_t epoch;
    struct td_store_table table;
    struct want *wants;
    uint32_t n_wants;
};

enum { NAME_BYTES = TD_JOB_ID_MAX + 16 };

static void name_of(char out[NAME_BYTES], const char *job, uint32_t attempt) {
    snprintf(out, NAME_BYTES, "%s/a%u", job, attempt);
}

// ---- life ---------------------------------------------------------------------------------------
void td_rendezvous_destroy(void *rendezvous) {
    struct td_rendezvous *r = rendezvous;
    for (struct want *w = r->wants; w;) {
        struct want *gone = w;
        w = w->next;
        free(gone);
    }
    td_store_table_finish(&r->table);
    free(r);
}

size_t td_rendezvous_bytes(const void *rendezvous) {
    return ((const struct td_rendezvous *)rendezvous)->table.bytes;
}

static struct td_rendezvous *rendezvous_of(struct td_core *core, const struct td_job *j,
                                           const struct td_attempt *a) {
    char name[NAME_BYTES];
    name_of(name, j->id, a->number);
    struct td_rendezvous *r = td_map_get(core->rendezvous, name);
    if (r) return r;
    r = td_core_must(td_calloc(1, sizeof *r));
    memcpy(r->job, j->id, sizeof r->job);
    r->attempt = a->number;
    r->epoch = a->epoch;
    TD_CHECK(!td_store_table_init(&r->table));
    TD_CHECK(!td_map_put(core->rendezvous, name, r, NULL));
    return r;
}

void td_rendezvous_over(struct td_core *core, const struct td_job *j, const struct td_attempt *a) {
    char name[NAME_BYTES];
    name_of(name, j->id, a->number);
    struct td_rendezvous *r = td_map_remove(core->rendezvous, name);
    if (!r) return;
    core->rendezvous_bytes -= r->table.bytes;
    td_rendezvous_destroy(r);
}

// Of a message that may still be heeded; else NULL, and it is counted.
static struct td_rendezvous *find(struct td_core *core, const struct td_host *node,
                                  const Traind__V1__AttemptId *id) {
    const struct td_job *j = id ? td_core_job(core, id->job) : NULL;
    const struct td_attempt *a = j ? td_job_attempt(j, id->attempt) : NULL;
    const struct td_attempt_part *part = a ? td_attempt_part_on(a, node->id) : NULL;
    if (!part || a->epoch != id->epoch || !td_attempt_part_live(part) || td_attempt_aborts(a)) {
        core->counters[TD_COUNT_STALE]++;
        return NULL;
    }
    return rendezvous_of(core, j, a);
}

// ---- to a node ----------------------------------------------------------------------------------
static void attempt_id(struct td_rendezvous *r, Traind__V1__AttemptId *out) {
    traind__v1__attempt_id__init(out);
    out->job = r->job;
    out->attempt = r->attempt;
    out->epoch = r->epoch;
}

static void send_done(struct td_core *core, struct td_rendezvous *r, const struct td_host *node,
                      char *key, td_status take_why) {
    Traind__V1__AttemptId id;
    Traind__V1__StoreDone done = TRAIND__V1__STORE_DONE__INIT;
    Traind__V1__CoordinatorMessage m = TRAIND__V1__COORDINATOR_MESSAGE__INIT;
    char text[512];
    (void)td_clip(text, sizeof text, "%s", take_why ? td_status_message(take_why) : "");
    attempt_id(r, &id);
    done.id = &id;
    done.key = key;
    done.code = (uint32_t)td_status_code(take_why);
    done.message = text;
    m.body_case = TRAIND__V1__COORDINATOR_MESSAGE__BODY_STORE_DONE;
    m.store_done = &done;
    td_core_send(core, node, &m);
    td_status_free(take_why);
}

static void send_value(struct td_core *core, struct td_rendezvous *r, struct td_host *node,
                       struct td_store_item *item) {
    Traind__V1__AttemptId id;
    Traind__V1__StoreValue value = TRAIND__V1__STORE_VALUE__INIT;
    Traind__V1__CoordinatorMessage m = TRAIND__V1__COORDINATOR_MESSAGE__INIT;
    attempt_id(r, &id);
    value.id = &id;
    value.key = item->key;
    value.value.data = item->data;
    value.value.len = item->bytes;
    m.body_case = TRAIND__V1__COORDINATOR_MESSAGE__BODY_STORE_VALUE;
    m.store_value = &value;
    td_core_send(core, node, &m);
    node->values_flying++;
}

static bool can_have_more(const struct td_host *node) {
    return node && node->session && node->values_flying < TD_RENDEZVOUS_FLYING;
}

static void drop_want(struct td_rendezvous *r, struct want **at) {
    struct want *gone = *at;
    *at = gone->next;
    free(gone);
    r->n_wants--;
}

// Sends what is wanted, is set, and may be on its way. key NULL: any; node NULL: to any.
static void serve(struct td_core *core, struct td_rendezvous *r, const char *key,
                  const struct td_host *node) {
    for (struct want **at = &r->wants; *at;) {
        const struct want *w = *at;
        const bool meant =
            (!key || strcmp(w->key, key) == 0) && (!node || strcmp(w->node, node->id) == 0);
        struct td_store_item *item = meant ? td_store_table_get(&r->table, w->key) : NULL;
        struct td_host *to = item ? td_nodes_find(core, w->node) : NULL;
        if (can_have_more(to)) {
            send_value(core, r, to, item);
            drop_want(r, at);
        } else {
            at = &(*at)->next;
        }
    }
}

// ---- from a node --------------------------------------------------------------------------------
static td_status set(struct td_core *core, struct td_rendezvous *r, const Traind__V1__StoreSet *m) {
    struct td_store_item *item;
    const size_t before = r->table.bytes;
    TD_TRY(td_store_check_key(m->key));
    if (core->rendezvous_bytes + m->value.len > TD_RENDEZVOUS_BYTES &&
        !td_store_table_get(&r->table, m->key)) {
        return td_fail(TD_RESOURCE_EXHAUSTED,
                       "key '%s' with %zu bytes: the rendezvous stores of all attempts hold %d "
                       "bytes, and have %zu",
                       m->key, m->value.len, TD_RENDEZVOUS_BYTES, core->rendezvous_bytes);
    }
    TD_TRY(td_store_table_set(&r->table, m->key, m->value.data, m->value.len, &item));
    core->rendezvous_bytes += r->table.bytes - before;
    return TD_OK;
}

void td_rendezvous_on_set(struct td_core *core, struct td_host *node,
                          const Traind__V1__StoreSet *m) {
    struct td_rendezvous *r = find(core, node, m->id);
    if (!r) return;
    td_status refused = set(core, r, m);
    const bool taken = !refused;
    send_done(core, r, node, m->key, refused);
    if (taken) serve(core, r, m->key, NULL);
}

static bool is_wanted(const struct td_rendezvous *r, const char *node, const char *key) {
    for (const struct want *w = r->wants; w; w = w->next) {
        if (strcmp(w->node, node) == 0 && strcmp(w->key, key) == 0) return true;
    }
    return false;
}

static td_status want(struct td_rendezvous *r, const struct td_host *node, const char *key) {
    TD_TRY(td_store_check_key(key));
    if (is_wanted(r, node->id, key)) return TD_OK;
    if (r->n_wants >= TD_STORE_KEYS_MAX) {
        return td_fail(TD_RESOURCE_EXHAUSTED,
                       "key '%s': the ranks of an attempt wait for %d keys of the rendezvous store "
                       "at most",
                       key, TD_STORE_KEYS_MAX);
    }
    struct want *w = td_core_must(td_calloc(1, sizeof *w));
    snprintf(w->node, sizeof w->node, "%s", node->id);
    snprintf(w->key, sizeof w->key, "%s", key);
    struct want **tail = &r->wants;
    while (*tail) {
        tail = &(*tail)->next;
    }
    *tail = w;
    r->n_wants++;
    return TD_OK;
}

void td_rendezvous_on_want(struct td_core *core, struct td_host *node,
                           const Traind__V1__StoreWant *m) {
    struct td_rendezvous *r = find(core, node, m->id);
    if (!r) return;
    td_status refused = want(r, node, m->key);
    if (refused) {
        send_done(core, r, node, m->key, refused);
    } else {
        serve(core, r, m->key, node);
    }
}

void td_rendezvous_on_taken(struct td_core *core, struct td_host *node,
                            const Traind__V1__StoreTaken *m) {
    size_t cursor = 0;
    const char *name;
    void *value;
    node->values_flying -= TD_MIN(node->values_flying, m->values);
    while (can_have_more(node) && td_map_next(core->rendezvous, &cursor, &name, &value)) {
        serve(core, value, NULL, node);
    }
}

void td_rendezvous_node_up(struct td_core *core, struct td_host *node) {
    struct td_rendezvous *r;
    node->values_flying = 0;
    for (size_t cursor = 0; (r = td_map_each(core->rendezvous, &cursor));) {
        for (struct want **at = &r->wants; *at;) {
            if (strcmp((*at)->node, node->id) == 0) {
                drop_want(r, at);
            } else {
                at = &(*at)->next;
            }
        }
    }
}
