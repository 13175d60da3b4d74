// Errors of GPUs in the coordinator's core: what one means for the job on the device, and which
// no job gets such devices any more. Neither a restart nor a list that comes again changes that.
// The devices are those of `far`, which the node's list of GPUs names, too.

#include "daemon/coordinator/core/model/hosts.h"
#include "daemon/coordinator/core/model/model.h"
#include "tests/unit/coordinator/core/coord_devices.h"

static const struct td_core_options options = {.incarnation = 1, .checkpoint_dir = "/c"};

enum { MOST_ERRORS = 8 };
struct said { // the list of the node
    Traind__V1__Gpu gpu[3];
    Traind__V1__GpuError error[MOST_ERRORS];
    size_t n;
};

static void begin_said(struct said *s) {
    static const char *const uuid[] = {"far-0", "far-1", "GPU-c"};
    memset(s, 0, sizeof *s);
    for (int i = 0; i < 3; i++) {
        traind__v1__gpu__init(&s->gpu[i]);
        s->gpu[i].uuid = td_unconst(uuid[i]);
    }
}

static void say_gpus(struct rig *r, struct said *s) {
    Traind__V1__GpuList l = TRAIND__V1__GPU_LIST__INIT;
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    Traind__V1__Gpu *gpus[] = {&s->gpu[0], &s->gpu[1], &s->gpu[2]};
    Traind__V1__GpuError *errors[MOST_ERRORS];
    for (size_t i = 0; i < s->n; i++) {
        errors[i] = &s->error[i];
    }
    l.gpus = gpus;
    l.n_gpus = 3;
    l.errors = errors;
    l.n_errors = s->n;
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_GPU_LIST;
    m.gpu_list = &l;
    say(r, &m);
    settle(r);
}

static void report(struct rig *r, struct said *s, const char *uuid, uint32_t xid) {
    Traind__V1__GpuError *e = &s->error[s->n++];
    assert_true(s->n <= MOST_ERRORS);
    traind__v1__gpu_error__init(e);
    e->uuid = td_unconst(uuid);
    e->xid = xid;
    e->number = s->n;
    say_gpus(r, s);
}

// A session of the node, and its list.
static void begin_with_gpus(struct rig *r, struct said *s) {
    begin(r, 4);
    begin_said(s);
    say_gpus(r, s);
}

// more: at the head of its spec.
static void start_with(struct rig *r, int number, const char *owner, const char *more) {
    TD_AUTO_FREE char *spec = far_spec_of(number, 1, more, "far");
    char id[TD_JOB_ID_MAX];
    const struct td_job *j = NULL;
    snprintf(id, sizeof id, "j-%012x", (unsigned)number);
    const struct td_core_create_job request = {.id = id,
                                               .spec_json = spec,
                                               .request_id = "",
                                               .digest = "",
                                               .owner = owner,
                                               .owner_token = owner};
    bool again = false;
    assert_ok(td_core_create_job(r->core, r->now, &request, &j, &again));
    take(r);
    settle(r);
    answer_plans_with(r, two);
}

static void start(struct rig *r, int number) {
    start_with(r, number, NULL, "");
}

static const char once[] = "restart: {max: 0}, ";

static void run(struct rig *r) {
    line(r, "{\"event\":\"launched\",\"pid\":1}\n");
    line(r, "{\"event\":\"ready\",\"rank\":0,\"pid\":2}\n");
}

static void end_badly(struct rig *r, const char *cls, const char *code) {
    char text[256];
    snprintf(text, sizeof text,
             "{\"event\":\"rank_exit\",\"rank\":0,\"class\":\"%s\",\"status\":\"%s\","
             "\"message\":\"rank 0 ended\"}\n",
             cls, code);
    line(r, text);
    line(r, "{\"event\":\"launcher_end\",\"outcome\":\"failed\"}\n");
    settle(r);
}

// By tenths of a second, so that the core does not take itself for the one that stood still.
static void pass(struct rig *r, int tenths) {
    for (int i = 0; i < tenths; i++) {
        Traind__V1__Heartbeat beat = TRAIND__V1__HEARTBEAT__INIT;
        Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
        r->now.mono.ns += TD_NS_PER_S / 10;
        r->now.real.ns += TD_NS_PER_S / 10;
        m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_HEARTBEAT;
        m.heartbeat = &beat;
        say(r, &m);
        settle(r);
    }
}

static const char *excluded(struct rig *r, const char *uuid) {
    return td_host_gpus_excluded(&td_nodes_find(r->core, "n-1")->gpus, uuid);
}

static const char *device_of(struct rig *r, int number) {
    return last(r, number)->parts[0].devices;
}

