// What a loop of one's own is asked for: it learns of a stop at the next call, whether it trains,
// evaluates or does nothing.

#include <stdatomic.h>

#include "fabric/fabric.h"
#include "tests/unit/fabric/fabric_rig.h"

static void take_batch(struct td_fabric *f, enum td_split split, struct td_fabric_batch *out) {
    *out = (struct td_fabric_batch){.struct_bytes = sizeof *out};
    assert_ok(td_fabric_next(f, split, out));
    if (out->is_over) assert_ok(td_fabric_next(f, split, out));
}

static void do_nothing(struct td_fabric *f) {
    (void)f;
}

static void evaluate(struct td_fabric *f) {
    struct td_fabric_batch batch;
    take_batch(f, TD_SPLIT_VAL, &batch);
    assert_ok(td_fabric_evaluate(f, &batch));
}

static void forget_gradients(struct td_fabric *f) {
    struct td_fabric_batch batch;
    take_batch(f, TD_SPLIT_TRAIN, &batch);
    assert_ok(td_fabric_forward(f, NULL));
    assert_ok(td_fabric_zero_grad(f, NULL));
}

static void train(struct td_fabric *f) {
    struct td_fabric_batch batch;
    take_batch(f, TD_SPLIT_TRAIN, &batch);
    assert_ok(td_fabric_forward(f, NULL));
    assert_ok(td_fabric_backward(f));
    assert_ok(td_fabric_optimizer_step(f, NULL, NULL));
}

static bool stops(struct td_fabric *f) {
    struct td_fabric_wishes wishes = {.struct_bytes = sizeof wishes};
    assert_ok(td_fabric_take_wishes(f, &wishes));
    assert_true(wishes.save == wishes.stop);
    return wishes.stop;
}

static void test_stop_is_learned_at_the_next_call_whatever_the_loop_does(void **state) {
    (void)state;
    static void (*const bodies[])(struct td_fabric *) = {do_nothing, evaluate, forget_gradients,
                                                         train};
    for (size_t i = 0; i < TD_COUNTOF(bodies); i++) {
        struct td_fabric *f = set_up("32-true");
        for (int batch = 0; batch < 3; batch++) {
            bodies[i](f);
            assert_false(stops(f));
        }
        atomic_store(&f->rank->io->page->stop, TD_STOP_CHECKPOINT);
        bodies[i](f);
        assert_true(stops(f));
        assert_ok(td_fabric_finish(f, TD_OK));
        td_fabric_destroy(f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stop_is_learned_at_the_next_call_whatever_the_loop_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
