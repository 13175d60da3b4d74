// Jobs that ask for GPUs: which they get, what they wait for, and when they are refused, with what
// comes nearest.

#include "daemon/coordinator/core/model/model.h"
#include "daemon/coordinator/core/plans/gpu_capacity.h"
#include "daemon/coordinator/core/view_gpus.h"
#include "tests/unit/coordinator/core/coord_parts.h"

static const struct td_core_options options = {.incarnation = 1, .checkpoint_dir = "/c"};
static const uint64_t gib = UINT64_C(1) << 30;

// ---- what nodes say -----------------------------------------------------------------------------
enum { MOST = 8 };
struct machine {
    uint64_t session;
    Traind__V1__GpuList list;
    Traind__V1__Gpu gpu[MOST], *gpus[MOST];
    Traind__V1__GpuProcess process[MOST], *processes[MOST];
    char uuid[MOST][16];
    uint32_t peers[MOST][MOST];
};

// n GPUs of one model, PREFIX0 to PREFIXn-1; nothing is said yet.
static void make(struct machine *m, uint64_t session, const char *prefix, uint32_t n,
                 const char *model, uint64_t bytes) {
    memset(m, 0, sizeof *m);
    m->session = session;
    traind__v1__gpu_list__init(&m->list);
    m->list.gpus = m->gpus;
    m->list.n_gpus = n;
    for (uint32_t i = 0; i < n; i++) {
        traind__v1__gpu__init(&m->gpu[i]);
        snprintf(m->uuid[i], sizeof m->uuid[i], "%s%u", prefix, i);
        m->gpu[i].uuid = m->uuid[i];
        m->gpu[i].index = i;
        m->gpu[i].name = td_unconst(model);
        m->gpu[i].memory_bytes = bytes;
        m->gpu[i].peers = m->peers[i];
        m->gpus[i] = &m->gpu[i];
    }
}

static void say_gpus(struct rig *r, struct machine *m) {
    Traind__V1__NodeMessage message = TRAIND__V1__NODE_MESSAGE__INIT;
    message.body_case = TRAIND__V1__NODE_MESSAGE__BODY_GPU_LIST;
    message.gpu_list = &m->list;
    r->session = m->session;
    say(r, &message);
    settle(r);
}

static void link_pair(struct machine *m, uint32_t a, uint32_t b) {
    m->peers[a][m->gpu[a].n_peers++] = b;
    m->peers[b][m->gpu[b].n_peers++] = a;
}

static void use(struct machine *m, uint32_t i, uint32_t pid) {
    traind__v1__gpu_process__init(&m->process[i]);
    m->process[i].pid = pid;
    m->processes[i] = &m->process[i];
    m->gpu[i].processes = &m->processes[i];
    m->gpu[i].n_processes = pid != 0;
}

// Nodes n-1 and n-2 with 8 slots each; what they have is not said yet.
static void begin_nodes(struct rig *r, uint64_t out_sessions[2]) {
    begin_alone(r, &options);
    r->runs_commands = r->gives_gpus = true;
    out_sessions[0] = add_node(r, "n-1", 8);
    out_sessions[1] = add_node(r, "n-2", 8);
}

// ---- jobs ---------------------------------------------------------------------------------------
static char *wants(const char *trainer, const char *resources) {
    char spec[400];
    snprintf(spec, sizeof spec,
             "{name: n, kind: command, command: [x], trainer: {%s}, resources: {%s}}", trainer,
             resources);
    return make_canonical(spec);
}

static const char *place(struct rig *r, int number) {
    const struct td_attempt *a = td_job_live(job(r, number));
    return a ? a->parts[0].node : "";
}

static const char *gpus_of(struct rig *r, int number) {
    const struct td_attempt *a = td_job_live(job(r, number));
    return a && a->parts[0].devices ? a->parts[0].devices : "";
}

static void start_one(struct rig *r, int number, const char *trainer, const char *resources) {
    TD_AUTO_FREE char *spec = wants(trainer, resources);
    create(r, number, spec);
    settle(r);
}

static void end_one(struct rig *r, int number) {
    const struct td_job *j = job(r, number);
    const struct td_host *n = td_map_get(r->core->nodes, place(r, number));
    snprintf(r->assigned, sizeof r->assigned, "%s", j->id);
    r->epoch = td_job_live(j)->epoch;
    r->attempt = j->n_attempts;
    r->events = 0;
    r->session = n->session;
    line(r, "{\"event\":\"launched\",\"pid\":1}\n");
    line(r, "{\"event\":\"launcher_end\",\"outcome\":\"done\"}\n");
    settle(r);
}

