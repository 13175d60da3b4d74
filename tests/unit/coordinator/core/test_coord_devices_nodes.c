// Devices of several nodes, of nodes that refuse, of older builds, and of nodes that lose some.
// What devices of a job do is shown with it, and is no metric that the job has said of itself.

#include "tests/unit/coordinator/core/coord_devices.h"

// ---- several nodes ------------------------------------------------------------------------------
static void refuse_plan(struct rig *r, uint64_t session, const char *cls, enum td_code code) {
    assert_true(r->n_requests > 0);
    r->session = session;
    answer_failure(r, r->requests[--r->n_requests], code, cls, "there is no accelerator 'far'");
    settle(r);
}

static uint64_t asked(const struct rig *r) {
    assert_true(r->n_requests > 0);
    return r->asked[r->n_requests - 1];
}

static void test_node_with_devices_is_asked_and_taken_before_one_that_nobody_knows(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = far_spec(1, 2);
    struct listed l = {.n = 0};
    struct rig r;
    begin(&r, 8);
    uint64_t a = r.session;
    list(&l, "far", 2);
    say_list(&r, &l);
    add_node(&r, "n-2", 2); // it fits better
    create(&r, 1, spec);
    settle(&r);
    assert_int_equal(r.n_requests, 1);
    assert_int_equal(asked(&r), a);
    r.session = a;
    answer_plans_with(&r, two);
    assert_string_equal(last(&r, 1)->parts[0].node, "n-1");
    end(&r);
}

static void test_refusal_of_a_node_that_nobody_knows_is_not_the_end_of_the_job(void **state) {
    (void)state;
    TD_AUTO_FREE char *pair = far_spec(1, 2), *other = far_spec(2, 1), *third = far_spec(3, 1);
    struct rig r;
    begin(&r, 8);
    uint64_t a = r.session;
    create(&r, 1, pair);
    settle(&r);
    answer_plans_with(&r, two);
    uint64_t b = add_node(&r, "n-2", 2);
    create(&r, 2, other);
    settle(&r);
    assert_int_equal(asked(&r), b); // n-1 has no device that is free
    refuse_plan(&r, b, "bad_spec", TD_NOT_FOUND);
    assert_int_equal(job(&r, 2)->state, TD_JOB_QUEUED);
    assert_int_equal(asked(&r), a);
    r.session = a;
    answer_plans_with(&r, two);
    assert_string_equal(reason(&r, 2).code, "WAITING_FOR_DEVICES");
    assert_int_equal(r.n_requests, 0); // n-2 is not asked for it again
    create(&r, 3, third);
    settle(&r);
    assert_int_equal(asked(&r), a);
    r.session = a;
    answer_plans_with(&r, two);
    add_node(&r, "n-2", 2); // until it registers again
    assert_int_equal(r.n_requests, 2);
    end(&r);
}

static void test_node_without_devices_fails_no_job_when_somebody_asks_for_a_plan(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = far_spec(1, 2);
    struct listed l = {.n = 0}, none = {.n = 0};
    struct rig r;
    begin(&r, 8);
    list(&l, "far", 2);
    say_list(&r, &l);
    td_core_session_close(r.core, r.now, r.session);
    take(&r);
    uint64_t b = add_node(&r, "n-2", 8);
    list(&none, "cpu", -1);
    say_list(&r, &none);
    create(&r, 1, spec);
    settle(&r);
    assert_int_equal(r.n_requests, 0);
    assert_string_equal(reason(&r, 1).text, "no connected node has 2 devices of 'far'");
    assert_ok(td_core_plan(r.core, r.now, spec, false, "", 7));
    take(&r);
    settle(&r);
    assert_int_equal(asked(&r), b); // there is no other
    refuse_plan(&r, b, "bad_spec", TD_NOT_FOUND);
    assert_int_equal(r.n_planned, 1);
    assert_int_equal(job(&r, 1)->state, TD_JOB_QUEUED);
    end(&r);
}

static void test_refusal_of_a_node_that_has_the_devices_is_final(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = far_spec(1, 2);
    struct listed l = {.n = 0};
    struct rig r;
    begin(&r, 8);
    list(&l, "far", 2);
    say_list(&r, &l);
    uint64_t a = r.session;
    add_node(&r, "n-2", 8);
    create(&r, 1, spec);
    settle(&r);
    refuse_plan(&r, a, "bad_spec", TD_INVALID_ARGUMENT);
    assert_int_equal(job(&r, 1)->state, TD_JOB_FAILED);
    assert_int_equal(r.n_requests, 0);
    end(&r);
}

