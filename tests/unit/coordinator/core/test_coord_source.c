// A job whose spec names a checkpoint of another job that still runs. Which one it begins from is
// settled when it has a place, and held from then on, also over a restart. Its plan follows.

#include "daemon/coordinator/core/attempt/source.h"
#include "daemon/coordinator/core/catalog/catalog.h"
#include "daemon/coordinator/core/catalog/retain.h"
#include "tests/unit/coordinator/core/coord_rig.h"

static const struct td_core_options options = {.incarnation = 1, .checkpoint_dir = "/c"};

// A canonical spec; `name` is what a submission made of the other job's checkpoint.
static char *make_named(int seed, const char *key, const char *name) {
    char more[96], *at;
    snprintf(more, sizeof more, ", %s: /%s", key, name);
    char *spec = make_spec_from(seed, 1, more);
    snprintf(more, sizeof more, "\"/%s\"", name);
    assert_non_null(at = strstr(spec, more));
    memmove(at + 1, at + 2, strlen(at + 2) + 1);
    return spec;
}

// Of the attempt that was assigned last: on the node's disk.
static void say_saved(struct rig *r, unsigned step) {
    char text[400];
    snprintf(
        text, sizeof text,
        "{\"event\":\"checkpoint\",\"rank\":0,\"step\":%u,\"epoch\":0,\"path\":\"a%u/step-%u\","
        "\"directory\":\"/d/%s/a%u/step-%u\",\"bytes\":1,\"files\":[{\"name\":\"m\",\"bytes\":1,"
        "\"digest\":\"00000000000000000000000000000001\"}]}\n",
        step, r->attempt, step, r->assigned, r->attempt, step);
    line(r, text);
    settle(r);
}

static void say_removed(struct rig *r, unsigned step) {
    char text[160];
    snprintf(text, sizeof text,
             "{\"event\":\"removed\",\"rank\":0,\"step\":%u,\"path\":\"a%u/step-%u\"}\n", step,
             r->attempt, step);
    line(r, text);
    settle(r);
}

static void say_ready(struct rig *r) {
    line(r, "{\"event\":\"launched\",\"pid\":1}\n");
    line(r, "{\"event\":\"ready\",\"rank\":0,\"pid\":2}\n");
}

static void say_end(struct rig *r, const char *outcome, const char *why) {
    char text[200];
    snprintf(text, sizeof text, "{\"event\":\"launcher_end\",\"outcome\":\"%s\"%s}\n", outcome,
             why);
    line(r, text);
    say_final(r);
    settle(r);
}

// Job 0 runs in one of the slots and has saved step 5.
static void begin_saved(struct rig *r, uint32_t slots, const char *store) {
    char more[96];
    snprintf(more, sizeof more, ", checkpoint: {store: %s, save_top_k: 1}", store);
    TD_AUTO_FREE char *first = make_spec_from(1, 1, more);
    begin_with(r, slots, &options);
    create(r, 0, first);
    settle(r);
    answer_plans(r);
    say_ready(r);
    say_saved(r, 5);
}

// Job 0 runs so in the only slot; job 1 waits, which begins from step 5.
static void begin_named(struct rig *r, const char *key, const char *name) {
    TD_AUTO_FREE char *second = make_named(2, key, name);
    begin_saved(r, 1, "fs");
    create(r, 1, second);
    settle(r);
    answer_plans(r);
}

static void assert_from(struct rig *r, const char *key, const char *source) {
    char want[160];
    const struct td_job *j = job(r, 1);
    assert_string_equal(j->source, source);
    snprintf(want, sizeof want, "\"%s\":\"/d/%s\"", key, source);
    assert_non_null(strstr(td_job_plan_spec(j), want));
    assert_string_not_equal(td_job_plan_digest(j), j->spec_digest);
    assert_true(strstr(j->spec.text, "/d/") == NULL); // what is kept and shown has the name
}

