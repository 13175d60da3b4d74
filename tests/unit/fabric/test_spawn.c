// Ranks of a program of its own: this program spawns itself. What comes back is what was given, in
// order; each way to end badly is named with its rank; and nothing is left over.

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "fabric/config.h"
#include "fabric/spawn/result_frame.h"
#include "lib/attempt/rank_page.h"
#include "lib/attempt/exit_codes.h"
#include "lib/base/clock.h"
#include "tests/unit/test.h"
#include "traind/spawn.h"

#define SHORT_NS (100 * TD_NS_PER_MS)

static const size_t sizes[] = {0, 1, 64 << 10, 1 << 20, 64 << 20};

static unsigned char byte_at(size_t i) {
    return (unsigned char)(i * 2654435761u >> 13);
}

static char *make_bytes(size_t bytes) {
    char *p = malloc(bytes + 1);
    if (!p) abort();
    for (size_t i = 0; i < bytes; i++) {
        p[i] = (char)byte_at(i);
    }
    return p;
}

// ---- functions of ranks -------------------------------------------------------------------------
static td_status give_all(struct td_spawned *self, const void *args, size_t args_bytes) {
    (void)args;
    (void)args_bytes;
    if (td_spawned_rank(self) != 0) return TD_OK;
    for (size_t i = 0; i < TD_COUNTOF(sizes); i++) {
        TD_AUTO_FREE char *p = make_bytes(sizes[i]);
        TD_TRY(td_spawned_put(self, p, sizes[i]));
    }
    TD_TRY(td_spawned_put_double(self, "val_loss", 0.25));
    TD_TRY(td_spawned_put_int(self, "steps", INT64_MAX));
    TD_TRY(td_spawned_put_double(self, "val_loss", 0.125)); // the last one counts
    TD_TRY(td_spawned_put_best_path(self, "/checkpoints/step-7"));
    char path[4096];
    TD_TRY(td_fs_path(path, "%s/weights", td_spawned_temp_dir(self)));
    TD_TRY(td_fs_write(path, "w0w1", 4, 0600, 0));
    return td_spawned_put_weights(self, "weights");
}

static td_status echo(struct td_spawned *self, const void *args, size_t args_bytes) {
    if (td_spawned_rank(self) != 0) return TD_OK;
    return td_spawned_put(self, args, args_bytes);
}

// As Fabric would look: this process is a rank, with the memory of one.
static td_status look_around(struct td_spawned *self, const void *args, size_t args_bytes) {
    (void)args;
    (void)args_bytes;
    const struct td_rank_env *e;
    TD_TRY(td_fabric_env(&e));
    bool same = e && e->rank == td_spawned_rank(self) && e->world_size == 3 && e->events_fd == -1;
    struct td_rank_page *page =
        same ? mmap(NULL, TD_RANK_PAGE_BYTES, PROT_READ, MAP_SHARED, e->page_fd, 0) : MAP_FAILED;
    if (page == MAP_FAILED || page->rank != e->rank || page->world_size != 3) {
        return td_fail(TD_INTERNAL, "this is no rank");
    }
    if (lseek(e->group_fd, 0, SEEK_END) != TD_GROUP_HEADER_BYTES) {
        return td_fail(TD_INTERNAL, "there is no group");
    }
    if (getenv("TRAIND_RANK") || getenv("TRAIND_SPAWN")) return td_fail(TD_INTERNAL, "it is set");
    if (fcntl(7, F_GETFD) >= 0) return td_fail(TD_INTERNAL, "a descriptor too many");
    return TD_OK;
}

static td_status fail_in_rank_1(struct td_spawned *self, const void *args, size_t args_bytes) {
    (void)args;
    (void)args_bytes;
    if (td_spawned_rank(self) != 1) return TD_OK;
    td_status s = td_fail(TD_OUT_OF_RANGE, "sample 12 is no image");
    s = td_status_with_class(td_status_with_reason(s, "BAD_SAMPLE"), TD_CLASS_DATA);
    return td_status_with_field(td_status_with_meta(s, "sample", "12"), "data.x", "no image");
}

static td_status give_from_rank_1(struct td_spawned *self, const void *args, size_t args_bytes) {
    return td_spawned_rank(self) == 1 ? td_spawned_put(self, args, args_bytes) : TD_OK;
}

static __attribute__((noinline)) void crash_here(void) {
    raise(SIGSEGV);
}

