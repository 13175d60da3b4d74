// How long ranks wait for one that is late. A slow disk is given the deadline of saving, a pause
// between two steps that of data. test_train_trace.c shows when each holds.

#include "tests/unit/test.h"

#include <poll.h>

#include "engine/train/build.h"
#include "engine/train/loop/boundary.h"
#include "engine/train/loop/manual.h"
#include "engine/train/rank/group/group.h"
#include "tests/unit/train/rank/ranks_rig.h"

enum { SLOW_MS = 600 };
#define SHORT_NS (200 * TD_NS_PER_MS)

static const struct job two_ranks = {.accelerator = "reference",
                                     .strategy = "ddp",
                                     .precision = "32-true",
                                     .world = RANKS,
                                     .accumulate = 1,
                                     .max_epochs = 1};

static void pause_of_a_test(void *arg) {
    (void)arg;
    (void)poll(NULL, 0, SLOW_MS);
}

static td_status step(struct td_manual *m) {
    int64_t n;
    bool stepped;
    TD_TRY(td_manual_next(m, &n));
    TD_TRY(td_manual_forward(m, 0, 1));
    TD_TRY(td_manual_backward(m, -1));
    TD_TRY(td_manual_optimizer_step(m, 0, &stepped));
    return td_manual_drain(m);
}

enum late { LATE_AT_START, LATE_TO_SAVE, LATE_BETWEEN_STEPS, LATE_TO_A_BARRIER, LATE_COUNT };
static enum late late;

// Rank 0 is late once, for longer than data is waited for.
static td_status train(struct td_rank *rank) {
    struct td_train_loop l;
    struct td_manual m;
    const bool is_late = rank->config->rank == 0;
    td_train_loop_init(&l, rank);
    TD_TRY(td_train_loop_settle(&l));
    TD_TRY(td_epoch_metrics_begin(&l.played, rank));
    td_manual_init(&m, &l);
    if (is_late && late == LATE_AT_START) pause_of_a_test(NULL);
    TD_TRY(step(&m));
    if (late == LATE_TO_SAVE) {
        while (is_late && !td_background_submit(rank->background, pause_of_a_test, NULL)) {
            (void)poll(NULL, 0, 1); // the buffer of the checkpoint is being made
        }
        TD_TRY(td_boundary_save(&l, TD_SAVE_ASKED));
    }
    if (is_late && late == LATE_BETWEEN_STEPS) pause_of_a_test(NULL);
    if (late == LATE_TO_A_BARRIER) {
        if (is_late) pause_of_a_test(NULL);
        TD_TRY(td_rank_barrier(rank, "slow"));
    }
    return step(&m);
}

static void *late_rank(void *arg) {
    struct rank *k = arg;
    k->run.config.manual = k->run.config.manual_accumulates = true;
    return be_a_rank(k, train);
}

static void shorten(struct run *r, const char *dir) {
    (void)dir;
    r->config.collective_timeout_ns = SHORT_NS;
    r->config.checkpoint.save_top_k = -1;
}

// Contract 14: the deadline of data, and that of saving
static void test_ranks_wait_for_a_late_one_when_it_starts_or_saves(void **state) {
    for (late = 0; late < LATE_COUNT; late++) {
        struct job j = two_ranks;
        struct ranks all;
        j.body = late_rank;
        j.change = shorten;
        start_ranks(&all, &j, *state);
        join_ranks(&all);
        td_status waited = all.rank[1].failed;
        if (late == LATE_BETWEEN_STEPS) {
            assert_int_equal(td_status_class(waited), TD_CLASS_COLLECTIVE);
            assert_fails(waited, TD_DEADLINE_EXCEEDED,
                         "rank 0 of 2 did not arrive within 0.200 s (trainer.collective_timeout)");
            td_status_free(all.rank[0].failed);
        } else {
            assert_ok(waited);
            assert_ok(all.rank[0].failed);
        }
    }
}

// There a run is queued, and its own deadline is not that of who waits for it.
static void test_late_rank_is_named_when_the_run_that_waits_for_it_was_queued(void **state) {
    struct job j = two_ranks;
    struct ranks all;
    late = LATE_BETWEEN_STEPS;
    j.accelerator = "far";
    j.body = late_rank;
    j.change = shorten;
    start_ranks(&all, &j, *state);
    join_ranks(&all);
    td_status waited = all.rank[1].failed;
    assert_int_equal(td_status_class(waited), TD_CLASS_COLLECTIVE);
    assert_string_equal(td_status_reason(waited), "COLLECTIVE_TIMEOUT");
    assert_fails(waited, TD_ABORTED,
                 "rank 0 of 2 did not arrive within 0.200 s (trainer.collective_timeout)");
    td_status_free(all.rank[0].failed);
}

// The disk of rank 0 is stuck: it says so before the others lose their patience.
static void be_impatient(struct run *r, const char *dir) {
    shorten(r, dir);
    r->config.save_timeout_ns = 4 * SHORT_NS;
    r->config.checkpoint.patience_ns = SHORT_NS;
}
static void test_save_names_its_deadline_when_the_writer_is_stuck(void **state) {
    struct job j = two_ranks;
    struct ranks all;
    late = LATE_TO_SAVE;
    j.body = late_rank;
    j.change = be_impatient;
    start_ranks(&all, &j, *state);
    join_ranks(&all);
    assert_int_equal(td_status_class(all.rank[0].failed), TD_CLASS_DISK);
    assert_fails(all.rank[0].failed, TD_DEADLINE_EXCEEDED,
                 "three quarters of trainer.save_timeout are over: the background thread");
    assert_fails(all.rank[1].failed, TD_ABORTED, "rank 0 gave up");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_ranks_wait_for_a_late_one_when_it_starts_or_saves),
        test_in_scratch(test_late_rank_is_named_when_the_run_that_waits_for_it_was_queued),
        test_in_scratch(test_save_names_its_deadline_when_the_writer_is_stuck),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
