// Assignments: the plan gets this machine's paths; what arrives never becomes a path outside.

#include "daemon/node/shell/assignment/assignment.h"

#include <sys/stat.h>

#include "lib/base/json.h"
#include "lib/spec/plan.h"
#include "tests/unit/test.h"

static const char spec_text[] = "{\"format\":1,\"model\":{\"name\":\"mlp\",\"layers\":[16,4]},"
                                "\"data\":{\"name\":\"synthetic\",\"samples\":64,\"features\":16,"
                                "\"classes\":4,\"batch_size\":16},"
                                "\"optimizer\":{\"name\":\"sgd\",\"lr\":0.1}%s}";

static td_status assigned_from(const char *extra, const char *resume, bool fetch,
                               const char *state_dir, struct td_assignment *out, char plan[1024]) {
    char job[] = "j-1", path[128];
    snprintf(plan, 1024, spec_text, extra);
    snprintf(path, sizeof path, "%s", resume ? resume : "");
    Traind__V1__AttemptId id = TRAIND__V1__ATTEMPT_ID__INIT;
    Traind__V1__ResumeSource source = TRAIND__V1__RESUME_SOURCE__INIT, *sources[] = {&source};
    Traind__V1__Assign m = TRAIND__V1__ASSIGN__INIT;
    id.job = job;
    id.attempt = 2;
    id.epoch = 9;
    source.path = path;
    source.fetch = fetch;
    m.id = &id;
    m.plan_json = plan;
    m.world_size = m.n_ranks = 2;
    m.slots_per_rank = 3;
    m.threads_per_rank = 6;
    m.stream_store = true;
    m.n_resume = resume != NULL;
    m.resume = sources;
    return td_assignment_read(&m, state_dir, out);
}

static td_status assigned_devices(char *first, char *second, const char *state_dir,
                                  struct td_assignment *out) {
    char job[] = "j-1", plan[1024], *devices[] = {first, second};
    snprintf(plan, sizeof plan, spec_text, "");
    Traind__V1__AttemptId id = TRAIND__V1__ATTEMPT_ID__INIT;
    Traind__V1__Assign m = TRAIND__V1__ASSIGN__INIT;
    id.job = job;
    id.attempt = 1;
    m.id = &id;
    m.plan_json = plan;
    m.world_size = m.n_ranks = 2;
    m.n_devices = second ? 2 : 1;
    m.devices = devices;
    return td_assignment_read(&m, state_dir, out);
}

static void test_devices_are_one_a_rank_or_refused(void **state) {
    struct td_assignment a;
    char one[] = "far-1", other[] = "far-0", bad[] = "far 0";
    assert_ok(assigned_devices(one, other, *state, &a));
    assert_string_equal(a.devices, "far-1,far-0");
    assert_fails(assigned_devices(one, NULL, *state, &a), TD_INVALID_ARGUMENT,
                 "1 devices for 2 ranks");
    assert_fails(assigned_devices(one, bad, *state, &a), TD_INVALID_ARGUMENT,
                 "'far 0' is no name of a device");
}

static td_status assigned(const char *extra, const char *resume, const char *state_dir,
                          struct td_assignment *out, char plan[1024]) {
    return assigned_from(extra, resume, false, state_dir, out, plan);
}

static void read_plan(const char *attempt_dir, struct td_arena *arena, struct td_plan *out) {
    char file[TD_FS_PATH_BYTES];
    TD_AUTO_BUF text;
    td_buf_init(&text, 1 << 20);
    snprintf(file, sizeof file, "%s/plan.json", attempt_dir);
    assert_ok(td_fs_read(file, 1 << 20, &text));
    assert_ok(td_plan_parse(arena, text.data, text.len, out));
}