static void expect(td_status s, const char *part) {
    if (strcmp(td_status_reason(s), "UNSATISFIABLE") != 0 || !strstr(td_status_message(s), part)) {
        fail_msg("wanted UNSATISFIABLE: %s, got %s: %s", part, td_status_reason(s),
                 td_status_message(s));
    }
    td_status_free(s);
}

static void refused(struct rig *r, const char *trainer, const char *resources, const char *part) {
    TD_AUTO_FREE char *spec = wants(trainer, resources);
    const struct td_job *j = NULL;
    expect(try_create(r, 90, spec, &j), part);
}

// ---- which they get -----------------------------------------------------------------------------
static void test_ranks_have_gpus_of_their_own(void **state) {
    (void)state;
    struct rig r;
    uint64_t s[2];
    struct machine one, two;
    begin_nodes(&r, s);
    make(&one, s[0], "GPU-a", 4, "NVIDIA H100", 80 * gib);
    make(&two, s[1], "GPU-b", 2, "NVIDIA A40", 45 * gib);
    say_gpus(&r, &one);
    say_gpus(&r, &two);
    start_one(&r, 1, "devices: 2", "gpus_per_rank: 1, gpu: {model: \"*h100*\"}");
    assert_string_equal(gpus_of(&r, 1), "GPU-a0,GPU-a1");
    start_one(&r, 2, "devices: 1", "gpus_per_rank: 2, gpu: {memory: 60GiB}");
    assert_string_equal(gpus_of(&r, 2), "GPU-a2,GPU-a3");
    start_one(&r, 3, "devices: 1", "gpus_per_rank: 1");
    assert_string_equal(gpus_of(&r, 3), "GPU-b0");
    start_one(&r, 4, "devices: 1", "threads: 1");
    assert_string_equal(place(&r, 4), "n-1"); // fuller; and it gets none
    assert_null(td_job_live(job(&r, 4))->parts[0].devices);
    TD_AUTO(td_arena) *a = NULL;
    assert_ok(td_arena_create(1 << 20, &a));
    const Traind__V1__GpuList *l = td_view_gpus(a, r.core, td_map_get(r.core->nodes, "n-1"));
    assert_string_equal(l->gpus[1]->job, job(&r, 1)->id);
    assert_string_equal(l->gpus[2]->job, job(&r, 2)->id);
    end(&r);
}

static void test_gpus_that_reach_each_other_go_together(void **state) {
    (void)state;
    struct rig r;
    uint64_t s[2];
    struct machine m;
    begin_nodes(&r, s);
    make(&m, s[0], "GPU-a", 6, "NVIDIA A100", 80 * gib);
    link_pair(&m, 0, 3);
    link_pair(&m, 1, 4);
    link_pair(&m, 1, 5);
    link_pair(&m, 4, 5);
    say_gpus(&r, &m);
    start_one(&r, 1, "devices: 3", "gpus_per_rank: 1");
    assert_string_equal(gpus_of(&r, 1), "GPU-a1,GPU-a4,GPU-a5");
    start_one(&r, 2, "devices: 2", "gpus_per_rank: 1");
    assert_string_equal(gpus_of(&r, 2), "GPU-a0,GPU-a3");
    end(&r);
}

static void test_instances_of_mig_are_for_ranks_with_one_gpu(void **state) {
    (void)state;
    struct rig r;
    uint64_t s[2];
    struct machine m;
    begin_nodes(&r, s);
    make(&m, s[0], "MIG-a", 4, "NVIDIA A100 MIG 3g.20gb", 20 * gib);
    say_gpus(&r, &m);
    make(&m, s[1], "GPU-b", 1, "NVIDIA A100", 40 * gib);
    say_gpus(&r, &m);
    refused(&r, "devices: 1", "gpus_per_rank: 2", "no known node has 2 GPUs for a job; node n-2");
    start_one(&r, 1, "devices: 3", "gpus_per_rank: 1");
    assert_string_equal(gpus_of(&r, 1), "MIG-a0,MIG-a1,MIG-a2");
    end(&r);
}

