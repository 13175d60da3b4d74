// What plugins keep of themselves: parts in memory, their file, and its bounds.

#include "engine/train/checkpoint/plugin_state.h"

#include "engine/train/checkpoint/safetensors.h"
#include "tests/unit/test.h"
#include "traind/strategy.h"

static const char whole[] = "strategy.x.whole", of_rank[] = "strategy.x.rank-0";

static void fill(struct td_plugin_state *s) {
    td_plugin_state_init(s);
    assert_ok(td_plugin_state_add(s, whole, "abc", 3));
    assert_ok(td_plugin_state_add(s, "precision.p", NULL, 0));
    assert_ok(td_plugin_state_add(s, of_rank, "defgh", 5));
}

static void expect(const struct td_plugin_state *s, const char *name, const char *text) {
    struct td_span part;
    assert_true(td_plugin_state_find(s, name, &part));
    assert_int_equal(part.bytes, strlen(text));
    assert_memory_equal(part.data, text, part.bytes);
}

static void write_file(const char *path, const struct td_plugin_state *s) {
    TD_AUTO_BUF image;
    td_buf_init(&image, 1 << 20);
    assert_ok(td_plugin_state_print(s, &image));
    assert_ok(td_fs_write(path, image.data, image.len, 0666, 0));
}

static void test_parts_read_back_as_they_were_written(void **state) {
    struct td_plugin_state s, back;
    struct td_span part;
    char path[4096];
    snprintf(path, sizeof path, "%s/" TD_PLUGIN_STATE_FILE, (char *)*state);
    fill(&s);
    write_file(path, &s);
    td_plugin_state_init(&back);
    assert_ok(td_plugin_state_read(path, &back));
    assert_int_equal(td_plugin_state_count(&back), 3);
    expect(&back, whole, "abc");
    expect(&back, "precision.p", "");
    expect(&back, of_rank, "defgh");
    assert_false(td_plugin_state_find(&back, "strategy.x", &part));
    td_plugin_state_clear(&back);
    assert_false(td_plugin_state_find(&back, whole, &part));
    td_plugin_state_finish(&back);
    td_plugin_state_finish(&s);
}

static void test_part_is_refused_when_there_is_too_much_of_it(void **state) {
    (void)state;
    struct td_plugin_state s;
    fill(&s);
    TD_AUTO_FREE char *much = td_calloc(1, TD_PLUGIN_STATE_MAX_BYTES);
    assert_non_null(much);
    assert_fails(td_plugin_state_add(&s, "strategy.big.whole", much, TD_PLUGIN_STATE_MAX_BYTES),
                 TD_RESOURCE_EXHAUSTED, "state of 'strategy.big.whole'");
    assert_int_equal(td_plugin_state_count(&s), 3);
    expect(&s, of_rank, "defgh");
    char name[TD_PLUGIN_STATE_NAME + 1];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_fails(td_plugin_state_add(&s, name, "", 0), TD_INVALID_ARGUMENT, "too long");
    td_plugin_state_finish(&s);
}

static void test_file_is_refused_when_it_holds_something_else(void **state) {
    struct td_plugin_state s;
    char path[4096];
    const float values[2] = {1, 2};
    const struct td_tensor tensor = {
        .name = whole, .dtype = TD_F32, .shape = {1, {2}}, .bytes = sizeof values};
    TD_AUTO_BUF file;
    td_buf_init(&file, 1 << 20);
    snprintf(path, sizeof path, "%s/" TD_PLUGIN_STATE_FILE, (char *)*state);
    assert_ok(td_safetensors_head(&tensor, 1, &file));
    assert_ok(td_buf_append(&file, values, sizeof values));
    assert_ok(td_fs_write(path, file.data, file.len, 0666, 0));
    td_plugin_state_init(&s);
    td_status bad = td_plugin_state_read(path, &s);
    assert_int_equal(td_status_class(bad), TD_CLASS_DATA);
    assert_fails(bad, TD_DATA_LOSS, "'strategy.x.whole' is not of bytes");
    td_plugin_state_finish(&s);
}

static td_status make_and_print(void *arg) {
    struct td_plugin_state s;
    TD_AUTO_BUF out;
    (void)arg;
    td_plugin_state_init(&s);
    td_buf_init(&out, 1 << 20);
    td_status bad = td_plugin_state_add(&s, whole, "abc", 3);
    if (!bad) bad = td_plugin_state_print(&s, &out);
    td_plugin_state_finish(&s);
    return bad;
}

static void test_failing_allocations_are_reported(void **state) {
    (void)state;
    td_test_failing_allocations(make_and_print, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_parts_read_back_as_they_were_written),
        cmocka_unit_test(test_part_is_refused_when_there_is_too_much_of_it),
        test_in_scratch(test_file_is_refused_when_it_holds_something_else),
        cmocka_unit_test(test_failing_allocations_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