static void test_plan_gets_this_machines_paths_when_it_is_written(void **state) {
    const char *dir = *state;
    struct td_assignment a, loaded = {.attempt = 2};
    char plan[1024], path[TD_FS_PATH_BYTES], file[TD_FS_PATH_BYTES], expected[256];
    assert_ok(assigned("", "a1/step-20", dir, &a, plan));
    snprintf(a.devices, sizeof a.devices, "far-1,far-0");
    assert_int_equal(a.slots, 6);
    snprintf(path, sizeof path, "%s/attempts/j-1/a2", dir);
    assert_ok(td_assignment_write(&a, plan, path, dir, 0750));
    snprintf(file, sizeof file, "%s/checkpoints/j-1/a2", dir);
    struct stat st;
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0750);
    assert_false(a.writes_outside);

    TD_AUTO(td_arena) *arena = NULL;
    struct td_plan written;
    assert_ok(td_arena_create(TD_SPEC_ARENA_BYTES, &arena));
    read_plan(path, arena, &written);
    snprintf(expected, sizeof expected, "%s/checkpoints/j-1/a2", dir);
    assert_string_equal(written.run.checkpoint_dir, expected);
    snprintf(expected, sizeof expected, "%s/checkpoints/j-1/a1/step-20", dir);
    assert_string_equal(written.run.resume_from, expected);
    assert_int_equal(written.run.attempt, 2);
    assert_int_equal(written.run.threads_per_rank, 6);

    assert_ok(td_assignment_load(path, &loaded));
    assert_int_equal(loaded.epoch, 9);
    assert_int_equal(loaded.slots, 6);
    assert_true(loaded.stream_store);
    assert_string_equal(loaded.checkpoints, a.checkpoints);
    assert_string_equal(loaded.devices, "far-1,far-0");
}

// With checkpoint.dir the coordinator's own node began such a job from step 0, without a word.
static void test_streamed_checkpoint_is_found_or_missed_when_nothing_fetches_it(void **state) {
    const char *dir = *state;
    struct td_assignment a;
    char plan[1024], extra[256], path[TD_FS_PATH_BYTES], file[TD_FS_PATH_BYTES];
    snprintf(extra, sizeof extra, ",\"checkpoint\":{\"dir\":\"%s/elsewhere\"}", dir);
    assert_ok(assigned_from(extra, "a1/step-20", true, dir, &a, plan));
    snprintf(path, sizeof path, "%s/attempts/j-1/a2", dir);
    td_status s = td_assignment_write(&a, plan, path, dir, 0750);
    assert_int_equal(td_status_code(s), TD_DATA_LOSS);
    assert_int_equal(td_status_class(s), TD_CLASS_DATA);
    td_status_free(s);

    TD_AUTO(td_arena) *arena = NULL;
    struct td_plan written;
    assert_ok(td_arena_create(TD_SPEC_ARENA_BYTES, &arena));
    snprintf(file, sizeof file, "%s/checkpoints/j-1/a1/step-20", dir);
    assert_ok(td_fs_mkdirs(file, 0700));
    assert_ok(td_assignment_write(&a, plan, path, dir, 0750));
    read_plan(path, arena, &written);
    assert_string_equal(written.run.resume_from, file);
}

static void test_checkpoints_go_where_the_spec_says_when_it_does(void **state) {
    struct td_assignment a;
    char plan[1024];
    assert_ok(assigned(",\"checkpoint\":{\"dir\":\"/shared/ck\"}", NULL, *state, &a, plan));
    assert_string_equal(a.checkpoints, "/shared/ck/j-1");
}

// A file in its way is the spec's mistake: such attempts were internal errors, four a job. One that
// is refused now was found good by the planner: such jobs failed for a disk that was away for 3 s.
static void test_place_that_cannot_be_has_a_class_by_what_is_wrong_with_it(void **state) {
    const char *dir = *state;
    struct td_assignment a;
    char plan[1024], extra[256], path[TD_FS_PATH_BYTES], file[TD_FS_PATH_BYTES];
    snprintf(path, sizeof path, "%s/attempts/j-1/a2", dir);
    snprintf(file, sizeof file, "%s/file", dir);
    assert_ok(td_fs_write(file, "", 0, 0600, 0));
    const struct {
        const char *place;
        enum td_job_kind kind;
        uint32_t attempt;
        enum td_class cls;
    } rows[] = {
        {file, TD_KIND_TRAIN, 2, TD_CLASS_BAD_SPEC},
        {"/proc/checkpoints", TD_KIND_TRAIN, 1, TD_CLASS_DISK},
        {"/proc/checkpoints", TD_KIND_COMMAND, 2, TD_CLASS_DISK},
        {"/proc/checkpoints", TD_KIND_COMMAND, 1, TD_CLASS_BAD_SPEC}, // nobody planned it
    };
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        snprintf(extra, sizeof extra, ",\"checkpoint\":{\"dir\":\"%s\"}", rows[i].place);
        assert_ok(assigned(extra, NULL, dir, &a, plan));
        a.kind = rows[i].kind;
        a.attempt = rows[i].attempt;
        td_status s = td_assignment_make_dir(&a, 0750);
        assert_int_equal(td_status_class(s), rows[i].cls);
        assert_non_null(strstr(td_status_message(s), "checkpoint.dir must be a directory"));
        assert_non_null(strstr(td_status_message(s), rows[i].place));
        td_status_free(s);
    }
    snprintf(file, sizeof file, "%s/checkpoints", dir);
    assert_ok(td_fs_write(file, "", 0, 0600, 0));
    assert_ok(assigned("", NULL, dir, &a, plan));
    td_status s = td_assignment_write(&a, plan, path, dir, 0750);
    assert_int_equal(td_status_class(s), TD_CLASS_NONE);
    td_status_free(s);
}