// ---- waiting ------------------------------------------------------------------------------------
static void test_job_waits_for_gpus_with_numbers_and_who_has_them(void **state) {
    (void)state;
    struct rig r;
    uint64_t s[2];
    struct machine one;
    begin_nodes(&r, s);
    make(&one, s[0], "GPU-a", 4, "NVIDIA H100", 80 * gib);
    say_gpus(&r, &one);
    start_one(&r, 1, "devices: 3", "gpus_per_rank: 1");
    start_one(&r, 2, "devices: 2", "gpus_per_rank: 1, gpu: {model: \"*H100*\"}");
    // of n-2 nothing is known yet, and n-1 is able
    assert_string_equal(reason(&r, 2).code, "WAITING_FOR_DEVICES");
    const struct td_reason why = reason(&r, 2);
    assert_string_equal(why.text, "needs 2 GPUs like *H100*, 1 free on node n-1 (4 GPUs); job "
                                  "j-000000000001 (n) runs there");
    assert_int_equal(why.needed_devices, 2);
    assert_int_equal(why.free_devices, 1);
    start_one(&r, 3, "devices: 1", "gpus_per_rank: 1"); // the free one is kept for job 2
    assert_string_equal(gpus_of(&r, 3), "");
    end_one(&r, 1);
    assert_string_equal(gpus_of(&r, 2), "GPU-a0,GPU-a1");
    assert_string_equal(gpus_of(&r, 3), "GPU-a2");
    end(&r);
}

static void test_gpu_that_a_process_uses_is_waited_for(void **state) {
    (void)state;
    struct rig r;
    uint64_t s[2];
    struct machine one;
    begin_nodes(&r, s);
    make(&one, s[0], "GPU-a", 2, "NVIDIA H100", 80 * gib);
    use(&one, 1, 4242);
    say_gpus(&r, &one);
    start_one(&r, 1, "devices: 2", "gpus_per_rank: 1");
    assert_string_equal(reason(&r, 1).text, "needs 2 GPUs, 1 free on node n-1 (2 GPUs); GPU-a1: "
                                            "held by pid 4242");
    const uint64_t mark = td_queue_reason_mark(r.core, job(&r, 1), r.now.mono);
    use(&one, 1, 4243);
    say_gpus(&r, &one);
    assert_true(mark != td_queue_reason_mark(r.core, job(&r, 1), r.now.mono));
    one.list.shares_busy = true; // --busy-devices use
    say_gpus(&r, &one);
    assert_string_equal(gpus_of(&r, 1), "GPU-a0,GPU-a1");
    // What the driver still lists of an attempt that has ended bars its GPU, until it does not.
    one.list.shares_busy = false;
    use(&one, 0, 77);
    use(&one, 1, 0);
    say_gpus(&r, &one);
    end_one(&r, 1);
    start_one(&r, 2, "devices: 2", "gpus_per_rank: 1");
    assert_string_equal(gpus_of(&r, 2), "");
    use(&one, 0, 0);
    say_gpus(&r, &one);
    assert_string_equal(gpus_of(&r, 2), "GPU-a0,GPU-a1");
    end(&r);
}

static void test_gpu_that_is_not_well_gets_no_job(void **state) {
    (void)state;
    struct rig r;
    uint64_t s[2];
    struct machine one;
    begin_nodes(&r, s);
    make(&one, s[0], "GPU-a", 2, "NVIDIA H100", 80 * gib);
    one.gpu[0].health = td_unconst("the GPU is lost");
    say_gpus(&r, &one);
    start_one(&r, 1, "devices: 1", "gpus_per_rank: 1");
    assert_string_equal(gpus_of(&r, 1), "GPU-a1");
    one.list.stale = true; // nor do the others where the driver hangs
    one.gpu[0].health = td_unconst("");
    say_gpus(&r, &one);
    start_one(&r, 2, "devices: 1", "gpus_per_rank: 1");
    assert_non_null(strstr(reason(&r, 2).text, "GPU-a0: its driver does not answer"));
    one.list.stale = false;
    say_gpus(&r, &one);
    assert_string_equal(gpus_of(&r, 2), "GPU-a0");
    end(&r);
}

static void test_job_waits_for_a_node_that_has_not_said_what_it_has(void **state) {
    (void)state;
    struct rig r;
    uint64_t s[2];
    struct machine one, two;
    begin_nodes(&r, s);
    start_one(&r, 1, "devices: 2", "gpus_per_rank: 1");
    assert_string_equal(reason(&r, 1).code, "WAITING_FOR_DEVICES");
    assert_string_equal(reason(&r, 1).text,
                        "needs 2 GPUs; nodes n-1, n-2 have not said yet which GPUs they have");
    make(&one, s[0], "GPU-a", 1, "NVIDIA H100", 80 * gib);
    say_gpus(&r, &one);
    assert_string_equal(reason(&r, 1).text,
                        "needs 2 GPUs; node n-2 has not said yet which GPUs it has");
    make(&two, s[1], "GPU-b", 0, "", 0);
    two.list.unknown = true;
    two.list.why = td_unconst("the NVIDIA driver is not loaded");
    say_gpus(&r, &two);
    assert_string_equal(reason(&r, 1).text,
                        "needs 2 GPUs; node n-2 has not said yet which GPUs it has: the NVIDIA "
                        "driver is not loaded");
    make(&two, s[1], "GPU-b", 2, "NVIDIA H100", 80 * gib);
    say_gpus(&r, &two);
    assert_string_equal(gpus_of(&r, 1), "GPU-b0,GPU-b1");
    end(&r);
}

