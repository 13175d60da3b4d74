// What the coordinator's core forgets, and what not: ended jobs by number and by age, nodes that
// are away. A job that goes is gone at once for people, and for good when what it owned is gone.

#include "tests/unit/coordinator/core/coord_rig.h"

#include <math.h>

#include "daemon/coordinator/core/catalog/catalog.h"
#include "daemon/coordinator/core/catalog/retain.h"
#include "daemon/coordinator/core/model/job.h"

static const int64_t day_ns = INT64_C(24) * 3600 * TD_NS_PER_S;

static const struct td_core_options two = {
    .incarnation = 1, .checkpoint_dir = "/c", .retention_jobs = 2};

static bool known(struct rig *r, int number) {
    char id[TD_JOB_ID_MAX];
    const struct td_job *j = NULL;
    snprintf(id, sizeof id, "j-%012x", (unsigned)number);
    td_status s = td_core_find_job(r->core, id, &j);
    td_status_free(s);
    return !s;
}

static void pass(struct rig *r, int64_t ns) {
    r->now.mono.ns += ns;
    r->now.real.ns += ns;
    settle(r);
}

static void cancel(struct rig *r, int number) {
    const struct td_job *j = NULL;
    assert_ok(td_core_cancel(r->core, r->now, job(r, number)->id, "", &j));
    take(r);
    pass(r, TD_NS_PER_MS);
}

// ---- jobs ---------------------------------------------------------------------------------------
static void test_job_that_ended_longest_ago_goes_not_the_one_created_first(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec(1, 1);
    struct rig r;
    begin_with(&r, 1, &two);
    for (int i = 0; i < 4; i++) {
        create(&r, i, spec);
    }
    for (int i = 3; i >= 1; i--) { // job 0 is created first and ends last
        cancel(&r, i);
    }
    pass(&r, 2 * TD_NS_PER_S);
    cancel(&r, 0);
    pass(&r, 2 * TD_NS_PER_S);
    assert_true(known(&r, 0) && known(&r, 1));
    assert_false(known(&r, 2) || known(&r, 3));
    assert_int_equal(r.n_forgotten, 2);
    assert_string_equal(r.forgotten[0], "j-000000000003");
    assert_null(td_map_get(r.rows[TD_RECORD_JOB], "j-000000000003"));
    assert_null(td_map_get(r.rows[TD_RECORD_SPEC], "j-000000000003"));
    assert_non_null(strstr(r.said, "retention_jobs=2"));
    end(&r);
}

static void test_job_that_ended_before_the_days_goes(void **state) {
    (void)state;
    const struct td_core_options o = {
        .incarnation = 1, .checkpoint_dir = "/c", .retention_ns = 30 * day_ns};
    TD_AUTO_FREE char *spec = make_spec(1, 1);
    struct rig r;
    begin_with(&r, 1, &o);
    create(&r, 0, spec);
    cancel(&r, 0);
    pass(&r, 29 * day_ns);
    assert_true(known(&r, 0));
    pass(&r, 2 * day_ns);
    assert_false(known(&r, 0));
    end(&r);
}

static void test_job_that_another_begins_from_is_kept_until_that_one_has_ended(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec(1, 1);
    TD_AUTO_FREE char *from =
        make_spec_from(1, 1, ", ckpt_path: /x/checkpoints/j-000000000000/a1/step-5");
    struct rig r;
    begin_with(&r, 1, &two);
    for (int i = 0; i < 5; i++) {
        create(&r, i, i == 4 ? from : spec);
    }
    for (int i = 0; i < 4; i++) {
        cancel(&r, i);
    }
    pass(&r, 2 * TD_NS_PER_S);
    assert_true(known(&r, 0) && known(&r, 2) && known(&r, 3));
    assert_false(known(&r, 1)); // it pushes nobody out
    cancel(&r, 4);
    pass(&r, 2 * TD_NS_PER_S);
    assert_false(known(&r, 0));
    end(&r);
}

static void test_start_comes_when_the_store_holds_more_than_is_kept(void **state) {
    (void)state;
    const struct td_core_options all = {.incarnation = 1, .checkpoint_dir = "/c"};
    TD_AUTO_FREE char *spec = make_spec(1, 1);
    struct rig r;
    begin_with(&r, 1, &all);
    for (int i = 0; i < 300; i++) {
        create(&r, i, spec);
        cancel(&r, i);
    }
    start_again(&r, &two);
    for (uint32_t done = 0; done < 298;) {
        assert_true(done < r.n_forgotten);
        td_core_forgotten(r.core, r.now, r.forgotten[done++], true);
        take(&r);
        pass(&r, TD_NS_PER_S / 10);
    }
    assert_true(known(&r, 299) && known(&r, 298));
    assert_false(known(&r, 297));
    assert_int_equal(td_map_count(r.rows[TD_RECORD_JOB]), 2);
    assert_int_equal(td_map_count(r.rows[TD_RECORD_LEAVING]), 0);
    end(&r);
}

