// Rank environment: what is written is read, and everything else is refused by name.

#include "lib/attempt/rank_env.h"
#include "tests/unit/test.h"

// Contract 18: what is written is read
static void test_rank_env_comes_back_as_it_was(void **state) {
    (void)state;
    const struct td_rank_env e = {1, 4, 3, 4, 5, 6, -1, "/a path/with spaces/rank=9.json"};
    char text[TD_RANK_ENV_BYTES];
    struct td_rank_env got;
    assert_ok(td_rank_env_write(&e, text));
    assert_ok(td_rank_env_parse(text, &got));
    assert_int_equal(got.rank, 1);
    assert_int_equal(got.world_size, 4);
    assert_int_equal(got.page_fd, 3);
    assert_int_equal(got.events_fd, 4);
    assert_int_equal(got.group_fd, 5);
    assert_int_equal(got.store_fd, 6);
    assert_int_equal(got.results_fd, -1);
    assert_string_equal(got.plan, e.plan);
}

static void test_rank_env_has_no_plan_when_none_is_written(void **state) {
    (void)state;
    const struct td_rank_env e = {0, 1, -1, -1, -1, -1, 7, NULL};
    char text[TD_RANK_ENV_BYTES];
    struct td_rank_env got;
    assert_ok(td_rank_env_write(&e, text));
    assert_ok(td_rank_env_parse(text, &got));
    assert_null(got.plan);
    assert_int_equal(got.results_fd, 7);
}

// Contract 18: the environment is read and checked
static void test_rank_env_refuses_what_is_not_its_own(void **state) {
    (void)state;
    static const struct {
        const char *text, *names;
    } rows[] = {
        {"", "lacks 'rank'"},
        {"rank=0", "lacks 'world_size'"},
        {"rank=0 world_size=1 page_fd=3", "lacks 'events_fd'"},
        {"rank=2 world_size=2 page_fd=3 events_fd=4", "past its world"},
        {"rank=0 world_size=0 page_fd=3 events_fd=4", "cannot be for 'world_size'"},
        {"rank=x world_size=1 page_fd=3 events_fd=4", "cannot be for 'rank'"},
        {"rank= world_size=1 page_fd=3 events_fd=4", "cannot be for 'rank'"},
        {"rank=0 rank=0 world_size=1 page_fd=3 events_fd=4", "twice 'rank'"},
        {"rank=0 colour=1 world_size=1 page_fd=3 events_fd=4", "unknown word 'colour'"},
        {"rank=0  world_size=1 page_fd=3 events_fd=4", "the word ''"},
        {"rank=99999999999999999999 world_size=1 page_fd=3 events_fd=4", "cannot be for 'rank'"},
    };
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        char text[TD_RANK_ENV_BYTES];
        struct td_rank_env got;
        snprintf(text, sizeof text, "%s", rows[i].text);
        assert_fails(td_rank_env_parse(text, &got), TD_INVALID_ARGUMENT, rows[i].names);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rank_env_comes_back_as_it_was),
        cmocka_unit_test(test_rank_env_has_no_plan_when_none_is_written),
        cmocka_unit_test(test_rank_env_refuses_what_is_not_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