static void test_attempt_keeps_its_gpus_when_the_coordinator_starts_again(void **state) {
    (void)state;
    struct rig r;
    uint64_t s[2];
    struct machine one;
    begin_nodes(&r, s);
    make(&one, s[0], "GPU-a", 2, "NVIDIA H100", 80 * gib);
    say_gpus(&r, &one);
    start_one(&r, 1, "devices: 1", "gpus_per_rank: 1");
    start_again(&r, &options);
    Traind__V1__AttemptId id = attempt_id(&r);
    Traind__V1__AttemptHeld held = TRAIND__V1__ATTEMPT_HELD__INIT;
    held.id = &id;
    held.alive = true;
    held.launcher_major = 1;
    r.session = one.session = td_core_session_open(r.core, r.now, false);
    say_register_with(&r, "n-1", 8, &held);
    settle(&r);
    start_one(&r, 2, "devices: 1", "gpus_per_rank: 1");
    assert_string_equal(gpus_of(&r, 2), ""); // it has not said yet
    say_gpus(&r, &one);
    assert_string_equal(gpus_of(&r, 1), "GPU-a0");
    assert_string_equal(gpus_of(&r, 2), "GPU-a1");
    end(&r);
}

// What a plugin's accelerator lists of GPUs is theirs as far as the node gives them to jobs.
static void test_list_cuts_those_of_accelerators(void **state) {
    (void)state;
    const struct td_device_want want = {.n = 3, .model = ""};
    struct td_host_devices d = {.n = 0};
    struct td_host_gpus g = {.list = NULL};
    struct machine m;
#define LISTED                                                                                     \
    "\",\"devices\":[{\"uuid\":\"GPU-a0\"},{\"uuid\":\"GPU-a1\"},{\"uuid\":\"GPU-x\"},{\"uuid\":"  \
    "\"far-0\"}]}"
    static const char plan[] = "{\"accelerator\":\"far" LISTED,
                      other[] = "{\"accelerator\":\"other" LISTED;
    assert_true(td_host_devices_take_plan(&d, "far", plan));
    assert_int_equal(td_host_devices_fitting(td_host_accel_find(&d, "far"), &want), 4);
    make(&m, 0, "GPU-a", 2, "NVIDIA H100", 80 * gib);
    m.gpu[1].health = td_unconst("the GPU is lost");
    td_host_gpus_take(&g, &m.list);
    assert_true(td_host_devices_take_gpus(&d, &g));
    assert_false(td_host_devices_take_gpus(&d, &g));
    assert_int_equal(td_host_devices_fitting(td_host_accel_find(&d, "far"), &want), 3);
    assert_int_equal(td_host_devices_free(td_host_accel_find(&d, "far"), &want, 1), 2);
    td_host_devices_hold(&d, "GPU-a0");
    assert_int_equal(td_host_devices_free(td_host_accel_find(&d, TD_ACCEL_GPU), &want, 1), 0);
    assert_true(td_host_devices_take_plan(&d, "other", other)); // a later list is cut, too
    assert_int_equal(td_host_devices_free(td_host_accel_find(&d, "other"), &want, 1), 1);
    td_host_devices_finish(&d);
    td_host_gpus_finish(&g);
}

// ---- refused ------------------------------------------------------------------------------------
static void test_what_no_node_has_is_refused_with_what_comes_nearest(void **state) {
    (void)state;
    struct rig r;
    uint64_t s[2];
    struct machine one, two;
    begin_nodes(&r, s);
    make(&one, s[0], "GPU-a", 4, "NVIDIA H100", 80 * gib);
    one.gpu[3].name = td_unconst("NVIDIA L4");
    one.gpu[3].memory_bytes = 24 * gib;
    make(&two, s[1], "GPU-b", 2, "NVIDIA A40", 45 * gib);
    say_gpus(&r, &one);
    say_gpus(&r, &two);
    refused(&r, "devices: 5", "gpus_per_rank: 1",
            "no known node has 5 GPUs for a job; node n-1 comes nearest, with 3 NVIDIA H100 "
            "(80.0 GiB), 1 NVIDIA L4 (24.0 GiB)");
    refused(&r, "devices: 3", "gpus_per_rank: 1, gpu: {model: \"*A40\"}",
            "no known node has 3 GPUs like *A40 for a job; node n-2 comes nearest, with 2 NVIDIA");
    refused(&r, "devices: 1", "gpus_per_rank: 1, gpu: {memory: 100GiB}",
            "has 1 GPU of at least 100.0 GiB for a job; node n-1");
    make(&one, s[0], "GPU-a", 0, "", 0);
    make(&two, s[1], "GPU-b", 0, "", 0);
    say_gpus(&r, &one);
    say_gpus(&r, &two);
    refused(&r, "devices: 1", "gpus_per_rank: 1", "no known node has a GPU for a job. `trainctl");
    end(&r);
}

