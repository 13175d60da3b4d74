// Which checkpoints are kept: scripts of saves, and what is left after each.

#include "tests/unit/test.h"

#include <math.h>

#include "engine/train/checkpoint/manifest.h"
#include "engine/train/checkpoint/plugin_state.h"
#include "engine/train/checkpoint/retention.h"
#include "lib/attempt/checkpoint_name.h"
#include "lib/attempt/retention.h"

// Adds step 1, 2, ... with these values; the steps that remain, as text "2 3".
static void play(const struct td_checkpoint_config *config, const char *resumed_from,
                 const double *values, size_t n, char *out, size_t bytes) {
    bool kept[32] = {false};
    struct td_retention *r;
    assert_ok(td_retention_create(config, resumed_from, &r));
    for (size_t i = 0; i < n; i++) {
        int64_t victim;
        td_retention_add(r, (int64_t)i + 1, values[i]);
        kept[i + 1] = true;
        while (td_retention_victim(r, &victim)) {
            assert_true(kept[victim]);
            kept[victim] = false;
        }
    }
    td_retention_destroy(r);
    size_t len = 0;
    out[0] = '\0';
    for (size_t i = 1; i <= n; i++) {
        if (kept[i]) len += (size_t)snprintf(out + len, bytes - len, "%s%zu", len ? " " : "", i);
    }
}

static void test_survivors_follow_the_rules(void **state) {
    (void)state;
    static const double values[] = {5, 3, NAN, 4, 3, 9};
    static const struct {
        int32_t top_k;
        const char *monitor;
        bool max;
        const char *want;
    } rows[] = {
        {-1, NULL, false, "1 2 3 4 5 6"},
        {0, NULL, false, "6"}, // the newest is what a restart needs
        {1, NULL, false, "6"},
        {2, NULL, false, "5 6"},
        {1, "val_loss", false, "2 6"}, // of two equal ones the older; and always the newest
        {2, "val_loss", false, "2 5 6"},
        {3, "val_loss", false, "2 4 5 6"},
        {1, "val_loss", true, "6"},
        {2, "val_loss", true, "1 6"},
        {0, "val_loss", true, "6"},
    };
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        struct td_checkpoint_config config = {
            .dir = "/d/a2",
            .save_top_k = rows[i].top_k,
            .monitor = rows[i].monitor,
            .monitor_max = rows[i].max,
        };
        char left[64];
        play(&config, NULL, values, TD_COUNTOF(values), left, sizeof left);
        assert_string_equal(left, rows[i].want);
    }
}

// Between two validations each checkpoint repeats the value of the last one; it says so of the
// first.
static void test_best_stays_when_later_ones_repeat_its_value(void **state) {
    (void)state;
    static const double values[] = {3, 2, 2, 2, 2};
    struct td_checkpoint_config config = {.dir = "/d/a2", .save_top_k = 1, .monitor = "val_loss"};
    char left[64];
    play(&config, NULL, values, TD_COUNTOF(values), left, sizeof left);
    assert_string_equal(left, "2 5");
}

static void test_the_one_resumed_from_stays_when_it_lies_in_the_same_place(void **state) {
    (void)state;
    static const double values[] = {NAN, NAN, NAN, NAN};
    struct td_checkpoint_config config = {.dir = "/d/a2", .save_top_k = 1};
    char left[64];
    play(&config, "/d/a2/step-2", values, 4, left, sizeof left);
    assert_string_equal(left, "2 4");
    play(&config, "/d/a1/step-2", values, 4, left, sizeof left);
    assert_string_equal(left, "4");
}

static void test_files_that_ranks_write_are_known_by_name(void **state) {
    (void)state;
    assert_true(td_checkpoint_file_written(td_manifest_file_of(TD_ROLE_PARAM)));
    assert_true(td_checkpoint_file_written(td_manifest_file_of(TD_ROLE_OPTIM)));
    assert_true(td_checkpoint_file_written("manifest.json"));
    assert_true(td_checkpoint_file_written(TD_PLUGIN_STATE_FILE));
    assert_true(td_checkpoint_file_written("config.json"));
    assert_false(td_checkpoint_file_written("notes.txt"));
    assert_false(td_checkpoint_file_written("model.safetensors.bak"));
}

static void test_rule_takes_the_worst_of_all_attempts_but_never_the_newest(void **state) {
    (void)state;
    const struct td_retention_rule best = {.top_k = 1, .by_value = true};
    const double falling[] = {1, 5, 4, 3}, one[] = {1};
    size_t at;
    assert_true(td_retention_worst(&best, falling, 4, &at) && at == 1);
    assert_true(td_retention_worst(&best, (double[]){1, 4, 3}, 3, &at) && at == 1);
    assert_false(td_retention_worst(&best, (double[]){1, 3}, 2, &at));
    assert_false(td_retention_worst(&best, one, 1, &at));
    const struct td_retention_rule newest = {.top_k = 1};
    assert_true(td_retention_worst(&newest, falling, 4, &at) && at == 0);
    const struct td_retention_rule all = {.top_k = -1};
    assert_false(td_retention_worst(&all, falling, 4, &at));
}

static void test_best_is_the_older_of_equals_and_a_number(void **state) {
    (void)state;
    const struct td_retention_rule small = {.by_value = true};
    const struct td_retention_rule large = {.by_value = true, .larger_is_better = true};
    const double values[] = {NAN, 3, 1, 3, 1, NAN};
    size_t at;
    assert_true(td_retention_best(&small, values, 6, &at) && at == 2);
    assert_true(td_retention_best(&large, values, 6, &at) && at == 1);
    assert_false(td_retention_best(&large, (double[]){NAN, NAN}, 2, &at));
    assert_false(td_retention_best(&large, values, 0, &at));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_survivors_follow_the_rules),
        cmocka_unit_test(test_best_stays_when_later_ones_repeat_its_value),
        cmocka_unit_test(test_files_that_ranks_write_are_known_by_name),
        cmocka_unit_test(test_rule_takes_the_worst_of_all_attempts_but_never_the_newest),
        cmocka_unit_test(test_best_is_the_older_of_equals_and_a_number),
        cmocka_unit_test(test_the_one_resumed_from_stays_when_it_lies_in_the_same_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
