// The queue of a device: order, bounds, deadlines, and a failure, which is reported once and after
// which nothing is run.
//
// Tags: tsan

#include <pthread.h>
#include <semaphore.h>

#include "accelerators/queue/queue.h"
#include "lib/base/clock.h"
#include "tests/unit/test.h"

enum { CAPACITY = 3, TASKS = 100, NONE = 0 };

// What tasks do, and what they have done.
struct log {
    struct td_queue *queue;
    td_ticket fails_at; // NONE: no task
    bool is_gated;      // each task comes only when the test has posted `gate`
    sem_t gate, begun;
    int64_t rest_ns;
    int n;
    td_ticket ticket[TASKS];
    bool is_here; // so each of them said
};

static td_status write_down(void *arg, td_ticket ticket) {
    struct log *l = arg;
    sem_post(&l->begun);
    if (l->is_gated) sem_wait(&l->gate);
    if (l->rest_ns) td_queue_rest(l->queue, l->rest_ns);
    l->ticket[l->n++] = ticket;
    l->is_here &= td_queue_is_here(l->queue);
    if (ticket != l->fails_at) return TD_OK;
    return td_status_with_class(td_fail(TD_DATA_LOSS, "task %d is bad", (int)ticket),
                                TD_CLASS_DATA);
}

static void open_queue(struct log *l, uint32_t capacity) {
    l->n = 0;
    l->is_here = true;
    sem_init(&l->gate, 0, 0);
    sem_init(&l->begun, 0, 0);
    assert_ok(td_queue_create("the toy", capacity, write_down, l, &l->queue));
}

static void close_queue(struct log *l) {
    td_queue_destroy(l->queue);
    sem_destroy(&l->gate);
    sem_destroy(&l->begun);
}

static void add(struct log *l, int n) {
    for (int i = 0; i < n; i++) {
        assert_ok(td_queue_add(l->queue));
    }
}

static void test_tasks_are_run_in_order_on_the_queues_thread(void **state) {
    struct log l = {.fails_at = NONE};
    (void)state;
    open_queue(&l, TASKS);
    assert_ok(td_queue_wait(l.queue, 0, 0));
    assert_false(td_queue_is_here(l.queue));
    for (td_ticket t = 1; t <= TASKS; t++) {
        assert_int_equal(td_queue_next(l.queue), t);
        add(&l, 1);
    }
    assert_ok(td_queue_wait(l.queue, TASKS, TD_TEST_WAIT_NS));
    assert_int_equal(l.n, TASKS);
    assert_true(l.is_here);
    for (int i = 0; i < TASKS; i++) {
        assert_int_equal(l.ticket[i], i + 1);
    }
    assert_ok(td_queue_wait(l.queue, 1, 0)); // again, and a ticket that grew old
    assert_ok(td_queue_wait(l.queue, TASKS, 0));
    close_queue(&l);
}

static void test_add_is_refused_when_the_queue_is_full(void **state) {
    struct log l = {.is_gated = true};
    (void)state;
    open_queue(&l, CAPACITY);
    add(&l, 1);
    sem_wait(&l.begun); // the one that runs counts, too
    add(&l, CAPACITY - 1);
    assert_fails(td_queue_add(l.queue), TD_FAILED_PRECONDITION, "the toy has 3 runs queued");
    assert_int_equal(td_queue_next(l.queue), CAPACITY + 1);
    sem_post(&l.gate);
    assert_ok(td_queue_wait(l.queue, 1, TD_TEST_WAIT_NS));
    add(&l, 1);
    assert_fails(td_queue_add(l.queue), TD_FAILED_PRECONDITION, "wait for one");
    for (int i = 0; i < CAPACITY; i++) {
        sem_post(&l.gate);
    }
    assert_ok(td_queue_wait(l.queue, CAPACITY + 1, TD_TEST_WAIT_NS));
    close_queue(&l);
}

