// Restore: what a checkpoint does not hold is missed aloud. Whole checkpoints, damaged ones too,
// are tests/scenario/training/test_s09_checkpoints.py's.

#include "tests/unit/test.h"

#include "engine/train/checkpoint/restore.h"

static void test_load_refuses_when_the_manifest_lists_no_file_of_a_role(void **state) {
    (void)state;
    const struct td_restored r = {.path = "/run/step-7"};
    const struct td_shape shape = {1, {3}};
    const struct td_init zero = {.kind = TD_INIT_ZERO};
    struct td_state_table *t;
    uint32_t w, index;
    assert_ok(td_state_table_create(&t));
    assert_ok(td_state_add(t, "w", TD_ROLE_PARAM, TD_F32, &shape, zero, 0, &w));
    assert_ok(td_state_add(t, "w:exp_avg", TD_ROLE_OPTIM, TD_F32, &shape, zero, w, &index));
    const struct td_restore_target to = {.state = t};
    assert_fails(
        td_restore_load(&r, 1u << TD_ROLE_OPTIM, &to), TD_DATA_LOSS,
        "the manifest in '/run/step-7' lists no 'optimizer.safetensors', which has to hold "
        "'w:exp_avg'");
    assert_fails(td_restore_load(&r, 1u << TD_ROLE_PARAM, &to), TD_DATA_LOSS,
                 "lists no 'model.safetensors', which has to hold 'w'");
    assert_ok(td_restore_load(&r, 0, &to)); // a rank that reads nothing
    td_state_table_destroy(t);
}

// Of another optimizer: it begins at zero. What the list names has to be in a file all the same.
static void test_load_leaves_optimizer_state_alone_when_the_manifest_never_had_it(void **state) {
    (void)state;
    static const char text[] = "[{\"name\": \"w:exp_avg\", \"role\": \"optim\"}]";
    const struct td_shape shape = {1, {3}};
    const struct td_init zero = {.kind = TD_INIT_ZERO};
    struct td_state_table *t;
    struct td_arena *a;
    struct td_json *list;
    uint32_t w, index;
    assert_ok(td_arena_create(1 << 16, &a));
    assert_ok(td_json_parse(a, text, strlen(text), &list));
    const struct td_restored r = {.path = "/run/step-7", .manifest.tensors = list};
    assert_ok(td_state_table_create(&t));
    assert_ok(td_state_add(t, "w", TD_ROLE_PARAM, TD_F32, &shape, zero, 0, &w));
    assert_ok(td_state_add(t, "w:momentum_buffer", TD_ROLE_OPTIM, TD_F32, &shape, zero, w, &index));
    const struct td_restore_target to = {.state = t};
    assert_ok(td_restore_load(&r, 1u << TD_ROLE_OPTIM, &to));
    assert_fails(td_restore_load(&r, 1u << TD_ROLE_PARAM, &to), TD_DATA_LOSS, "has to hold 'w'");
    assert_ok(td_state_add(t, "w:exp_avg", TD_ROLE_OPTIM, TD_F32, &shape, zero, w, &index));
    assert_fails(td_restore_load(&r, 1u << TD_ROLE_OPTIM, &to), TD_DATA_LOSS,
                 "has to hold 'w:exp_avg'");
    td_state_table_destroy(t);
    td_arena_destroy(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load_leaves_optimizer_state_alone_when_the_manifest_never_had_it),
        cmocka_unit_test(test_load_refuses_when_the_manifest_lists_no_file_of_a_role),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
