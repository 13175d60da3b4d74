#ifndef TRAIND_TESTS_UNIT_COORDINATOR_CORE_MEETING_RIG_H
#define TRAIND_TESTS_UNIT_COORDINATOR_CORE_MEETING_RIG_H

// The coordinator's core with an attempt that runs on two nodes, n-1 and n-2, half of its ranks on
// each. What the nodes are sent of the rendezvous store is kept as text.

#include "tests/unit/coordinator/core/coord_rig.h"

struct meeting {
    struct rig rig;
    uint32_t n_ranks;
    uint64_t sessions[2];
    char *said;    // what the nodes were sent: "0:done k 0 | 1:value k=abc"
    size_t values; // sent since it was set to 0
};

static const struct td_core_options meeting_options = {.incarnation = 1, .checkpoint_dir = "/c"};

// The attempt that was assigned, on both nodes and running, as state.db would have it.
static void spread(struct rig *r, uint32_t n_ranks) {
    TD_AUTO(td_arena) *arena = NULL;
    TD_AUTO(td_attempt) *one = NULL, *two = NULL;
    TD_AUTO_BUF text;
    struct td_json *v = NULL;
    char key[64];
    void *old = NULL;
    snprintf(key, sizeof key, "%s/a1", r->assigned);
    const char *row = td_map_get(r->rows[TD_RECORD_ATTEMPT], key);
    assert_non_null(row);
    assert_ok(td_arena_create(1 << 20, &arena));
    assert_ok(td_json_parse(arena, row, strlen(row), &v));
    assert_ok(td_attempt_decode(v, &one));
    assert_ok(td_attempt_create(1, n_ranks, 2, &two));
    two->epoch = one->epoch;
    two->state = TD_ATTEMPT_STARTED;
    for (int i = 0; i < 2; i++) {
        snprintf(two->parts[i].node, sizeof two->parts[i].node, "n-%d", i + 1);
        two->parts[i].slots = n_ranks / 2;
    }
    td_buf_init(&text, 1 << 20);
    assert_ok(td_attempt_encode(two, &text));
    assert_ok(td_map_put(r->rows[TD_RECORD_ATTEMPT], key, strdup(td_buf_cstr(&text)), &old));
    free(old);
}

static void keep(struct meeting *m, const struct td_action *a) {
    const Traind__V1__CoordinatorMessage *x = a->message;
    const int node = a->session == m->sessions[1];
    const size_t len = strlen(m->said);
    char *at = m->said + len;
    if (!x) return;
    if (x->body_case == TRAIND__V1__COORDINATOR_MESSAGE__BODY_STORE_DONE) {
        snprintf(at, 4096 - len, "%s%d:done %s %u %s", len ? " | " : "", node, x->store_done->key,
                 x->store_done->code, x->store_done->message);
    } else if (x->body_case == TRAIND__V1__COORDINATOR_MESSAGE__BODY_STORE_VALUE) {
        snprintf(at, 4096 - len, "%s%d:value %s=%.*s", len ? " | " : "", node, x->store_value->key,
                 (int)TD_MIN(x->store_value->value.len, (size_t)16),
                 (const char *)x->store_value->value.data);
        m->values++;
    }
}

static inline const char *say_as(struct meeting *m, int node, Traind__V1__NodeMessage *message) {
    struct rig *r = &m->rig;
    message->incarnation = 1;
    m->said[0] = '\0';
    td_core_session_message(r->core, r->now, m->sessions[node], message);
    check_core(r);
    struct td_core_effects out = td_core_take(r->core);
    keep_rows(r, out.records);
    for (const struct td_action *a = out.actions; a; a = a->next) {
        keep(m, a);
    }
    td_core_effects_finish(&out);
    return m->said;
}

static void enter(struct meeting *m, int node) {
    struct rig *r = &m->rig;
    char name[8];
    Traind__V1__AttemptId id = attempt_id(r);
    Traind__V1__AttemptHeld held = TRAIND__V1__ATTEMPT_HELD__INIT;
    held.id = &id;
    held.alive = true;
    held.launcher_major = 1;
    snprintf(name, sizeof name, "n-%d", node + 1);
    r->session = m->sessions[node] = td_core_session_open(r->core, r->now, false);
    say_register_with(r, name, m->n_ranks, &held);
}

static void begin_meeting(struct meeting *m, uint32_t n_ranks) {
    *m = (struct meeting){0};
    m->n_ranks = n_ranks;
    m->said = calloc(1, 4096);
    begin_with(&m->rig, n_ranks, &meeting_options);
    TD_AUTO_FREE char *spec = make_spec(1, (int)n_ranks);
    create(&m->rig, 1, spec);
    settle(&m->rig);
    answer_plans(&m->rig);
    assert_int_equal(m->rig.n_assigned, 1);
    add_node(&m->rig, "n-2", n_ranks);
    spread(&m->rig, n_ranks);
    start_again(&m->rig, &meeting_options);
    for (int i = 0; i < 2; i++) {
        enter(m, i);
    }
}

static void end_meeting(struct meeting *m) {
    end(&m->rig);
    free(m->said);
}

#endif