static bool has_note(const struct td_job *j, const char *words) {
    for (uint32_t i = 0; i < j->n_notes; i++) {
        if (strstr(j->notes[i], words)) return true;
    }
    return false;
}

// ---- what a job has of it -----------------------------------------------------------------------
static void test_job_restarts_on_another_device_when_its_own_breaks(void **state) {
    (void)state;
    struct rig r;
    struct said s;
    begin_with_gpus(&r, &s);
    start(&r, 1);
    assert_string_equal(device_of(&r, 1), "far-0");
    run(&r);
    report(&r, &s, "far-0", 79);
    assert_non_null(strstr(r.said, "GPU is excluded node=n-1 uuid=far-0"));
    assert_true(has_note(job(&r, 1), "GPU far-0 of node n-1 reports XID 79 (the GPU has fallen off "
                                     "the bus: the machine cannot reach it): no rank gets it until "
                                     "`trainctl node device enable n-1 far-0`"));
    end_badly(&r, "user_code", "FAILED_PRECONDITION"); // as a script ends that lost its device
    pass(&r, 12);
    assert_int_equal(job(&r, 1)->failure.cls, TD_CLASS_DEVICE);
    assert_int_equal(job(&r, 1)->failure.code, TD_UNAVAILABLE);
    assert_non_null(strstr(job(&r, 1)->failure.message, "reported XID 79"));
    assert_non_null(strstr(job(&r, 1)->failure.message, "rank 0 ended"));
    pass(&r, 20);
    answer_plans_with(&r, two); // its files are looked at again
    assert_int_equal(job(&r, 1)->n_attempts, 2);
    assert_string_equal(device_of(&r, 1), "far-1");
    end(&r);
}

static void test_error_explains_a_failure_that_came_a_moment_before(void **state) {
    (void)state;
    struct rig r;
    struct said s;
    begin_with_gpus(&r, &s);
    start(&r, 1);
    run(&r);
    end_badly(&r, "user_code", "FAILED_PRECONDITION");
    assert_int_equal(job(&r, 1)->state, TD_JOB_RUNNING); // it is closed a second later
    pass(&r, 5);
    report(&r, &s, "far-0", 48);
    pass(&r, 7);
    assert_int_equal(job(&r, 1)->failure.cls, TD_CLASS_DEVICE);
    assert_int_equal(job(&r, 1)->state, TD_JOB_RECOVERING);
    end(&r);
}

struct ending {
    uint32_t xid;
    const char *cls, *code;
    int tenths; // between the error and the end
    enum td_class wanted;
    bool is_excluded;
};

static void expect_ending(const struct ending *e) {
    struct rig r;
    struct said s;
    begin_with_gpus(&r, &s);
    start(&r, 1);
    run(&r);
    report(&r, &s, "far-0", e->xid);
    pass(&r, e->tenths);
    end_badly(&r, e->cls, e->code);
    pass(&r, 12);
    assert_int_equal(job(&r, 1)->failure.cls, e->wanted);
    assert_int_equal(excluded(&r, "far-0") != NULL, e->is_excluded);
    assert_null(excluded(&r, "far-1"));
    end(&r);
}

static void test_class_follows_from_the_error_and_from_how_the_rank_ended(void **state) {
    (void)state;
    static const char wrong[] = "FAILED_PRECONDITION", bug[] = "INTERNAL", again[] = "UNAVAILABLE";
    static const struct ending endings[] = {
        // the program's own
        {13, "user_code", wrong, 0, TD_CLASS_USER_CODE, false},
        {31, "internal", bug, 0, TD_CLASS_USER_CODE, false},
        {43, "internal", bug, 590, TD_CLASS_USER_CODE, false},
        {43, "internal", bug, 620, TD_CLASS_INTERNAL, false}, // long before
        {45, "internal", again, 0, TD_CLASS_INTERNAL, false}, // it asks for another attempt
        {45, "killed", "ABORTED", 0, TD_CLASS_KILLED, false}, // that is why there is an error
        {13, "out_of_memory", "RESOURCE_EXHAUSTED", 0, TD_CLASS_OUT_OF_MEMORY, false},
        // the device is used all the same
        {94, "user_code", wrong, 0, TD_CLASS_DEVICE, false},
        {63, "internal", bug, 0, TD_CLASS_DEVICE, false},
        {94, "user_code", wrong, 620, TD_CLASS_USER_CODE, false},
        // the device is broken
        {64, "internal", bug, 0, TD_CLASS_DEVICE, true},
        {74, "collective", "ABORTED", 0, TD_CLASS_DEVICE, true},
        {95, "killed", "ABORTED", 0, TD_CLASS_DEVICE, true},
        {119, "stuck", "DEADLINE_EXCEEDED", 620, TD_CLASS_DEVICE, true},
        {120, "data", "DATA_LOSS", 0, TD_CLASS_DATA, true}, // known better
        // noted
        {62, "user_code", wrong, 0, TD_CLASS_USER_CODE, false},
        {9999, "internal", bug, 0, TD_CLASS_INTERNAL, false},
    };
    for (size_t i = 0; i < TD_COUNTOF(endings); i++) {
        expect_ending(&endings[i]);
    }
}

