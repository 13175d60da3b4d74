// The coordinator's core in a world of its own, with a virtual clock. Its store commits late, and
// loses what it had not committed when the coordinator dies. Its nodes have launchers that train,
// fail, are killed, fall silent, reboot and come back. Sessions break with messages in flight,
// segments are sent twice. People create, pause, resume, cancel and delete. Operators cordon and
// drain nodes. One seed is one history.
//
// Some jobs span two or three nodes: their parts step together or not at all, and one that fails
// takes the others along.
//
// Held at every moment: what td_core_check says of the core. No job has two attempts alive that are
// not fenced, on any node. No node gets more ranks than it has slots, and one that is cordoned gets
// none. A gang starts on all its nodes or on none, and where one part of it has ended badly no
// other goes on. No part is given up for the silence of its node alone, before the time for that is
// over. No checkpoint on its way is given up while its writer may send it. Every byte of metrics is
// stored once, in order. A job whose creation was acknowledged is there after every crash. A node
// is asked to forget an attempt only when everything of it was committed. No checkpoint that the
// catalog keeps is removed. And once the faults stop, every job ends, the disks hold the one
// checkpoint of each that its catalog holds, and nothing of those that were deleted. No attempt
// goes on from a checkpoint of one over several nodes before all points that any of its ranks
// recorded before it are stored. No attempt of a job that asks for labels starts on a node without
// them.

#include "daemon/coordinator/core/queue/queue_reason.h"
#include "tests/sim/coordinator_history.h"

static void try_delete(struct world *w, int i) {
    const struct td_job *j = NULL;
    td_status s = td_core_check_delete(w->core, w->jobs[i].id, false, &j);
    if (!s && !td_job_state_ended(j->state)) {
        s = td_core_cancel(w->core, now(w), w->jobs[i].id, "deleted", &j);
        after(w);
    }
    if (!s) {
        s = td_core_delete(w->core, now(w), w->jobs[i].id, false);
        after(w);
    }
    w->jobs[i].deleted = !s;
    w->deleted += !s;
    td_status_free(s); // a job that runs
}

// In the end each node has the label, so that each job that asks for it gets one.
static void relabel(struct world *w) {
    const struct td_host *n = NULL;
    char *changes[] = {td_unconst(w->calm || chance(w, 2) ? LABEL : "role-")};
    td_status s =
        td_core_label_node(w->core, now(w), w->nodes[draw(w) % N_NODES].id, changes, 1, &n);
    td_status_free(s); // it has not registered yet
    after(w);
}

static void people(struct world *w) {
    int i = (int)(draw(w) % N_JOBS);
    const struct td_job *j = NULL;
    if (chance(w, 60) && !w->jobs[i].created) create(w, i, 1 + draw(w) % N_SPECS);
    if (chance(w, 200)) relabel(w);
    if (w->calm || !w->jobs[i].created || w->jobs[i].deleted) return;
    td_status s = TD_OK;
    if (chance(w, 300)) s = td_core_pause(w->core, now(w), w->jobs[i].id, &j);
    if (!s && chance(w, 100)) s = td_core_resume(w->core, now(w), w->jobs[i].id, &j);
    if (!s && chance(w, 2000)) try_delete(w, i);
    if (!s && !w->jobs[i].deleted && chance(w, 3000)) {
        s = td_core_cancel(w->core, now(w), w->jobs[i].id, "", &j);
    }
    td_status_free(s); // refusals are fine
    after(w);
}

// At the end no node is kept from jobs.
static void operators(struct world *w) {
    const struct sim_node *at = &w->nodes[draw(w) % N_NODES];
    const struct td_host *n = td_nodes_find(w->core, at->id);
    if (!n) return; // it has not registered yet, or its row was lost with the coordinator
    const bool was_drained = n->cordon.drains;
    if (n->cordon.on && (w->calm || chance(w, 60))) {
        assert_ok(td_core_uncordon(w->core, now(w), at->id, &n));
        after(w);
    } else if (!w->calm && chance(w, 300)) {
        const struct td_core_cordon r = {
            .node = at->id, .by = "sim", .reason = "", .drains = chance(w, 2)};
        assert_ok(td_core_cordon(w->core, now(w), &r, &n));
        w->cordoned++;
        w->drained += r.drains && !was_drained;
        after(w);
    }
}

