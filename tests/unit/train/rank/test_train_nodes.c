// A rank of an attempt on several nodes: which collective it joins, and what it then trains.

#include "tests/unit/test.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include "tests/unit/collectives/nodes_rig.h"
#include "tests/unit/train/rank/train_rig.h"

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

// Somebody who is no node connects to node 0 of attempt 2 while it waits for this one.
static td_status connect_as_stranger(struct node_rank *r) {
    struct {
        char magic[8];
        uint32_t family, port; // in the order of the network
        char rest[120];
    } record;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct td_store *store = &r->nodes->store;
    static const char garbage[48] = "no token";
    size_t bytes;
    TD_TRY(store->get(store, "collective/a2/node-0", 20 * TD_NS_PER_S, &record, sizeof record,
                      &bytes));
    to.sin_port = (in_port_t)record.port;
    TD_AUTO_CLOSE int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    NODE_CHECK(connect(fd, (const struct sockaddr *)&to, sizeof to) == 0);
    NODE_CHECK(send(fd, garbage, sizeof garbage, MSG_NOSIGNAL) == sizeof garbage);
    return TD_OK;
}

// An event that left the rank has this text.
static bool has_event(int fd, const char *text) {
    char line[TD_EVENT_MAX + 1];
    ssize_t n;
    while ((n = recv(fd, line, sizeof line - 1, MSG_DONTWAIT)) > 0) {
        line[n] = '\0';
        if (strstr(line, text)) return true;
    }
    return false;
}

// The group that the rig has joined is not used: a run joins its own, of the next attempt.
static td_status rank_trains(struct node_rank *r, void *arg) {
    struct td_registry *registry = NULL;
    const struct td_plugin_desc *desc;
    struct run run;
    struct td_train_result result;
    char dir[4096], address[32];
    int events[2];
    (void)arg;
    NODE_CHECK(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, events) == 0);
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
    close(run.events.fd);
    run.events.fd = events[1];
    td_status s = r->rank ? connect_as_stranger(r) : TD_OK;
    if (!s) s = td_train(&run.config, &run.io, &run.events, &result);
    dispose(&run);
    td_registry_destroy(registry);
    const bool is_noted = has_event(events[0], "node 0 dropped 1 connection of strangers");
    NODE_CHECK(s || is_noted == (r->rank == 0));
    close(events[0]);
    if (!s && result.step != 2) return td_fail(TD_INTERNAL, "%d steps", (int)result.step);
    return s;
}

static void test_ranks_train_and_note_a_stranger_when_they_are_on_two_nodes(void **state) {
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
        cmocka_unit_test(test_ranks_train_and_note_a_stranger_when_they_are_on_two_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