static void test_older_node_gets_no_such_job(void **state) {
    (void)state;
    struct rig r;
    begin_alone(&r, &options);
    r.runs_commands = true;
    add_node(&r, "n-1", 8);
    refused(&r, "devices: 1", "gpus_per_rank: 1", "node n-1 has an older build, which gives jobs");
    r.gives_gpus = true; // one that is new, and has not said yet what it has
    add_node(&r, "n-2", 8);
    start_one(&r, 1, "devices: 1", "gpus_per_rank: 1");
    assert_string_equal(reason(&r, 1).code, "WAITING_FOR_DEVICES");
    end(&r);
}

// ---- trainer.devices: auto ----------------------------------------------------------------------
static int64_t settled(struct rig *r, const char *trainer, const char *resources, td_status *out) {
    TD_AUTO(td_arena) *a = NULL;
    TD_AUTO_FREE char *spec = wants(trainer, resources);
    struct td_json *tree = NULL;
    assert_ok(td_arena_create(TD_SPEC_ARENA_BYTES, &a));
    assert_ok(td_json_parse(a, spec, strlen(spec), &tree));
    *out = td_gpu_settle_ranks(r->core, a, tree);
    return td_json_int(td_json_path(tree, "trainer.devices"), 0);
}

static void test_auto_is_as_many_ranks_as_nodes_have_gpus_for(void **state) {
    (void)state;
    struct rig r;
    uint64_t s[2];
    struct machine one, two;
    td_status why;
    begin_nodes(&r, s);
    assert_int_equal(settled(&r, "devices: auto", "gpus_per_rank: 1", &why), 0);
    assert_non_null(strstr(td_status_message(why), "too few nodes have said yet"));
    td_status_free(why);
    make(&one, s[0], "GPU-a", 7, "NVIDIA H100", 80 * gib);
    make(&two, s[1], "GPU-b", 4, "NVIDIA A40", 45 * gib);
    say_gpus(&r, &one);
    say_gpus(&r, &two);
    assert_int_equal(settled(&r, "devices: auto", "gpus_per_rank: 1", &why), 7);
    assert_ok(why);
    assert_int_equal(settled(&r, "devices: auto", "gpus_per_rank: 2", &why), 3);
    assert_ok(why);
    assert_int_equal(settled(&r, "devices: auto, num_nodes: 2", "gpus_per_rank: 1", &why), 4);
    assert_ok(why);
    assert_int_equal(settled(&r, "devices: auto", "gpus_per_rank: 1, gpu: {model: \"*A40\"}", &why),
                     4);
    assert_ok(why);
    assert_int_equal(settled(&r, "devices: 2", "gpus_per_rank: 1", &why), 2);
    assert_ok(why);
    assert_int_equal(settled(&r, "devices: auto", "threads: 1", &why), 0);
    assert_ok(why);
    (void)settled(&r, "devices: auto", "gpus_per_rank: 8", &why);
    expect(why, "no known node has 8 GPUs for a job; node n-1 comes nearest, with 7");
    end(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_have_gpus_of_their_own),
        cmocka_unit_test(test_gpus_that_reach_each_other_go_together),
        cmocka_unit_test(test_instances_of_mig_are_for_ranks_with_one_gpu),
        cmocka_unit_test(test_job_waits_for_gpus_with_numbers_and_who_has_them),
        cmocka_unit_test(test_gpu_that_a_process_uses_is_waited_for),
        cmocka_unit_test(test_gpu_that_is_not_well_gets_no_job),
        cmocka_unit_test(test_job_waits_for_a_node_that_has_not_said_what_it_has),
        cmocka_unit_test(test_attempt_keeps_its_gpus_when_the_coordinator_starts_again),
        cmocka_unit_test(test_list_cuts_those_of_accelerators),
        cmocka_unit_test(test_what_no_node_has_is_refused_with_what_comes_nearest),
        cmocka_unit_test(test_older_node_gets_no_such_job),
        cmocka_unit_test(test_auto_is_as_many_ranks_as_nodes_have_gpus_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
