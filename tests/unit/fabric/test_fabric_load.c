// What a program loads and saves: weights in part, where a filter takes some tensors and strict
// holds for those; and a load that fails, after which nothing goes on.

#include <dirent.h>
#include <math.h>
#include <string.h>

#include "fabric/fabric.h"
#include "tests/unit/test.h"
#include "traind/fabric.h"

// Three layers, or two of which the first is the same.
static struct td_fabric *set_up(const char *dir, bool deep) {
    const struct td_fabric_options o = {.struct_bytes = sizeof o,
                                        .accelerator = "reference",
                                        .threads = 1,
                                        .quiet = true,
                                        .checkpoint_dir = dir};
    struct td_fabric *f;
    assert_ok(td_fabric_create(&o, &f));
    assert_ok(td_fabric_seed_everything(f, deep ? 4 : 3));
    assert_ok(td_fabric_setup_module(f, deep ? "{name: mlp, layers: [8, 16, 16, 4]}"
                                             : "{name: mlp, layers: [8, 16, 4]}"));
    assert_ok(td_fabric_setup_optimizers(f, "{name: adam, lr: 0.01}", NULL));
    assert_ok(td_fabric_setup_dataloaders(f, "{name: synthetic, samples: 64, features: 8, "
                                             "classes: 4, batch_size: 8}"));
    assert_ok(td_fabric_setup(f));
    return f;
}

static void finish(struct td_fabric *f) {
    assert_ok(td_fabric_finish(f, TD_OK));
    td_fabric_destroy(f);
}

static float first_of(const struct td_fabric *f, const char *name) {
    const struct td_rank *r = f->rank;
    float value = NAN;
    for (uint32_t i = 0; i < td_state_count(r->state); i++) {
        const struct td_state_info *t = td_state_at(r->state, i);
        if (t->role != TD_ROLE_PARAM || strcmp(t->name, name) != 0) continue;
        const char *at = td_buffer_host(r->memory.region[TD_ROLE_PARAM]);
        memcpy(&value, at + t->offset, sizeof value);
    }
    return value;
}

