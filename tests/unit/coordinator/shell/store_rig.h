#ifndef TRAIND_TESTS_UNIT_COORDINATOR_SHELL_STORE_RIG_H
#define TRAIND_TESTS_UNIT_COORDINATOR_SHELL_STORE_RIG_H

// A store in a scratch directory with a loop of its own, and what it said: tickets, points,
// answers.

#include <unistd.h>

#include "daemon/coordinator/shell/databases/databases.h"
#include "lib/loop/loop.h"
#include "tests/unit/test.h"

struct rig {
    struct td_loop *loop;
    struct td_databases *store;
    uint64_t committed, wanted, n_points, points_wanted;
    bool done, points_done, query_done, failing;
    int tell_fd; // of the child that is killed
    struct td_databases_query *answer;
};

static void on_committed(uint64_t ticket, void *arg) {
    struct rig *r = arg;
    assert_true(ticket >= r->committed);
    r->committed = ticket;
    r->done = ticket >= r->wanted;
    r->failing = r->store && td_databases_failing(r->store);
    if (r->tell_fd > 0) (void)!write(r->tell_fd, &ticket, sizeof ticket);
}

static void on_points(const struct td_points *points, void *arg) {
    struct rig *r = arg;
    r->n_points += points->n_points;
    r->points_done = r->n_points >= r->points_wanted;
}

static void on_forgotten(const char *job, void *arg) {
    (void)job;
    (void)arg;
}

static void open_rig(struct rig *r, const char *dir) {
    const struct td_databases_options o = {.dir = dir,
                                           .on_committed = on_committed,
                                           .on_points = on_points,
                                           .on_forgotten = on_forgotten,
                                           .arg = r};
    assert_ok(td_loop_create(&r->loop));
    assert_ok(td_databases_open(r->loop, &o, &r->store));
}

static void close_rig(struct rig *r) {
    td_databases_close(r->store);
    td_loop_destroy(r->loop);
}

#endif
