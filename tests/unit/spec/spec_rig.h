#ifndef TRAIND_TESTS_UNIT_SPEC_SPEC_RIG_H
#define TRAIND_TESTS_UNIT_SPEC_SPEC_RIG_H

// Tests of specs: each in an arena of its own, which is its state.

#include "lib/spec/spec.h"
#include "tests/unit/test.h"

static inline int make_arena(void **state) {
    struct td_arena *a = NULL;
    td_status s = td_arena_create(TD_SPEC_ARENA_BYTES, &a);
    td_status_free(s);
    *state = a;
    return s ? -1 : 0;
}

static inline int drop_arena(void **state) {
    td_arena_destroy(*state);
    return 0;
}
#define test_in_arena(f) cmocka_unit_test_setup_teardown(f, make_arena, drop_arena)

// Of a text that is right.
static inline struct td_json *parse_spec(struct td_arena *a, const char *text) {
    struct td_json *tree = NULL;
    assert_ok(td_spec_parse(a, text, strlen(text), NULL, 0, &tree));
    return tree;
}

#endif
