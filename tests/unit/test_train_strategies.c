// The in-tree strategies in a world of one: what each refuses, and what stands for slots that a
// strategy left NULL. Worlds of several ranks are the collective's conformance and the worker's
// scenarios.

#include "tests/unit/test.h"

#include "strategies/collective/collective.h"
#include "strategies/strategies.h"
#include "traind/strategy.h"

static const struct td_plugin_desc *const all[] = {&td_strategy_single_device, &td_strategy_ddp};

static struct td_strategy *open_in(const struct td_strategy_ops *ops, struct td_collective *group,
                                   int32_t world) {
    struct td_strategy *s;
    struct td_strategy_config config = {
        .struct_bytes = sizeof config,
        .world_size = world,
        .collective_ops = td_collective_local.ops,
        .collective = group,
    };
    assert_ok(ops->open(&config, &s));
    return s;
}

static struct td_collective *join(void) {
    const struct td_collective_ops *ops = td_collective_local.ops;
    struct td_collective *group;
    struct td_collective_config config = {
        .struct_bytes = sizeof config,
        .world_size = 1,
        .timeout_ns = TD_NS_PER_S,
    };
    assert_ok(ops->join(&config, &group));
    return group;
}

static void test_single_device_refuses_a_world_of_two(void **state) {
    (void)state;
    const struct td_strategy_ops *ops = td_strategy_single_device.ops;
    struct td_strategy *s = open_in(ops, NULL, 2);
    struct td_strategy_facts facts = {.struct_bytes = sizeof facts};
    td_status refused = ops->environment(s, &facts);
    assert_int_equal(td_status_class(refused), TD_CLASS_BAD_SPEC);
    assert_non_null(strstr(td_status_message(refused), "ddp"));
    td_status_free(refused);
    ops->close(s);
}

static void test_group_calls_are_identities_when_the_world_is_one(void **state) {
    (void)state;
    for (size_t i = 0; i < TD_COUNTOF(all); i++) {
        const struct td_strategy_ops *ops = all[i]->ops;
        const struct td_collective_ops *group_ops = td_collective_local.ops;
        struct td_collective *group = join();
        struct td_strategy *s = open_in(ops, group, 1);
        struct td_strategy_facts facts = {.struct_bytes = sizeof facts};
        assert_ok(ops->environment(s, &facts));
        assert_true(facts.is_global_zero && facts.world_size == 1 && facts.restore_optimizer);
        assert_false(facts.handles_gradient_accumulation);
        float x[3] = {1, 2, 3}, gathered[3] = {0};
        assert_ok(ops->reduce(s, x, 3, TD_F32, TD_REDUCE_MEAN));
        assert_ok(ops->reduce_gradients(s, x, 2, TD_F32, 1));
        assert_ok(ops->broadcast(s, x, sizeof x, 0));
        assert_ok(ops->all_gather(s, x, sizeof x, gathered)); // (1, 3): one row a rank
        assert_memory_equal(x, gathered, sizeof x);
        assert_true(x[0] == 1 && x[2] == 3);
        bool decision;
        assert_ok(ops->reduce_boolean_decision(s, true, true, &decision));
        assert_true(decision);
        assert_ok(ops->reduce_boolean_decision(s, false, false, &decision));
        assert_false(decision);
        assert_ok(ops->barrier(s, "here"));
        struct td_strategy_shard shard;
        assert_ok(ops->process_dataloader(s, TD_SPLIT_TRAIN, &shard));
        assert_true(shard.n_replicas == 1 && shard.rank == 0);
        uint32_t roles;
        assert_ok(ops->save_checkpoint(s, &roles));
        assert_true(roles & 1u << TD_ROLE_PARAM && roles & 1u << TD_ROLE_OPTIM);
        ops->close(s);
        group_ops->leave(group);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_single_device_refuses_a_world_of_two),
        cmocka_unit_test(test_group_calls_are_identities_when_the_world_is_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
