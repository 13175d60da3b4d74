// Whose SIGKILL it was, by files of the kernel that the test writes.

#include "daemon/launcher/watchdog/killed.h"
#include "lib/base/files/files.h"
#include "tests/unit/test.h"

static void put(const char *root, const char *path, const char *text) {
    char full[TD_FS_PATH_BYTES], dir[TD_FS_PATH_BYTES];
    snprintf(full, sizeof full, "%s/%s", root, path);
    snprintf(dir, sizeof dir, "%s", full);
    *strrchr(dir, '/') = '\0';
    assert_ok(td_fs_mkdirs(dir, 0755));
    assert_ok(td_fs_write(full, text, strlen(text), 0644, 0));
}

static struct td_killed judge_after(const char *root, const char *path, const char *before,
                                    const char *after) {
    struct td_kills k;
    struct td_killed found;
    put(root, path, before);
    td_kills_begin(&k, root, (struct td_mono){0});
    put(root, path, after);
    td_killed_judge(&k, &found);
    return found;
}

#define EVENTS(n) "low 0\nhigh 0\nmax 7\noom 1\noom_kill " n "\noom_group_kill 0\n"

static void test_kill_is_the_kernels_when_its_cgroup_counts_one(void **state) {
    const char *const root = *state, *const file = "sys/fs/cgroup/a/b/memory.events";
    put(root, "proc/self/cgroup", "0::/a/b\n");
    put(root, "sys/fs/cgroup/a/memory.max", "8589934592\n");
    put(root, "sys/fs/cgroup/a/memory.current", "8388608000\n");
    put(root, "sys/fs/cgroup/a/b/memory.max", "max\n");
    put(root, "proc/vmstat", "oom_kill 9\n");
    struct td_killed found = judge_after(root, file, EVENTS("2"), EVENTS("3"));
    assert_int_equal(found.cls, TD_CLASS_OUT_OF_MEMORY);
    assert_non_null(strstr(found.text, "by the kernel, as memory ran out"));
    assert_non_null(strstr(found.text, "8000 of 8192 MiB are in use in its cgroup"));
    found = judge_after(root, file, EVENTS("3"), EVENTS("3"));
    assert_int_equal(found.cls, TD_CLASS_KILLED);
    assert_non_null(strstr(found.text, "signal 9 (KILL), not sent by traind: by somebody on this"));
    assert_non_null(strstr(found.text, "killed nobody for lack of memory just then"));
}

// One without the controller is counted above it.
static void test_kill_is_counted_above_when_the_cgroup_has_no_file(void **state) {
    const char *const root = *state;
    put(root, "proc/self/cgroup", "1:name=systemd:/x\n0::/a/b/c\n");
    struct td_killed found =
        judge_after(root, "sys/fs/cgroup/a/memory.events", EVENTS("0"), EVENTS("1"));
    assert_int_equal(found.cls, TD_CLASS_OUT_OF_MEMORY);
}

static void test_machine_counts_when_no_cgroup_does(void **state) {
    const char *const root = *state;
    put(root, "proc/meminfo", "MemTotal:  4194304 kB\nMemFree: 1 kB\nMemAvailable:  1048576 kB\n");
    struct td_killed found =
        judge_after(root, "proc/vmstat", "pgfault 3\noom_kill 4\n", "pgfault 5\noom_kill 6\n");
    assert_int_equal(found.cls, TD_CLASS_OUT_OF_MEMORY);
    assert_non_null(strstr(found.text, "3072 of 4096 MiB are in use on this machine"));
    found = judge_after(root, "proc/vmstat", "oom_kill 6\n", "oom_kill 6\n");
    assert_int_equal(found.cls, TD_CLASS_KILLED);
}

static void test_both_are_named_when_nothing_counts(void **state) {
    struct td_kills k;
    struct td_killed found;
    td_kills_begin(&k, *state, (struct td_mono){0});
    td_killed_judge(&k, &found);
    assert_int_equal(found.cls, TD_CLASS_KILLED);
    assert_non_null(strstr(found.text, "or by the kernel for lack of memory"));
}

// The kernel killed another program; two looks later somebody kills the job.
static void test_kill_is_not_the_kernels_when_it_killed_another_one_long_before(void **state) {
    const char *const root = *state;
    struct td_kills k;
    struct td_killed found;
    struct td_mono now = {0};
    put(root, "proc/vmstat", "oom_kill 4\n");
    td_kills_begin(&k, root, now);
    put(root, "proc/vmstat", "oom_kill 5\n");
    for (int i = 0; i < 2; i++) {
        td_kills_look(&k, now); // too early
        td_killed_judge(&k, &found);
        assert_int_equal(found.cls, TD_CLASS_OUT_OF_MEMORY);
        now.ns += TD_KILLS_LOOK_S * TD_NS_PER_S;
        td_kills_look(&k, now);
    }
    td_killed_judge(&k, &found);
    assert_int_equal(found.cls, TD_CLASS_KILLED);
    put(root, "proc/vmstat", "oom_kill 6\n");
    td_killed_judge(&k, &found);
    assert_int_equal(found.cls, TD_CLASS_OUT_OF_MEMORY);
}

// Of this machine: whatever it has, it can be read.
static void test_real_files_are_read(void **state) {
    (void)state;
    struct td_kills k;
    struct td_killed found;
    td_kills_begin(&k, "", (struct td_mono){0});
    td_killed_judge(&k, &found);
    assert_true(k.counter[0]);
    assert_non_null(strstr(found.text, " MiB are in use "));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_kill_is_the_kernels_when_its_cgroup_counts_one),
        test_in_scratch(test_kill_is_counted_above_when_the_cgroup_has_no_file),
        test_in_scratch(test_machine_counts_when_no_cgroup_does),
        test_in_scratch(test_both_are_named_when_nothing_counts),
        test_in_scratch(test_kill_is_not_the_kernels_when_it_killed_another_one_long_before),
        cmocka_unit_test(test_real_files_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