static void test_start_asks_again_when_a_crash_came_before_the_files_were_gone(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec(1, 1);
    struct rig r;
    begin_with(&r, 1, &two);
    for (int i = 0; i < 3; i++) {
        create(&r, i, spec);
        cancel(&r, i);
    }
    pass(&r, 2 * TD_NS_PER_S);
    assert_int_equal(r.n_forgotten, 1);
    start_again(&r, &two);
    assert_int_equal(r.n_forgotten, 2);
    assert_string_equal(r.forgotten[1], "j-000000000000");
    assert_false(known(&r, 0));
    td_core_forgotten(r.core, r.now, r.forgotten[1], false); // the disk refuses
    take(&r);
    assert_int_equal(td_map_count(r.rows[TD_RECORD_LEAVING]), 1);
    pass(&r, 700 * TD_NS_PER_S);
    assert_int_equal(r.n_forgotten, 3);
    td_core_forgotten(r.core, r.now, r.forgotten[2], true);
    take(&r);
    assert_int_equal(td_map_count(r.rows[TD_RECORD_LEAVING]), 0);
    end(&r);
}

static void test_create_is_refused_by_name_when_too_many_wait(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec(1, 1);
    struct rig r;
    begin(&r, 1);
    for (int i = 0; i < TD_CORE_MAX_ACTIVE; i++) {
        create(&r, i, spec);
    }
    const struct td_core_create_job request = {
        .id = "j-x", .spec_json = spec, .request_id = "", .digest = ""};
    const struct td_job *j = NULL;
    bool again = false;
    td_status s = td_core_create_job(r.core, r.now, &request, &j, &again);
    assert_int_equal(td_status_code(s), TD_RESOURCE_EXHAUSTED);
    assert_string_equal(td_status_reason(s), "LIMIT_JOBS");
    td_status_free(s);
    end(&r);
}

// ---- nodes --------------------------------------------------------------------------------------
// A node that comes, and goes again unless it stays.
static void visit(struct rig *r, int number, bool stays) {
    char id[24];
    snprintf(id, sizeof id, "visitor-%d", number);
    r->session = td_core_session_open(r->core, r->now, false);
    assert_true(r->session != 0);
    say_register(r, id, 1);
    if (!stays) td_core_session_close(r->core, r->now, r->session);
    take(r);
    pass(r, TD_NS_PER_MS);
}

static void test_node_seen_longest_ago_makes_room_when_another_name_comes(void **state) {
    (void)state;
    struct rig r;
    begin(&r, 1);
    for (int i = 0; i < TD_CORE_MAX_NODES - 1; i++) {
        visit(&r, i, false);
    }
    visit(&r, 2000, false);
    assert_int_equal(r.n_closed, 0);
    assert_non_null(strstr(r.said, "node=visitor-0 "));
    assert_non_null(td_map_get(r.rows[TD_RECORD_NODE], "n-1")); // connected: older, but here
    assert_non_null(td_map_get(r.rows[TD_RECORD_NODE], "visitor-1"));
    assert_null(td_map_get(r.rows[TD_RECORD_NODE], "visitor-0"));
    end(&r);
}

static void test_node_is_refused_by_name_when_all_are_connected(void **state) {
    (void)state;
    struct rig r;
    begin(&r, 1);
    for (int i = 0; i < TD_CORE_MAX_NODES - 1; i++) {
        visit(&r, i, true);
    }
    assert_int_equal(r.n_closed, 0);
    visit(&r, 2000, true);
    assert_int_equal(r.n_closed, 1);
    assert_non_null(strstr(r.closed, "LIMIT_NODES: 1024 nodes are known, and each is connected, is "
                                     "cordoned or labelled, or holds something of a job; "));
    assert_non_null(strstr(r.closed, "trainctl node uncordon NODE"));
    assert_non_null(strstr(r.closed, "trainctl node label NODE KEY-"));
    end(&r);
}

