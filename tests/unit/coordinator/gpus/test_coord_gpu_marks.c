// What is held against GPUs of a node: exclusions, failures of two owners, errors that were looked
// at, the bound, and the row that keeps it all.

#include "daemon/coordinator/core/model/gpu_marks.h"
#include "lib/base/arena.h"
#include "lib/base/buf.h"
#include "lib/base/json.h"
#include "tests/unit/test.h"

static struct td_gpu_mark mark_of(const char *uuid, const char *by, const char *reason) {
    struct td_gpu_mark m = {.time_ns = 5};
    snprintf(m.uuid, sizeof m.uuid, "%s", uuid);
    snprintf(m.by, sizeof m.by, "%s", by);
    snprintf(m.reason, sizeof m.reason, "%s", reason);
    return m;
}

static bool exclude(struct td_gpu_marks *m, const char *uuid, const char *by, const char *reason) {
    const struct td_gpu_mark made = mark_of(uuid, by, reason);
    return td_gpu_marks_exclude(m, &made);
}

static void test_device_is_excluded_until_it_is_cleared(void **state) {
    (void)state;
    struct td_gpu_marks m = {.n = 0};
    assert_false(td_gpu_marks_any(&m));
    assert_null(td_gpu_marks_excluded(&m, "GPU-a"));
    assert_true(exclude(&m, "GPU-a", "", "XID 79"));
    assert_true(m.unsaved);
    assert_false(exclude(&m, "GPU-a", "", "XID 48")); // the first reason stays
    assert_string_equal(td_gpu_marks_excluded(&m, "GPU-a")->reason, "XID 79");
    assert_false(exclude(&m, "GPU-a", "alice", "a fan is loud")); // a person's is newer
    assert_string_equal(td_gpu_marks_excluded(&m, "GPU-a")->reason, "a fan is loud");
    assert_null(td_gpu_marks_excluded(&m, "GPU-b"));
    assert_true(td_gpu_marks_clear(&m, "GPU-a"));
    assert_false(td_gpu_marks_clear(&m, "GPU-a"));
    assert_null(td_gpu_marks_excluded(&m, "GPU-a"));
    assert_false(td_gpu_marks_any(&m));
    td_gpu_marks_finish(&m);
}

static void test_failures_of_two_jobs_of_two_owners_exclude(void **state) {
    (void)state;
    struct td_gpu_marks m = {.n = 0};
    assert_false(td_gpu_marks_blame(&m, "GPU-a", "j-1", "alice", 1));
    assert_null(td_gpu_marks_excluded(&m, "GPU-a"));
    assert_false(td_gpu_marks_blame(&m, "GPU-a", "j-1", "alice", 2)); // the same job
    assert_false(td_gpu_marks_blame(&m, "GPU-a", "j-2", "alice", 3)); // another of that owner
    assert_false(td_gpu_marks_blame(&m, "GPU-b", "j-3", "bob", 4));   // another device
    assert_null(td_gpu_marks_excluded(&m, "GPU-a"));
    assert_true(td_gpu_marks_blame(&m, "GPU-a", "j-3", "bob", 5));
    const struct td_gpu_mark *why = td_gpu_marks_excluded(&m, "GPU-a");
    assert_non_null(strstr(why->reason, "j-1 of alice and j-3 of bob"));
    assert_int_equal(why->time_ns, 5);
    assert_false(td_gpu_marks_blame(&m, "GPU-a", "j-4", "carol", 6)); // it was excluded before
    assert_null(td_gpu_marks_excluded(&m, "GPU-b"));
    assert_true(td_gpu_marks_clear(&m, "GPU-a")); // and begins from nothing
    assert_false(td_gpu_marks_blame(&m, "GPU-a", "j-5", "", 7));
    assert_false(td_gpu_marks_blame(&m, "GPU-a", "j-6", "", 8)); // all unknown owners are one
    td_gpu_marks_finish(&m);
}

static void test_error_is_seen_once_of_each_start_of_the_daemon(void **state) {
    (void)state;
    struct td_gpu_marks m = {.n = 0};
    assert_false(td_gpu_marks_see(&m, "d1", 0));
    assert_true(td_gpu_marks_see(&m, "d1", 1));
    assert_false(td_gpu_marks_see(&m, "d1", 1));
    assert_true(td_gpu_marks_see(&m, "d1", 4));
    assert_false(td_gpu_marks_see(&m, "d1", 3));
    assert_true(td_gpu_marks_see(&m, "d2", 1)); // it counts from 1 again
    assert_true(td_gpu_marks_any(&m));          // so that no restart forgets it
    td_gpu_marks_finish(&m);
}

