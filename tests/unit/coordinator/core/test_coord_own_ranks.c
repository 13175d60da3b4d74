// A node speaks for the ranks of its own part only: event lines, logs and files of checkpoints of
// an attempt over two nodes.

#include "daemon/coordinator/core/attempt/attempt.h"
#include "daemon/coordinator/core/catalog/catalog.h"
#include "tests/unit/coordinator/core/coord_parts.h"

static const char theirs[] = "00000000000000000000000000000000";
static const char other[] = "11111111111111111111111111111111";

struct keyed {
    struct two two;
    char key_a[33], key_b[33];
};

static void begin_keyed(struct keyed *k) {
    const struct td_core_options o = {.incarnation = 1, .checkpoint_dir = "/c"};
    TD_AUTO_FREE char *spec = make_spec_from(1, 1, ", resources: {nodes: 2}");
    struct rig *r = &k->two.r;
    memset(k, 0, sizeof *k);
    begin_alone(r, &o);
    r->keyed = true;
    k->two.a = join_as(r, "n-1", 2, "avx2", NULL);
    memcpy(k->key_a, r->key, sizeof k->key_a);
    k->two.b = join_as(r, "n-2", 2, "avx2", NULL);
    memcpy(k->key_b, r->key, sizeof k->key_b);
    create(r, 0, spec);
    settle(r);
    answer_all(r);
    assert_int_equal(r->n_parts, 2);
    assert_string_not_equal(k->key_a, k->key_b);
}

static uint32_t bad_lines(struct keyed *k) {
    return td_core_counter(k->two.r.core, TD_COUNT_BAD_LINES);
}

static void say_checkpoint(struct keyed *k, uint64_t session, uint32_t rank, const char *digest) {
    char text[400];
    snprintf(text, sizeof text,
             "{\"event\":\"checkpoint\",\"rank\":%u,\"step\":3,\"epoch\":0,\"path\":\"a1/step-3\","
             "\"bytes\":1,\"files\":[{\"name\":\"m\",\"bytes\":1,\"digest\":\"%s\"}]}\n",
             rank, digest);
    say_at(&k->two, session, text);
}

static void refused(td_status s, enum td_code code, const char *word) {
    assert_int_equal(td_status_code(s), code);
    if (!strstr(td_status_message(s), word)) fail_msg("%s", td_status_message(s));
    td_status_free(s);
}

static td_status shard(struct keyed *k, const char *key, const char *digest, bool *out_here) {
    const Traind__V1__AttemptId id = attempt_id(&k->two.r);
    return td_core_check_shard(k->two.r.core, &id, key, "a1/step-3", "m", digest, out_here);
}

static void test_lines_about_ranks_of_another_part_are_bad_lines(void **state) {
    (void)state;
    struct keyed k;
    begin_keyed(&k);
    struct two *t = &k.two;
    say_at(t, t->b, "{\"event\":\"ready\",\"rank\":0,\"pid\":2}\n");
    say_at(t, t->b, "{\"event\":\"ready\",\"rank\":1,\"pid\":2}\n");
    assert_int_equal(job(&t->r, 0)->state, TD_JOB_STARTING); // rank 0 has not said so
    say_at(t, t->b,
           "{\"event\":\"rank_exit\",\"rank\":0,\"class\":\"internal\",\"status\":\"INTERNAL\","
           "\"message\":\"forged\",\"dropped_points\":7}\n");
    assert_int_equal(bad_lines(&k), 2);
    const struct td_attempt *a = job(&t->r, 0)->attempts[0];
    assert_int_equal(a->ranks[0].dropped_points, 0);
    assert_false(a->failure.set);
    say_at(t, t->a, "{\"event\":\"ready\",\"rank\":0,\"pid\":2}\n");
    assert_int_equal(job(&t->r, 0)->state, TD_JOB_RUNNING);
    assert_int_equal(bad_lines(&k), 2);
    end_two(t);
}