// args: how.
static td_status die(struct td_spawned *self, const void *args, size_t args_bytes) {
    (void)args_bytes;
    if (td_spawned_rank(self) != td_spawned_world_size(self) - 1) return TD_OK;
    setrlimit(RLIMIT_CORE, &(struct rlimit){0});
    const char *how = args;
    if (!strcmp(how, "kill")) raise(SIGKILL);
    if (!strcmp(how, "term")) raise(SIGTERM);
    if (!strcmp(how, "abort")) abort();
    if (!strcmp(how, "crash")) crash_here();
    if (!strcmp(how, "exit 0")) exit(0);
    exit(TD_EXIT_NUMERIC);
}

static td_status never_return(struct td_spawned *self, const void *args, size_t args_bytes) {
    (void)self;
    (void)args;
    (void)args_bytes;
    signal(SIGTERM, SIG_IGN);
    while (pause() == -1) {}
    return TD_OK;
}

// Rank 1 dies, rank 0 is in a collective until the abort word is there.
static td_status lose_a_peer(struct td_spawned *self, const void *args, size_t args_bytes) {
    (void)args;
    (void)args_bytes;
    if (td_spawned_rank(self) == 1) raise(SIGKILL);
    const struct td_rank_env *e;
    TD_TRY(td_fabric_env(&e));
    struct td_rank_page *page =
        mmap(NULL, TD_RANK_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, e->page_fd, 0);
    if (page == MAP_FAILED) return td_fail_errno(TD_INTERNAL, "map the page");
    int64_t end_ns = td_mono_now().ns + TD_TEST_WAIT_NS;
    while (!atomic_load(&page->abort)) {
        if (td_mono_now().ns > end_ns) return td_fail(TD_INTERNAL, "nobody set the abort word");
    }
    return td_status_with_class(td_fail(TD_ABORTED, "a peer is gone"), TD_CLASS_COLLECTIVE);
}

// args: a frame, and perhaps a part of its body, as it is written.
static td_status write_raw(struct td_spawned *self, const void *args, size_t args_bytes) {
    if (td_spawned_rank(self) != td_spawned_world_size(self) - 1) return TD_OK;
    const struct td_rank_env *e;
    TD_TRY(td_fabric_env(&e));
    if (write(e->results_fd, args, args_bytes) != (ssize_t)args_bytes) abort();
    raise(SIGKILL);
    return TD_OK;
}

static td_status change_type(struct td_spawned *self, const void *args, size_t args_bytes) {
    (void)args;
    (void)args_bytes;
    TD_TRY(td_spawned_put_double(self, "acc", 1));
    return td_spawned_put_int(self, "acc", 1);
}

// args: the file's name.
static td_status give_weights(struct td_spawned *self, const void *args, size_t args_bytes) {
    (void)args_bytes;
    return td_spawned_put_weights(self, args);
}

static td_status ask_drain(struct td_spawned *self, const void *args, size_t args_bytes) {
    (void)self;
    (void)args;
    (void)args_bytes;
    const struct td_rank_env *e;
    TD_TRY(td_fabric_env(&e));
    struct td_rank_page *page =
        mmap(NULL, TD_RANK_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, e->page_fd, 0);
    if (page == MAP_FAILED) return td_fail_errno(TD_INTERNAL, "map the page");
    return td_rank_page_await_drain(page, td_rank_page_ask_drain(page), TD_TEST_WAIT_NS);
}

// args: a descriptor's path, to which each rank writes its number and then waits for ever.
static td_status tell_and_wait(struct td_spawned *self, const void *args, size_t args_bytes) {
    (void)args_bytes;
    int fd = open(args, O_WRONLY | O_APPEND | O_CLOEXEC);
    int32_t pid = (int32_t)getpid();
    if (fd < 0 || write(fd, &pid, sizeof pid) != sizeof pid) abort();
    return never_return(self, NULL, 0);
}

static const struct td_spawn_function functions[] = {
    {"give_all", give_all},
    {"echo", echo},
    {"look_around", look_around},
    {"fail_in_rank_1", fail_in_rank_1},
    {"give_from_rank_1", give_from_rank_1},
    {"die", die},
    {"never_return", never_return},
    {"lose_a_peer", lose_a_peer},
    {"write_raw", write_raw},
    {"change_type", change_type},
    {"give_weights", give_weights},
    {"ask_drain", ask_drain},
    {"tell_and_wait", tell_and_wait},
};