static void test_job_that_has_run_fails_with_a_plan_that_is_refused_for_good(void **state) {
    (void)state;
    const struct td_core_options o = {.incarnation = 1, .checkpoint_dir = "/c"};
    TD_AUTO_FREE char *spec = far_spec(1, 2);
    struct rig r;
    begin(&r, 4);
    create(&r, 1, spec);
    settle(&r);
    answer_plans_with(&r, two);
    assert_int_equal(job(&r, 1)->n_attempts, 1);
    line(&r, "{\"event\":\"launched\",\"pid\":1}\n");
    line(&r, "{\"event\":\"ready\",\"rank\":0,\"pid\":2}\n");
    start_again(&r, &o);
    r.boot = "another";
    uint64_t a = add_node(&r, "n-1", 4); // without the attempt, and nobody knows its devices
    for (int i = 0; i < 20 && !r.n_requests; i++) {
        r.now.mono.ns += TD_NS_PER_S;
        settle(&r);
    }
    assert_int_equal(job(&r, 1)->state, TD_JOB_RECOVERING);
    assert_true(r.asked_for_later);
    refuse_plan(&r, a, "bad_spec", TD_NOT_FOUND);
    assert_int_equal(job(&r, 1)->state, TD_JOB_FAILED);
    assert_int_equal(job(&r, 1)->failure.cls, TD_CLASS_BAD_SPEC);
    end(&r);
}

static void test_job_that_has_run_waits_for_devices_that_are_gone(void **state) {
    (void)state;
    const struct td_core_options o = {.incarnation = 1, .checkpoint_dir = "/c"};
    TD_AUTO_FREE char *spec = far_spec(1, 2);
    struct listed l = {.n = 0}, whole = {.n = 0};
    struct rig r;
    begin(&r, 4);
    create(&r, 1, spec);
    settle(&r);
    answer_plans_with(&r, two);
    line(&r, "{\"event\":\"launched\",\"pid\":1}\n");
    line(&r, "{\"event\":\"ready\",\"rank\":0,\"pid\":2}\n");
    start_again(&r, &o);
    add_node(&r, "n-1", 4);
    list(&l, "far", 1);
    say_list(&r, &l);
    for (int i = 0; i < 20; i++) {
        r.now.mono.ns += TD_NS_PER_S;
        Traind__V1__Heartbeat h = TRAIND__V1__HEARTBEAT__INIT;
        Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
        m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_HEARTBEAT;
        m.heartbeat = &h;
        say(&r, &m);
        settle(&r);
    }
    assert_int_equal(job(&r, 1)->state, TD_JOB_RECOVERING);
    const struct td_reason why = reason(&r, 1);
    assert_string_equal(why.code, "WAITING_FOR_NODE");
    assert_string_equal(why.text, "no connected node has 2 devices of 'far'");
    assert_int_equal(why.needed_devices, 2);
    list(&whole, "far", 2);
    say_list(&r, &whole);
    answer_plans_with(&r, two);
    assert_int_equal(job(&r, 1)->n_attempts, 2);
    end(&r);
}

static void test_node_of_an_older_build_gets_no_job_that_needs_devices(void **state) {
    (void)state;
    TD_AUTO_FREE char *one = far_spec(1, 1), *two_ranks = far_spec(2, 2), *host = make_spec(3, 1);
    struct listed l = {.n = 0};
    struct rig r;
    const struct td_job *j = NULL;
    size_t used;
    begin(&r, 4);
    r.gives_no_devices = true;
    add_node(&r, "n-1", 8);
    list(&l, "far", 2);
    say_list(&r, &l);
    assert_int_equal(shown(&r, &used), 0);
    assert_fails(try_create(&r, 1, one, &j), TD_FAILED_PRECONDITION, "node n-1 has an older build");
    create(&r, 2, host);
    settle(&r);
    answer_plans(&r);
    assert_int_equal(job(&r, 2)->n_attempts, 1);
    r.gives_no_devices = false;
    add_node(&r, "n-1", 8);
    say_list(&r, &l);
    create(&r, 3, two_ranks);
    settle(&r);
    answer_plans_with(&r, two);
    assert_string_equal(last(&r, 3)->parts[0].devices, "far-0,far-1");
    end(&r);
}

