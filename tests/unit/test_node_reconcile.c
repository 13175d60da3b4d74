// What a node answers to a question about a job's checkpoints.

#include "daemon/node/shell/reconcile.h"

#include "lib/base/fsio.h"
#include "lib/rpc/loop.h"
#include "tests/unit/test.h"

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
    assert_string_equal(r.failure, "the file system of checkpoint.dir may not be mounted");
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

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_job_without_files_is_answered),
        test_in_scratch(test_question_with_a_path_that_is_too_long_was_never_answered),
        test_in_scratch(test_checkpoints_are_not_missing_when_their_file_system_may_be_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