static bool has_note(const struct td_job *j, const char *text) {
    for (uint32_t i = 0; i < j->n_notes; i++) {
        if (strstr(j->notes[i], text)) return true;
    }
    return false;
}

static void test_newest_is_begun_from_when_the_first_was_rotated_while_it_waited(void **state) {
    (void)state;
    static const char *const keys[] = {"ckpt_path", "init_from"};
    for (size_t i = 0; i < TD_COUNTOF(keys); i++) {
        struct rig r;
        begin_named(&r, keys[i], "j-000000000000/last");
        assert_from(&r, keys[i], "j-000000000000/a1/step-5"); // planned ahead
        say_saved(&r, 10);
        say_removed(&r, 5);
        say_end(&r, "done", "");
        answer_plans(&r); // of the spec with the new place
        assert_string_equal(r.assigned, "j-000000000001");
        assert_from(&r, keys[i], "j-000000000000/a1/step-10");
        assert_true(has_note(job(&r, 1), "is checkpoint j-000000000000/a1/step-10 (n)"));
        end(&r);
    }
}

static void
test_newest_is_settled_on_when_the_place_comes_and_the_older_is_still_there(void **state) {
    (void)state;
    struct rig r;
    begin_named(&r, "ckpt_path", "j-000000000000/last");
    say_saved(&r, 10);
    assert_from(&r, "ckpt_path", "j-000000000000/a1/step-5");
    say_end(&r, "done", "");
    answer_plans(&r);
    assert_from(&r, "ckpt_path", "j-000000000000/a1/step-10");
    assert_null(td_catalog_find(job(&r, 0), "a1/step-5")); // nothing holds it any more
    end(&r);
}

static void test_settled_one_is_held_over_a_restart_until_the_job_has_ended(void **state) {
    (void)state;
    struct rig r;
    begin_named(&r, "init_from", "j-000000000000/last");
    say_end(&r, "done", "");
    answer_plans(&r);
    assert_string_equal(r.assigned, "j-000000000001");
    start_again(&r, &options);
    const struct td_job *of = job(&r, 0), *j = job(&r, 1);
    assert_from(&r, "init_from", "j-000000000000/a1/step-5");
    assert_ptr_equal(td_retain_user(r.core, of, td_catalog_find(of, "a1/step-5")), j);
    td_status s = td_core_check_delete(r.core, of->id, false, &of);
    assert_fails(s, TD_FAILED_PRECONDITION, "j-000000000001");
    assert_ok(td_core_cancel(r.core, r.now, j->id, "", &j));
    take(&r);
    add_node(&r, "n-1", 1); // holds nothing: the attempt is over
    assert_null(td_retain_user(r.core, of, td_catalog_find(of, "a1/step-5")));
    end(&r);
}

static void test_job_fails_with_the_reason_when_the_one_that_it_names_is_removed(void **state) {
    (void)state;
    struct rig r;
    begin_named(&r, "ckpt_path", "j-000000000000/a1/step-5");
    say_saved(&r, 10);
    assert_int_equal(job(&r, 1)->state, TD_JOB_QUEUED);
    say_removed(&r, 5);
    assert_true(has_note(job(&r, 1), "checkpoint a1/step-5 of job j-000000000000"));
    assert_int_equal(job(&r, 1)->state, TD_JOB_FAILED);
    assert_int_equal(job(&r, 1)->failure.cls, TD_CLASS_DATA);
    assert_non_null(strstr(job(&r, 1)->failure.message,
                           "checkpoint a1/step-5 of job j-000000000000 (n) is not there any more"));
    end(&r);
}

// The file of a streamed checkpoint of job 0 is at the coordinator.
static void say_durable(struct rig *r, const char *path) {
    const Traind__V1__AttemptId id = attempt_id(r);
    assert_ok(td_core_shard_durable(r->core, r->now, &id, path, "m", 1,
                                    "00000000000000000000000000000001"));
    take(r);
    settle(r);
}