// ---- the parent ---------------------------------------------------------------------------------
static td_status call(const char *function, int32_t world_size, const void *args, size_t args_bytes,
                      struct td_results *r) {
    return td_spawn(&(struct td_spawn_options){.function = function,
                                               .world_size = world_size,
                                               .args = args,
                                               .args_bytes = args_bytes,
                                               .timeout_ns = TD_TEST_WAIT_NS},
                    r);
}

static size_t n_entries(const char *dir, const char *prefix) {
    DIR *d = opendir(dir);
    assert_non_null(d);
    size_t n = 0;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        n += strncmp(e->d_name, prefix, strlen(prefix)) == 0 && e->d_name[0] != '.';
    }
    closedir(d);
    return n;
}

struct rig {
    struct td_results *results;
    size_t n_fds;
    char dir[64]; // TMPDIR of the test
};

static int rig_make(void **state) {
    static struct rig rig;
    snprintf(rig.dir, sizeof rig.dir, "/tmp/traind-test-XXXXXX");
    if (!mkdtemp(rig.dir) || setenv("TMPDIR", rig.dir, 1) != 0) return -1;
    td_status s = td_results_create(&rig.results);
    td_status_free(s);
    rig.n_fds = n_entries("/proc/self/fd", "");
    *state = &rig;
    return s ? -1 : 0;
}

// No descriptor, no child and no file is left of any test.
static int rig_finish(void **state) {
    struct rig *rig = *state;
    td_results_destroy(rig->results);
    bool fds = n_entries("/proc/self/fd", "") == rig->n_fds;
    bool files = n_entries(rig->dir, "") == 0;
    bool children = waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD;
    if (!fds || !files || !children) {
        print_message("# left: descriptors %d files %d children %d\n", !fds, !files, !children);
    }
    return rmdir(rig->dir) == 0 && fds && files && children ? 0 : -1;
}

static void check_all(const struct td_results *r) {
    assert_int_equal(td_results_n(r), TD_COUNTOF(sizes));
    for (size_t i = 0; i < TD_COUNTOF(sizes); i++) {
        size_t bytes;
        const char *p = td_results_at(r, i, &bytes);
        assert_int_equal(bytes, sizes[i]);
        TD_AUTO_FREE char *expected = make_bytes(bytes);
        assert_memory_equal(p, expected, bytes);
    }
    double loss;
    int64_t steps;
    size_t bytes;
    assert_ok(td_results_double(r, "val_loss", &loss));
    assert_ok(td_results_int(r, "steps", &steps));
    assert_true(loss == 0.125 && steps == INT64_MAX);
    assert_string_equal(td_results_best_path(r), "/checkpoints/step-7");
    assert_memory_equal(td_results_weights(r, &bytes), "w0w1", 4);
    assert_int_equal(bytes, 4);
}

// Contract 16: what rank 0 gives comes back, of any size
static void test_results_come_back_in_order_whatever_their_size(void **state) {
    struct rig *rig = *state;
    assert_ok(call("give_all", 2, NULL, 0, rig->results));
    check_all(rig->results);
}

// Contract 16: metrics are merged, and another call works
static void test_metrics_merge_and_a_failed_call_changes_nothing(void **state) {
    struct rig *rig = *state;
    assert_ok(td_results_set_int(rig->results, "mine", 3));
    assert_ok(call("give_all", 1, NULL, 0, rig->results));
    assert_fails(call("change_type", 1, NULL, 0, rig->results), TD_ALREADY_EXISTS,
                 "rank 0: metric "
                 "'acc'");
    check_all(rig->results);
    int64_t mine;
    assert_ok(td_results_int(rig->results, "mine", &mine));
    assert_int_equal(mine, 3);
    assert_int_equal(td_results_n_metrics(rig->results), 3);
    assert_string_equal(td_results_metric_name(rig->results, 1), "val_loss");
    assert_ok(call("echo", 1, "x", 1, rig->results));
    assert_int_equal(td_results_n(rig->results), 1);
    assert_null(td_results_best_path(rig->results));
    assert_int_equal(td_results_n_metrics(rig->results), 3);
}

static void test_metrics_cannot_be_merged_when_the_parent_has_another_type(void **state) {
    struct rig *rig = *state;
    assert_ok(td_results_set_double(rig->results, "steps", 3));
    assert_fails(call("give_all", 1, NULL, 0, rig->results), TD_ALREADY_EXISTS, "'steps'");
    assert_int_equal(td_results_n(rig->results), 0);
    int64_t i;
    double d;
    assert_fails(td_results_int(rig->results, "steps", &i), TD_FAILED_PRECONDITION, "a double");
    assert_fails(td_results_double(rig->results, "none", &d), TD_NOT_FOUND, "'none'");
    assert_fails(td_results_set_double(rig->results, "", 0), TD_INVALID_ARGUMENT, "0 bytes");
}

