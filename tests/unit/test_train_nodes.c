// A rank of an attempt on several nodes: which collective it joins, and what it then trains.

#include "tests/unit/test.h"

#include "tests/unit/nodes_rig.h"
#include "tests/unit/train_rig.h"

static void test_collective_of_one_node_is_refused_when_there_are_several(void **state) {
    struct run r;
    struct td_train_result result;
    (void)state;
    prepare_run(&r, NULL, "ddp", NULL);
    r.config.world_size = 2;
    r.config.n_nodes = 2;
    r.config.local_world_size = 1;
    r.config.collective = "shm";
    td_status s = td_train(&r.config, &r.io, &r.events, &result);
    assert_int_equal(td_status_code(s), TD_INVALID_ARGUMENT);
    assert_int_equal(td_status_class(s), TD_CLASS_BAD_SPEC);
    assert_non_null(strstr(td_status_message(s), "'shm' joins the ranks of one node"));
    td_status_free(s);
    dispose(&r);
}

// The group that the rig has joined is not used: a run joins its own, of the next attempt.
static td_status rank_trains(struct node_rank *r, void *arg) {
    struct td_registry *registry = NULL;
    const struct td_plugin_desc *desc;
    struct run run;
    struct td_train_result result;
    char dir[4096], address[32];
    (void)arg;
    TD_TRY(td_plugin_dir(dir, sizeof dir));
    TD_TRY(td_registry_create(dir, &registry));
    TD_TRY(td_registry_find(registry, TD_PLUGIN_COLLECTIVE, "hierarchy", &desc));
    prepare_run(&run, desc, "ddp", NULL);
    snprintf(address, sizeof address, "127.0.0.%d", 1 + r->node);
    run.config.attempt = 2;
    run.config.rank = r->rank;
    run.config.world_size = r->world;
    run.config.collective = "hierarchy";
    run.config.node_rank = r->node;
    run.config.n_nodes = r->nodes->n_nodes;
    run.config.local_rank = r->local_rank;
    run.config.local_world_size = r->nodes->count[r->node];
    run.config.interface_address = address;
    run.io.store = &r->nodes->store;
    run.config.limits.max_epochs = 2;
    td_status s = td_train(&run.config, &run.io, &run.events, &result);
    dispose(&run);
    td_registry_destroy(registry);
    if (!s && result.step != 2) return td_fail(TD_INTERNAL, "%d steps", (int)result.step);
    return s;
}

static void test_ranks_train_when_they_are_on_two_nodes(void **state) {
    static const int32_t two[] = {1, 1};
    struct nodes n;
    (void)state;
    if (!hierarchy_ops()) TD_SKIP("no libgloo, so ranks are on one node");
    nodes_init(&n, 2, two);
    nodes_run(&n, rank_trains, NULL);
    nodes_finish(&n);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_collective_of_one_node_is_refused_when_there_are_several),
        cmocka_unit_test(test_ranks_train_when_they_are_on_two_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
