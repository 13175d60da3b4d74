// Opening what a person named: regular files and directories only, and those of the path rules.

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/base/files/named.h"
#include "tests/unit/scratch_rig.h"

static void put(void **state, const char *name, mode_t mode) {
    mode_t before = umask(0);
    assert_ok(td_fs_write(in(state, name), "text", 4, mode, 0));
    umask(before);
}

static td_status try_open(const char *path) {
    TD_AUTO_CLOSE int fd = -1;
    return td_named_open(path, &fd, NULL);
}

static td_status try_dir(enum td_path_use use, const char *path) {
    TD_AUTO_CLOSE int fd = -1;
    return td_named_open_dir(use, path, &fd);
}

static void test_a_file_is_opened_to_read_and_wait(void **state) {
    TD_AUTO_BUF text;
    TD_AUTO_CLOSE int fd = -1;
    struct stat st;
    td_buf_init(&text, 100);
    put(state, "f", 0600);
    assert_ok(td_named_open(in(state, "f"), &fd, &st));
    assert_int_equal(st.st_size, 4);
    assert_int_equal(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    assert_ok(td_named_read(in(state, "f"), 100, &text));
    assert_string_equal(td_buf_cstr(&text), "text");
    assert_ok(try_dir(TD_PATH_WRITE, *state));
}

static void test_what_is_no_file_is_named_and_not_opened(void **state) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    TD_AUTO_CLOSE int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(mkfifo(in(state, "fifo"), 0600), 0);
    snprintf(a.sun_path, sizeof a.sun_path, "%s", in(state, "socket"));
    assert_int_equal(bind(s, (struct sockaddr *)&a, sizeof a), 0);
    assert_fails(try_open(in(state, "fifo")), TD_FAILED_PRECONDITION, "a FIFO, not a regular file");
    assert_fails(try_open(in(state, "socket")), TD_FAILED_PRECONDITION, "is a socket");
    assert_fails(try_open(*state), TD_FAILED_PRECONDITION, "is a directory");
    assert_fails(try_open("/dev/null"), TD_FAILED_PRECONDITION, "is a device");
    assert_fails(try_open(in(state, "none")), TD_NOT_FOUND, "none");
    assert_fails(try_dir(TD_PATH_READ, in(state, "fifo")), TD_FAILED_PRECONDITION,
                 "a FIFO, not a directory");
}

// A state directory with a job's own, a folder of everyone's and one of the daemon's user.
static void rules(void **state, bool is_owner, const char *read_roots, const char *write_roots) {
    TD_AUTO_BUF text;
    td_buf_init(&text, 1 << 16);
    mode_t before = umask(0);
    assert_int_equal(chmod(*state, 0755), 0);
    assert_ok(td_fs_mkdirs(in(state, "state/checkpoints/mine"), 0700));
    assert_ok(td_fs_mkdirs(in(state, "state/checkpoints/other"), 0700));
    assert_ok(td_fs_mkdirs(in(state, "state/tls"), 0700));
    assert_ok(td_fs_mkdirs(in(state, "open"), 0755));
    assert_ok(td_fs_mkdirs(in(state, "closed"), 0700));
    umask(before);
    const struct td_path_rules r = {.is_owner = is_owner,
                                    .state_dir = in(state, "state"),
                                    .own_dir = in(state, "state/checkpoints/mine"),
                                    .token_file = in(state, "elsewhere"),
                                    .read_roots = read_roots,
                                    .write_roots = write_roots};
    assert_ok(td_path_rules_print(&r, &text));
    assert_ok(td_path_rules_take(td_buf_cstr(&text)));
}

#define assert_refused(expr, text) assert_fails(expr, TD_PERMISSION_DENIED, text)