static void test_logs_of_a_rank_come_from_the_node_that_has_it(void **state) {
    (void)state;
    struct keyed k;
    begin_keyed(&k);
    struct td_core *core = k.two.r.core;
    const Traind__V1__AttemptId id = attempt_id(&k.two.r);
    assert_ok(td_core_check_session(core, k.two.a, &id, 0));
    assert_ok(td_core_check_session(core, k.two.b, &id, 1));
    assert_ok(td_core_check_key(core, &id, k.key_a, 0));
    assert_ok(td_core_check_key(core, &id, k.key_b, 1));
    refused(td_core_check_session(core, k.two.b, &id, 0), TD_PERMISSION_DENIED, "node n-1");
    refused(td_core_check_session(core, k.two.a, &id, 1), TD_PERMISSION_DENIED, "node n-2");
    refused(td_core_check_key(core, &id, k.key_b, 0), TD_PERMISSION_DENIED, "node n-1");
    refused(td_core_check_key(core, &id, k.key_a, 1), TD_PERMISSION_DENIED, "node n-2");
    refused(td_core_check_key(core, &id, k.key_a, 2), TD_INVALID_ARGUMENT, "no rank 2");
    end_two(&k.two);
}

static void test_files_of_a_checkpoint_come_from_the_node_that_reported_it(void **state) {
    (void)state;
    struct keyed k;
    bool here = true;
    begin_keyed(&k);
    const Traind__V1__AttemptId id = attempt_id(&k.two.r);
    assert_ok(shard(&k, k.key_a, theirs, &here)); // before its line
    assert_false(here);
    refused(shard(&k, k.key_b, theirs, &here), TD_PERMISSION_DENIED, "node n-1");
    say_checkpoint(&k, k.two.a, 0, theirs);
    assert_ok(shard(&k, k.key_a, theirs, &here));
    assert_false(here);
    refused(shard(&k, k.key_b, theirs, &here), TD_PERMISSION_DENIED, "node n-1");
    refused(shard(&k, k.key_a, other, &here), TD_DATA_LOSS, theirs);
    assert_ok(td_core_shard_durable(k.two.r.core, k.two.r.now, &id, "a1/step-3", "m", 1, theirs));
    assert_ok(shard(&k, k.key_a, theirs, &here));
    assert_true(here);
    end_two(&k.two);
}

// A strategy may let a rank of another node write. One that another node reported is not its own.
static void test_checkpoint_is_of_the_part_that_reported_it(void **state) {
    (void)state;
    struct keyed k;
    bool here = true;
    begin_keyed(&k);
    say_checkpoint(&k, k.two.b, 1, other);
    assert_ok(shard(&k, k.key_b, other, &here));
    refused(shard(&k, k.key_a, other, &here), TD_PERMISSION_DENIED, "node n-2");
    say_checkpoint(&k, k.two.a, 0, theirs); // rank 0 comes first
    assert_ok(shard(&k, k.key_a, theirs, &here));
    assert_int_equal(bad_lines(&k), 0);
    say_checkpoint(&k, k.two.b, 1, other);
    say_at(&k.two, k.two.b, "{\"event\":\"removed\",\"rank\":1,\"path\":\"a1/step-3\"}\n");
    say_at(&k.two, k.two.b,
           "{\"event\":\"registered\",\"rank\":1,\"step\":3,\"directory\":\"/mine\"}\n");
    assert_int_equal(bad_lines(&k), 3);
    const struct td_checkpoint *c = td_catalog_find(job(&k.two.r, 0), "a1/step-3");
    assert_true(c && strcmp(c->node, "n-1") == 0 && strcmp(c->files[0].digest, theirs) == 0);
    end_two(&k.two);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_about_ranks_of_another_part_are_bad_lines),
        cmocka_unit_test(test_logs_of_a_rank_come_from_the_node_that_has_it),
        cmocka_unit_test(test_files_of_a_checkpoint_come_from_the_node_that_reported_it),
        cmocka_unit_test(test_checkpoint_is_of_the_part_that_reported_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