// True: every job was created and has ended.
static bool all_ended(struct world *w) {
    for (int i = 0; i < N_JOBS; i++) {
        const struct td_job *j = NULL;
        if (!w->jobs[i].created) return false;
        if (w->jobs[i].deleted) continue;
        assert_ok(td_core_find_job(w->core, w->jobs[i].id, &j));
        if (td_job_state_ended(j->state)) continue;
        if (j->state == TD_JOB_PAUSED) {
            assert_ok(td_core_resume(w->core, now(w), j->id, &j));
            after(w);
        }
        return false;
    }
    return true;
}

// ---- a history ----------------------------------------------------------------------------------
// Somebody writes to what jobs train on.
static void change_files(struct world *w) {
    if (w->version + 1 == N_VERSIONS) return;
    w->version_until[w->version++] = w->now_ns;
}

static void advance(struct world *w) {
    pass_time(w);
    for (int i = 0; i < N_NODES; i++) {
        step_node(w, &w->nodes[i]);
    }
    people(w);
    operators(w);
    if (!w->calm && chance(w, 300)) change_files(w);
    if (!w->calm && chance(w, 800)) crash(w);
}

static void report(struct world *w, uint64_t seed) {
    for (int i = 0; i < N_JOBS; i++) {
        const struct td_job *j = NULL;
        td_status s = w->jobs[i].created ? td_core_find_job(w->core, w->jobs[i].id, &j) : TD_OK;
        td_status_free(s);
        if (!j || td_job_state_ended(j->state)) continue;
        const struct td_attempt *a = td_job_live(j);
        struct td_reason why;
        td_queue_reason(w->core, j, now(w).mono, &why);
        print_message("# seed %llu: %s is %s, reason %s: %s; attempt %u %s on %s\n",
                      (unsigned long long)seed, j->id, td_job_state_name(j->state), why.code,
                      why.text, j->n_attempts, a ? td_attempt_state_name(a->state) : "-",
                      a ? a->parts[0].node : "-");
    }
}

// Attempts whose files some node still keeps.
static uint32_t n_held(const struct world *w) {
    uint32_t n = 0;
    for (int i = 0; i < N_NODES; i++) {
        for (int k = 0; k < MAX_HELD; k++) {
            n += w->nodes[i].held[k].used;
        }
    }
    return n;
}

// True: this directory is of a checkpoint that the catalog has.
static bool is_owned(const struct world *w, const char *place) {
    char id[TD_JOB_ID_MAX];
    const struct td_job *j = NULL;
    snprintf(id, sizeof id, "%.*s", (int)strcspn(place, "/"), place);
    td_status_free(td_core_find_job(w->core, id, &j));
    return j && td_catalog_find(j, place + strlen(id) + 1);
}

// Catalog and disks say the same, and nothing waits to be removed.
static bool is_tidy(struct world *w) {
    for (int i = 0; i < N_JOBS; i++) {
        const struct td_job *j = NULL;
        if (w->jobs[i].deleted) continue;
        assert_ok(td_core_find_job(w->core, w->jobs[i].id, &j));
        if (j->n_checkpoints > 1) return false;
    }
    for (int i = 0; i < N_NODES; i++) {
        size_t cursor = 0;
        const char *key;
        void *value;
        while (td_map_next(w->nodes[i].disk.dirs, &cursor, &key, &value)) {
            if (!is_owned(w, key)) return false;
        }
    }
    return td_map_count(w->rows[TD_RECORD_REMOVAL]) == 0;
}

static void report_litter(struct world *w) {
    for (int i = 0; i < N_JOBS; i++) {
        const struct td_job *j = NULL;
        td_status_free(td_core_find_job(w->core, w->jobs[i].id, &j));
        for (uint32_t k = 0; j && j->n_checkpoints > 1 && k < j->n_checkpoints; k++) {
            print_message("# row %s/%s committed %d\n", j->id, j->checkpoints[k]->path,
                          j->checkpoints[k]->committed);
        }
        for (uint32_t k = 1; j && j->n_checkpoints > 1 && k <= j->n_attempts; k++) {
            print_message("# %s attempt %u %s forgotten %d\n", j->id, k,
                          td_attempt_state_name(td_job_attempt(j, k)->state),
                          td_attempt_forgotten(td_job_attempt(j, k)));
        }
    }
    for (int i = 0; i < N_NODES; i++) {
        size_t cursor = 0;
        const char *key;
        void *value;
        while (td_map_next(w->nodes[i].disk.dirs, &cursor, &key, &value)) {
            if (!is_owned(w, key)) print_message("# disk %s: %s\n", w->nodes[i].id, key);
        }
    }
    print_message("# removals %zu\n", td_map_count(w->rows[TD_RECORD_REMOVAL]));
}

