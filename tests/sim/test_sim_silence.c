// Two hosts train one job, and one of them falls silent: cut off, or with its ranks still reaching
// the others. What the coordinator then does, and when, in the virtual time of coordinator_world.h.

#include "tests/sim/coordinator_history.h"

enum { FIRST_GANG = MAX_RANKS + 1 }; // two nodes, a rank on each

static void pass_steps(struct world *w, int64_t ms) {
    for (; ms > 0; ms -= STEP_MS) {
        pass_time(w);
        step_node(w, &w->nodes[0]);
        step_node(w, &w->nodes[1]);
    }
}

// Its attempt trains on both, and has long to go.
static struct world *begin_gang(uint64_t seed) {
    struct world *w = make_world(seed);
    w->calm = true;
    pass_steps(w, STEP_MS);
    create(w, 0, FIRST_GANG);
    for (int i = 0; i < 200 && job_of(w, 0)->state != TD_JOB_RUNNING; i++) {
        pass_steps(w, STEP_MS);
    }
    assert_int_equal(job_of(w, 0)->state, TD_JOB_RUNNING);
    w->nodes[0].held[0].last = w->nodes[1].held[0].last = 100000;
    pass_steps(w, 1000);
    assert_true(w->nodes[0].held[0].step > 0);
    return w;
}

static void test_host_that_is_cut_off_is_given_up_with_its_lease(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct world *w = begin_gang(seed);
        const int64_t began_ns = w->now_ns;
        const struct td_attempt *a = job_of(w, 0)->attempts[0];
        fall_silent(w, &w->nodes[1], 300000);
        w->nodes[1].cut_until = w->nodes[1].dial_at;
        pass_steps(w, LEASE_MS - 2000);
        assert_int_equal(a->parts[1].state, TD_ATTEMPT_STARTED); // it beat until then
        while (job_of(w, 0)->restarts == 0 && w->now_ns < began_ns + 60 * TD_NS_PER_S) {
            pass_steps(w, STEP_MS);
        }
        // The ranks of the other lose it some seconds after the cut, which the draw may delay.
        assert_true(w->now_ns - began_ns < 20 * TD_NS_PER_S);
        assert_int_equal(a->parts[1].state, TD_ATTEMPT_FENCED);
        assert_int_equal(a->parts[0].state, TD_ATTEMPT_ENDED);
        assert_int_equal(job_of(w, 0)->failure.cls, TD_CLASS_NODE_LOST);
        assert_string_equal(job_of(w, 0)->failure.node, w->nodes[1].id);
        free_world(w);
    }
}

static void test_ranks_step_on_when_only_their_node_is_silent(void **state) {
    (void)state;
    struct world *w = begin_gang(1);
    fall_silent(w, &w->nodes[1], LEASE_MS + LOST_AFTER_MS - 5000);
    const uint32_t before = w->nodes[0].held[0].step;
    pass_steps(w, LEASE_MS + LOST_AFTER_MS - 6000);
    assert_string_equal(job_of(w, 0)->reason.code, "NODE_SILENT");
    assert_true(w->nodes[0].held[0].step > before + 100);
    assert_true(w->nodes[1].held[0].step > before + 100);
    pass_steps(w, 5000); // it is back
    assert_string_equal(job_of(w, 0)->reason.code, "");
    assert_int_equal(job_of(w, 0)->n_attempts, 1);
    w->nodes[0].held[0].last = w->nodes[1].held[0].last = w->nodes[0].held[0].step + 50;
    pass_steps(w, 60000);
    assert_int_equal(job_of(w, 0)->state, TD_JOB_SUCCEEDED);
    assert_int_equal(job_of(w, 0)->n_attempts, 1);
    free_world(w);
}

static void test_silent_node_is_given_up_when_its_time_is_over_though_its_ranks_step(void **state) {
    (void)state;
    struct world *w = begin_gang(1);
    fall_silent(w, &w->nodes[1], 3600000);
    pass_steps(w, LEASE_MS + LOST_AFTER_MS - 2000);
    assert_int_equal(job_of(w, 0)->attempts[0]->parts[1].state, TD_ATTEMPT_STARTED);
    pass_steps(w, 4000);
    assert_int_equal(job_of(w, 0)->attempts[0]->parts[1].state, TD_ATTEMPT_FENCED);
    free_world(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_host_that_is_cut_off_is_given_up_with_its_lease),
        cmocka_unit_test(test_ranks_step_on_when_only_their_node_is_silent),
        cmocka_unit_test(test_silent_node_is_given_up_when_its_time_is_over_though_its_ranks_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