// Job 1 runs from step 5, which job 0 removes meanwhile, and fails on its data.
static void fail_beside(struct rig *r, const char *why) {
    TD_AUTO_FREE char *second = make_named(2, "ckpt_path", "j-000000000000/last");
    char text[240];
    begin_saved(r, 2, "fs");
    struct rig one = *r; // the attempt of job 0, to speak of it again
    create(r, 1, second);
    settle(r);
    answer_plans(r);
    assert_string_equal(r->assigned, "j-000000000001");
    const uint64_t epoch = r->epoch, events = r->events;
    snprintf(r->assigned, sizeof r->assigned, "%s", one.assigned);
    r->epoch = one.epoch;
    r->events = one.events;
    say_saved(r, 10);
    say_removed(r, 5);
    snprintf(r->assigned, sizeof r->assigned, "j-000000000001");
    r->epoch = epoch;
    r->events = events;
    snprintf(text, sizeof text, ",\"class\":\"data\",\"code\":\"NOT_FOUND\",\"message\":\"%s\"",
             why);
    say_end(r, "failed", text);
    r->now.mono.ns += 10 * TD_NS_PER_S;
    settle(r);
}

static void test_attempt_begins_again_when_its_checkpoint_went_while_it_was_read(void **state) {
    (void)state;
    struct rig r;
    fail_beside(&r, "file '/d/j-000000000000/a1/step-5/m': No such file or directory");
    answer_plans(&r);
    assert_int_equal(r.attempt, 2);
    assert_int_equal(job(&r, 1)->restarts, 0);
    assert_from(&r, "ckpt_path", "j-000000000000/a1/step-10");
    end(&r);
}

static void test_job_fails_when_other_data_is_wrong_and_its_checkpoint_went_as_well(void **state) {
    (void)state;
    struct rig r;
    fail_beside(&r, "label 7 of 2 classes");
    assert_int_equal(r.n_requests, 0);
    assert_int_equal(job(&r, 1)->state, TD_JOB_FAILED);
    assert_false(has_note(job(&r, 1), "was removed while it was read"));
    end(&r);
}

// The rank has removed step 5, and step 10 is not at the coordinator yet.
static void test_job_waits_for_the_next_one_when_the_only_one_is_leaving(void **state) {
    (void)state;
    TD_AUTO_FREE char *second = make_named(2, "ckpt_path", "j-000000000000/last");
    struct rig r;
    struct td_reason why;
    begin_saved(&r, 2, "auto");
    say_durable(&r, "a1/step-5");
    say_saved(&r, 10);
    say_removed(&r, 5);
    assert_true(td_catalog_find(job(&r, 0), NULL)->leaving);
    create(&r, 1, second);
    settle(&r);
    assert_int_equal(r.n_requests, 0);
    assert_int_equal(job(&r, 1)->state, TD_JOB_QUEUED);
    why = reason(&r, 1);
    assert_string_equal(why.code, "SAVING_CHECKPOINT");
    say_durable(&r, "a1/step-10");
    assert_int_equal(r.n_requests, 1);
    assert_from(&r, "ckpt_path", "j-000000000000/a1/step-10");
    answer_plans(&r);
    assert_string_equal(r.assigned, "j-000000000001");
    end(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_newest_is_begun_from_when_the_first_was_rotated_while_it_waited),
        cmocka_unit_test(
            test_newest_is_settled_on_when_the_place_comes_and_the_older_is_still_there),
        cmocka_unit_test(test_settled_one_is_held_over_a_restart_until_the_job_has_ended),
        cmocka_unit_test(test_job_fails_with_the_reason_when_the_one_that_it_names_is_removed),
        cmocka_unit_test(test_attempt_begins_again_when_its_checkpoint_went_while_it_was_read),
        cmocka_unit_test(test_job_fails_when_other_data_is_wrong_and_its_checkpoint_went_as_well),
        cmocka_unit_test(test_job_waits_for_the_next_one_when_the_only_one_is_leaving),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