static void test_job_on_another_device_has_nothing_of_it(void **state) {
    (void)state;
    struct rig r;
    struct said s;
    begin_with_gpus(&r, &s);
    start(&r, 1);
    run(&r);
    report(&r, &s, "far-1", 79);
    report(&r, &s, "GPU-unknown", 79); // that the node does not give to jobs
    end_badly(&r, "user_code", "FAILED_PRECONDITION");
    pass(&r, 12);
    assert_int_equal(job(&r, 1)->failure.cls, TD_CLASS_USER_CODE);
    assert_int_equal(job(&r, 1)->n_notes, 0);
    assert_non_null(excluded(&r, "far-1"));
    assert_null(excluded(&r, "GPU-unknown"));
    end(&r);
}

static void test_instance_is_excluded_with_its_whole_gpu(void **state) {
    (void)state;
    struct rig r;
    struct said s;
    begin_with_gpus(&r, &s);
    s.gpu[0].parent = td_unconst("GPU-p");
    start_with(&r, 1, NULL, once);
    run(&r);
    report(&r, &s, "GPU-p", 31); // whose program it was is not known
    assert_int_equal(job(&r, 1)->n_notes, 0);
    report(&r, &s, "GPU-p", 79);
    assert_true(has_note(job(&r, 1), "GPU GPU-p of node n-1 reports XID 79"));
    assert_non_null(excluded(&r, "far-0"));
    assert_null(excluded(&r, "far-1"));
    end_badly(&r, "user_code", "FAILED_PRECONDITION");
    pass(&r, 12);
    assert_int_equal(job(&r, 1)->state, TD_JOB_FAILED);
    start(&r, 2);
    assert_string_equal(device_of(&r, 2), "far-1");
    const struct td_host *n = NULL;
    assert_fails(td_core_enable_device(r.core, r.now, "n-1", "far-0", &n), TD_FAILED_PRECONDITION,
                 "far-0 is an instance of GPU GPU-p, which is excluded");
    assert_ok(td_core_enable_device(r.core, r.now, "n-1", "GPU-p", &n));
    take(&r);
    assert_null(excluded(&r, "far-0"));
    end(&r);
}

// ---- who gets a device --------------------------------------------------------------------------
static void test_no_job_gets_an_excluded_device_until_it_is_enabled(void **state) {
    (void)state;
    struct rig r;
    struct said s;
    const struct td_host *n = NULL;
    begin_with_gpus(&r, &s);
    report(&r, &s, "far-0", 79);
    report(&r, &s, "far-1", 79);
    start(&r, 1);
    assert_int_equal(job(&r, 1)->n_attempts, 0);
    assert_string_equal(reason(&r, 1).code, "WAITING_FOR_DEVICES"); // it may be enabled again
    assert_ok(td_core_enable_device(r.core, r.now, "n-1", "far-1", &n));
    take(&r);
    settle(&r);
    assert_string_equal(device_of(&r, 1), "far-1");
    assert_ok(td_core_enable_device(r.core, r.now, "n-1", "far-1", &n)); // again
    take(&r);
    say_gpus(&r, &s); // the same errors come again, as after a session that broke
    assert_null(excluded(&r, "far-1"));
    assert_non_null(excluded(&r, "far-0"));
    s.error[1].number = 3; // it has another one
    say_gpus(&r, &s);
    assert_non_null(excluded(&r, "far-1"));
    end(&r);
}

static void test_restarts_of_coordinator_and_node_change_nothing(void **state) {
    (void)state;
    struct rig r;
    struct said s;
    const struct td_host *n = NULL;
    begin_with_gpus(&r, &s);
    report(&r, &s, "far-0", 79);
    report(&r, &s, "far-1", 79);
    assert_ok(td_core_enable_device(r.core, r.now, "n-1", "far-1", &n));
    take(&r);
    start_again(&r, &options);
    assert_non_null(excluded(&r, "far-0"));
    assert_null(excluded(&r, "far-1"));
    add_node(&r, "n-1", 4);
    say_gpus(&r, &s); // the node's daemon went on, and says what it said
    assert_non_null(excluded(&r, "far-0"));
    assert_null(excluded(&r, "far-1"));
    start(&r, 1);
    assert_string_equal(device_of(&r, 1), "far-1");
    r.daemon = "another"; // its daemon was started again, and so was the machine
    r.boot = "later";
    begin_said(&s);
    add_node(&r, "n-1", 4);
    report(&r, &s, "GPU-c", 79);
    assert_non_null(excluded(&r, "GPU-c"));
    assert_non_null(excluded(&r, "far-0"));
    end(&r);
}

