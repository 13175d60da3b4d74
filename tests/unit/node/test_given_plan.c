// Plans that another build of the coordinator wrote: one that cannot be read here says nothing of
// the job.

#include "daemon/node/shell/assignment/given_plan.h"
#include "lib/version/version.h"
#include "tests/unit/test.h"

#define PLAN(more)                                                                                 \
    "{\"format\":1,\"run\":{\"attempt\":1},\"model\":{\"name\":\"mlp\",\"layers\":[4,2]},"         \
    "\"data\":{\"name\":"                                                                          \
    "\"synthetic\",\"batch_size\":1},\"optimizer\":{\"name\":\"sgd\"}" more "}"

static void test_plan_is_read_when_its_keys_are_known(void **state) {
    (void)state;
    TD_AUTO(td_arena) *arena = NULL;
    struct td_plan plan;
    assert_ok(td_given_plan_parse(PLAN(""), &arena, &plan));
    assert_int_equal(plan.run.attempt, 1);
}

static void test_plan_with_another_key_is_unreadable_and_no_fault_of_the_job(void **state) {
    (void)state;
    static const char *const plans[] = {PLAN(",\"later\":1"), "{\"format\":9}", "{"};
    for (size_t i = 0; i < TD_COUNTOF(plans); i++) {
        struct td_arena *arena = NULL;
        struct td_plan plan;
        td_status s = td_given_plan_parse(plans[i], &arena, &plan);
        assert_null(arena);
        assert_true(td_given_plan_is_unreadable(s));
        assert_int_equal(td_status_class(s), TD_CLASS_INTERNAL);
        assert_int_equal(td_status_code(s), TD_FAILED_PRECONDITION);
        assert_non_null(strstr(td_status_message(s), td_version));
        td_status_free(s);
    }
    assert_false(td_given_plan_is_unreadable(TD_OK));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan_is_read_when_its_keys_are_known),
        cmocka_unit_test(test_plan_with_another_key_is_unreadable_and_no_fault_of_the_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
