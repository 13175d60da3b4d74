// Map: order of insertion, replacing, holes, the maximum, removal while iterating, and a random
// walk held against a plain array.

#include "lib/base/map.h"
#include "tests/unit/test.h"

static void test_entries_keep_their_order_when_some_are_removed(void **state) {
    (void)state;
    TD_AUTO(td_map) *m = NULL;
    static char values[100];
    char key[8];
    assert_ok(td_map_create(100, &m));
    for (int i = 0; i < 100; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_ok(td_map_put(m, key, &values[i], NULL));
    }
    for (int i = 0; i < 100; i += 3) {
        snprintf(key, sizeof key, "k%d", i);
        assert_ptr_equal(td_map_remove(m, key), &values[i]);
        assert_null(td_map_remove(m, key));
    }
    size_t cursor = 0, n = 0;
    const char *found;
    void *value, *before = NULL;
    while (td_map_next(m, &cursor, &found, &value)) {
        assert_true((char *)value > (char *)before);
        before = value;
        n++;
    }
    assert_int_equal(n, 66);
    assert_int_equal(td_map_count(m), 66);
    for (cursor = 0; (value = td_map_each(m, &cursor));) {
        n--;
    }
    assert_int_equal(n, 0);
}

static void test_value_is_replaced_when_key_is_known(void **state) {
    (void)state;
    TD_AUTO(td_map) *m = NULL;
    int a, b;
    void *old = &b;
    assert_ok(td_map_create(1, &m));
    assert_ok(td_map_put(m, "x", &a, &old));
    assert_null(old);
    assert_ok(td_map_put(m, "x", &b, &old));
    assert_ptr_equal(old, &a);
    assert_ptr_equal(td_map_get(m, "x"), &b);
    assert_null(td_map_get(m, "y"));
}

static void test_put_is_refused_when_full(void **state) {
    (void)state;
    TD_AUTO(td_map) *m = NULL;
    int v;
    assert_ok(td_map_create(2, &m));
    assert_ok(td_map_put(m, "a", &v, NULL));
    assert_ok(td_map_put(m, "b", &v, NULL));
    assert_fails(td_map_put(m, "c", &v, NULL), TD_RESOURCE_EXHAUSTED, "at most 2");
    td_map_remove(m, "a");
    assert_ok(td_map_put(m, "c", &v, NULL));
    for (int i = 0; i < 1000; i++) { // holes are reused: no growth without bound
        td_map_remove(m, "c");
        assert_ok(td_map_put(m, "c", &v, NULL));
    }
}

static void test_iteration_goes_on_when_current_is_removed(void **state) {
    (void)state;
    TD_AUTO(td_map) *m = NULL;
    int v;
    char key[8];
    assert_ok(td_map_create(50, &m));
    for (int i = 0; i < 50; i++) {
        snprintf(key, sizeof key, "%d", i);
        assert_ok(td_map_put(m, key, &v, NULL));
    }
    size_t cursor = 0, n = 0;
    const char *found;
    while (td_map_next(m, &cursor, &found, NULL)) {
        snprintf(key, sizeof key, "%s", found);
        assert_ptr_equal(td_map_remove(m, key), &v);
        n++;
    }
    assert_int_equal(n, 50);
    assert_int_equal(td_map_count(m), 0);
}

static void test_map_agrees_with_an_array_when_walked_at_random(void **state) {
    (void)state;
    TD_AUTO(td_map) *m = NULL;
    static char cell[64];
    bool present[64] = {false};
    uint32_t x = 1;
    assert_ok(td_map_create(64, &m));
    for (int i = 0; i < 20000; i++) {
        x = x * 1664525u + 1013904223u;
        uint32_t k = x >> 24 & 63;
        char key[8];
        snprintf(key, sizeof key, "%u", k);
        assert_ptr_equal(td_map_get(m, key), present[k] ? &cell[k] : NULL);
        if (x >> 16 & 1) {
            assert_ok(td_map_put(m, key, &cell[k], NULL));
            present[k] = true;
        } else {
            td_map_remove(m, key);
            present[k] = false;
        }
    }
}

static td_status fill(void *arg) {
    TD_AUTO(td_map) *m = NULL;
    TD_TRY(td_map_create(100, &m));
    for (int i = 0; i < 40; i++) {
        char key[8];
        snprintf(key, sizeof key, "%d", i);
        TD_TRY(td_map_put(m, key, arg, NULL));
        TD_CHECK(td_map_count(m) == (size_t)i + 1);
    }
    return TD_OK;
}

static void test_map_survives_when_allocations_fail(void **state) {
    td_test_failing_allocations(fill, state);
    td_map_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_entries_keep_their_order_when_some_are_removed),
        cmocka_unit_test(test_value_is_replaced_when_key_is_known),
        cmocka_unit_test(test_put_is_refused_when_full),
        cmocka_unit_test(test_iteration_goes_on_when_current_is_removed),
        cmocka_unit_test(test_map_agrees_with_an_array_when_walked_at_random),
        cmocka_unit_test(test_map_survives_when_allocations_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