static void test_arguments_reach_a_rank_whatever_their_size(void **state) {
    struct rig *rig = *state;
    for (size_t i = 0; i < TD_COUNTOF(sizes); i++) {
        TD_AUTO_FREE char *args = make_bytes(sizes[i]);
        assert_ok(call("echo", 2, args, sizes[i], rig->results));
        size_t bytes;
        const void *back = td_results_at(rig->results, 0, &bytes);
        assert_int_equal(bytes, sizes[i]);
        assert_memory_equal(back, args, bytes);
    }
}

static void test_rank_finds_its_memory_and_answers_of_its_parent(void **state) {
    (void)state;
    assert_ok(call("look_around", 3, NULL, 0, NULL));
    assert_ok(call("ask_drain", 2, NULL, 0, NULL));
}

// Contract 16: what another rank gives back is refused
static void test_failure_comes_back_as_it_was_with_its_rank(void **state) {
    struct rig *rig = *state;
    td_status s = call("fail_in_rank_1", 3, NULL, 0, rig->results);
    assert_int_equal(td_status_class(s), TD_CLASS_DATA);
    assert_string_equal(td_status_reason(s), "BAD_SAMPLE");
    assert_int_equal(td_status_n_fields(s), 1);
    const char *key, *value;
    assert_int_equal(td_status_n_meta(s), 2);
    td_status_meta(s, 0, &key, &value);
    assert_string_equal(value, "12");
    td_status_meta(s, 1, &key, &value);
    assert_string_equal(key, "rank");
    assert_string_equal(value, "1");
    assert_fails(s, TD_OUT_OF_RANGE, "rank 1: sample 12 is no image");
    assert_fails(call("give_from_rank_1", 2, "x", 1, rig->results), TD_FAILED_PRECONDITION,
                 "rank 0 alone");
    assert_ok(call("echo", 2, "x", 1, rig->results)); // a call after failed ones
}

static void test_end_of_a_rank_is_named_when_it_did_not_return(void **state) {
    (void)state;
    static const struct {
        const char *how, *words;
        enum td_code code;
        enum td_class cls;
    } rows[] = {
        {"kill", "rank 1: signal 9 (SIGKILL)", TD_ABORTED, TD_CLASS_INTERNAL},
        {"term", "rank 1: signal 15 (SIGTERM)", TD_CANCELLED, TD_CLASS_PREEMPTED},
        {"abort",
         "rank 1: signal 6 (SIGABRT) ended it: SIGABRT, phase starting, step 0, backtrace ",
         TD_ABORTED, TD_CLASS_INTERNAL},
        {"crash", "backtrace ", TD_ABORTED, TD_CLASS_INTERNAL},
        {"exit 0", "rank 1: it ended with exit code 0 before its function returned", TD_ABORTED,
         TD_CLASS_USER_CODE},
        {"exit", "exit code 41 before", TD_ABORTED, TD_CLASS_NUMERIC},
    };
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        td_status s = call("die", 2, rows[i].how, strlen(rows[i].how) + 1, NULL);
        assert_int_equal(td_status_class(s), rows[i].cls);
        char words[512];
        snprintf(words, sizeof words, "%s", rows[i].words);
        char *phase = strstr(words, "phase starting"); // as a number
        if (phase) *phase = '\0';
        assert_fails(s, rows[i].code, words);
    }
}

static td_status call_short(const char *function, int32_t world_size, int64_t timeout_ns,
                            int64_t grace_ns) {
    return td_spawn(&(struct td_spawn_options){.function = function,
                                               .world_size = world_size,
                                               .timeout_ns = timeout_ns,
                                               .grace_ns = grace_ns},
                    NULL);
}

static void test_ranks_are_killed_when_they_outlive_their_deadline(void **state) {
    (void)state;
    td_status s = call_short("never_return", 2, SHORT_NS, SHORT_NS);
    assert_int_equal(td_status_class(s), TD_CLASS_STUCK);
    assert_fails(s, TD_DEADLINE_EXCEEDED,
                 "'never_return' ran for more than 0.100 s and was ended, "
                 "in: rank 0, rank 1");
}

static void test_ranks_leave_their_collectives_when_one_dies(void **state) {
    (void)state;
    assert_fails(call_short("lose_a_peer", 3, TD_TEST_WAIT_NS, TD_TEST_WAIT_NS), TD_ABORTED,
                 "rank 1: signal 9");
}