static void report_parts(struct world *w, const struct held *h) {
    const struct td_job *j = NULL;
    td_status_free(td_core_find_job(w->core, h->job, &j));
    const struct td_attempt *a = j ? td_job_attempt(j, h->attempt) : NULL;
    for (uint32_t i = 0; a && i < a->n_parts; i++) {
        print_message("#   attempt %s, on %s %s forgotten %d\n", td_attempt_state_name(a->state),
                      a->parts[i].node, td_attempt_state_name(a->parts[i].state),
                      a->parts[i].forgotten);
    }
}

static void report_held(struct world *w) {
    for (int n = 0; n < N_NODES; n++) {
        for (int i = 0; i < MAX_HELD; i++) {
            const struct held *h = &w->nodes[n].held[i];
            if (!h->used) continue;
            print_message("# node %s holds %s/a%u, alive %d ended %d adopted %d sent %llu of %zu\n",
                          w->nodes[n].id, h->job, h->attempt, h->alive, h->ended, h->adopted,
                          (unsigned long long)h->sent, h->events.len);
            report_parts(w, h);
        }
    }
}

struct tally {
    // Attempts over several nodes, parts that another took along, and checkpoints that such an
    // attempt could go on from.
    // And parts that were given up for their silence.
    uint64_t gangs, aborted, resumed, given_up, compared, stale, labelled;
    uint64_t cordoned, drained; // nodes
};

static void live_through(uint64_t seed, struct tally *t) {
    struct world *w = make_world(seed);
    for (int i = 0; i < CHAOS_STEPS; i++) {
        advance(w);
    }
    w->calm = true;
    int steps = 0;
    while (!all_ended(w) && steps < CALM_STEPS) {
        advance(w);
        steps++;
    }
    if (steps == CALM_STEPS) report(w, seed);
    assert_true(steps < CALM_STEPS); // every accepted job ends
    while (td_map_count(w->rows[TD_RECORD_SHARD]) && steps < CALM_STEPS) {
        advance(w);
        steps++;
    }
    assert_int_equal(td_map_count(w->rows[TD_RECORD_SHARD]), 0); // no file without its checkpoint
    while (n_held(w) && steps < CALM_STEPS) {
        advance(w);
        steps++;
    }
    if (n_held(w)) report_held(w);
    assert_int_equal(n_held(w), 0); // no attempt is kept of which everything is here
    while (!is_tidy(w) && steps < CALM_STEPS) {
        if (steps % 2000 == 1999) crash(w); // what a disk refused is asked for by the next start
        advance(w);
        steps++;
    }
    if (!is_tidy(w)) report_litter(w);
    assert_true(steps < CALM_STEPS); // no checkpoint without an owner, no row too many
    assert_true(w->assigned >= N_JOBS / 2 && w->crashes > 0);
    t->gangs += w->gangs;
    t->aborted += w->aborted;
    t->resumed += w->resumed;
    t->given_up += w->n_given_up;
    t->compared += w->compared;
    t->stale += w->stale;
    t->cordoned += w->cordoned;
    t->drained += w->drained;
    t->labelled += w->labelled;
    free_world(w);
}

static void test_every_history_keeps_the_invariants_and_every_job_ends(void **state) {
    (void)state;
    const char *only = getenv("SEED"), *full = getenv("TD_FULL");
    if (only) {
        struct tally t = {0};
        live_through(strtoull(only, NULL, 10), &t);
        return;
    }
    uint64_t n = full ? 1000 : 40;
    struct tally t = {0};
    for (uint64_t seed = 1; seed <= n; seed++) {
        print_message("# seed %llu\n", (unsigned long long)seed);
        live_through(seed, &t);
    }
    print_message("# gangs %llu aborted %llu resumed %llu given up %llu compared %llu stale %llu\n",
                  (unsigned long long)t.gangs, (unsigned long long)t.aborted,
                  (unsigned long long)t.resumed, (unsigned long long)t.given_up,
                  (unsigned long long)t.compared, (unsigned long long)t.stale);
    assert_true(t.gangs > n && t.aborted > n / 4); // they are not left out by the draw
    assert_true(t.resumed > n / 4 && t.given_up > n / 4);
    assert_true(t.cordoned > n && t.drained > n);
    assert_true(t.labelled > n / 4);
    assert_true(t.compared > n && t.stale > n / 4 && t.stale < t.compared);
}