static bool begins_with(void *prefix, const char *name) {
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

// Contract 37: a filter takes what is loaded. The first layer is the same in both models, the
// others are not.
static void test_filter_takes_the_weights_that_are_loaded(void **state) {
    char path[512], first_layer[] = "fc1.";
    struct td_fabric *f = set_up(*state, false);
    assert_ok(td_fabric_save(f));
    const float saved = first_of(f, "fc1.weight");
    finish(f);
    snprintf(path, sizeof path, "%s/step-0", (const char *)*state);
    f = set_up(NULL, true);
    const float own = first_of(f, "fc2.weight");
    assert_true(first_of(f, "fc1.weight") != saved && isfinite(own));
    assert_ok(td_fabric_load_some_weights(f, path, true, begins_with, first_layer));
    assert_true(first_of(f, "fc1.weight") == saved && first_of(f, "fc2.weight") == own);
    finish(f);
    static struct {
        char prefix[8];
        const char *what;
    } refused[] = {{"fc2.", "'fc2.weight' has shape"},
                   {"fc3.", "'fc3.weight' is missing"},
                   {"none", "the filter takes no tensor of the model"}};
    for (size_t i = 0; i < TD_COUNTOF(refused); i++) {
        f = set_up(NULL, true);
        td_status s = td_fabric_load_some_weights(f, path, true, begins_with, refused[i].prefix);
        assert_non_null(strstr(td_status_message(s), refused[i].what));
        assert_int_equal(td_status_code(s), TD_INVALID_ARGUMENT);
        td_status_free(td_fabric_finish(f, s));
        td_fabric_destroy(f);
    }
}

static void expect_over(td_status s, const char *text) {
    assert_int_equal(td_status_code(s), TD_FAILED_PRECONDITION);
    if (!strstr(td_status_message(s), text)) fail_msg("%s", td_status_message(s));
    td_status_free(s);
}

static int n_files(const char *dir) {
    struct dirent **names;
    int n = scandir(dir, &names, NULL, NULL);
    for (int i = 0; i < n; i++) {
        free(names[i]);
    }
    free(names);
    return n - 2; // . and ..
}

// What a filter takes is in the file, and nothing else is; it goes into another model.
static void test_filter_takes_the_weights_that_are_saved(void **state) {
    char path[512], first_layer[] = "fc1.";
    struct td_fabric *f = set_up(NULL, false);
    snprintf(path, sizeof path, "%s/first.safetensors", (const char *)*state);
    assert_ok(td_fabric_save_weights(f, path, begins_with, first_layer));
    assert_ok(td_fabric_save_weights(f, path, begins_with, first_layer)); // in place of the other
    const float saved = first_of(f, "fc1.weight");
    finish(f);
    assert_int_equal(n_files(*state), 1);
    TD_AUTO(td_safetensors) *file = NULL;
    assert_ok(td_safetensors_open(path, &file));
    assert_int_equal(td_safetensors_count(file), 2);
    assert_non_null(td_safetensors_find(file, "fc1.bias"));
    for (int filtered = 0; filtered < 2; filtered++) {
        f = set_up(NULL, true);
        const float own = first_of(f, "fc2.weight");
        assert_true(first_of(f, "fc1.weight") != saved);
        if (filtered) {
            assert_ok(td_fabric_load_some_weights(f, path, true, begins_with, first_layer));
        } else {
            assert_ok(td_fabric_load_weights(f, path, false));
        }
        assert_true(first_of(f, "fc1.weight") == saved && first_of(f, "fc2.weight") == own);
        finish(f);
    }
}

static void test_weights_of_no_filter_are_the_file_of_a_checkpoint(void **state) {
    char path[512], theirs[512];
    struct td_fabric *f = set_up(*state, false);
    snprintf(path, sizeof path, "%s/all.safetensors", (const char *)*state);
    snprintf(theirs, sizeof theirs, "%s/step-0/model.safetensors", (const char *)*state);
    assert_ok(td_fabric_save(f));
    assert_ok(td_fabric_save_weights(f, path, NULL, NULL));
    finish(f);
    TD_AUTO_BUF x;
    TD_AUTO_BUF y;
    td_buf_init(&x, 1 << 20);
    td_buf_init(&y, 1 << 20);
    assert_ok(td_fs_read(path, 1 << 20, &x));
    assert_ok(td_fs_read(theirs, 1 << 20, &y));
    assert_int_equal(x.len, y.len);
    assert_memory_equal(x.data, y.data, x.len);
}

static void expect_bad_spec(struct td_fabric *f, td_status s, const char *text) {
    if (!s || !strstr(td_status_message(s), text)) fail_msg("%s", td_status_message(s));
    assert_int_equal(td_status_class(s), TD_CLASS_BAD_SPEC);
    td_status_free(td_fabric_finish(f, s));
    td_fabric_destroy(f);
}

static void test_weights_are_not_saved_where_they_cannot_be(void **state) {
    char path[512], nobody[] = "none";
    struct td_fabric *f = set_up(NULL, false);
    snprintf(path, sizeof path, "%s/a.safetensors", (const char *)*state);
    expect_over(td_fabric_put_weights(f, NULL), "that td_spawn did not start");
    expect_bad_spec(f, td_fabric_save_weights(f, path, begins_with, nobody),
                    "save weights: the filter takes no tensor of the model");
    f = set_up(NULL, false);
    snprintf(path, sizeof path, "%s/no/such/a.safetensors", (const char *)*state);
    expect_bad_spec(f, td_fabric_save_weights(f, path, NULL, NULL), "No such file or directory");
    assert_int_equal(n_files(*state), 0);
}

static void test_weights_in_memory_are_refused_when_they_are_none_or_damaged(void **state) {
    (void)state;
    struct td_fabric *f = set_up(NULL, false);
    expect_bad_spec(f, td_fabric_load_weights_from(f, NULL, 0, true), "td_fabric_put_weights");
    f = set_up(NULL, false);
    td_status s = td_fabric_load_weights_from(f, "nothing of this kind", 20, true);
    assert_int_equal(td_status_class(s), TD_CLASS_DATA);
    assert_non_null(strstr(td_status_message(s), "weights in memory"));
    td_status_free(td_fabric_finish(f, s));
    td_fabric_destroy(f);
}

// A path that the program names wrong is its mistake; one whose files are damaged is not.
static void test_checkpoint_is_named_when_there_is_none(void **state) {
    char path[512];
    struct td_fabric *f = set_up(NULL, false);
    expect_bad_spec(f, td_fabric_load(f, "/no/such"), "checkpoint '/no/such': no such directory");
    f = set_up(NULL, false);
    expect_bad_spec(f, td_fabric_load(f, "/dev/null"), "checkpoint '/dev/null': not a directory");
    f = set_up(*state, false);
    assert_ok(td_fabric_save(f));
    snprintf(path, sizeof path, "%s/step-0/model.safetensors", (const char *)*state);
    assert_int_equal(truncate(path, 100), 0);
    snprintf(path, sizeof path, "%s/step-0", (const char *)*state);
    td_status s = td_fabric_load(f, path);
    assert_int_equal(td_status_class(s), TD_CLASS_DATA);
    assert_non_null(strstr(td_status_message(s), "step-0' cannot be loaded: file '"));
    td_status_free(td_fabric_finish(f, s));
    td_fabric_destroy(f);
}

static void test_nothing_goes_on_when_a_load_has_failed(void **state) {
    struct td_fabric_batch batch = {.struct_bytes = sizeof batch};
    char path[512];
    struct td_fabric *f = set_up(*state, false);
    snprintf(path, sizeof path, "%s/step-9", (const char *)*state);
    td_status s = td_fabric_load(f, path);
    assert_non_null(s);
    assert_non_null(strstr(td_status_message(s), "step-9"));
    td_status_free(s); // a program that looks away
    expect_over(td_fabric_next(f, TD_SPLIT_TRAIN, &batch), "td_fabric_next after a call that fail");
    expect_over(td_fabric_save(f), "step-9");
    expect_over(td_fabric_load(f, path), "only td_fabric_finish and td_fabric_destroy may follow");
    expect_over(td_fabric_finish(f, TD_OK), "without a failure, but a call had failed: ");
    td_fabric_destroy(f);
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, td_test_scratch_make, td_test_scratch_remove)
    const struct CMUnitTest tests[] = {
        CASE(test_filter_takes_the_weights_that_are_loaded),
        CASE(test_filter_takes_the_weights_that_are_saved),
        CASE(test_weights_of_no_filter_are_the_file_of_a_checkpoint),
        CASE(test_weights_are_not_saved_where_they_cannot_be),
        CASE(test_weights_in_memory_are_refused_when_they_are_none_or_damaged),
        CASE(test_checkpoint_is_named_when_there_is_none),
        CASE(test_nothing_goes_on_when_a_load_has_failed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
