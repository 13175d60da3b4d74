// Failing allocations, failing checks, sizes and the ownership helpers of lib/base/base.h.
// The environment's TD_FAIL_ALLOC and a failed TD_CHECK are seen in child processes.

#include <signal.h>
#include <sys/wait.h>

#include "tests/unit/test.h"

struct td_thing {
    uint32_t magic;
};
enum { td_thing_magic = 0x7468 };

static int run_child(void (*body)(void)) {
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGABRT, SIG_DFL);
        close(STDERR_FILENO);
        body();
        _exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void break_check(void) {
    TD_CHECK(1 + 1 == 3);
}
static void cast_wrong_magic(void) {
    struct td_thing thing = {.magic = 1};
    void *p = &thing;
    (void)TD_CAST(td_thing, p);
}
static void cast_null(void) {
    void *p = NULL;
    (void)TD_CAST(td_thing, p);
}

static void test_check_aborts_when_false(void **state) {
    (void)state;
    int status = run_child(break_check);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    TD_CHECK(1 + 1 == 2);
}

static void test_cast_aborts_when_magic_is_wrong(void **state) {
    (void)state;
    struct td_thing thing = {.magic = td_thing_magic};
    void *p = &thing;
    assert_ptr_equal(TD_CAST(td_thing, p), &thing);
    assert_true(WIFSIGNALED(run_child(cast_wrong_magic)));
    assert_true(WIFSIGNALED(run_child(cast_null)));
}

static void test_nth_allocation_fails_once_when_asked(void **state) {
    (void)state;
    td_alloc_fail_at(2);
    void *a = td_calloc(1, 8), *b = td_realloc(NULL, 8);
    char *c = td_strdup("x");
    assert_non_null(a);
    assert_null(b);
    assert_non_null(c);
    td_alloc_fail_at(1);
    assert_null(td_strdup("x"));
    assert_non_null(a = td_realloc(a, 16));
    td_alloc_fail_at(0);
    free(a);
    free(c);
}

static void test_calloc_answers_null_when_size_overflows(void **state) {
    (void)state;
    volatile size_t n = SIZE_MAX / 2;
    assert_null(td_calloc(n, 4));
}

static void test_environment_fails_an_allocation_when_set(void **state) {
    (void)state;
    int pipe_fds[2];
    assert_int_equal(pipe(pipe_fds), 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(pipe_fds[1], STDOUT_FILENO);
        setenv("TD_FAIL_ALLOC", "1", 1);
        execl("/proc/self/exe", "test_base", "alloc", (char *)NULL);
        _exit(99);
    }
    int status;
    waitpid(pid, &status, 0);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 7);
}

static void test_size_helpers_refuse_when_overflow(void **state) {
    (void)state;
    size_t out = 5;
    assert_true(td_size_mul(6, 7, &out));
    assert_int_equal(out, 42);
    assert_false(td_size_mul(SIZE_MAX, 2, &out));
    assert_int_equal(out, 42);
    assert_int_equal(td_align_up(65, 64), 128);
    assert_int_equal(td_align_up(64, 64), 64);
}

static void test_steal_leaves_nothing_when_taken(void **state) {
    (void)state;
    char *p = td_strdup("x");
    char *q = td_steal(p);
    assert_null(p);
    free(q);
    int fd = 5;
    assert_int_equal(td_steal_fd(&fd), 5);
    assert_int_equal(fd, -1);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "alloc") == 0) return td_calloc(1, 1) ? 1 : 7;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check_aborts_when_false),
        cmocka_unit_test(test_cast_aborts_when_magic_is_wrong),
        cmocka_unit_test(test_nth_allocation_fails_once_when_asked),
        cmocka_unit_test(test_calloc_answers_null_when_size_overflows),
        cmocka_unit_test(test_environment_fails_an_allocation_when_set),
        cmocka_unit_test(test_size_helpers_refuse_when_overflow),
        cmocka_unit_test(test_steal_leaves_nothing_when_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
