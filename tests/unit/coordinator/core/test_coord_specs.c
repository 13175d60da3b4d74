// Specs of jobs in memory. They are deflated once the job has ended, and the same when they are
// read. A submitter has an eighth of what all may take, and jobs that end make room again.

#include <stdio.h>

#include "daemon/coordinator/core/model/specs.h"
#include "daemon/coordinator/core/view.h"
#include "tests/unit/coordinator/core/coord_rig.h"

enum { ARGS = 900, ARG_BYTES = 1000 };

// A command of 900 KB, that deflates to little.
static char *big_spec(int number) {
    TD_AUTO_BUF text;
    td_buf_init(&text, 2 << 20);
    assert_ok(td_buf_printf(&text, "{kind: command, name: big%d, command: [", number));
    for (int i = 0; i < ARGS; i++) {
        assert_ok(td_buf_printf(&text, "\"%0*d\",", ARG_BYTES, i));
    }
    assert_ok(td_buf_str(&text, "last]}"));
    return make_canonical(td_buf_cstr(&text));
}

static void begin_with_commands(struct rig *r) {
    const struct td_core_options o = {.incarnation = 1, .checkpoint_dir = "/c"};
    begin_alone(r, &o);
    r->runs_commands = true;
    add_node(r, "n-1", 0);
}

static td_status submit(struct rig *r, int number, const char *spec, const char *owner, bool shares,
                        const struct td_job **out_job) {
    char id[TD_JOB_ID_MAX];
    bool again = false;
    snprintf(id, sizeof id, "j-%012x", (unsigned)number);
    const struct td_core_create_job request = {.id = id,
                                               .spec_json = spec,
                                               .request_id = "",
                                               .digest = "",
                                               .owner = owner,
                                               .owner_token = owner,
                                               .shares = shares};
    td_status s = td_core_create_job(r->core, r->now, &request, out_job, &again);
    take(r);
    return s;
}

static void cancel(struct rig *r, int number) {
    const struct td_job *j = NULL;
    assert_ok(td_core_cancel(r->core, r->now, job(r, number)->id, "", &j));
    take(r);
    assert_int_equal(j->state, TD_JOB_CANCELLED);
}

static void assert_shown(struct rig *r, const struct td_job *j, const char *spec) {
    TD_AUTO(td_arena) *a = NULL;
    assert_ok(td_arena_create(4 << 20, &a));
    const Traind__V1__Job *m = td_view_job(a, r->core, j, r->now, TD_VIEW_SPEC);
    assert_non_null(m);
    assert_string_equal(m->spec_json, spec);
}

static void test_spec_of_a_job_that_ended_is_deflated_and_read_as_it_was(void **state) {
    (void)state;
    static struct rig r;
    TD_AUTO_FREE char *spec = big_spec(1);
    const struct td_job *j = NULL;
    begin_with_commands(&r);
    assert_ok(submit(&r, 1, spec, "bob", true, &j));
    assert_int_equal(td_spec_text_kept(&j->spec), strlen(spec));
    assert_shown(&r, j, spec);
    cancel(&r, 1);
    assert_true(td_spec_text_kept(&j->spec) < strlen(spec) / 20);
    assert_shown(&r, j, spec);
    const struct td_core_options o = {.incarnation = 2, .checkpoint_dir = "/c"};
    start_again(&r, &o); // what state.db has is the text
    j = job(&r, 1);
    assert_true(td_spec_text_kept(&j->spec) < strlen(spec) / 20);
    assert_shown(&r, j, spec);
    end(&r);
}

static void test_submitter_has_an_eighth_and_others_go_on(void **state) {
    (void)state;
    static struct rig r;
    TD_AUTO_FREE char *spec = big_spec(1);
    const struct td_job *j = NULL;
    const int n_fit = (int)(TD_SPECS_SHARE_BYTES / strlen(spec));
    begin_with_commands(&r);
    for (int i = 0; i < n_fit; i++) {
        assert_ok(submit(&r, i, spec, "bob", true, &j));
    }
    td_status s = submit(&r, n_fit, spec, "bob", true, &j);
    assert_int_equal(td_status_code(s), TD_RESOURCE_EXHAUSTED);
    assert_string_equal(td_status_reason(s), "LIMIT_SPECS");
    assert_non_null(strstr(td_status_message(s), "'bob'"));
    td_status_free(s);
    assert_ok(submit(&r, n_fit, spec, "alice", true, &j));
    assert_ok(submit(&r, n_fit + 1, spec, "bob", false, &j)); // an operator of that name
    cancel(&r, 0);
    cancel(&r, 1);
    assert_ok(submit(&r, n_fit + 2, spec, "bob", true, &j));
    end(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spec_of_a_job_that_ended_is_deflated_and_read_as_it_was),
        cmocka_unit_test(test_submitter_has_an_eighth_and_others_go_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