static void test_wait_ends_at_its_deadline(void **state) {
    struct log l = {.is_gated = true};
    (void)state;
    open_queue(&l, CAPACITY);
    add(&l, 1);
    const struct td_mono before = td_mono_now();
    assert_fails(td_queue_wait(l.queue, 1, 0), TD_DEADLINE_EXCEEDED, "run 1 of the toy");
    assert_fails(td_queue_wait(l.queue, 1, 20 * TD_NS_PER_MS), TD_DEADLINE_EXCEEDED, "not done");
    assert_true(td_mono_now().ns - before.ns >= 20 * TD_NS_PER_MS);
    assert_fails(td_queue_wait(l.queue, 2, TD_NS_PER_MS), TD_DEADLINE_EXCEEDED, "run 2");
    sem_post(&l.gate);
    assert_ok(td_queue_wait(l.queue, 1, TD_TEST_WAIT_NS)); // which the deadlines left as it was
    close_queue(&l);
}

// ---- failure -----------------------------------------------------------------------------------
static void test_failure_is_reported_once_and_ends_what_follows(void **state) {
    struct log l = {.fails_at = 2, .is_gated = true};
    (void)state;
    open_queue(&l, TASKS);
    add(&l, 4);
    for (int i = 0; i < 4; i++) {
        sem_post(&l.gate);
    }
    assert_ok(td_queue_wait(l.queue, 1, TD_TEST_WAIT_NS));
    td_status s = td_queue_wait(l.queue, 3, TD_TEST_WAIT_NS); // the first who asks
    assert_int_equal(td_status_class(s), TD_CLASS_DATA);
    assert_fails(s, TD_DATA_LOSS, "task 2 is bad");
    s = td_queue_wait(l.queue, 2, TD_TEST_WAIT_NS);
    assert_int_equal(td_status_class(s), TD_CLASS_DEVICE);
    assert_fails(s, TD_FAILED_PRECONDITION, "the toy failed in run 2, which was reported before");
    assert_ok(td_queue_wait(l.queue, 1, 0)); // it did not fail
    add(&l, 1);                              // as ever, and it is done
    assert_fails(td_queue_wait(l.queue, 5, TD_TEST_WAIT_NS), TD_FAILED_PRECONDITION, "in run 2");
    assert_int_equal(l.n, 2); // tasks 3 to 5 were not run
    close_queue(&l);
}

static td_status be_late(void *arg, td_ticket ticket) {
    (void)arg;
    (void)ticket;
    td_status s = td_fail(TD_DEADLINE_EXCEEDED, "rank 1 did not arrive");
    s = td_status_with_meta(td_status_with_reason(s, "COLLECTIVE_TIMEOUT"), "missing_ranks", "1");
    return td_status_with_class(s, TD_CLASS_COLLECTIVE);
}

static void test_deadline_of_a_task_is_not_that_of_a_wait(void **state) {
    struct td_queue *q;
    const char *key, *value;
    (void)state;
    assert_ok(td_queue_create("the toy", 1, be_late, NULL, &q));
    assert_ok(td_queue_add(q));
    td_status s = td_queue_wait(q, 1, TD_TEST_WAIT_NS);
    assert_int_equal(td_status_class(s), TD_CLASS_COLLECTIVE);
    assert_string_equal(td_status_reason(s), "COLLECTIVE_TIMEOUT");
    assert_int_equal(td_status_n_meta(s), 1);
    td_status_meta(s, 0, &key, &value);
    assert_string_equal(key, "missing_ranks");
    assert_string_equal(value, "1");
    assert_fails(s, TD_ABORTED, "rank 1 did not arrive");
    td_queue_destroy(q);
}

// ---- the end -----------------------------------------------------------------------------------
static void test_destroy_runs_what_is_queued(void **state) {
    struct log l = {.is_gated = true};
    (void)state;
    open_queue(&l, CAPACITY);
    add(&l, CAPACITY);
    for (int i = 0; i < CAPACITY; i++) {
        sem_post(&l.gate);
    }
    close_queue(&l);
    assert_int_equal(l.n, CAPACITY);
}

