// What a node answers to a question about a job's checkpoints.

#include "daemon/node/shell/shards/reconcile.h"

#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/files/files.h"
#include "lib/loop/loop.h"
#include "tests/unit/test.h"

// A server that does not answer: what is opened below "silent" waits for a byte.
static int silence[2] = {-1, -1};

int openat(int dir, const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    char byte;
    if (silence[0] >= 0 && strstr(path, "/silent/")) (void)!read(silence[0], &byte, 1);
    return (int)syscall(SYS_openat, dir, path, flags, mode);
}

struct rig {
    struct td_loop *loop;
    struct td_node_core *core;
    struct td_reconciler *reconciler;
    uint32_t n_answers;
    uint64_t request;
    size_t n_missing;
    char failure[256];
    bool answered;
};

static bool on_send(Traind__V1__NodeMessage *m, void *arg) {
    struct rig *r = arg;
    assert_int_equal(m->body_case, TRAIND__V1__NODE_MESSAGE__BODY_RECONCILED);
    r->n_answers++;
    r->request = m->reconciled->request;
    r->n_missing = m->reconciled->n_missing;
    snprintf(r->failure, sizeof r->failure, "%s", m->reconciled->failure);
    r->answered = true;
    return true;
}

static void begin(struct rig *r, const char *dir) {
    *r = (struct rig){0};
    assert_ok(td_loop_create(&r->loop));
    assert_ok(td_node_core_create(1, &r->core));
    const struct td_reconciler_options o = {
        .loop = r->loop, .state_dir = dir, .core = r->core, .send = on_send, .arg = r};
    assert_ok(td_reconciler_create(&o, &r->reconciler));
}

static void end(struct rig *r) {
    td_reconciler_destroy(r->reconciler);
    td_node_core_destroy(r->core);
    td_loop_destroy(r->loop);
}

// The catalog has one checkpoint, which is said to be here.
static void ask(struct rig *r, uint64_t request, char *directory) {
    char job[] = "j-000000000001", path[] = "a1/step-5", name[] = "manifest.json";
    Traind__V1__CatalogedFile file = TRAIND__V1__CATALOGED_FILE__INIT, *files[] = {&file};
    Traind__V1__CatalogedCheckpoint c = TRAIND__V1__CATALOGED_CHECKPOINT__INIT, *list[] = {&c};
    file.name = name;
    c.path = path;
    c.here = true;
    c.files = files;
    c.n_files = 1;
    uint32_t over[] = {1};
    Traind__V1__Reconcile m = TRAIND__V1__RECONCILE__INIT;
    m.request = request;
    m.job = job;
    m.directory = directory;
    m.over = over;
    m.n_over = 1;
    m.checkpoints = list;
    m.n_checkpoints = 1;
    r->answered = false;
    td_reconciler_submit(r->reconciler, &m);
    assert_ok(td_loop_run_until(r->loop, &r->answered, TD_TEST_WAIT_NS));
}

static void test_job_without_files_is_answered(void **state) {
    struct rig r;
    char none[] = "";
    begin(&r, *state);
    ask(&r, 7, none);
    assert_int_equal(r.request, 7);
    assert_string_equal(r.failure, "");
    end(&r);
}

// The coordinator has sixteen on their way to a node, and waits for their answers.
static void test_question_with_a_path_that_is_too_long_was_never_answered(void **state) {
    struct rig r;
    char directory[2000];
    memset(directory, 'x', sizeof directory);
    directory[0] = '/';
    directory[sizeof directory - 1] = '\0';
    begin(&r, *state);
    ask(&r, 8, directory);
    assert_int_equal(r.request, 8);
    assert_string_equal(r.failure, ""); // no rank ever wrote there
    assert_int_equal(r.n_answers, 1);
    end(&r);
}

// All checkpoints were given up, and the job began again, when its file system was away for 3 s.
static void test_checkpoints_are_not_missing_when_their_file_system_may_be_away(void **state) {
    const char *dir = *state;
    struct rig r;
    char place[TD_FS_PATH_BYTES], other[TD_FS_PATH_BYTES];
    begin(&r, dir);
    assert_ok(td_fs_path(place, "%s/mount", dir));
    assert_ok(td_fs_path(other, "%s/mount/somebody's", dir));
    ask(&r, 9, place);
    assert_non_null(strstr(r.failure, "the file system of checkpoint.dir may not be mounted"));
    assert_non_null(strstr(r.failure, "if the job's directory was removed, make it, empty"));
    assert_int_equal(r.n_missing, 0);
    assert_ok(td_fs_mkdirs(place, 0700)); // as a mount point
    ask(&r, 10, place);
    assert_int_equal(r.n_missing, 0);
    assert_ok(td_fs_mkdirs(other, 0700)); // it is there, and the job's directory is not
    ask(&r, 11, place);
    assert_string_equal(r.failure, "");
    assert_int_equal(r.n_missing, 1);
    end(&r);
}

