// checkpoint.dir, before an attempt starts below it: what a silent server does to it.

#include "daemon/node/shell/assignment/given_dir.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/files/files.h"
#include "lib/loop/loop.h"
#include "tests/unit/test.h"

// A server that does not answer: what is made below "silent" waits for a byte.
static int silence[2] = {-1, -1};

int mkdir(const char *path, mode_t mode) {
    char byte;
    if (strstr(path, "/silent/")) (void)!read(silence[0], &byte, 1);
    return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

struct end {
    bool came;
    td_status status;
};

static void on_placed(td_status take_status, void *arg) {
    struct end *e = arg;
    e->status = take_status;
    e->came = true;
}

static td_status place(const char *dir, const char *name, int64_t limit_ns) {
    struct td_assignment a = {.job = "j-1", .attempt = 1, .place_is_given = true};
    struct td_loop *loop;
    struct td_given_dir *p;
    struct end e = {0};
    snprintf(a.checkpoints, sizeof a.checkpoints, "%s/%s/j-1", dir, name);
    assert_ok(td_loop_create(&loop));
    assert_ok(td_given_dir_create(loop, &a, 0750, limit_ns, on_placed, &e, &p));
    assert_ok(td_loop_run_until(loop, &e.came, TD_TEST_WAIT_NS));
    td_given_dir_destroy(p);
    td_loop_destroy(loop);
    return e.status;
}

static void test_place_is_made_with_the_mode_of_jobs(void **state) {
    char path[TD_FS_PATH_BYTES];
    struct stat st;
    assert_ok(place(*state, "given", TD_TEST_WAIT_NS));
    assert_ok(td_fs_path(path, "%s/given/j-1/a1", (char *)*state));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0750);
}

static void test_place_that_cannot_be_says_why(void **state) {
    char path[TD_FS_PATH_BYTES];
    assert_ok(td_fs_path(path, "%s/file", (char *)*state));
    assert_ok(td_fs_write(path, "", 0, 0600, 0));
    td_status s = place(*state, "file", TD_TEST_WAIT_NS);
    assert_int_equal(td_status_class(s), TD_CLASS_BAD_SPEC);
    td_status_free(s);
}

// The node's loop hung with it: no heartbeats, and all its jobs were lost.
static void test_attempt_fails_and_the_loop_goes_on_when_its_place_does_not_answer(void **state) {
    assert_int_equal(pipe2(silence, O_CLOEXEC), 0);
    td_status s = place(*state, "silent", TD_NS_PER_S / 100);
    assert_int_equal(td_status_class(s), TD_CLASS_DISK);
    assert_fails(s, TD_DEADLINE_EXCEEDED, "look at the server of checkpoint.dir");
    close(silence[1]); // the thread ends
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_place_is_made_with_the_mode_of_jobs),
        test_in_scratch(test_place_that_cannot_be_says_why),
        test_in_scratch(test_attempt_fails_and_the_loop_goes_on_when_its_place_does_not_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