static void test_device_that_fails_two_owners_is_excluded(void **state) {
    (void)state;
    static const struct {
        const char *first, *second;
        bool is_excluded;
    } pairs[] = {{"alice", "bob", true}, {"alice", "alice", false}, {NULL, NULL, false}};
    for (size_t i = 0; i < TD_COUNTOF(pairs); i++) {
        struct rig r;
        struct said s;
        begin_with_gpus(&r, &s);
        start_with(&r, 1, pairs[i].first, once);
        run(&r);
        end_badly(&r, "device", "UNAVAILABLE"); // an accelerator's own word
        pass(&r, 12);
        assert_null(excluded(&r, "far-0"));
        start_again(&r, &options); // the first one is not forgotten
        add_node(&r, "n-1", 4);
        say_gpus(&r, &s);
        start_with(&r, 2, pairs[i].second, once);
        assert_int_equal(job(&r, 2)->n_attempts, 1);
        assert_string_equal(device_of(&r, 2), "far-0");
        run(&r);
        report(&r, &s, "far-0", 94);
        end_badly(&r, "user_code", "FAILED_PRECONDITION");
        pass(&r, 12);
        assert_int_equal(excluded(&r, "far-0") != NULL, pairs[i].is_excluded);
        assert_int_equal(has_note(job(&r, 2), "two jobs of two owners"), pairs[i].is_excluded);
        end(&r);
    }
}

// ---- operators ----------------------------------------------------------------------------------
static td_status disable(struct rig *r, const char *node, const char *device) {
    const struct td_host *n = NULL;
    const struct td_core_device request = {
        .node = node, .device = device, .by = "alice", .reason = ""};
    td_status s = td_core_disable_device(r->core, r->now, &request, &n);
    take(r);
    return s;
}

static void test_operator_names_a_device_by_the_beginning_of_its_uuid(void **state) {
    (void)state;
    struct rig r;
    struct said s;
    const struct td_host *n = NULL;
    begin_with_gpus(&r, &s);
    static const struct {
        const char *node, *device;
        enum td_code code;
        const char *words;
    } wrong[] = {
        {"n-2", "far-0", TD_NOT_FOUND, "no node has the id or the name 'n-2'"},
        {"n-1", "far-9", TD_NOT_FOUND,
         "node n-1 has no GPU whose uuid is, or begins with, 'far-9'"},
        {"n-1", "", TD_NOT_FOUND, "has no GPU"},
        {"n-1", "far", TD_FAILED_PRECONDITION,
         "2 GPUs of node n-1 have uuids that begin with 'far'; give more of one: far-0, far-1"},
    };
    for (size_t i = 0; i < TD_COUNTOF(wrong); i++) {
        assert_fails(disable(&r, wrong[i].node, wrong[i].device), wrong[i].code, wrong[i].words);
        assert_fails(td_core_enable_device(r.core, r.now, wrong[i].node, wrong[i].device, &n),
                     wrong[i].code, wrong[i].words);
    }
    assert_ok(disable(&r, "n-1", "GPU"));
    assert_string_equal(excluded(&r, "GPU-c"), "an operator took it out of use");
    s.gpu[2].uuid = td_unconst("GPU-d"); // the card was replaced
    say_gpus(&r, &s);
    assert_null(excluded(&r, "GPU-d"));
    assert_ok(td_core_enable_device(r.core, r.now, "n-1", "GPU-c", &n)); // it is known all the same
    take(&r);
    assert_fails(td_core_enable_device(r.core, r.now, "n-1", "GPU-c", &n), TD_NOT_FOUND, "no GPU");
    end(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_job_restarts_on_another_device_when_its_own_breaks),
        cmocka_unit_test(test_error_explains_a_failure_that_came_a_moment_before),
        cmocka_unit_test(test_class_follows_from_the_error_and_from_how_the_rank_ended),
        cmocka_unit_test(test_job_on_another_device_has_nothing_of_it),
        cmocka_unit_test(test_instance_is_excluded_with_its_whole_gpu),
        cmocka_unit_test(test_no_job_gets_an_excluded_device_until_it_is_enabled),
        cmocka_unit_test(test_restarts_of_coordinator_and_node_change_nothing),
        cmocka_unit_test(test_device_that_fails_two_owners_is_excluded),
        cmocka_unit_test(test_operator_names_a_device_by_the_beginning_of_its_uuid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
