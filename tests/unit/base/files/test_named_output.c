// Named outputs: only a file is replaced, as it was (mode, owner, the link that led to it), and one
// writer at a time may hold it.

#include "tests/unit/test.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/base/files/named_output.h"
#include "lib/base/files/path_rules.h"
#include "tests/unit/base/files/lock_holder.h"
#include "tests/unit/scratch_rig.h"

enum { OTHER_USER = 54321 };

static td_status put(const char *path, const char *text) {
    return td_named_output_write(path, text, strlen(text), 0666, TD_FS_WRITE_DURABLE);
}

static void assert_text(const char *path, const char *text) {
    TD_AUTO_BUF found;
    td_buf_init(&found, 100);
    assert_ok(td_fs_read(path, 100, &found));
    assert_string_equal(td_buf_cstr(&found), text);
}

static mode_t mode_of(const char *path) {
    struct stat st;
    assert_int_equal(lstat(path, &st), 0);
    return st.st_mode & 07777;
}

static void test_what_is_no_file_is_refused_and_stays(void **state) {
    assert_ok(td_fs_mkdirs(in(state, "d"), 0700));
    assert_int_equal(mkfifo(in(state, "pipe"), 0600), 0);
    assert_int_equal(symlink("pipe", in(state, "to-pipe")), 0);
    assert_int_equal(symlink("loop", in(state, "loop")), 0);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", in(state, "socket"));
    TD_AUTO_CLOSE int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s, (struct sockaddr *)&a, sizeof a), 0);
    const int n = count_entries(*state);
    const struct {
        const char *path, *words;
    } cases[] = {
        {"/dev/null", "is a device, not a regular file; name a file"},
        {"/dev/stdout", "leads into /proc, to what a process has open and not to a file"},
        {"/proc/self/fd/1", "leads into /proc"},
        {"/dev/fd/1", "leads into /proc"},
        {in(state, "d"), "is a directory, not a regular file; name a file"},
        {in(state, "d/"), "names a directory"},
        {in(state, "d/.."), "names a directory"},
        {in(state, "pipe"), "is a FIFO, not a regular file"},
        {in(state, "to-pipe"), "is a FIFO, not a regular file"},
        {in(state, "socket"), "is a socket, not a regular file"},
        {in(state, "loop"), "follow the link"},
    };
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        assert_fails(put(cases[i].path, "x"), TD_FAILED_PRECONDITION, cases[i].words);
    }
    assert_fails(put("/nowhere/f", "x"), TD_NOT_FOUND, "'/nowhere/f' cannot be written");
    assert_int_equal(count_entries(*state), n);
    assert_int_equal(count_entries(in(state, "d")), 0);
}

