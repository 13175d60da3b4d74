// Fencing: nobody holds the lock, or somebody does who is not the attempt's launcher. That a
// launcher is killed is seen with a real one in tests/scenario.

#include "daemon/node/shell/attempts/fence.h"
#include "lib/attempt/segments.h"
#include "lib/base/files/files.h"
#include "tests/unit/base/files/lock_holder.h"

static void test_fence_has_nothing_to_do_when_nobody_holds_the_lock(void **state) {
    char path[512];
    assert_ok(td_fence(*state)); // no lock was ever taken
    snprintf(path, sizeof path, "%s/%s", (char *)*state, TD_SEGMENT_LOCK);
    assert_false(td_fs_exists(path));
    assert_ok(td_fs_write(path, "pid 1 (traind-launcher on this)\n", 32, 0600, 0));
    assert_ok(td_fence(*state)); // an old one
}

static void test_fence_kills_nobody_when_the_holder_is_not_the_launcher(void **state) {
    char path[512], mine[32];
    int fd = -1;
    snprintf(path, sizeof path, "%s/%s", (char *)*state, TD_SEGMENT_LOCK);
    assert_ok(td_fs_lock(path, "a test", &fd));
    snprintf(mine, sizeof mine, "pid %d (a test", (int)getpid());
    td_status s = td_fence(*state);
    assert_non_null(strstr(td_status_message(s), mine));
    assert_fails(s, TD_FAILED_PRECONDITION, "end that process");
    assert_int_equal(ftruncate(fd, 0), 0); // it has not written its name
    assert_fails(td_fence(*state), TD_FAILED_PRECONDITION, "not the launcher");
    close(fd);
    assert_ok(td_fence(*state));
}

static void test_lock_that_is_held_for_a_moment_is_waited_for(void **state) {
    char path[512];
    int fd = -1;
    struct lock_ender e;
    snprintf(path, sizeof path, "%s/%s", (char *)*state, TD_SEGMENT_LOCK);
    assert_ok(td_fs_lock(path, "a test", &fd));
    lock_ender_begin(&e, path, fd);
    assert_ok(td_fence(*state));
    assert_true(lock_ender_finish(&e));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_fence_has_nothing_to_do_when_nobody_holds_the_lock),
        test_in_scratch(test_fence_kills_nobody_when_the_holder_is_not_the_launcher),
        test_in_scratch(test_lock_that_is_held_for_a_moment_is_waited_for),
    };
    return cmocka_run_group_tests_name("node_fence", tests, NULL, NULL);
}