static void test_full_list_drops_a_first_failure_before_an_exclusion(void **state) {
    (void)state;
    struct td_gpu_marks m = {.n = 0};
    char uuid[16];
    assert_true(exclude(&m, "GPU-first", "", "why"));
    assert_false(td_gpu_marks_blame(&m, "GPU-blamed", "j-1", "alice", 1));
    for (int i = 0; i < TD_GPU_MARKS - 1; i++) {
        snprintf(uuid, sizeof uuid, "GPU-%d", i);
        assert_true(exclude(&m, uuid, "", "why"));
    }
    assert_int_equal(m.n, TD_GPU_MARKS);
    assert_non_null(td_gpu_marks_excluded(&m, "GPU-first"));
    assert_false(td_gpu_marks_clear(&m, "GPU-blamed"));
    assert_true(exclude(&m, "GPU-last", "", "why"));
    assert_int_equal(m.n, TD_GPU_MARKS);
    assert_null(td_gpu_marks_excluded(&m, "GPU-first"));
    td_gpu_marks_finish(&m);
}

static void encode(const struct td_gpu_marks *m, struct td_buf *out) {
    td_buf_init(out, 1 << 20);
    assert_ok(td_gpu_marks_encode(m, out));
}

static void test_row_brings_all_of_it_back(void **state) {
    (void)state;
    TD_AUTO(td_arena) *arena = NULL;
    TD_AUTO_BUF once, twice;
    struct td_gpu_marks m = {.n = 0}, read = {.n = 0};
    struct td_json *v = NULL;
    struct td_gpu_mark odd = mark_of("GPU-a", "al\"ice", "a \n\t\x01 \xc3\xa4 reason");
    odd.xid = 79;
    assert_ok(td_arena_create(1 << 20, &arena));
    assert_true(td_gpu_marks_exclude(&m, &odd));
    assert_false(td_gpu_marks_blame(&m, "GPU-b", "j-1", "alice", 1));
    assert_true(td_gpu_marks_see(&m, "d1", UINT64_MAX));
    encode(&m, &once);
    assert_ok(td_json_parse(arena, once.data, once.len, &v));
    td_gpu_marks_decode(&read, v);
    encode(&read, &twice);
    assert_string_equal(td_buf_cstr(&once), td_buf_cstr(&twice));
    assert_false(read.unsaved);
    assert_string_equal(td_gpu_marks_excluded(&read, "GPU-a")->reason, odd.reason);
    assert_int_equal(td_gpu_marks_excluded(&read, "GPU-a")->xid, 79);
    assert_false(td_gpu_marks_see(&read, "d1", UINT64_MAX));
    assert_true(td_gpu_marks_blame(&read, "GPU-b", "j-2", "bob", 2));
    td_gpu_marks_finish(&m);
    td_gpu_marks_finish(&read);
}

static void test_row_of_nonsense_is_read_as_far_as_it_makes_sense(void **state) {
    (void)state;
    static const char *const rows[] = {
        "{}",
        "{\"marks\":7,\"seen\":\"x\",\"daemon\":[]}",
        "{\"marks\":[{},7,{\"uuid\":\"a b\",\"excludes\":1},{\"uuid\":7}]}",
    };
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        TD_AUTO(td_arena) *arena = NULL;
        struct td_gpu_marks m = {.n = 0};
        struct td_json *v = NULL;
        assert_ok(td_arena_create(1 << 20, &arena));
        assert_ok(td_json_parse(arena, rows[i], strlen(rows[i]), &v));
        td_gpu_marks_decode(&m, v);
        assert_int_equal(m.n, 0);
        td_gpu_marks_decode(&m, NULL);
        td_gpu_marks_finish(&m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_device_is_excluded_until_it_is_cleared),
        cmocka_unit_test(test_failures_of_two_jobs_of_two_owners_exclude),
        cmocka_unit_test(test_error_is_seen_once_of_each_start_of_the_daemon),
        cmocka_unit_test(test_full_list_drops_a_first_failure_before_an_exclusion),
        cmocka_unit_test(test_row_brings_all_of_it_back),
        cmocka_unit_test(test_row_of_nonsense_is_read_as_far_as_it_makes_sense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