static void test_link_stays_and_what_it_leads_to_is_replaced(void **state) {
    assert_ok(td_fs_mkdirs(in(state, "a/b"), 0700));
    assert_ok(td_fs_write(in(state, "a/b/f"), "old", 3, 0640, 0));
    assert_int_equal(symlink("a/b/../b/link", in(state, "link")), 0);
    assert_int_equal(symlink("f", in(state, "a/b/link")), 0);
    assert_int_equal(symlink(in(state, "a/new"), in(state, "dangling")), 0);
    assert_ok(put(in(state, "link"), "new"));
    assert_ok(put(in(state, "dangling"), "there"));
    assert_text(in(state, "a/b/f"), "new");
    assert_text(in(state, "a/new"), "there");
    assert_int_equal(mode_of(in(state, "a/b/f")), 0640);
    struct stat st;
    assert_int_equal(lstat(in(state, "link"), &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(count_entries(in(state, "a/b")), 2);
}

static void test_mode_is_kept_and_a_new_file_obeys_the_umask(void **state) {
    const mode_t before = umask(027);
    assert_ok(put(in(state, "f"), "1"));
    assert_int_equal(mode_of(in(state, "f")), 0640);
    assert_int_equal(chmod(in(state, "f"), 0600), 0);
    umask(0);
    assert_ok(put(in(state, "f"), "2"));
    umask(before);
    assert_int_equal(mode_of(in(state, "f")), 0600);
    assert_text(in(state, "f"), "2");
}

// Root alone can give files away, and tries what another user may. Any other user has one to try.
static void test_owner_is_kept_or_the_file_is_refused(void **state) {
    struct stat st;
    const char *f = in(state, "f");
    if (geteuid() != 0) {
        assert_fails(put("/etc/passwd", "x"), TD_PERMISSION_DENIED, "/etc/passwd");
        return;
    }
    assert_ok(put(f, "1"));
    assert_int_equal(chown(f, OTHER_USER, OTHER_USER + 1), 0);
    assert_ok(put(f, "2"));
    assert_int_equal(stat(f, &st), 0);
    assert_int_equal(st.st_uid, OTHER_USER);
    assert_int_equal(st.st_gid, OTHER_USER + 1);
    assert_int_equal(chmod(*state, 0777), 0);
    assert_int_equal(chmod(f, 0666), 0);
    assert_int_equal(chown(f, 0, 0), 0);
    assert_int_equal(seteuid(OTHER_USER), 0);
    td_status not_ours = put(f, "3");
    td_status not_writable = chmod(f, 0600) ? TD_OK : put(f, "3");
    assert_int_equal(seteuid(0), 0);
    assert_ok(not_writable);
    assert_fails(not_ours, TD_FAILED_PRECONDITION, "belongs to user 0 and group 0");
    assert_int_equal(chmod(f, 0644), 0);
    assert_int_equal(seteuid(OTHER_USER), 0);
    not_writable = put(f, "3");
    assert_int_equal(seteuid(0), 0);
    assert_fails(not_writable, TD_PERMISSION_DENIED, f);
    assert_text(f, "2");
}

static void test_temporary_name_destroys_nothing_and_the_longest_name_is_taken(void **state) {
    char longest[NAME_MAX + 1];
    memset(longest, 'x', NAME_MAX);
    longest[NAME_MAX] = '\0';
    assert_ok(td_fs_write(in(state, "p.npy.tmp"), "mine", 4, 0600, 0));
    assert_int_equal(symlink("p.npy.tmp", in(state, "p.npy.part")), 0);
    assert_ok(put(in(state, "p.npy"), "rows"));
    assert_text(in(state, "p.npy.tmp"), "mine");
    for (int i = 0; i < 2; i++) {
        assert_ok(put(in(state, longest), i ? "b" : "a"));
        assert_ok(td_fs_write(in(state, longest), i ? "b" : "a", 1, 0600, 0));
    }
    assert_text(in(state, longest), "b");
    assert_int_equal(count_entries(*state), 4);
    assert_fails(put(in(state, "y/../z/f"), ""), TD_NOT_FOUND, "z/f");
}

static void test_what_was_there_stays_until_the_new_one_is_finished(void **state) {
    const char *f = in(state, "f");
    struct td_named_output o = TD_NAMED_OUTPUT_NONE;
    assert_ok(put(f, "old"));
    assert_ok(td_named_output_open(f, 0666, &o));
    assert_ok(td_fd_write_all(o.file.fd, "new", 3, f));
    assert_text(f, "old");
    td_named_output_close(&o);
    td_named_output_close(&o);
    assert_text(f, "old");
    assert_ok(td_named_output_open(f, 0666, &o));
    assert_int_equal(unlink(f), 0);
    assert_int_equal(symlink("/dev/null", f), 0);
    assert_fails(td_named_output_finish(&o, 0), TD_FAILED_PRECONDITION, "is a link");
    td_named_output_close(&o);
    assert_int_equal(count_entries(*state), 1);
}

static void test_a_file_in_place_is_neither_a_link_nor_a_pipe(void **state) {
    const char *f = in(state, "f");
    int fd = -1;
    assert_ok(put(f, "old"));
    assert_ok(td_named_output_update(f, O_WRONLY | O_APPEND, 0666, &fd));
    assert_int_equal(fcntl(fd, F_GETFL) & (O_APPEND | O_NONBLOCK), O_APPEND);
    assert_ok(td_fd_write_all(fd, "er", 2, f));
    close(fd);
    assert_text(f, "older");
    assert_int_equal(symlink("f", in(state, "link")), 0);
    assert_int_equal(mkfifo(in(state, "pipe"), 0600), 0);
    assert_fails(td_named_output_update(in(state, "link"), O_RDWR, 0666, &fd),
                 TD_FAILED_PRECONDITION, "is a link");
    const int ways[] = {O_WRONLY, O_RDWR};
    for (size_t i = 0; i < TD_COUNTOF(ways); i++) {
        assert_fails(td_named_output_update(in(state, "pipe"), ways[i], 0666, &fd),
                     TD_FAILED_PRECONDITION, "file; name a file");
    }
}

static void test_output_is_held_once_whatever_name_leads_to_it(void **state) {
    struct td_named_hold first = TD_NAMED_HOLD_NONE, second = TD_NAMED_HOLD_NONE;
    assert_int_equal(symlink("f", in(state, "link")), 0);
    assert_ok(td_named_output_hold(in(state, "f"), "job j-1", 0, &first));
    td_status s = td_named_output_hold(in(state, "link"), "job j-2", 0, &second);
    assert_string_equal(td_status_reason(s), "LOCK_HELD");
    assert_fails(s, TD_FAILED_PRECONDITION, "(job j-1 on ");
    assert_ok(td_named_output_hold(in(state, "g"), "job j-2", 0, &second));
    td_named_output_release(&second);
    td_named_output_release(&second);
    td_named_output_release(&first);
    assert_int_equal(count_entries(*state), 1);
    assert_ok(td_named_output_hold(in(state, "link"), "job j-2", 0, &second));
    td_named_output_release(&second);
}

// The one who waits holds a file that its holder removed, and takes a new one.
static void *release_when_awaited(void *arg) {
    struct td_named_hold *h = arg;
    struct stat st;
    if (fstat(h->fd, &st) != 0) return NULL;
    (void)lock_await_waiter(st.st_ino);
    td_named_output_release(h);
    return NULL;
}

static void test_output_is_free_for_all_when_its_holder_ends(void **state) {
    struct td_named_hold first = TD_NAMED_HOLD_NONE, second = first, third = first;
    pthread_t thread;
    const char *f = in(state, "f");
    assert_ok(td_named_output_hold(f, "job j-1", 0, &first));
    assert_int_equal(pthread_create(&thread, NULL, release_when_awaited, &first), 0);
    assert_ok(td_named_output_hold(f, "job j-2", TD_TEST_WAIT_NS, &second));
    pthread_join(thread, NULL);
    assert_fails(td_named_output_hold(f, "job j-3", 0, &third), TD_FAILED_PRECONDITION,
                 "(job j-2 on");
    td_named_output_release(&second);
    assert_int_equal(count_entries(*state), 0);
}

// Those of a submitter: below the roots, wherever a link leads, and no other name of a secret.
static void test_rules_are_asked_where_the_name_leads_to(void **state) {
    char own[1024], roots[1024];
    int fd = -1;
    struct td_named_output o = TD_NAMED_OUTPUT_NONE;
    struct td_named_hold h = TD_NAMED_HOLD_NONE;
    TD_AUTO_BUF text;
    td_buf_init(&text, 1 << 16);
    assert_ok(td_fs_mkdirs(in(state, "state/checkpoints/j-1"), 0700));
    assert_ok(td_fs_mkdirs(in(state, "root"), 0700));
    assert_ok(td_fs_mkdirs(in(state, "else"), 0700));
    assert_ok(put(in(state, "state/token"), "secret"));
    assert_int_equal(link(in(state, "state/token"), in(state, "root/token")), 0);
    assert_int_equal(symlink("../else/f", in(state, "root/link")), 0);
    assert_int_equal(symlink("../root/f", in(state, "else/link")), 0);
    snprintf(own, sizeof own, "%s", in(state, "state/checkpoints/j-1"));
    snprintf(roots, sizeof roots, "%s", in(state, "root"));
    const struct td_path_rules r = {.state_dir = in(state, "state"),
                                    .own_dir = own,
                                    .token_file = "",
                                    .read_roots = "",
                                    .write_roots = roots};
    assert_ok(td_path_rules_print(&r, &text));
    assert_ok(td_path_rules_take(td_buf_cstr(&text)));
    const char *const refused[] = {in(state, "else/f"),      in(state, "root/link"),
                                   in(state, "root/../f"),   in(state, "root/token"),
                                   in(state, "state/token"), in(state, "state/checkpoints/f")};
    for (size_t i = 0; i < TD_COUNTOF(refused); i++) {
        td_status s = td_named_output_open(refused[i], 0666, &o);
        assert_string_equal(td_status_reason(s), "PATH_NOT_ALLOWED");
        assert_fails(s, TD_PERMISSION_DENIED, refused[i]);
        assert_fails(td_named_output_hold(refused[i], "job", 0, &h), TD_PERMISSION_DENIED, "");
        if (strstr(refused[i], "link")) continue;
        assert_fails(td_named_output_update(refused[i], O_WRONLY, 0666, &fd), TD_PERMISSION_DENIED,
                     "");
    }
    assert_fails(td_named_output_mkdirs(in(state, "else/a/b"), 0777), TD_PERMISSION_DENIED, roots);
    assert_fails(td_named_output_allowed(in(state, "else/a")), TD_PERMISSION_DENIED, roots);
    assert_ok(td_named_output_mkdirs(in(state, "root/a/b"), 0777));
    assert_ok(put(in(state, "else/link"), "x"));
    assert_ok(put(in(state, "state/checkpoints/j-1/predictions.npy"), "x"));
    td_path_rules_forget();
    assert_int_equal(count_entries(in(state, "else")), 1);
    assert_text(in(state, "state/token"), "secret");
}

static const char *lock_of(void **state, const char *output) {
    struct td_named_hold h = TD_NAMED_HOLD_NONE;
    assert_ok(td_named_output_hold(output, "job j-0", 0, &h));
    const char *lock = in(state, strrchr(h.lock, '/') + 1);
    td_named_output_release(&h);
    return lock;
}

static void test_what_has_the_name_of_the_lock_is_not_written(void **state) {
    struct td_named_hold h = TD_NAMED_HOLD_NONE;
    const char *f = in(state, "f"), *lock = lock_of(state, f);
    struct stat st;
    assert_ok(put(in(state, "token"), "pid secret"));
    assert_ok(put(in(state, "other"), "mine"));
    for (int i = 0; i < 4; i++) {
        switch (i) {
        case 0:
            assert_int_equal(link(in(state, "token"), lock), 0);
            break;
        case 1:
            assert_int_equal(rename(in(state, "other"), lock), 0);
            break;
        case 2:
            assert_int_equal(symlink("nowhere", lock), 0);
            break;
        case 3:
            assert_int_equal(mkfifo(lock, 0600), 0);
            break;
        }
        assert_fails(td_named_output_hold(f, "job j-1", 0, &h), TD_FAILED_PRECONDITION,
                     "has the name of a lock file and is none; remove it");
        if (i == 1) assert_text(lock, "mine");
        assert_int_equal(unlink(lock), 0);
    }
    assert_text(in(state, "token"), "pid secret");
    assert_int_equal(lstat(in(state, "nowhere"), &st), -1);
    assert_ok(td_named_output_hold(f, "job j-1", 0, &h));
    td_named_output_release(&h);
}

// A rank that was killed left it, empty or with its name.
static void test_lock_that_was_left_is_taken_and_one_of_another_user_is_no_hindrance(void **state) {
    struct td_named_hold h = TD_NAMED_HOLD_NONE;
    const char *f = in(state, "f"), *lock = lock_of(state, f);
    static const char *const left[] = {"", "pid 1 (job j-9 on a-host)\n"};
    for (size_t i = 0; i < TD_COUNTOF(left); i++) {
        assert_ok(td_fs_write(lock, left[i], strlen(left[i]), 0600, 0));
        assert_ok(td_named_output_hold(f, "job j-1", 0, &h));
        td_named_output_release(&h);
        assert_int_equal(count_entries(*state), 0);
    }
    if (geteuid() != 0) return;
    assert_ok(td_fs_write(lock, left[1], strlen(left[1]), 0600, 0));
    assert_int_equal(chmod(*state, 01777), 0);
    assert_int_equal(seteuid(OTHER_USER), 0);
    td_status s = td_named_output_hold(f, "job j-1", 0, &h);
    assert_int_equal(seteuid(0), 0);
    assert_fails(s, TD_UNAVAILABLE, "is a lock file of user 0");
    assert_int_equal(chown(lock, OTHER_USER, OTHER_USER), 0); // where O_CREAT fails for root, too
    assert_ok(td_named_output_hold(f, "job j-1", 0, &h));
    td_named_output_release(&h);
}

static void test_directories_are_made_in_the_one_that_was_judged(void **state) {
    char cwd[TD_FS_PATH_BYTES];
    struct stat st;
    TD_AUTO_BUF text;
    td_buf_init(&text, 1 << 16);
    assert_ok(td_fs_mkdirs(in(state, "state"), 0700));
    assert_ok(td_fs_mkdirs(in(state, "root/there"), 0700));
    assert_int_equal(symlink("nowhere", in(state, "root/link")), 0);
    assert_ok(put(in(state, "root/file"), "x"));
    char root[1024];
    snprintf(root, sizeof root, "%s", in(state, "root"));
    const struct td_path_rules r = {.state_dir = in(state, "state"), .write_roots = root};
    assert_ok(td_path_rules_print(&r, &text));
    assert_ok(td_path_rules_take(td_buf_cstr(&text)));
    const char *up = in(state, "root/new/../../state/evil");
    assert_fails(td_named_output_allowed(up), TD_INVALID_ARGUMENT, "without '..'");
    assert_fails(td_named_output_mkdirs(up, 0777), TD_INVALID_ARGUMENT, "without '..'");
    assert_int_equal(count_entries(in(state, "state")), 0);
    assert_ok(td_named_output_mkdirs(in(state, "root/there/../a//./..b/c/"), 0777));
    assert_int_equal(stat(in(state, "root/a/..b/c"), &st), 0);
    assert_ok(td_named_output_mkdirs(in(state, "root/a"), 0777));
    assert_fails(td_named_output_mkdirs(in(state, "root/link/a"), 0777), TD_NOT_FOUND, "link/a");
    assert_fails(td_named_output_mkdirs(in(state, "root/file/a"), 0777), TD_FAILED_PRECONDITION,
                 "file/a");
    assert_non_null(getcwd(cwd, sizeof cwd));
    assert_int_equal(chdir(in(state, "state")), 0);
    td_status s = td_named_output_mkdirs("relative", 0777);
    assert_int_equal(chdir(cwd), 0);
    assert_fails(s, TD_PERMISSION_DENIED, "--state-dir");
    td_path_rules_forget();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_what_is_no_file_is_refused_and_stays),
        test_in_scratch(test_link_stays_and_what_it_leads_to_is_replaced),
        test_in_scratch(test_mode_is_kept_and_a_new_file_obeys_the_umask),
        test_in_scratch(test_owner_is_kept_or_the_file_is_refused),
        test_in_scratch(test_temporary_name_destroys_nothing_and_the_longest_name_is_taken),
        test_in_scratch(test_what_was_there_stays_until_the_new_one_is_finished),
        test_in_scratch(test_a_file_in_place_is_neither_a_link_nor_a_pipe),
        test_in_scratch(test_rules_are_asked_where_the_name_leads_to),
        test_in_scratch(test_output_is_held_once_whatever_name_leads_to_it),
        test_in_scratch(test_output_is_free_for_all_when_its_holder_ends),
        test_in_scratch(test_what_has_the_name_of_the_lock_is_not_written),
        test_in_scratch(test_lock_that_was_left_is_taken_and_one_of_another_user_is_no_hindrance),
        test_in_scratch(test_directories_are_made_in_the_one_that_was_judged),
    };
    return cmocka_run_group_tests_name("named_output", tests, NULL, NULL);
}
