#ifndef TRAIND_TESTS_UNIT_COORDINATOR_CORE_COORD_PARTS_H
#define TRAIND_TESTS_UNIT_COORDINATOR_CORE_COORD_PARTS_H

// The rig of coord_rig.h with two nodes, n-1 and n-2, and an attempt that has a part of one rank on
// each.

#include "tests/unit/coordinator/core/coord_rig.h"

struct two {
    struct rig r;
    uint64_t a, b;       // sessions
    uint64_t at_a, at_b; // bytes of events
};

static inline void on(struct two *t, uint64_t session) {
    uint64_t *at = session == t->a ? &t->at_a : &t->at_b;
    t->r.session = session;
    t->r.events = *at;
}

// A line of the launcher there.
static inline void say_at(struct two *t, uint64_t session, const char *text) {
    uint64_t *at = session == t->a ? &t->at_a : &t->at_b;
    on(t, session);
    line(&t->r, text);
    *at = t->r.events;
}

// Its disk is full.
static inline void refuse_at(struct two *t, uint64_t session) {
    Traind__V1__AttemptId id = attempt_id(&t->r);
    Traind__V1__AttemptRefused refused = TRAIND__V1__ATTEMPT_REFUSED__INIT;
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    refused.id = &id;
    refused.code = TD_RESOURCE_EXHAUSTED;
    refused.class_ = td_unconst("disk");
    refused.message = td_unconst("the disk is full");
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_REFUSED;
    m.refused = &refused;
    on(t, session);
    say(&t->r, &m);
}

static inline uint64_t join_as(struct rig *r, const char *name, uint32_t slots, const char *level,
                               Traind__V1__AttemptHeld *held) {
    r->level = level;
    r->address = "10.0.0.1";
    r->session = td_core_session_open(r->core, r->now, r->embedded);
    say_register_with(r, name, slots, held);
    settle(r);
    return r->session;
}

// Each plan from the node that was asked for it.
static inline void answer_all(struct rig *r) {
    while (r->n_requests) {
        r->session = r->asked[--r->n_requests];
        answer_plan(r, r->requests[r->n_requests]);
        settle(r);
    }
}

// Nodes n-1 and n-2, and a job of one rank on each that was assigned.
static inline void begin_two_with(struct two *t, const char *level_a, const char *level_b,
                                  const char *spec) {
    const struct td_core_options o = {.incarnation = 1, .checkpoint_dir = "/c"};
    memset(t, 0, sizeof *t);
    begin_alone(&t->r, &o);
    t->r.runs_commands = true;
    t->b = join_as(&t->r, "n-2", 2, level_b, NULL); // names decide, not who came first
    t->a = join_as(&t->r, "n-1", 2, level_a, NULL);
    create(&t->r, 0, spec);
    settle(&t->r);
    answer_all(&t->r);
    assert_int_equal(t->r.n_parts, 2);
}

static inline void begin_two(struct two *t, const char *level_a, const char *level_b) {
    TD_AUTO_FREE char *spec = make_spec_from(1, 1, ", resources: {nodes: 2}");
    begin_two_with(t, level_a, level_b, spec);
}

static inline void run_both(struct two *t) {
    say_at(t, t->a, "{\"event\":\"launched\",\"pid\":1}\n");
    say_at(t, t->b, "{\"event\":\"launched\",\"pid\":1}\n");
    say_at(t, t->a, "{\"event\":\"ready\",\"rank\":0,\"pid\":2}\n");
    assert_int_equal(job(&t->r, 0)->state, TD_JOB_STARTING); // not before all are ready
    say_at(t, t->b, "{\"event\":\"ready\",\"rank\":1,\"pid\":2}\n");
    assert_int_equal(job(&t->r, 0)->state, TD_JOB_RUNNING);
}

static inline void end_two(struct two *t) {
    end(&t->r);
}

// By the second, so that the core does not take itself for the one that stood still. beats: the
// session of a node that speaks meanwhile; 0: none.
static inline void pass(struct two *t, int seconds, uint64_t beats) {
    for (int i = 0; i < seconds; i++) {
        t->r.now.mono.ns += TD_NS_PER_S;
        t->r.now.real.ns += TD_NS_PER_S;
        if (beats) {
            Traind__V1__Heartbeat beat = TRAIND__V1__HEARTBEAT__INIT;
            Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
            m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_HEARTBEAT;
            m.heartbeat = &beat;
            t->r.session = beats;
            say(&t->r, &m);
        }
        settle(&t->r);
    }
}

#endif
