// The in-tree strategies in a world of one: what each refuses, and what stands for slots that a
// strategy left NULL. Worlds of several ranks are the collective's conformance and the worker's
// scenarios.

#include "tests/unit/test.h"

#include "collectives/collectives.h"
#include "engine/train/rank/group/group.h"
#include "engine/train/rank/group/replicas.h"
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
        .deadline.timeout_ns = TD_NS_PER_S,
    };
    assert_ok(ops->join(&config, &group));
    return group;
}

// Contract 21: a wrong combination is refused
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
    td_test_over("strategy", "single_device");
}

// Contract 7: collectives of one rank are identities
static void test_group_call_is_refused_when_it_is_not_of_the_world(void **state) {
    struct td_rank r = {.strategy_ops = all[0]->ops, .group_ops = td_collective_local.ops};
    float x = 1, gathered;
    (void)state;
    assert_fails(td_rank_reduce(&r, 1, &x, 1, TD_F32, TD_REDUCE_MEAN), TD_INVALID_ARGUMENT,
                 "a call of group 1 of ranks; there is group 0, which is all of them");
    assert_fails(td_rank_all_gather(&r, -1, &x, sizeof x, &gathered), TD_INVALID_ARGUMENT,
                 "a call of group -1 of ranks");
}

static void test_group_calls_are_identities_when_the_world_is_one(void **state) {
    (void)state;
    for (size_t i = 0; i < TD_COUNTOF(all); i++) {
        const struct td_strategy_ops *ops = all[i]->ops;
        const struct td_collective_ops *group_ops = td_collective_local.ops;
        struct td_collective *group = join();
        struct td_strategy *s = open_in(ops, group, 1);
        const struct td_train_config config = {.world_size = 1};
        struct td_rank r = {.config = &config,
                            .strategy_ops = ops,
                            .strategy = s,
                            .group_ops = group_ops,
                            .group = group};
        struct td_strategy_facts *facts = &r.facts;
        facts->struct_bytes = sizeof *facts;
        assert_ok(ops->environment(s, facts));
        assert_true(facts->is_global_zero && facts->world_size == 1 && facts->restore_optimizer);
        assert_true(facts->resumes_exactly && !facts->handles_gradient_accumulation);
        float x[3] = {1, 2, 3}, gathered[3] = {0};
        assert_ok(td_rank_reduce(&r, TD_GROUP_WORLD, x, 3, TD_F32, TD_REDUCE_MEAN));
        const struct td_bucket bucket = {
            .struct_bytes = sizeof bucket,
            .dtype = TD_F32,
            .buffer = td_buffer_of_host(x, sizeof x),
            .n = 3,
        };
        assert_ok(td_rank_reduce_gradients(&r, &bucket));
        assert_ok(td_rank_broadcast(&r, x, sizeof x, 0));
        assert_ok(td_rank_all_gather(&r, TD_GROUP_WORLD, x, sizeof x,
                                     gathered)); // (1, 3): one row a rank
        assert_memory_equal(x, gathered, sizeof x);
        assert_true(x[0] == 1 && x[2] == 3);
        bool decision;
        assert_ok(td_rank_decide(&r, true, true, &decision));
        assert_true(decision);
        assert_ok(td_rank_decide(&r, false, false, &decision));
        assert_false(decision);
        assert_ok(td_state_table_create(&r.state)); // no tensor: there is nothing to make equal
        assert_ok(td_state_layout(r.state));
        assert_ok(td_rank_set_up_strategy(&r));
        td_state_table_destroy(r.state);
        assert_ok(td_rank_finish(&r));
        struct td_strategy_shard shard;
        assert_ok(td_rank_shard(&r, TD_SPLIT_TRAIN, &shard));
        assert_true(shard.n_replicas == 1 && shard.rank == 0);
        uint32_t roles;
        assert_ok(td_rank_written_roles(&r, &roles));
        assert_int_equal(roles, 1 << TD_ROLE_PARAM | 1 << TD_ROLE_BUFFER | 1 << TD_ROLE_OPTIM);
        assert_ok(td_rank_read_roles(&r, &roles));
        assert_true(roles & 1u << TD_ROLE_PARAM && roles & 1u << TD_ROLE_OPTIM);
        r.facts.is_global_zero = false;
        assert_ok(td_rank_written_roles(&r, &roles));
        assert_int_equal(roles, 0);
        ops->close(s);
        group_ops->leave(group);
        td_test_over("strategy", all[i]->name);
    }
}

// Contract 17: a strategy says of a rank what its launcher gave it
static void test_facts_are_the_launchers_when_a_strategy_opens(void **state) {
    (void)state;
    for (int32_t i = 0; i < 9; i++) { // 3 nodes of 3 ranks
        struct td_strategy *s;
        const struct td_strategy_ops *ops = td_strategy_ddp.ops;
        struct td_strategy_config config = {.struct_bytes = sizeof config,
                                            .world_size = 9,
                                            .global_rank = i,
                                            .local_rank = i % 3,
                                            .node_rank = i / 3,
                                            .collective_ops = td_collective_shm.ops};
        struct td_strategy_facts facts = {.struct_bytes = sizeof facts, .root_device = i % 3};
        assert_ok(ops->open(&config, &s));
        assert_ok(ops->environment(s, &facts));
        assert_true(facts.world_size == 9 && facts.global_rank == i);
        assert_true(facts.local_rank == i % 3 && facts.node_rank == i / 3);
        assert_true(facts.is_global_zero == (i == 0) && facts.root_device == i % 3);
        ops->close(s);
    }
    td_test_over("strategy", "ddp");
}

// A strategy's own slot comes before what stands for it.
static int asked;
static td_status own_broadcast(struct td_strategy *s, void *data, size_t bytes, int32_t src) {
    (void)s, (void)data, (void)bytes, (void)src;
    asked++;
    return TD_OK;
}

static void test_slot_of_the_strategy_comes_before_the_collective(void **state) {
    (void)state;
    const struct td_strategy_ops ops = {.struct_bytes = sizeof ops, .broadcast = own_broadcast};
    struct td_rank r = {.strategy_ops = &ops, .facts.world_size = 2}; // without a group
    int32_t x = 1;
    assert_ok(td_rank_broadcast(&r, &x, sizeof x, 0));
    assert_int_equal(asked, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_single_device_refuses_a_world_of_two),
        cmocka_unit_test(test_group_call_is_refused_when_it_is_not_of_the_world),
        cmocka_unit_test(test_group_calls_are_identities_when_the_world_is_one),
        cmocka_unit_test(test_facts_are_the_launchers_when_a_strategy_opens),
        cmocka_unit_test(test_slot_of_the_strategy_comes_before_the_collective),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
