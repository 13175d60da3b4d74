// Which rank a program is, and what Fabric says of it: each case is a child, because a process
// reads its environment once.

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabric/config.h"
#include "lib/base/files/files.h"
#include "tests/unit/test.h"
#include "traind/fabric.h"

// True if it said true in a child that has this value (NULL: none).
static bool holds_in_child(const char *value, bool (*look)(void)) {
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        (void)unsetenv(TD_RANK_ENV);
        if (value) (void)setenv(TD_RANK_ENV, value, 1);
        _exit(look() ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool is_no_rank(void) {
    const struct td_rank_env *e = (const struct td_rank_env *)(const void *)"";
    td_status s = td_fabric_env(&e);
    td_status_free(s);
    return !s && !e;
}

// Contract 17: a program that nobody started as a rank is none
static void test_env_is_null_when_there_is_no_variable(void **state) {
    (void)state;
    assert_true(holds_in_child(NULL, is_no_rank));
}

static bool is_rank_1_of_2(void) {
    const struct td_rank_env *e = NULL, *again = NULL;
    td_status s = td_fabric_env(&e);
    if (!s) s = td_fabric_env(&again);
    td_status_free(s);
    return !s && e && e == again && e->rank == 1 && e->world_size == 2 && e->page_fd == 1 &&
           e->group_fd == -1 && strcmp(e->plan, "/a b.json") == 0 && !getenv(TD_RANK_ENV) &&
           fcntl(1, F_GETFD) == FD_CLOEXEC;
}

// Contract 17: a rank is what its launcher says
static void test_env_is_the_rank_and_is_handed_to_nobody_else(void **state) {
    (void)state;
    assert_true(holds_in_child("rank=1 world_size=2 page_fd=1 events_fd=-1 plan=/a b.json",
                               is_rank_1_of_2));
}

static const char *expected_words;
static enum td_code expected_code;

static bool fails_twice(void) {
    for (int i = 0; i < 2; i++) {
        const struct td_rank_env *e = NULL;
        TD_AUTO_STATUS td_status s = td_fabric_env(&e);
        if (td_status_code(s) != expected_code || e) return false;
        if (!strstr(td_status_message(s), expected_words)) return false;
    }
    return !getenv(TD_RANK_ENV);
}

static void test_env_fails_at_each_call_when_it_cannot_be_read(void **state) {
    (void)state;
    expected_code = TD_INVALID_ARGUMENT;
    expected_words = "lacks 'rank'";
    assert_true(holds_in_child("", fails_twice));
    expected_code = TD_FAILED_PRECONDITION;
    expected_words = "descriptor 9999 as group_fd";
    assert_true(
        holds_in_child("rank=0 world_size=1 page_fd=-1 events_fd=-1 group_fd=9999", fails_twice));
}

static bool is_too_long(void) {
    const struct td_rank_env *e;
    TD_AUTO_STATUS td_status s = td_fabric_env(&e);
    return td_status_code(s) == TD_RESOURCE_EXHAUSTED;
}

static void test_env_is_refused_when_it_is_too_long(void **state) {
    (void)state;
    char text[TD_RANK_ENV_BYTES + 1];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_true(holds_in_child(text, is_too_long));
}

// ---- a rank of several nodes --------------------------------------------------------------------
// results_fd: no launcher listens, so no thread waits for signals.
static const char plan[] =
    "{\"format\": 1, \"name\": \"two\", \"kind\": \"program\", \"command\": [\"/bin/true\"], "
    "\"trainer\": {\"devices\": 2, \"num_nodes\": 2}, \"run\": {\"job\": \"j\", \"world_size\": "
    "4}}";

static bool is_rank_1_of_node_1(void) {
    const struct td_fabric_options o = {.struct_bytes = sizeof o};
    struct td_fabric_facts facts = {.struct_bytes = sizeof facts};
    struct td_fabric *f = NULL;
    td_status s = td_fabric_create(&o, &f);
    if (s) fprintf(stderr, "# %s\n", td_status_message(s));
    td_status_free(s);
    if (!f) return false;
    td_fabric_get_facts(f, &facts);
    return facts.world_size == 4 && facts.global_rank == 3 && facts.local_rank == 1 &&
           facts.node_rank == 1 && !facts.is_global_zero && !facts.is_set_up && facts.device == -1;
}

static void test_facts_are_those_of_the_node_before_setup(void **state) {
    char path[256], text[512];
    snprintf(path, sizeof path, "%s/plan.json", (const char *)*state);
    assert_ok(td_fs_write(path, plan, sizeof plan - 1, 0600, 0));
    snprintf(text, sizeof text, "rank=3 world_size=4 page_fd=-1 events_fd=-1 results_fd=1 plan=%s",
             path);
    assert_true(holds_in_child(text, is_rank_1_of_node_1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_env_is_null_when_there_is_no_variable),
        cmocka_unit_test(test_env_is_the_rank_and_is_handed_to_nobody_else),
        cmocka_unit_test(test_env_fails_at_each_call_when_it_cannot_be_read),
        cmocka_unit_test(test_env_is_refused_when_it_is_too_long),
        cmocka_unit_test_setup_teardown(test_facts_are_those_of_the_node_before_setup,
                                        td_test_scratch_make, td_test_scratch_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
