// Places of a run: what cannot be written is refused before the first step, and a plan refuses the
// same without making anything. (Root may write anywhere but below a file and in /proc.)

#include "tests/unit/scratch_rig.h"

#include <sys/stat.h>
#include <unistd.h>

#include "engine/train/checkpoint/outputs.h"
#include "lib/base/files/files.h"

typedef td_status check_fn(const struct td_train_config *config);

static void assert_refuses(check_fn *check, const struct td_train_config *c, enum td_class cls,
                           const char *words) {
    td_status s = check(c);
    assert_int_equal(td_status_class(s), cls);
    assert_non_null(strstr(td_status_message(s), words));
    td_status_free(s);
}

// What can never be is the spec's mistake for both.
static void assert_refused(const struct td_train_config *c, const char *words) {
    assert_refuses(td_outputs_look, c, TD_CLASS_BAD_SPEC, words);
    assert_refuses(td_outputs_check, c, TD_CLASS_BAD_SPEC, words);
}

// What is missing or refused is so for a plan alone: it was good when a rank finds it gone.
static void assert_gone(const struct td_train_config *c, const char *words) {
    assert_refuses(td_outputs_look, c, TD_CLASS_BAD_SPEC, words);
    assert_refuses(td_outputs_check, c, TD_CLASS_DISK, words);
}

static struct td_train_config saving_in(const char *dir) {
    return (struct td_train_config){.stages = TD_STAGE_FIT,
                                    .checkpoint = {.dir = dir, .save_top_k = 1}};
}

static void test_checkpoints_are_refused_where_no_directory_can_be(void **state) {
    const char *file = in(state, "file"), *below = in(state, "file/a/b"), *link = in(state, "link");
    assert_ok(td_fs_write(file, "", 0, 0600, 0));
    assert_int_equal(symlink("/nowhere", link), 0);
    const struct {
        const char *place;
        bool is_gone;
    } rows[] = {
        {file, false}, {below, false}, {link, true}, {"/proc/a", true}, {"/proc/self/a/b", true}};
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        const struct td_train_config c = saving_in(rows[i].place);
        (rows[i].is_gone ? assert_gone : assert_refused)(&c, "checkpoints (checkpoint.dir) ");
    }
}

static void test_nothing_is_refused_when_another_rank_or_nobody_writes_there(void **state) {
    (void)state;
    struct td_train_config c = saving_in("/proc/a");
    c.rank = 1;
    assert_ok(td_outputs_check(&c));
    c.rank = 0;
    c.checkpoint.save_top_k = 0;
    assert_ok(td_outputs_check(&c));
    assert_ok(td_outputs_look(&c));
}

static void test_look_makes_nothing_and_check_the_directory_alone(void **state) {
    const char *dir = in(state, "new//checkpoints/");
    struct stat st;
    const struct td_train_config c = saving_in(dir);
    assert_ok(td_outputs_look(&c));
    assert_int_equal(count_entries(*state), 0);
    assert_ok(td_outputs_check(&c));
    assert_int_equal(stat(dir, &st), 0);
    assert_int_equal(count_entries(dir), 0);
    assert_ok(td_outputs_look(&c));
    assert_int_equal(count_entries(dir), 0);
}

static void test_predictions_are_refused_where_no_file_can_be(void **state) {
    struct td_train_config c = {.stages = TD_STAGE_PREDICT};
    assert_refused(&c, "there is no place for predictions");
    c.predict.output = "/nowhere/p.npy";
    assert_gone(&c, "predict.output: '/nowhere/p.npy' cannot be written: open the directory");
    c.predict.output = *state;
    assert_refused(&c, "is a directory, not a regular file; name a file");
    c.predict.output = "/dev/null";
    assert_refused(&c, "predict.output: '/dev/null' is a device, not a regular file; name a file");
    c.predict.output = "/dev/stdout";
    assert_refused(&c, "predict.output: '/dev/stdout' leads into /proc");
    c.predict.output = in(state, "p.npy");
    assert_ok(td_outputs_look(&c));
    assert_ok(td_outputs_check(&c));
    assert_int_equal(count_entries(*state), 0);
    c.predict.output = NULL;
    c.checkpoint.dir = "/proc/a";
    assert_gone(&c, "predictions (predict.output, else checkpoint.dir)");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_checkpoints_are_refused_where_no_directory_can_be),
        cmocka_unit_test(test_nothing_is_refused_when_another_rank_or_nobody_writes_there),
        test_in_scratch(test_look_makes_nothing_and_check_the_directory_alone),
        test_in_scratch(test_predictions_are_refused_where_no_file_can_be),
    };
    return cmocka_run_group_tests_name("train_places", tests, NULL, NULL);
}