static void test_secrets_are_refused_to_all_by_any_name(void **state) {
    static const char *const secrets[] = {"state/token", "state/tls/ca.key", "state/state.db"};
    for (int is_owner = 0; is_owner < 2; is_owner++) {
        rules(state, is_owner, "/", "/");
        for (size_t i = 0; i < TD_COUNTOF(secrets); i++) {
            char around[512], root[512];
            const char *link = in(state, "open/link"), *hard = in(state, "open/hard");
            put(state, secrets[i], 0644);
            assert_int_equal(symlink(in(state, secrets[i]), link), 0);
            assert_int_equal(linkat(AT_FDCWD, in(state, secrets[i]), AT_FDCWD, hard, 0), 0);
            TD_AUTO_CLOSE int fd = open(link, O_RDONLY | O_CLOEXEC);
            snprintf(around, sizeof around, "/proc/self/fd/%d", fd);
            snprintf(root, sizeof root, "/proc/self/root%s", in(state, secrets[i]));
            assert_refused(try_open(in(state, secrets[i])), "'");
            assert_refused(try_open(link), "open/link");
            assert_refused(try_open(hard), "a key, token or database");
            assert_refused(try_open(around), around);
            assert_refused(try_open(root), root);
            unlink(hard);
            assert_refused(try_open(in(state, secrets[i])), "--state-dir");
            snprintf(around, sizeof around, "%s/open/../%s", (char *)*state, secrets[i]);
            assert_refused(try_open(around), "--state-dir");
            unlink(link);
        }
        put(state, "elsewhere", 0644);
        assert_refused(try_open(in(state, "elsewhere")), "a key, token or database");
        assert_refused(try_dir(TD_PATH_READ, in(state, "state")), "--state-dir");
        assert_refused(try_dir(TD_PATH_WRITE, in(state, "state/tls")), "--state-dir");
    }
}

static void test_owner_may_use_all_but_the_state_directory(void **state) {
    rules(state, true, "/nowhere", "");
    put(state, "closed/f", 0600);
    put(state, "state/checkpoints/other/f", 0600);
    assert_ok(try_open(in(state, "closed/f")));
    assert_ok(try_dir(TD_PATH_WRITE, in(state, "closed")));
    assert_ok(try_open(in(state, "state/checkpoints/other/f")));
    assert_ok(try_dir(TD_PATH_WRITE, in(state, "state/checkpoints/mine")));
    assert_refused(try_dir(TD_PATH_WRITE, in(state, "state/checkpoints/other")), "other jobs'");
    assert_refused(try_dir(TD_PATH_WRITE, in(state, "state/checkpoints")), "other jobs'");
}

static void test_plan_may_make_a_job_in_the_directory_of_all_jobs_and_write_nothing(void **state) {
    rules(state, false, "", "");
    TD_AUTO_BUF text;
    td_buf_init(&text, 1 << 16);
    const struct td_path_rules r = {.state_dir = in(state, "state")};
    assert_ok(td_path_rules_print(&r, &text));
    assert_ok(td_path_rules_take(td_buf_cstr(&text)));
    assert_ok(try_dir(TD_PATH_MAKE, in(state, "state/checkpoints")));
    assert_refused(try_dir(TD_PATH_WRITE, in(state, "state/checkpoints")), "other jobs'");
    assert_refused(try_dir(TD_PATH_MAKE, in(state, "state/checkpoints/mine")), "other jobs'");
    assert_refused(try_dir(TD_PATH_MAKE, in(state, "state")), "--state-dir");
    assert_refused(try_dir(TD_PATH_MAKE, in(state, "open")), "--write-roots");
}

static void test_others_read_what_everyone_may_without_roots(void **state) {
    rules(state, false, "", "");
    put(state, "open/f", 0644);
    put(state, "open/mine", 0640);
    put(state, "closed/f", 0644);
    put(state, "state/checkpoints/other/f", 0600);
    assert_int_equal(symlink(in(state, "closed/f"), in(state, "open/out")), 0);
    assert_ok(try_open(in(state, "open/f")));
    assert_refused(try_open(in(state, "open/mine")), "has no --read-roots");
    assert_refused(try_open(in(state, "closed/f")), "has no --read-roots");
    assert_refused(try_open(in(state, "open/out")), "has no --read-roots");
    assert_ok(try_open(in(state, "state/checkpoints/other/f")));
    assert_refused(try_dir(TD_PATH_WRITE, in(state, "open")), "has no --write-roots");
    assert_ok(try_dir(TD_PATH_WRITE, in(state, "state/checkpoints/mine")));
}

