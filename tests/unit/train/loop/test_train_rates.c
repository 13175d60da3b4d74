// Rates that are kept: what a line is found by, and that moments add up to the best. A file which
// is damaged, of another boot or of another machine counts as none.

#include <glob.h>

#include "engine/train/plan/rates.h"
#include "tests/unit/test.h"

enum { MIB = 1 << 20 };

static struct td_rates_home home_in(const char *dir) {
    return (struct td_rates_home){dir, "cpu, some library", "boot-1"};
}

static struct td_rates_line line_of(int32_t n_threads, size_t bytes, double f32) {
    return (struct td_rates_line){
        .n_threads = n_threads, .moments = 1, .bytes = bytes, .rates = {f32, 2 * f32, 1e10}};
}

// The one file in the directory.
static void find_file(const char *dir, char out[TD_FS_PATH_BYTES]) {
    glob_t found;
    assert_ok(td_fs_path(out, "%s/rates-*", dir));
    assert_int_equal(glob(out, 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    snprintf(out, TD_FS_PATH_BYTES, "%s", found.gl_pathv[0]);
    globfree(&found);
}

static size_t lines_of(const struct td_rates_home *home) {
    struct td_rates t;
    td_rates_read(home, &t);
    return t.n;
}

static void test_size_is_the_smallest_that_holds_the_bytes(void **state) {
    (void)state;
    assert_int_equal(td_rates_size(0), 4 * MIB);
    assert_int_equal(td_rates_size(4 * MIB), 4 * MIB);
    assert_int_equal(td_rates_size(4 * MIB + 1), 8 * MIB);
    assert_int_equal(td_rates_size(33 * MIB), 64 * MIB);
    assert_int_equal(td_rates_size(SIZE_MAX), 64 * MIB);
    assert_int_equal(td_rates_size_at(TD_RATES_SIZES - 1), 64 * MIB);
}

static void test_moments_add_up_to_the_best_when_added(void **state) {
    struct td_rates_home home = home_in(*state);
    struct td_rates t;
    for (int i = 0; i < TD_RATES_SETTLED + 2; i++) {
        struct td_rates_line moment = line_of(2, 8 * MIB, i == 1 ? 5e11 : 4e11);
        moment.rates.bandwidth = 1e10 * (i + 1);
        assert_ok(td_rates_add(&home, &moment));
    }
    struct td_rates_line other = line_of(2, 16 * MIB, 1e11);
    assert_ok(td_rates_add(&home, &other));
    td_rates_read(&home, &t);
    assert_int_equal(t.n, 2);
    const struct td_rates_line *l = td_rates_find(&t, 2, 8 * MIB);
    assert_non_null(l);
    assert_int_equal(l->moments, TD_RATES_SETTLED);
    assert_true(l->rates.f32 == 5e11 && l->rates.bf16 == 10e11);
    assert_true(l->rates.bandwidth == 1e10 * (TD_RATES_SETTLED + 2));
    assert_true(td_rates_find(&t, 2, 16 * MIB)->rates.f32 == 1e11);
    assert_null(td_rates_find(&t, 1, 8 * MIB));
    assert_null(td_rates_find(&t, 2, 4 * MIB));
}

static void test_file_counts_as_none_when_boot_or_machine_is_another(void **state) {
    struct td_rates_home home = home_in(*state), next = home, other = home;
    struct td_rates_line moment = line_of(1, 4 * MIB, 1e11);
    next.boot_id = "boot-2";
    other.machine = "cpu, another library";
    assert_ok(td_rates_add(&home, &moment));
    assert_int_equal(lines_of(&home), 1);
    assert_int_equal(lines_of(&next), 0);
    assert_int_equal(lines_of(&other), 0);
    moment.n_threads = 2;
    assert_ok(td_rates_add(&next, &moment)); // in place of those of the boot before
    assert_int_equal(lines_of(&next), 1);
    assert_int_equal(lines_of(&home), 0);
}

static void test_file_counts_as_none_when_any_byte_is_damaged(void **state) {
    char path[TD_FS_PATH_BYTES];
    struct td_rates_home home = home_in(*state);
    struct td_rates_line moment = line_of(1, 4 * MIB, 1e11);
    assert_ok(td_rates_add(&home, &moment));
    find_file(*state, path);
    TD_AUTO_BUF whole;
    td_buf_init(&whole, 4096);
    assert_ok(td_fs_read(path, 4096, &whole));
    for (size_t i = 0; i < whole.len; i++) {
        char kept = whole.data[i];
        whole.data[i] ^= 1;
        assert_ok(td_fs_write(path, whole.data, whole.len, 0600, 0));
        assert_int_equal(lines_of(&home), 0);
        whole.data[i] = kept;
        assert_ok(td_fs_write(path, whole.data, i, 0600, 0)); // cut off
        assert_int_equal(lines_of(&home), 0);
    }
    assert_ok(td_fs_write(path, whole.data, whole.len, 0600, 0));
    assert_int_equal(lines_of(&home), 1);
    assert_ok(td_fs_write(path, "", 0, 0600, 0));
    assert_ok(td_rates_add(&home, &moment)); // what is damaged is replaced
    assert_int_equal(lines_of(&home), 1);
}

static void test_oldest_line_goes_when_the_file_is_full(void **state) {
    struct td_rates_home home = home_in(*state);
    struct td_rates t;
    for (int32_t n = 1; n <= TD_RATES_MAX + 1; n++) {
        struct td_rates_line moment = line_of(n, 4 * MIB, 1e11);
        assert_ok(td_rates_add(&home, &moment));
    }
    td_rates_read(&home, &t);
    assert_int_equal(t.n, TD_RATES_MAX);
    assert_null(td_rates_find(&t, 1, 4 * MIB));
    assert_non_null(td_rates_find(&t, TD_RATES_MAX + 1, 4 * MIB));
}

static void test_nearest_line_is_scaled_when_there_is_none(void **state) {
    struct td_rates_home home = home_in(*state);
    struct td_rates t;
    struct td_accel_rates r;
    td_rates_read(&home, &t);
    assert_false(td_rates_near(&t, 4, 8 * MIB, &r));
    struct td_rates_line two = line_of(2, 64 * MIB, 3e11), far = line_of(16, 8 * MIB, 9e11);
    assert_ok(td_rates_add(&home, &far));
    assert_ok(td_rates_add(&home, &two));
    td_rates_read(&home, &t);
    assert_true(td_rates_near(&t, 4, 8 * MIB, &r));
    assert_true(r.f32 == 6e11 && r.bf16 == 12e11 && r.bandwidth == 1e10);
}

static void test_rates_are_refused_when_no_machine_has_them(void **state) {
    struct td_rates_home home = home_in(*state);
    struct td_rates_line bad[] = {line_of(0, 4 * MIB, 1e11), line_of(1, 5 * MIB, 1e11),
                                  line_of(1, 4 * MIB, -1), line_of(1, 4 * MIB, 1e300)};
    for (size_t i = 0; i < TD_COUNTOF(bad); i++) {
        assert_fails(td_rates_add(&home, &bad[i]), TD_INVALID_ARGUMENT, "no machine");
    }
    home.machine = "two\nlines";
    struct td_rates_line good = line_of(1, 4 * MIB, 1e11);
    assert_fails(td_rates_add(&home, &good), TD_INVALID_ARGUMENT, "one line");
}

// ---- measuring ----------------------------------------------------------------------------------
static int n_asked;

// Each moment another thing is at its best.
static td_status answer(struct td_accelerator *a, size_t bytes, struct td_accel_rates *out_best,
                        struct td_accel_rates *out_usual) {
    (void)a;
    assert_int_equal(bytes, 16 * MIB);
    *out_best = (struct td_accel_rates){1e15, 1e15, 1e15};
    *out_usual =
        (struct td_accel_rates){1 + (n_asked == 0), 1 + (n_asked == 1), 1 + (n_asked == 2)};
    n_asked++;
    return TD_OK;
}

static void test_the_usual_of_the_best_moments_is_measured(void **state) {
    (void)state;
    const struct td_accelerator_ops ops = {.struct_bytes = sizeof ops, .measure_peak = answer};
    struct td_rates_line line = {.n_threads = 1, .bytes = 16 * MIB};
    n_asked = 0;
    assert_ok(td_rates_measure(&ops, NULL, 3, &line));
    assert_int_equal(n_asked, 3);
    assert_int_equal(line.moments, 3);
    assert_true(line.rates.f32 == 2 && line.rates.bf16 == 2 && line.rates.bandwidth == 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_size_is_the_smallest_that_holds_the_bytes),
        test_in_scratch(test_moments_add_up_to_the_best_when_added),
        test_in_scratch(test_file_counts_as_none_when_boot_or_machine_is_another),
        test_in_scratch(test_file_counts_as_none_when_any_byte_is_damaged),
        test_in_scratch(test_oldest_line_goes_when_the_file_is_full),
        test_in_scratch(test_nearest_line_is_scaled_when_there_is_none),
        test_in_scratch(test_rates_are_refused_when_no_machine_has_them),
        cmocka_unit_test(test_the_usual_of_the_best_moments_is_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