// Time passes for the store and for a node that trains nothing.
static void wait_quietly(struct world *w, struct sim_node *n) {
    pass_time(w);
    for (int i = 0; i < MAX_HELD; i++) {
        if (n->held[i].used && n->held[i].adopted) forward(w, n, &n->held[i]);
    }
    beat(w, n);
}

static void test_recovering_job_keeps_its_place_while_its_checkpoint_comes(void **state) {
    (void)state;
    struct world *w = make_world(1);
    struct sim_node *n = &w->nodes[1]; // three slots, so one job of two ranks at a time
    struct held *h = &n->held[0];
    w->calm = true;
    dial(w, n);
    create(w, 0, 2);
    for (int i = 0; i < 100 && !h->used; i++) {
        wait_quietly(w, n);
    }
    assert_true(h->used && strcmp(h->job, w->jobs[0].id) == 0);
    create(w, 1, 2);
    h->stream = false; // the event comes, the file does not
    h->step = 10;
    line(h, "{\"event\":\"ready\",\"rank\":0,\"pid\":1}");
    save(n, h);
    lose_launcher(h, "internal");
    for (int i = 0; i < 100; i++) {
        wait_quietly(w, n);
    }
    assert_int_equal(job_of(w, 0)->state, TD_JOB_RECOVERING);
    struct td_reason why;
    td_queue_reason(w->core, job_of(w, 0), now(w).mono, &why);
    assert_string_equal(why.code, "SAVING_CHECKPOINT");
    assert_int_equal(job_of(w, 1)->n_attempts, 0);
    Traind__V1__AttemptId id = TRAIND__V1__ATTEMPT_ID__INIT;
    id.job = w->jobs[0].id;
    id.attempt = 1;
    id.epoch = job_of(w, 0)->attempts[0]->epoch;
    assert_ok(td_core_shard_durable(w->core, now(w), &id, "a1/step-10", "m", 1,
                                    "00000000000000000000000000000000"));
    after(w);
    for (int i = 0; i < 100 && job_of(w, 0)->n_attempts == 1; i++) {
        wait_quietly(w, n);
    }
    assert_int_equal(job_of(w, 0)->n_attempts, 2);
    assert_int_equal(job_of(w, 1)->n_attempts, 0);
    free_world(w);
}

// The event of its checkpoint came, the file did not, and no other attempt follows.
static void fail_while_saving(struct world *w) {
    struct sim_node *n = &w->nodes[1];
    struct held *h = &n->held[0];
    w->calm = true;
    dial(w, n);
    create(w, 0, 2); // a stream
    for (int i = 0; i < 100 && !h->used; i++) {
        wait_quietly(w, n);
    }
    assert_true(h->used);
    h->stream = false;
    h->step = 10;
    line(h, "{\"event\":\"ready\",\"rank\":0,\"pid\":1}");
    line(h, "{\"event\":\"ready\",\"rank\":1,\"pid\":2}");
    save(n, h);
    lose_launcher(h, "data");
    for (int i = 0; i < 100; i++) {
        wait_quietly(w, n);
    }
}

static void test_failed_job_waits_for_its_last_checkpoint(void **state) {
    (void)state;
    struct world *w = make_world(1);
    struct sim_node *n = &w->nodes[1];
    fail_while_saving(w);
    assert_int_equal(job_of(w, 0)->state, TD_JOB_RUNNING);
    Traind__V1__AttemptId id = TRAIND__V1__ATTEMPT_ID__INIT;
    id.job = w->jobs[0].id;
    id.attempt = 1;
    id.epoch = job_of(w, 0)->attempts[0]->epoch;
    assert_ok(td_core_shard_durable(w->core, now(w), &id, "a1/step-10", "m", 1,
                                    "00000000000000000000000000000000"));
    after(w);
    for (int i = 0; i < 100 && job_of(w, 0)->state == TD_JOB_RUNNING; i++) {
        wait_quietly(w, n);
    }
    assert_int_equal(job_of(w, 0)->state, TD_JOB_FAILED);
    assert_int_equal(job_of(w, 0)->n_checkpoints, 1);
    assert_true(job_of(w, 0)->checkpoints[0]->committed);
    free_world(w);
}

