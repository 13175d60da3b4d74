// Ranks that a program starts itself, as Fabric and a strategy in them see them: numbered from 0,
// the same before setup and after it. The program that starts them is a rank of none. A strategy
// that does not serve so many ranks refuses them.

#include "fabric/config.h"
#include "tests/unit/test.h"
#include "traind/fabric.h"
#include "traind/spawn.h"

// args: the strategy's name.
static td_status be_a_rank(struct td_spawned *self, const void *args, size_t args_bytes) {
    (void)args_bytes;
    const struct td_fabric_options o = {.struct_bytes = sizeof o,
                                        .accelerator = "reference",
                                        .strategy = args,
                                        .threads = 1,
                                        .quiet = true};
    const int32_t rank = td_spawned_rank(self);
    struct td_fabric *f;
    bool same = true;
    TD_TRY(td_fabric_create(&o, &f));
    td_status s = td_fabric_setup_module(f, "{name: mlp, layers: [8, 4]}");
    if (!s) s = td_fabric_setup_optimizers(f, "{name: adam, lr: 0.01}", NULL);
    if (!s) {
        s = td_fabric_setup_dataloaders(f, "{name: synthetic, samples: 64, features: 8, "
                                           "classes: 4, batch_size: 8}");
    }
    for (int is_set_up = 0; !s && is_set_up < 2; is_set_up++) {
        struct td_fabric_facts facts = {.struct_bytes = sizeof facts};
        td_fabric_get_facts(f, &facts);
        same &= facts.world_size == td_spawned_world_size(self) && facts.global_rank == rank &&
                facts.local_rank == rank && facts.node_rank == 0 &&
                facts.is_global_zero == (rank == 0) && facts.is_set_up == is_set_up;
        if (!is_set_up) s = td_fabric_setup(f);
    }
    s = td_fabric_finish(f, s);
    td_fabric_destroy(f);
    if (s || same) return s;
    return td_fail(TD_INTERNAL, "Fabric says of rank %d that it is another", rank);
}

static td_status call(int32_t world_size, const char *strategy) {
    return td_spawn(&(struct td_spawn_options){.function = "be_a_rank",
                                               .world_size = world_size,
                                               .args = strategy,
                                               .args_bytes = strlen(strategy) + 1,
                                               .timeout_ns = TD_TEST_WAIT_NS},
                    NULL);
}

static bool is_rank(void) {
    const struct td_rank_env *e;
    assert_ok(td_fabric_env(&e));
    return e != NULL;
}

// Contract 17: ranks that a program starts are numbered, before setup and after it
static void test_ranks_are_numbered_with_every_strategy(void **state) {
    (void)state;
    assert_false(is_rank());
    for (int32_t world = 1; world <= 3; world++) {
        assert_ok(call(world, "ddp"));
    }
    assert_ok(call(1, "single_device"));
    assert_false(is_rank());
    td_test_over("strategy", "ddp");
    td_test_over("strategy", "single_device");
}

// Contract 21: ranks that the strategy does not serve are refused, with the one that does
static void test_ranks_are_refused_when_the_strategy_serves_one(void **state) {
    (void)state;
    td_status s = call(2, "single_device");
    assert_int_equal(td_status_class(s), TD_CLASS_BAD_SPEC);
    assert_non_null(strstr(td_status_message(s), "single_device takes 1 device; use ddp"));
    td_status_free(s);
    td_test_over("strategy", "single_device");
}

static const struct td_spawn_function functions[] = {{"be_a_rank", be_a_rank}};

int main(int argc, char **argv) {
    td_status s = td_main(argc, argv, functions, TD_COUNTOF(functions));
    if (s) {
        fprintf(stderr, "%s\n", td_status_message(s));
        td_status_free(s);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_are_numbered_with_every_strategy),
        cmocka_unit_test(test_ranks_are_refused_when_the_strategy_serves_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