// ---- frames -------------------------------------------------------------------------------------
static void test_frames_that_are_none_are_named(void **state) {
    (void)state;
    struct {
        struct td_result_header h;
        char body[10];
    } f = {.body = "0123456789"};
    const struct td_result_header good = {.magic = TD_RESULT_MAGIC,
                                          .version = TD_RESULT_VERSION,
                                          .kind = TD_RESULT_BYTES,
                                          .bytes = 64};
    const size_t whole = offsetof(__typeof__(f), body) + sizeof f.body;
    f.h = good;
    assert_fails(call("write_raw", 1, &f, whole, NULL), TD_ABORTED,
                 "rank 0: it ended within a result, after 10 bytes of 64: signal 9 (SIGKILL)");
    assert_fails(call("write_raw", 1, &f, 20, NULL), TD_ABORTED, "within the head of a frame");
    f.h.magic = 1;
    assert_fails(call("write_raw", 1, &f, whole, NULL), TD_DATA_LOSS, "rank 0: what it wrote");
    f.h = good;
    f.h.version++;
    assert_fails(call("write_raw", 1, &f, whole, NULL), TD_DATA_LOSS,
                 "version 2, this program reads 1");
    f.h = good;
    f.h.kind = TD_RESULT_KIND_END;
    assert_fails(call("write_raw", 1, &f, whole, NULL), TD_DATA_LOSS, "unknown kind");
    f.h.kind = TD_RESULT_FAILED;
    f.h.bytes = 10;
    assert_fails(call("write_raw", 1, &f, whole, NULL), TD_DATA_LOSS, "cannot be read");
    f.h.kind = TD_RESULT_BYTES;
    assert_fails(call("write_raw", 2, &f, whole, NULL), TD_DATA_LOSS,
                 "rank 1: it wrote a result, "
                 "which rank 0 alone may");
    f.h.bytes = UINT64_MAX;
    assert_fails(call("write_raw", 1, &f, whole, NULL), TD_RESOURCE_EXHAUSTED, "max_bytes");
}

static void test_results_end_at_their_maximum(void **state) {
    (void)state;
    struct td_spawn_options o = {.function = "give_all",
                                 .world_size = 1,
                                 .max_bytes = 2 << 20,
                                 .timeout_ns = TD_TEST_WAIT_NS};
    assert_fails(td_spawn(&o, NULL), TD_RESOURCE_EXHAUSTED, "rank 0: a result of 67108864 bytes");
}

static void test_weights_are_refused_when_they_are_elsewhere(void **state) {
    (void)state;
    assert_fails(call("give_weights", 1, "../x", 5, NULL), TD_INVALID_ARGUMENT, "temporary");
    assert_fails(call("give_weights", 1, "none", 5, NULL), TD_NOT_FOUND, "'none'");
}

// ---- mistakes of the program --------------------------------------------------------------------
static void test_call_is_refused_when_its_options_cannot_be(void **state) {
    (void)state;
    assert_fails(call("ehco", 1, NULL, 0, NULL), TD_NOT_FOUND, "did you mean 'echo'?");
    assert_fails(call(NULL, 1, NULL, 0, NULL), TD_INVALID_ARGUMENT, "name of a function");
    assert_fails(call("echo", 0, NULL, 0, NULL), TD_INVALID_ARGUMENT, "world_size is 0");
    assert_fails(call("echo", 1, NULL, 4, NULL), TD_INVALID_ARGUMENT, "args_bytes is 4");
    assert_fails(call_short("echo", 1, -1, 0), TD_INVALID_ARGUMENT, "timeout_ns");
    assert_fails(
        td_spawn(
            &(struct td_spawn_options){.function = "echo", .world_size = 1, .temp_dir = "/no such"},
            NULL),
        TD_NOT_FOUND, "/no such");
}

static char *fake_argv[] = {(char[]){"program"}, NULL};

static void test_main_is_refused_when_it_comes_twice_or_its_table_cannot_be(void **state) {
    (void)state;
    assert_fails(td_main(1, fake_argv, functions, 1), TD_FAILED_PRECONDITION, "twice");
    const struct td_spawn_function twice[] = {{"a", echo}, {"a", die}}, none[] = {{"a", NULL}};
    assert_fails(td_main(1, fake_argv, twice, 2), TD_INVALID_ARGUMENT, "'a' twice");
    assert_fails(td_main(1, fake_argv, none, 1), TD_INVALID_ARGUMENT, "row 0");
}