static void test_failed_job_does_not_wait_for_ever_for_its_last_checkpoint(void **state) {
    (void)state;
    struct world *w = make_world(1);
    struct sim_node *n = &w->nodes[1];
    fail_while_saving(w);
    int64_t began_ns = now(w).mono.ns;
    while (job_of(w, 0)->state == TD_JOB_RUNNING && now(w).mono.ns < began_ns + 100 * TD_NS_PER_S) {
        wait_quietly(w, n);
    }
    assert_int_equal(job_of(w, 0)->state, TD_JOB_FAILED);
    assert_int_equal(td_attempt_forgotten(job_of(w, 0)->attempts[0]),
                     false); // what comes later counts
    free_world(w);
}

static void test_checkpoint_that_its_node_lost_on_the_way_is_said(void **state) {
    (void)state;
    struct world *w = make_world(1);
    struct sim_node *n = &w->nodes[1];
    fail_while_saving(w);
    lose_session(w, n, 0);
    drop_held(&n->held[0]); // it comes back without its disk
    dial(w, n);
    for (int i = 0; i < 100; i++) {
        pass_time(w);
    }
    const struct td_job *j = job_of(w, 0);
    assert_int_equal(j->state, TD_JOB_FAILED);
    assert_int_equal(j->n_checkpoints, 0);
    bool said = false;
    for (uint32_t i = 0; i < j->n_notes; i++) {
        said |= strstr(j->notes[i], "a1/step-10 is lost") != NULL;
    }
    assert_true(said);
    free_world(w);
}

// A job of one rank that trains on node 1; its attempt.
static struct held *begin_job(struct world *w, struct sim_node *n) {
    w->calm = true;
    dial(w, n);
    create(w, 0, 1);
    for (int i = 0; i < 200 && !n->held[0].used; i++) {
        wait_quietly(w, n);
    }
    assert_true(n->held[0].used);
    line(&n->held[0], "{\"event\":\"ready\",\"rank\":0,\"pid\":1}");
    for (int i = 0; i < 100 && job_of(w, 0)->state != TD_JOB_RUNNING; i++) {
        wait_quietly(w, n);
    }
    assert_int_equal(job_of(w, 0)->state, TD_JOB_RUNNING);
    return &n->held[0];
}

// Stopped, or asleep with its machine: the clock jumps, and what nodes sent is read after the tick.
static void test_stall_of_the_coordinator_gives_every_node_one_full_grace(void **state) {
    (void)state;
    struct world *w = make_world(1);
    struct sim_node *n = &w->nodes[1];
    (void)begin_job(w, n);
    static const int64_t stalls_s[] = {6, 9, 11, 100, 8 * 3600};
    for (size_t i = 0; i < TD_COUNTOF(stalls_s); i++) {
        w->now_ns += stalls_s[i] * TD_NS_PER_S;
        pass_time(w);
        assert_true(n->session);                   // no lease was taken
        for (int k = 0; k < 9000 / STEP_MS; k++) { // of the grace of 10 s
            pass_time(w);
        }
        assert_true(n->session);
        wait_quietly(w, n);
        assert_int_equal(job_of(w, 0)->n_attempts, 1);
        assert_string_equal(job_of(w, 0)->reason.code, "");
    }
    assert_int_equal(td_core_counter(w->core, TD_COUNT_STALLS), TD_COUNTOF(stalls_s));
    for (int k = 0; k < 11000 / STEP_MS && n->session;
         k++) { // one that is silent all the same is lost
        pass_time(w);
    }
    assert_false(n->session);
    w->now_ns += 3600 * TD_NS_PER_S; // and given up by the time that passed while somebody looked
    pass_time(w);
    assert_int_equal(job_of(w, 0)->attempts[0]->state, TD_ATTEMPT_STARTED);
    for (int k = 0; k < 61000 / STEP_MS; k++) {
        pass_time(w);
    }
    assert_int_equal(job_of(w, 0)->attempts[0]->state, TD_ATTEMPT_FENCED);
    free_world(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recovering_job_keeps_its_place_while_its_checkpoint_comes),
        cmocka_unit_test(test_failed_job_waits_for_its_last_checkpoint),
        cmocka_unit_test(test_failed_job_does_not_wait_for_ever_for_its_last_checkpoint),
        cmocka_unit_test(test_checkpoint_that_its_node_lost_on_the_way_is_said),
        cmocka_unit_test(test_stall_of_the_coordinator_gives_every_node_one_full_grace),
        cmocka_unit_test(test_every_history_keeps_the_invariants_and_every_job_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