static void test_job_that_lacks_devices_and_slots_keeps_no_slots(void **state) {
    (void)state;
    TD_AUTO_FREE char *one = far_spec(1, 2), *pair = far_spec(2, 2), *host = make_spec(3, 1);
    struct rig r;
    begin(&r, 3);
    create(&r, 1, one);
    settle(&r);
    answer_plans_with(&r, two);
    create(&r, 2, pair);
    settle(&r);
    answer_plans_with(&r, two);
    assert_string_equal(reason(&r, 2).code, "WAITING_FOR_DEVICES");
    create(&r, 3, host);
    settle(&r);
    answer_plans(&r);
    assert_int_equal(job(&r, 3)->n_attempts, 1); // a slot is free, and it needs no device
    end(&r);
}

static void
test_accelerator_has_one_row_and_blockers_are_those_that_hold_its_devices(void **state) {
    (void)state;
    TD_AUTO(td_arena) *arena = NULL;
    TD_AUTO_FREE char *pair = far_spec(1, 2), *mine = far_spec_of(2, 1, "plugins: [/a], ", "far"),
                      *my = far_spec_of(3, 1, "", "my"), *one = far_spec(4, 1);
    struct rig r;
    size_t used;
    assert_ok(td_arena_create(1 << 20, &arena));
    begin(&r, 8);
    create(&r, 1, pair);
    settle(&r);
    answer_plans_with(&r, two);
    create(&r, 2, mine);
    settle(&r);
    answer_plans_with(&r, "{\"accelerator\":\"far\",\"devices\":[{\"uuid\":\"mine\"}]}");
    create(&r, 3, my);
    settle(&r);
    answer_plans_with(&r, "{\"accelerator\":\"my\",\"devices\":[{\"uuid\":\"my-0\"}]}");
    assert_int_equal(job(&r, 3)->n_attempts, 1);
    assert_int_equal(shown(&r, &used), 3); // and two rows
    assert_int_equal(used, 3);
    create(&r, 4, one);
    settle(&r);
    answer_plans_with(&r, two);
    const Traind__V1__Job *m = td_view_job(arena, r.core, job(&r, 4), r.now, 0);
    assert_string_equal(m->reason->code, "WAITING_FOR_DEVICES");
    assert_int_equal(m->reason->n_blockers, 1);
    assert_string_equal(m->reason->blockers[0], job(&r, 1)->id);
    end(&r);
}

// ---- what devices of a job do -------------------------------------------------------------------
static void say_gpus(struct rig *r, const char *uuid, bool stale) {
    Traind__V1__GpuList l = TRAIND__V1__GPU_LIST__INIT;
    Traind__V1__Gpu gpu = TRAIND__V1__GPU__INIT, other = TRAIND__V1__GPU__INIT,
                    *gpus[] = {&other, &gpu};
    Traind__V1__Gpu__MeasuredEntry busy = TRAIND__V1__GPU__MEASURED_ENTRY__INIT,
                                   *measured[] = {&busy};
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    busy.key = td_unconst("utilization");
    busy.value = 97;
    other.uuid = td_unconst("far-0");
    gpu.uuid = td_unconst(uuid);
    gpu.measured = measured;
    gpu.n_measured = 1;
    l.gpus = gpus;
    l.n_gpus = 2;
    l.stale = stale;
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_GPU_LIST;
    m.gpu_list = &l;
    say(r, &m);
}

static const Traind__V1__Job *view(struct rig *r, struct td_arena *a, int number) {
    const Traind__V1__Job *m = td_view_job(a, r->core, job(r, number), r->now, 0);
    assert_non_null(m);
    return m;
}

static void begin_job(struct rig *r, const char *spec) {
    begin(r, 4);
    create(r, 1, td_unconst(spec));
    settle(r);
    answer_plans_with(r, two);
    line(r, "{\"event\":\"launched\",\"pid\":1}\n");
}

