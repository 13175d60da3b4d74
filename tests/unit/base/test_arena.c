// Arena: zeroed and aligned memory, the maximum, reset, and failing allocations.
// Everything dies with the arena, which the address sanitizer watches.

#include "lib/base/arena.h"
#include "tests/unit/test.h"

static void test_memory_is_zeroed_and_aligned_when_allocated(void **state) {
    (void)state;
    TD_AUTO(td_arena) *a = NULL;
    assert_ok(td_arena_create(1 << 20, &a));
    for (size_t n = 1; n < 3000; n += 7) {
        char *p = td_arena_alloc(a, n);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 16, 0);
        for (size_t i = 0; i < n; i++) {
            if (p[i]) fail();
        }
        memset(p, 0xff, n);
    }
    td_arena_reset(a);
    char *p = td_arena_alloc(a, 4000);
    for (size_t i = 0; i < 4000; i++) {
        if (p[i]) fail();
    }
}

static void test_allocation_is_null_when_past_the_maximum(void **state) {
    (void)state;
    TD_AUTO(td_arena) *a = NULL;
    assert_ok(td_arena_create(10000, &a));
    assert_null(td_arena_alloc(a, 10001));
    assert_null(td_arena_alloc(a, SIZE_MAX));
    assert_null(td_arena_alloc(a, SIZE_MAX - 8));
    assert_null(td_arena_array(a, SIZE_MAX / 2, 3));
    size_t n = 0;
    while (td_arena_alloc(a, 100)) {
        n++;
    }
    assert_in_range(n, 60, 100);
    td_arena_reset(a);
    assert_non_null(td_arena_alloc(a, 100));
}

static void test_text_is_copied_when_duplicated_or_printed(void **state) {
    (void)state;
    TD_AUTO(td_arena) *a = NULL;
    assert_ok(td_arena_create(4096, &a));
    assert_string_equal(td_arena_strdup(a, "hello"), "hello");
    assert_string_equal(td_arena_strndup(a, "hello", 2), "he");
    assert_string_equal(td_arena_strndup(a, NULL, 0), "");
    assert_string_equal(td_arena_printf(a, "%s-%d", "x", 12), "x-12");
    const char *tail = td_arena_printf(a, "%1000d", 7) + 999; // longer than what is printed at once
    assert_string_equal(tail, "7");
    assert_null(td_arena_printf(a, "%5000d", 1));
}

static td_status fill(void *arg) {
    (void)arg;
    TD_AUTO(td_arena) *a = NULL;
    TD_TRY(td_arena_create(1 << 20, &a));
    for (int i = 0; i < 100; i++) {
        if (!td_arena_alloc(a, 1000)) return td_fail_oom();
    }
    return TD_OK;
}

static void test_arena_survives_when_allocations_fail(void **state) {
    (void)state;
    td_test_failing_allocations(fill, NULL);
    td_arena_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_is_zeroed_and_aligned_when_allocated),
        cmocka_unit_test(test_allocation_is_null_when_past_the_maximum),
        cmocka_unit_test(test_text_is_copied_when_duplicated_or_printed),
        cmocka_unit_test(test_arena_survives_when_allocations_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