// The directory was made again below the mount point, and the job failed for want of checkpoints.
static void test_place_of_saved_checkpoints_is_not_made_again_when_it_is_away(void **state) {
    const char *dir = *state;
    struct td_assignment a;
    char plan[1024], extra[256], file[TD_FS_PATH_BYTES];
    snprintf(extra, sizeof extra, ",\"checkpoint\":{\"dir\":\"%s/mount\"}", dir);
    snprintf(file, sizeof file, "%s/mount/j-1/a1/step-20", dir);
    assert_ok(assigned_from(extra, "a1/step-20", false, dir, &a, plan));
    td_status s = td_assignment_make_dir(&a, 0750);
    assert_int_equal(td_status_class(s), TD_CLASS_DISK);
    assert_fails(s, TD_NOT_FOUND, "or, if the files were removed, make this directory, empty");
    assert_false(td_fs_exists(a.checkpoints));
    assert_ok(td_fs_mkdirs(a.checkpoints, 0700)); // as it says: the catalog finds them gone
    assert_ok(td_assignment_make_dir(&a, 0750));
    assert_ok(td_fs_mkdirs(file, 0700));
    assert_ok(td_assignment_make_dir(&a, 0750));
}

static void test_best_is_brought_along_when_a_stage_after_fit_uses_it(void **state) {
    static const struct {
        const char *extra;
        bool best;
    } rows[] = {
        {"\"stages\":[\"fit\",\"test\"],\"checkpoint\":{\"monitor\":\"val_loss\"}", true},
        {"\"stages\":[\"fit\",\"predict\"],\"checkpoint\":{\"monitor\":\"val_loss\"},"
         "\"evaluate_from\":\"best\"",
         true},
        {"\"stages\":[\"fit\",\"test\"],\"checkpoint\":{\"monitor\":\"val_loss\"},"
         "\"evaluate_from\":\"last\"",
         false},
        {"\"stages\":[\"fit\",\"test\"],\"checkpoint\":{\"monitor\":\"val_loss\"},"
         "\"evaluate_from\":\"/w/step-1\"",
         false},
        {"\"stages\":[\"fit\"],\"checkpoint\":{\"monitor\":\"val_loss\"}", false},
        {"\"stages\":[\"fit\",\"test\"]", false},
        {"\"stages\":[\"fit\",\"test\"],\"checkpoint\":{\"monitor\":\"val_loss\",\"save_top_k\":0}",
         false},
    };
    struct td_assignment a;
    char plan[1024], extra[256];
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        snprintf(extra, sizeof extra, ",%s", rows[i].extra);
        assert_ok(assigned(extra, "a1/step-20", *state, &a, plan));
        assert_int_equal(a.evaluates_best, rows[i].best);
    }
}

static void test_assignment_is_refused_when_it_is_bad(void **state) {
    struct td_assignment a;
    char plan[1024];
    const char *paths[] = {"../../etc", "a1/step-1/..", "/a1/step-1", "a1/step-", "b1/step-2",
                           "",          "a 1/step-2",   "a1/step-+2"};
    for (size_t i = 0; i < TD_COUNTOF(paths); i++) {
        assert_fails(assigned("", paths[i], *state, &a, plan), TD_INVALID_ARGUMENT, "no path");
    }
    // Another build wrote it: no fault of the spec.
    td_status s = assigned(",\"modle\":1", NULL, *state, &a, plan);
    assert_int_not_equal(td_status_class(s), TD_CLASS_BAD_SPEC);
    assert_fails(s, TD_FAILED_PRECONDITION, "modle");
}

static void test_directory_is_refused_when_its_facts_are_damaged(void **state) {
    struct td_assignment a = {0};
    const char *texts[] = {"", "{", "{\"format\":2}", "{\"format\":1,\"n_ranks\":0}", "[]"};
    char path[TD_FS_PATH_BYTES];
    snprintf(path, sizeof path, "%s/assignment.json", (char *)*state);
    assert_fails(td_assignment_load(*state, &a), TD_NOT_FOUND, "assignment.json");
    for (size_t i = 0; i < TD_COUNTOF(texts); i++) {
        assert_ok(td_fs_write(path, texts[i], strlen(texts[i]), 0600, 0));
        td_status s = td_assignment_load(*state, &a);
        assert_non_null(s);
        td_status_free(s);
    }
}