// The node's loop hung with it: no heartbeats, and all its jobs were lost.
static void test_question_is_answered_while_the_mount_of_another_job_is_silent(void **state) {
    struct rig r;
    char place[TD_FS_PATH_BYTES], none[] = "", job[] = "j-00000000dead";
    assert_ok(td_fs_path(place, "%s/silent", (char *)*state));
    assert_int_equal(pipe2(silence, O_CLOEXEC), 0);
    begin(&r, *state);
    Traind__V1__Reconcile m = TRAIND__V1__RECONCILE__INIT;
    m.request = 12;
    m.job = job;
    m.directory = place;
    td_reconciler_submit(r.reconciler, &m);
    ask(&r, 13, none);
    assert_int_equal(r.request, 13);
    assert_true(td_reconciler_is_at(r.reconciler, job));
    assert_false(td_reconciler_is_at(r.reconciler, "j-000000000001"));
    td_reconciler_clear(r.reconciler); // the session has gone, and the thread has not
    assert_true(td_reconciler_is_at(r.reconciler, job));
    td_reconciler_submit(r.reconciler, &m);
    r.answered = false;
    assert_int_equal(write(silence[1], "xx", 2), 2); // the server is back
    assert_ok(td_loop_run_until(r.loop, &r.answered, TD_TEST_WAIT_NS));
    assert_int_equal(r.request, 12);
    assert_int_equal(r.n_answers, 2); // the first one's session is not there any more
    assert_false(td_reconciler_is_at(r.reconciler, job));
    end(&r);
    close(silence[0]);
    close(silence[1]);
    silence[0] = silence[1] = -1;
}

// ---- a job that was forgotten -------------------------------------------------------------------
#define JOB "j-000000000001"

static void put(const char *dir, const char *name) {
    char path[TD_FS_PATH_BYTES];
    assert_ok(td_fs_path(path, "%s/" JOB "/%s", dir, name));
    assert_ok(td_fs_write(path, "x", 1, 0600, 0));
}

static bool is_there(const char *dir, const char *name) {
    char path[TD_FS_PATH_BYTES];
    struct stat st;
    assert_ok(td_fs_path(path, "%s/" JOB "/%s", dir, name));
    return lstat(path, &st) == 0;
}

// <dir>/place/<job>, with what ranks, loggers and a program leave there.
static void fill(const char *dir, char place[TD_FS_PATH_BYTES]) {
    char path[TD_FS_PATH_BYTES], link[TD_FS_PATH_BYTES];
    assert_ok(td_fs_path(place, "%s/place", dir));
    assert_ok(td_fs_path(path, "%s/" JOB "/own/deep", place));
    assert_ok(td_fs_mkdirs(path, 0700));
    assert_ok(td_fs_path(path, "%s/" JOB "/a1/step-5", place));
    assert_ok(td_fs_mkdirs(path, 0700));
    assert_ok(td_fs_path(path, "%s/" JOB "/logs", place));
    assert_ok(td_fs_mkdirs(path, 0700));
    const char *const names[] = {"a1/step-5/manifest.json",
                                 "a1/predictions.npy",
                                 "a1/sample.txt",
                                 "a1/profile.json",
                                 "a1/confusion-val.json",
                                 "a1/confusion-test.json",
                                 "a1/.traind-0123456789abcdef",
                                 "logs/metrics.csv",
                                 "own/deep/out.txt"};
    for (size_t i = 0; i < TD_COUNTOF(names); i++) {
        put(place, names[i]);
    }
    assert_ok(td_fs_path(path, "%s/elsewhere", dir));
    assert_ok(td_fs_mkdirs(path, 0700));
    assert_ok(td_fs_path(link, "%s/" JOB "/own/link", place));
    assert_int_equal(symlink("../../../elsewhere", link), 0);
    assert_ok(td_fs_path(path, "%s/elsewhere/kept", dir));
    assert_ok(td_fs_write(path, "x", 1, 0600, 0));
}

static void forget(struct rig *r, char *place, bool own_directory, bool results) {
    char job[] = JOB;
    uint32_t over[] = {1};
    Traind__V1__Reconcile m = TRAIND__V1__RECONCILE__INIT;
    m.request = 1;
    m.job = job;
    m.directory = place;
    m.over = over;
    m.n_over = 1;
    m.forgotten = true;
    m.own_directory = own_directory;
    m.results = results;
    r->answered = false;
    td_reconciler_submit(r->reconciler, &m);
    assert_ok(td_loop_run_until(r->loop, &r->answered, TD_TEST_WAIT_NS));
}