static void test_others_are_bound_to_the_roots(void **state) {
    char roots[1100], outside[512];
    snprintf(roots, sizeof roots, "/nowhere:%s", in(state, "closed"));
    snprintf(outside, sizeof outside, "%s/../open/f", in(state, "closed"));
    rules(state, false, roots, "");
    put(state, "open/f", 0644);
    put(state, "closed/f", 0600);
    assert_ok(try_open(in(state, "closed/f")));
    assert_refused(try_open(in(state, "open/f")), roots);
    assert_refused(try_open(outside), "--read-roots");
    assert_refused(try_dir(TD_PATH_WRITE, in(state, "closed")), "has no --write-roots");
    rules(state, false, "", roots);
    assert_ok(try_dir(TD_PATH_WRITE, in(state, "closed")));
    assert_ok(try_open(in(state, "closed/f"))); // what it wrote it may read
    assert_refused(try_dir(TD_PATH_WRITE, in(state, "open")), roots);
}

// Of libc, for the rules, which ask where a held file is: meanwhile others replace it.
static struct {
    const char *new, *path;
    int times;
} replaced;

ssize_t readlink(const char *restrict path, char *restrict out, size_t bytes) {
    if (replaced.times > 0) {
        replaced.times--;
        assert_ok(td_fs_write(replaced.new, "new", 3, 0644, 0));
        assert_int_equal(rename(replaced.new, replaced.path), 0);
    }
    return readlinkat(AT_FDCWD, path, out, bytes);
}

static void test_file_is_opened_though_it_is_replaced_meanwhile(void **state) {
    TD_AUTO_BUF text;
    struct stat st;
    td_buf_init(&text, 100);
    rules(state, false, "", "");
    put(state, "open/f", 0644);
    replaced.new = in(state, "open/new");
    replaced.path = in(state, "open/f");
    replaced.times = 2;
    assert_ok(td_named_read(replaced.path, 100, &text));
    assert_string_equal(td_buf_cstr(&text), "new");
    replaced.times = 2;
    assert_ok(td_named_stat(replaced.path, &st));
    assert_int_equal(st.st_size, 3);
    replaced.times = 1000;
    td_status s = try_open(replaced.path);
    replaced.times = 0;
    assert_int_equal(td_status_class(s), TD_CLASS_NONE); // another attempt may open it
    assert_fails(s, TD_UNAVAILABLE, "was moved or removed");
}

static td_status try_below(int root_fd, const char *path, struct stat *out_st) {
    TD_AUTO_CLOSE int fd = -1;
    return td_fs_hold_below(root_fd, path, &fd, out_st);
}

static void test_below_a_directory_no_link_is_followed(void **state) {
    TD_AUTO_CLOSE int root = -1;
    struct stat st;
    put(state, "f", 0600);
    assert_int_equal(mkdir(in(state, "d"), 0700), 0);
    assert_int_equal(mkfifo(in(state, "d/fifo"), 0600), 0);
    assert_int_equal(symlink("d", in(state, "link")), 0);
    assert_ok(td_fs_hold(*state, &root, &st));
    assert_ok(try_below(root, "d/fifo", &st));
    assert_true(S_ISFIFO(st.st_mode));
    assert_ok(try_below(root, "", &st));
    assert_true(S_ISDIR(st.st_mode));
    assert_fails(try_below(root, "link", &st), TD_FAILED_PRECONDITION, "'link' is a link");
    assert_fails(try_below(root, "link/fifo", &st), TD_FAILED_PRECONDITION, "'link' is a link");
    assert_fails(try_below(root, "d/../f", &st), TD_FAILED_PRECONDITION, "'..' is a link");
    assert_fails(try_below(root, "d/none", &st), TD_NOT_FOUND, "d/none");
}

static int no_rules(void **state) {
    td_path_rules_forget();
    return td_test_scratch_remove(state);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, td_test_scratch_make, no_rules)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_a_file_is_opened_to_read_and_wait),
        TEST(test_what_is_no_file_is_named_and_not_opened),
        TEST(test_secrets_are_refused_to_all_by_any_name),
        TEST(test_owner_may_use_all_but_the_state_directory),
        TEST(test_plan_may_make_a_job_in_the_directory_of_all_jobs_and_write_nothing),
        TEST(test_file_is_opened_though_it_is_replaced_meanwhile),
        TEST(test_others_read_what_everyone_may_without_roots),
        TEST(test_others_are_bound_to_the_roots),
        TEST(test_below_a_directory_no_link_is_followed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