static void test_destroy_runs_nothing_after_a_failure(void **state) {
    struct log l = {.fails_at = 1, .is_gated = true};
    (void)state;
    open_queue(&l, CAPACITY);
    add(&l, CAPACITY);
    sem_post(&l.gate); // for the first alone
    close_queue(&l);
    assert_int_equal(l.n, 1);
}

static void test_rest_passes_or_ends_when_the_queue_is_destroyed(void **state) {
    struct log l = {.rest_ns = 20 * TD_NS_PER_MS};
    struct td_mono before = td_mono_now();
    (void)state;
    open_queue(&l, CAPACITY);
    add(&l, 1);
    assert_ok(td_queue_wait(l.queue, 1, TD_TEST_WAIT_NS));
    assert_true(td_mono_now().ns - before.ns >= l.rest_ns);
    sem_wait(&l.begun);
    l.rest_ns = 24 * 3600 * TD_NS_PER_S;
    add(&l, 2);
    sem_wait(&l.begun);
    before = td_mono_now();
    close_queue(&l); // both, with their rests
    assert_true(td_mono_now().ns - before.ns < TD_TEST_WAIT_NS);
    assert_int_equal(l.n, 3);
    td_queue_destroy(NULL);
}

// ---- other threads -----------------------------------------------------------------------------
static void *wait_for_all(void *arg) {
    struct log *l = arg;
    td_status s = td_queue_wait(l->queue, CAPACITY, TD_TEST_WAIT_NS);
    const bool is_good = !s && l->n == CAPACITY && !td_queue_is_here(l->queue);
    td_status_free(s);
    return is_good ? l : NULL;
}

static void test_any_thread_waits(void **state) {
    enum { THREADS = 4 };
    struct log l = {.is_gated = true};
    pthread_t thread[THREADS];
    (void)state;
    open_queue(&l, CAPACITY);
    for (int i = 0; i < THREADS; i++) { // also for what is not added yet
        assert_int_equal(pthread_create(&thread[i], NULL, wait_for_all, &l), 0);
    }
    add(&l, CAPACITY);
    for (int i = 0; i < CAPACITY; i++) {
        sem_post(&l.gate);
    }
    for (int i = 0; i < THREADS; i++) {
        void *good;
        assert_int_equal(pthread_join(thread[i], &good), 0);
        assert_non_null(good);
    }
    close_queue(&l);
}

static td_status wait_for_the_one_before(void *arg, td_ticket ticket) {
    const struct log *l = arg;
    return td_queue_wait(l->queue, ticket - 1, 0);
}

static void test_task_waits_for_earlier_ones(void **state) {
    struct log l = {0};
    (void)state;
    assert_ok(td_queue_create("the toy", CAPACITY, wait_for_the_one_before, &l, &l.queue));
    add(&l, CAPACITY);
    assert_ok(td_queue_wait(l.queue, CAPACITY, TD_TEST_WAIT_NS));
    td_queue_destroy(l.queue);
}

static td_status make(void *arg) {
    struct td_queue *q;
    TD_TRY(td_queue_create("the toy", 1, write_down, arg, &q));
    td_queue_destroy(q);
    return TD_OK;
}

static void test_create_fails_clean_without_memory(void **state) {
    (void)state;
    td_test_failing_allocations(make, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tasks_are_run_in_order_on_the_queues_thread),
        cmocka_unit_test(test_add_is_refused_when_the_queue_is_full),
        cmocka_unit_test(test_wait_ends_at_its_deadline),
        cmocka_unit_test(test_failure_is_reported_once_and_ends_what_follows),
        cmocka_unit_test(test_deadline_of_a_task_is_not_that_of_a_wait),
        cmocka_unit_test(test_destroy_runs_what_is_queued),
        cmocka_unit_test(test_destroy_runs_nothing_after_a_failure),
        cmocka_unit_test(test_rest_passes_or_ends_when_the_queue_is_destroyed),
        cmocka_unit_test(test_any_thread_waits),
        cmocka_unit_test(test_task_waits_for_earlier_ones),
        cmocka_unit_test(test_create_fails_clean_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