// Retention took them with the checkpoints.
static void test_results_stay_when_retention_forgets_their_job(void **state) {
    struct rig r;
    char place[TD_FS_PATH_BYTES];
    fill(*state, place);
    begin(&r, *state);
    forget(&r, place, false, false);
    end(&r);
    assert_string_equal(r.failure, "");
    assert_false(is_there(place, "a1/step-5"));
    assert_false(is_there(place, "logs"));
    assert_true(is_there(place, "a1/predictions.npy"));
    assert_true(is_there(place, "a1/confusion-test.json"));
}

static void test_what_a_person_put_there_stays_when_their_job_is_deleted(void **state) {
    struct rig r;
    char place[TD_FS_PATH_BYTES];
    fill(*state, place);
    begin(&r, *state);
    forget(&r, place, false, true);
    end(&r);
    assert_string_equal(r.failure, "");
    assert_false(is_there(place, "a1"));
    assert_false(is_there(place, "logs"));
    assert_true(is_there(place, "own/deep/out.txt"));
    assert_true(is_there(place, "own/link"));
}

static void test_directory_of_a_program_goes_whole_when_its_job_is_deleted(void **state) {
    struct rig r;
    char place[TD_FS_PATH_BYTES];
    fill(*state, place);
    begin(&r, *state);
    forget(&r, place, true, false);
    assert_string_equal(r.failure, "");
    assert_false(is_there(place, "."));
    assert_true(td_fs_exists(place));
    forget(&r, place, true, false); // once more, as after an answer that was lost
    assert_string_equal(r.failure, "");
    end(&r);
    char kept[TD_FS_PATH_BYTES];
    assert_ok(td_fs_path(kept, "%s/elsewhere/kept", (char *)*state));
    assert_true(td_fs_exists(kept));
}

static void test_link_in_the_place_of_a_directory_goes_and_not_what_it_leads_to(void **state) {
    struct rig r;
    char place[TD_FS_PATH_BYTES], link[TD_FS_PATH_BYTES];
    fill(*state, place);
    assert_ok(td_fs_path(link, "%s/other", (char *)*state));
    assert_ok(td_fs_mkdirs(link, 0700));
    assert_ok(td_fs_path(link, "%s/other/" JOB, (char *)*state));
    assert_int_equal(symlink("../place/" JOB, link), 0);
    link[strlen(link) - strlen("/" JOB)] = '\0';
    begin(&r, *state);
    forget(&r, link, true, false);
    end(&r);
    assert_false(is_there(link, "."));
    assert_true(is_there(place, "a1/predictions.npy"));
}

static void test_deletion_says_what_stays_when_a_tree_cannot_go(void **state) {
    struct rig r;
    char place[TD_FS_PATH_BYTES], deep[TD_FS_PATH_BYTES];
    fill(*state, place);
    assert_ok(td_fs_path(deep, "%s/" JOB "/d", place));
    for (int i = 0; i < 110; i++) {
        snprintf(deep + strlen(deep), sizeof deep - strlen(deep), "/d");
    }
    assert_ok(td_fs_mkdirs(deep, 0700));
    begin(&r, *state);
    forget(&r, place, true, false);
    end(&r);
    assert_non_null(strstr(r.failure, "deeper than 100 directories"));
    char half[TD_FS_PATH_BYTES];
    assert_ok(td_fs_path(deep, "%s/" JOB "/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d", place));
    assert_ok(td_fs_path(half, "%s/rest", (char *)*state)); // what the test's end can remove
    assert_ok(td_fs_rename(deep, half));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_job_without_files_is_answered),
        test_in_scratch(test_question_with_a_path_that_is_too_long_was_never_answered),
        test_in_scratch(test_checkpoints_are_not_missing_when_their_file_system_may_be_away),
        test_in_scratch(test_question_is_answered_while_the_mount_of_another_job_is_silent),
        test_in_scratch(test_results_stay_when_retention_forgets_their_job),
        test_in_scratch(test_what_a_person_put_there_stays_when_their_job_is_deleted),
        test_in_scratch(test_directory_of_a_program_goes_whole_when_its_job_is_deleted),
        test_in_scratch(test_link_in_the_place_of_a_directory_goes_and_not_what_it_leads_to),
        test_in_scratch(test_deletion_says_what_stays_when_a_tree_cannot_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