// ---- values -------------------------------------------------------------------------------------
static void test_value_that_is_not_finite_is_never_the_best(void **state) {
    (void)state;
    static char json[] = "{\"acc\":\"inf\",\"low\":\"-inf\",\"none\":\"nan\",\"loss\":0.5}";
    const struct td_checkpoint c = {.metrics_json = json};
    assert_true(td_retain_value(&c, "loss") == 0.5);
    assert_true(isnan(td_retain_value(&c, "acc")));
    assert_true(isnan(td_retain_value(&c, "low")));
    assert_true(isnan(td_retain_value(&c, "none")));
}

// ---- what a node is asked -----------------------------------------------------------------------
enum { N_STEPS = 200, N_FILES = 60 }; // with long names: more than fit one message

// The row of a checkpoint on n-1 whose files were gone when somebody last looked.
static void add_missing_row(struct rig *r, const char *id, int step) {
    char key[64];
    TD_AUTO_BUF body;
    td_buf_init(&body, 1 << 20);
    snprintf(key, sizeof key, "%s/a1/step-%d", id, step);
    assert_ok(
        td_buf_printf(&body,
                      "{\"attempt\":1,\"step\":%d,\"epoch\":0,\"committed\":1,\"node\":\"n-1\","
                      "\"directory\":\"/x\",\"missing\":1,\"damage\":\"gone\",\"files\":[",
                      step));
    for (int i = 0; i < N_FILES; i++) {
        assert_ok(td_buf_printf(&body,
                                "%s{\"name\":\"%0110d\",\"bytes\":1,"
                                "\"digest\":\"00000000000000000000000000000000\",\"here\":0}",
                                i ? "," : "", i));
    }
    assert_ok(td_buf_str(&body, "]}"));
    assert_ok(td_map_put(r->rows[TD_RECORD_CHECKPOINT], key, td_buf_take_cstr(&body), NULL));
}

// All that its node had to say of the job's attempt is here.
static void forget_attempt(struct rig *r, const char *id) {
    char key[64], text[2048];
    void *old = NULL;
    snprintf(key, sizeof key, "%s/a1", id);
    const char *row = td_map_get(r->rows[TD_RECORD_ATTEMPT], key);
    snprintf(text, sizeof text, "{\"forgotten\":1,%s", row + 1);
    assert_ok(td_map_put(r->rows[TD_RECORD_ATTEMPT], key, strdup(text), &old));
    free(old);
}

static void test_missing_checkpoint_was_whole_again_when_nobody_was_asked_about_it(void **state) {
    (void)state;
    const struct td_core_options all = {.incarnation = 1, .checkpoint_dir = "/c"};
    TD_AUTO_FREE char *spec = make_spec_from(1, 1, ", checkpoint: {save_top_k: -1}");
    struct rig r;
    begin_with(&r, 1, &all);
    create(&r, 0, spec);
    settle(&r);
    answer_plans(&r);
    finish_running(&r);
    pass(&r, 10 * TD_NS_PER_S);
    char id[TD_JOB_ID_MAX];
    snprintf(id, sizeof id, "%s", job(&r, 0)->id);
    forget_attempt(&r, id);
    for (int i = 1; i <= N_STEPS; i++) {
        add_missing_row(&r, id, i);
    }
    start_again(&r, &all);
    r.session = td_core_session_open(r.core, r.now, false);
    say_register(&r, "n-1", 1);
    Traind__V1__Reconciled answer = TRAIND__V1__RECONCILED__INIT;
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    answer.request = 1;
    answer.job = id;
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_RECONCILED;
    m.reconciled = &answer;
    say(&r, &m);
    const struct td_job *j = job(&r, 0);
    assert_int_equal(j->n_checkpoints, N_STEPS);
    assert_null(j->checkpoints[N_STEPS - 1]->damage); // its files are back
    assert_non_null(j->checkpoints[0]->damage);       // it was not in the question
    end(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_job_that_ended_longest_ago_goes_not_the_one_created_first),
        cmocka_unit_test(test_job_that_ended_before_the_days_goes),
        cmocka_unit_test(test_job_that_another_begins_from_is_kept_until_that_one_has_ended),
        cmocka_unit_test(test_start_comes_when_the_store_holds_more_than_is_kept),
        cmocka_unit_test(test_start_asks_again_when_a_crash_came_before_the_files_were_gone),
        cmocka_unit_test(test_create_is_refused_by_name_when_too_many_wait),
        cmocka_unit_test(test_node_seen_longest_ago_makes_room_when_another_name_comes),
        cmocka_unit_test(test_node_is_refused_by_name_when_all_are_connected),
        cmocka_unit_test(test_value_that_is_not_finite_is_never_the_best),
        cmocka_unit_test(test_missing_checkpoint_was_whole_again_when_nobody_was_asked_about_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