static void test_job_shows_devices_that_its_node_knows_now(void **state) {
    (void)state;
    TD_AUTO(td_arena) *a = NULL;
    TD_AUTO_FREE char *spec = far_spec(1, 2);
    struct rig r;
    assert_ok(td_arena_create(1 << 20, &a));
    begin_job(&r, spec);
    assert_int_equal(view(&r, a, 1)->n_gpus, 0);
    say_gpus(&r, "far-1", false); // of far-0 the driver says nothing
    const Traind__V1__Job *m = view(&r, a, 1);
    assert_int_equal(m->n_gpus, 1);
    assert_int_equal(m->gpus[0]->number, 1);
    assert_string_equal(m->gpus[0]->uuid, "far-1");
    assert_string_equal(m->gpus[0]->node, "n-1");
    assert_int_equal(m->gpus[0]->n_measured, 1);
    assert_string_equal(m->gpus[0]->measured[0]->key, "utilization");
    assert_true(m->gpus[0]->measured[0]->value == 97);
    say_gpus(&r, "far-1", true);
    assert_int_equal(view(&r, a, 1)->n_gpus, 0);
    say_gpus(&r, "GPU-unknown", false);
    assert_int_equal(view(&r, a, 1)->n_gpus, 0);
    say_gpus(&r, "far-1", false);
    td_core_session_close(r.core, r.now, r.session);
    take(&r);
    assert_int_equal(view(&r, a, 1)->n_gpus, 0); // who knows
    end(&r);
}

// What came of them, which is the caller's to finish.
static struct td_core_effects say_points(struct rig *r, uint64_t offset,
                                         struct td_metric_record *records, size_t n) {
    Traind__V1__AttemptId id = attempt_id(r);
    Traind__V1__Segment s = TRAIND__V1__SEGMENT__INIT;
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    s.id = &id;
    s.kind = TRAIND__V1__SEGMENT__KIND__METRICS;
    s.offset = offset;
    s.data = (ProtobufCBinaryData){n * sizeof *records, (uint8_t *)records};
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_SEGMENT;
    m.segment = &s;
    m.incarnation = 1;
    td_core_session_message(r->core, r->now, r->session, &m);
    struct td_core_effects out = td_core_take(r->core);
    assert_non_null(out.points);
    assert_int_equal(out.points->n_points, n);
    return out;
}

static bool has(const struct td_core_effects *out, enum td_action_kind kind) {
    for (const struct td_action *a = out->actions; a; a = a->next) {
        if (a->kind == kind) return true;
    }
    return false;
}

static void test_points_of_devices_are_no_metrics_of_the_job(void **state) {
    (void)state;
    TD_AUTO(td_arena) *a = NULL;
    TD_AUTO_FREE char *spec = far_spec(1, 1);
    struct rig r;
    struct td_metric_record records[] = {
        {.name = "gpu0.power", .sum = 9, .count = 1, .flags = TD_METRIC_DEVICE},
        {.name = "train_loss", .sum = 2, .count = 1, .flags = TD_METRIC_SUM_COUNT}};
    assert_ok(td_arena_create(1 << 20, &a));
    begin_job(&r, spec);
    struct td_core_effects out = say_points(&r, 0, records, 1); // stored, and nothing else
    assert_int_equal(out.points->points[0].flags, TD_METRIC_DEVICE);
    assert_false(has(&out, TD_ACTION_PROGRESS));
    td_core_effects_finish(&out);
    out = say_points(&r, sizeof *records, records, 2);
    assert_true(has(&out, TD_ACTION_PROGRESS));
    td_core_effects_finish(&out);
    const Traind__V1__Job *m = view(&r, a, 1);
    assert_int_equal(m->n_metrics, 1);
    assert_string_equal(m->metrics[0]->key, "train_loss");
    end(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_node_with_devices_is_asked_and_taken_before_one_that_nobody_knows),
        cmocka_unit_test(test_refusal_of_a_node_that_nobody_knows_is_not_the_end_of_the_job),
        cmocka_unit_test(test_node_without_devices_fails_no_job_when_somebody_asks_for_a_plan),
        cmocka_unit_test(test_refusal_of_a_node_that_has_the_devices_is_final),
        cmocka_unit_test(test_job_that_has_run_fails_with_a_plan_that_is_refused_for_good),
        cmocka_unit_test(test_job_that_has_run_waits_for_devices_that_are_gone),
        cmocka_unit_test(test_node_of_an_older_build_gets_no_job_that_needs_devices),
        cmocka_unit_test(test_job_that_lacks_devices_and_slots_keeps_no_slots),
        cmocka_unit_test(test_accelerator_has_one_row_and_blockers_are_those_that_hold_its_devices),
        cmocka_unit_test(test_job_shows_devices_that_its_node_knows_now),
        cmocka_unit_test(test_points_of_devices_are_no_metrics_of_the_job),
    };
    return cmocka_run_group_tests_name("coord_devices_nodes", tests, NULL, NULL);
}