static td_status create_and_destroy(void *arg) {
    (void)arg;
    struct td_results *r = NULL;
    td_status s = td_results_create(&r);
    td_results_destroy(r);
    return s;
}

static td_status spawn_and_merge(void *arg) {
    (void)arg;
    struct td_results *r = NULL;
    td_status s = td_results_create(&r);
    if (!s) s = call("give_weights", 1, "none", 5, r);
    if (td_status_code(s) == TD_NOT_FOUND) { // the parent has made all its allocations
        td_status_free(s);
        s = TD_OK;
    }
    td_results_destroy(r);
    return s;
}

static void test_allocations_may_fail(void **state) {
    (void)state;
    td_test_failing_allocations(create_and_destroy, NULL);
    td_test_failing_allocations(spawn_and_merge, NULL);
}

// ---- a parent that dies -------------------------------------------------------------------------
static void wait_gone(pid_t pid) {
    int fd = pidfd_open(pid, 0);
    if (fd < 0) return; // reaped already
    struct pollfd p = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, (int)(TD_TEST_WAIT_NS / TD_NS_PER_MS)), 1);
    close(fd);
}

static void test_ranks_end_when_their_parent_is_killed(void **state) {
    (void)state;
    struct rig *rig = *state;
    char fifo[128];
    snprintf(fifo, sizeof fifo, "%s/fifo", rig->dir);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    int fd = open(fifo, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    pid_t parent = fork();
    if (parent == 0) {
        (void)setenv("TMPDIR", "/tmp", 1);
        td_status_free(call("tell_and_wait", 2, fifo, strlen(fifo) + 1, NULL));
        _exit(1);
    }
    int32_t pids[2];
    for (int i = 0; i < 2; i++) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&p, 1, (int)(TD_TEST_WAIT_NS / TD_NS_PER_MS)), 1);
        assert_int_equal(read(fd, &pids[i], sizeof pids[i]), sizeof pids[i]);
        assert_int_equal(kill(pids[i], 0), 0);
    }
    assert_int_equal(kill(parent, SIGKILL), 0);
    assert_int_equal(waitpid(parent, NULL, 0), parent);
    wait_gone(pids[0]);
    wait_gone(pids[1]);
    close(fd);
    assert_int_equal(unlink(fifo), 0);
}

// Before td_main, in a child that is no rank.
static int spawn_without_main(void) {
    TD_AUTO_STATUS td_status s =
        td_spawn(&(struct td_spawn_options){.function = "echo", .world_size = 1}, NULL);
    bool ok = td_status_code(s) == TD_FAILED_PRECONDITION &&
              strstr(td_status_message(s), "needs td_main") != NULL;
    return ok ? 0 : 1;
}
static bool refused_without_main;

static void test_call_is_refused_without_main(void **state) {
    (void)state;
    assert_true(refused_without_main);
}

#define test_spawn(f) cmocka_unit_test_setup_teardown(f, rig_make, rig_finish)

int main(int argc, char **argv) {
    if (!getenv("TRAIND_RANK")) refused_without_main = spawn_without_main() == 0;
    td_status s = td_main(argc, argv, functions, TD_COUNTOF(functions));
    if (s) {
        fprintf(stderr, "%s\n", td_status_message(s));
        td_status_free(s);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        test_spawn(test_call_is_refused_without_main),
        test_spawn(test_results_come_back_in_order_whatever_their_size),
        test_spawn(test_metrics_merge_and_a_failed_call_changes_nothing),
        test_spawn(test_metrics_cannot_be_merged_when_the_parent_has_another_type),
        test_spawn(test_arguments_reach_a_rank_whatever_their_size),
        test_spawn(test_rank_finds_its_memory_and_answers_of_its_parent),
        test_spawn(test_failure_comes_back_as_it_was_with_its_rank),
        test_spawn(test_end_of_a_rank_is_named_when_it_did_not_return),
        test_spawn(test_ranks_are_killed_when_they_outlive_their_deadline),
        test_spawn(test_ranks_leave_their_collectives_when_one_dies),
        test_spawn(test_frames_that_are_none_are_named),
        test_spawn(test_results_end_at_their_maximum),
        test_spawn(test_weights_are_refused_when_they_are_elsewhere),
        test_spawn(test_call_is_refused_when_its_options_cannot_be),
        test_spawn(test_main_is_refused_when_it_comes_twice_or_its_table_cannot_be),
        test_spawn(test_allocations_may_fail),
        test_spawn(test_ranks_end_when_their_parent_is_killed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