static void test_assignment_is_rebuilt_when_only_plan_and_log_can_be_read(void **state) {
    static const struct {
        const char *launched, *checkpoint, *problem;
        bool stream;
    } rows[] = {
        {"{\"event\":\"launched\",\"epoch\":9,\"first_rank\":4,\"n_ranks\":2}\n", "", NULL, true},
        {"{\"event\":\"launched\",\"epoch\":9,\"first_rank\":4,\"n_ranks\":2}\nmore",
         ",\"checkpoint\":{\"store\":\"fs\"}", NULL, false},
        {"{\"event\":\"launched\",\"pid\":1}\n", "", "does not name its ranks", true},
        {"{\"event\":\"launched\",\"epoch\":9,\"n_r", "", "no first line", true},
    };
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        struct td_assignment a, built = {.attempt = 2};
        char plan[1024], path[TD_FS_PATH_BYTES], file[TD_FS_PATH_BYTES];
        assert_ok(assigned(rows[i].checkpoint, NULL, *state, &a, plan));
        snprintf(path, sizeof path, "%s/attempts/j-1/a2", (char *)*state);
        assert_ok(td_assignment_write(&a, plan, path, *state, 0700));
        assert_ok(td_fs_path(file, "%s/events.log", path));
        assert_ok(td_fs_write(file, rows[i].launched, strlen(rows[i].launched), 0600, 0));
        td_status s = td_assignment_rebuild(path, &built);
        if (rows[i].problem) {
            assert_fails(s, TD_DATA_LOSS, rows[i].problem);
            continue;
        }
        assert_ok(s);
        assert_int_equal(built.epoch, 9);
        assert_int_equal(built.first_rank, 4);
        assert_int_equal(built.n_ranks, 2);
        assert_int_equal(built.stream_store, rows[i].stream);
        assert_string_equal(built.checkpoints, a.checkpoints);
        built.attempt = 3; // the plan is of another one
        assert_fails(td_assignment_rebuild(path, &built), TD_DATA_LOSS, "where checkpoints are");
    }
}

// It is the node's own file: no coordinator is to blame.
static void test_own_plan_is_named_when_it_cannot_be_read_any_more(void **state) {
    static const char launched[] =
        "{\"event\":\"launched\",\"epoch\":9,\"first_rank\":4,\"n_ranks\":2}\n";
    struct td_assignment built = {.attempt = 2};
    char log[TD_FS_PATH_BYTES], plan[TD_FS_PATH_BYTES];
    assert_ok(td_fs_path(log, "%s/events.log", (char *)*state));
    assert_ok(td_fs_path(plan, "%s/plan.json", (char *)*state));
    assert_ok(td_fs_write(log, launched, strlen(launched), 0600, 0));
    assert_ok(td_fs_write(plan, "{\"format\":9}", 12, 0600, 0));
    td_status s = td_assignment_rebuild(*state, &built);
    assert_non_null(strstr(td_status_message(s), plan));
    assert_null(strstr(td_status_message(s), "coordinator"));
    td_status_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_plan_gets_this_machines_paths_when_it_is_written),
        test_in_scratch(test_checkpoints_go_where_the_spec_says_when_it_does),
        test_in_scratch(test_streamed_checkpoint_is_found_or_missed_when_nothing_fetches_it),
        test_in_scratch(test_place_that_cannot_be_has_a_class_by_what_is_wrong_with_it),
        test_in_scratch(test_place_of_saved_checkpoints_is_not_made_again_when_it_is_away),
        test_in_scratch(test_best_is_brought_along_when_a_stage_after_fit_uses_it),
        test_in_scratch(test_devices_are_one_a_rank_or_refused),
        test_in_scratch(test_assignment_is_refused_when_it_is_bad),
        test_in_scratch(test_directory_is_refused_when_its_facts_are_damaged),
        test_in_scratch(test_assignment_is_rebuilt_when_only_plan_and_log_can_be_read),
        test_in_scratch(test_own_plan_is_named_when_it_cannot_be_read_any_more),
    };
    return cmocka_run_group_tests_name("node_assignment", tests, NULL, NULL);
}
