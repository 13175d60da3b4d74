// The loop alone, also under the thread sanitizer: its list of posts is what threads share. (Under
// gRPC, which is not instrumented, the sanitizer would see races that are none.)

#include "tests/unit/test.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "lib/base/clock.h"
#include "lib/loop/loop.h"

enum { N_THREADS = 4, N_POSTS = 5000 };

static struct td_loop *open_loop(void) {
    struct td_loop *loop;
    assert_true(td_loop_create(&loop) == TD_OK);
    return loop;
}

static void set_true(void *arg) {
    *(bool *)arg = true;
}

static void stop(void *arg) {
    td_loop_stop(arg);
}

// ---- posts ----

struct post {
    struct producer *from;
    int number;
};

struct producer {
    pthread_t thread;
    struct td_loop *loop;
    struct post posts[N_POSTS];
    int n_seen;
    bool in_order;
    int *n_left;
};

static void on_post(void *arg) {
    struct post *p = arg;
    if (p->number != p->from->n_seen) p->from->in_order = false;
    p->from->n_seen++;
    if (--*p->from->n_left == 0) td_loop_stop(p->from->loop);
}

static void *produce(void *arg) {
    struct producer *p = arg;
    for (int i = 0; i < N_POSTS; i++) {
        p->posts[i] = (struct post){.from = p, .number = i};
        assert_true(td_loop_post(p->loop, on_post, &p->posts[i]) == TD_OK);
    }
    return NULL;
}

static void test_posts_arrive_once_and_in_order_when_threads_race(void **state) {
    (void)state;
    struct td_loop *loop = open_loop();
    static struct producer producers[N_THREADS];
    int n_left = N_THREADS * N_POSTS;
    for (int i = 0; i < N_THREADS; i++) {
        producers[i].loop = loop;
        producers[i].in_order = true;
        producers[i].n_left = &n_left;
        assert_int_equal(pthread_create(&producers[i].thread, NULL, produce, &producers[i]), 0);
    }
    assert_true(td_loop_run(loop) == TD_OK);
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(producers[i].thread, NULL);
        assert_int_equal(producers[i].n_seen, N_POSTS);
        assert_true(producers[i].in_order);
    }
    td_loop_destroy(loop);
}

static void *stop_from_thread(void *arg) {
    assert_false(td_loop_is_owner(arg));
    assert_true(td_loop_post(arg, stop, arg) == TD_OK);
    return NULL;
}

static void test_run_ends_when_another_thread_stops_it(void **state) {
    (void)state;
    struct td_loop *loop = open_loop();
    assert_true(td_loop_is_owner(loop));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, stop_from_thread, loop), 0);
    assert_true(td_loop_run(loop) == TD_OK);
    pthread_join(thread, NULL);
    td_loop_destroy(loop);
}

struct chain {
    struct td_loop *loop;
    struct td_loop_wakeup *wakeup;
    int n_left;
};

static void on_chain(void *arg) {
    struct chain *c = arg;
    if (--c->n_left) {
        td_loop_wakeup_send(c->wakeup);
    } else {
        td_loop_wakeup_destroy(c->wakeup);
        td_loop_stop(c->loop);
    }
}

static void test_wakeup_may_be_sent_and_destroyed_when_in_its_own_run(void **state) {
    (void)state;
    struct chain c = {.loop = open_loop(), .n_left = 100};
    assert_true(td_loop_wakeup_create(c.loop, on_chain, &c, &c.wakeup) == TD_OK);
    td_loop_wakeup_send(c.wakeup);
    assert_true(td_loop_run(c.loop) == TD_OK);
    assert_int_equal(c.n_left, 0);
    td_loop_destroy(c.loop);
}

struct tally {
    struct td_loop *loop;
    struct td_loop_wakeup *wakeup;
    pthread_t threads[N_THREADS];
    _Atomic int n_left; // relaxed: a send publishes it
    int n_runs;
};

static void *count_down(void *arg) {
    struct tally *t = arg;
    for (int i = 0; i < N_POSTS; i++) {
        atomic_fetch_sub_explicit(&t->n_left, 1, memory_order_relaxed);
        td_loop_wakeup_send(t->wakeup);
    }
    return NULL;
}

static void on_count(void *arg) {
    struct tally *t = arg;
    t->n_runs++;
    if (atomic_load_explicit(&t->n_left, memory_order_relaxed) == 0) td_loop_stop(t->loop);
}

static void test_wakeup_misses_nothing_when_threads_race(void **state) {
    (void)state;
    struct tally t = {.loop = open_loop(), .n_left = N_THREADS * N_POSTS};
    assert_true(td_loop_wakeup_create(t.loop, on_count, &t, &t.wakeup) == TD_OK);
    for (int i = 0; i < N_THREADS; i++) {
        assert_int_equal(pthread_create(&t.threads[i], NULL, count_down, &t), 0);
    }
    assert_true(td_loop_run(t.loop) == TD_OK);
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(t.threads[i], NULL);
    }
    assert_in_range(t.n_runs, 1, N_THREADS * N_POSTS);
    td_loop_wakeup_destroy(t.wakeup);
    td_loop_destroy(t.loop);
}

static void test_wakeup_does_not_run_when_destroyed_on_its_way(void **state) {
    (void)state;
    struct td_loop *loop = open_loop();
    bool ran = false;
    struct td_loop_wakeup *wakeup;
    assert_true(td_loop_wakeup_create(loop, set_true, &ran, &wakeup) == TD_OK);
    td_loop_wakeup_send(wakeup);
    td_loop_wakeup_destroy(wakeup);
    td_loop_destroy(loop);
    assert_false(ran);
}

static void test_posts_run_when_the_loop_is_destroyed(void **state) {
    (void)state;
    struct td_loop *loop = open_loop();
    bool ran = false;
    assert_true(td_loop_post(loop, set_true, &ran) == TD_OK);
    td_loop_destroy(loop);
    assert_true(ran);
}

static td_status make_loop(void *arg) {
    (void)arg;
    TD_AUTO(td_loop) *loop = NULL;
    TD_TRY(td_loop_create(&loop));
    TD_AUTO(td_loop_timer) *timer = NULL;
    return td_loop_timer_create(loop, set_true, NULL, &timer);
}

static void test_loop_fails_cleanly_when_memory_is_out(void **state) {
    (void)state;
    td_test_failing_allocations(make_loop, NULL);
}

// ---- the end of a turn ----

struct turns {
    struct td_loop *loop;
    int n_posts, n_ends, seen; // posts that the newest end saw
    bool done;
};

static void on_counted_post(void *arg) {
    struct turns *t = arg;
    t->n_posts++;
}

static void on_end(void *arg) {
    struct turns *t = arg;
    t->n_ends++;
    t->seen = t->n_posts;
    t->done = t->n_posts == 3;
}

static void test_turn_ends_once_for_all_that_it_brought(void **state) {
    (void)state;
    struct turns t = {.loop = open_loop()};
    struct td_loop_turn *turn;
    assert_true(td_loop_turn_create(t.loop, on_end, &t, &turn) == TD_OK);
    for (int i = 0; i < 3; i++) {
        assert_true(td_loop_post(t.loop, on_counted_post, &t) == TD_OK);
    }
    assert_true(td_loop_run_until(t.loop, &t.done, TD_TEST_WAIT_NS) == TD_OK);
    assert_int_equal(t.seen, 3);
    assert_int_equal(t.n_ends, 2); // a run begins with one, for what came before it
    td_loop_turn_destroy(turn);
    td_loop_destroy(t.loop);
}

// ---- timers ----

static void test_timer_fires_not_before_its_time(void **state) {
    (void)state;
    struct td_loop *loop = open_loop();
    struct td_loop_timer *timer;
    bool fired = false;
    assert_true(td_loop_timer_create(loop, set_true, &fired, &timer) == TD_OK);
    int64_t begin_ns = td_mono_now().ns;
    td_loop_timer_arm(timer, 20 * TD_NS_PER_MS);
    assert_true(td_loop_run_until(loop, &fired, TD_TEST_WAIT_NS) == TD_OK);
    assert_true(td_mono_now().ns - begin_ns >= 20 * TD_NS_PER_MS);
    assert_false(td_loop_timer_is_armed(timer));
    td_loop_timer_destroy(timer);
    td_loop_destroy(loop);
}

struct ticks {
    struct td_loop_timer *timer;
    int n_left;
    bool done;
};

static void on_tick(void *arg) {
    struct ticks *t = arg;
    if (--t->n_left) {
        td_loop_timer_arm(t->timer, TD_NS_PER_MS);
        return;
    }
    td_loop_timer_destroy(t->timer); // from its own callback
    t->done = true;
}

static void test_timer_may_be_armed_and_destroyed_when_in_its_callback(void **state) {
    (void)state;
    struct td_loop *loop = open_loop();
    struct ticks t = {.n_left = 3};
    assert_true(td_loop_timer_create(loop, on_tick, &t, &t.timer) == TD_OK);
    td_loop_timer_arm(t.timer, TD_NS_PER_MS);
    assert_true(td_loop_run_until(loop, &t.done, TD_TEST_WAIT_NS) == TD_OK);
    td_loop_destroy(loop);
}

static void test_run_until_fails_when_time_is_up(void **state) {
    (void)state;
    struct td_loop *loop = open_loop();
    bool never = false;
    td_status s = td_loop_run_until(loop, &never, TD_NS_PER_MS);
    assert_int_equal(td_status_code(s), TD_DEADLINE_EXCEEDED);
    td_status_free(s);
    td_loop_destroy(loop);
}

// ---- descriptors and signals ----

struct echo {
    struct td_loop_fd *watch;
    char byte;
    bool done;
};

static void on_readable(int fd, void *arg) {
    struct echo *e = arg;
    assert_int_equal(read(fd, &e->byte, 1), 1);
    td_loop_fd_destroy(e->watch);
    e->done = true;
}

static void test_fd_watch_tells_when_bytes_arrive(void **state) {
    (void)state;
    struct td_loop *loop = open_loop();
    struct echo e = {0};
    int fds[2];
    assert_int_equal(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
    assert_true(td_loop_fd_create(loop, fds[0], 0, on_readable, &e, &e.watch) == TD_OK);
    td_status s = td_loop_run_until(loop, &e.done, 5 * TD_NS_PER_MS);
    assert_int_equal(td_status_code(s), TD_DEADLINE_EXCEEDED);
    td_status_free(s);
    assert_int_equal(write(fds[1], "x", 1), 1);
    assert_true(td_loop_run_until(loop, &e.done, TD_TEST_WAIT_NS) == TD_OK);
    assert_int_equal(e.byte, 'x');
    close(fds[0]);
    close(fds[1]);
    td_loop_destroy(loop);
}

static void test_fd_watch_is_refused_when_the_file_cannot_be_polled(void **state) {
    (void)state;
    struct td_loop *loop = open_loop();
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    struct td_loop_fd *watch;
    td_status s = td_loop_fd_create(loop, fd, 0, on_readable, NULL, &watch);
    assert_int_equal(td_status_code(s), TD_FAILED_PRECONDITION);
    td_status_free(s);
    close(fd);
    td_loop_destroy(loop);
}

static void test_signal_runs_on_the_loop_when_raised(void **state) {
    (void)state;
    struct td_loop *loop = open_loop();
    struct td_loop_signal *watch;
    bool seen = false;
    assert_true(td_loop_signal_create(loop, SIGUSR1, set_true, &seen, &watch) == TD_OK);
    raise(SIGUSR1);
    assert_false(seen);
    assert_true(td_loop_run_until(loop, &seen, TD_TEST_WAIT_NS) == TD_OK);
    td_loop_signal_destroy(watch);
    td_loop_destroy(loop);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_posts_arrive_once_and_in_order_when_threads_race),
        cmocka_unit_test(test_run_ends_when_another_thread_stops_it),
        cmocka_unit_test(test_wakeup_may_be_sent_and_destroyed_when_in_its_own_run),
        cmocka_unit_test(test_wakeup_misses_nothing_when_threads_race),
        cmocka_unit_test(test_wakeup_does_not_run_when_destroyed_on_its_way),
        cmocka_unit_test(test_posts_run_when_the_loop_is_destroyed),
        cmocka_unit_test(test_loop_fails_cleanly_when_memory_is_out),
        cmocka_unit_test(test_turn_ends_once_for_all_that_it_brought),
        cmocka_unit_test(test_timer_fires_not_before_its_time),
        cmocka_unit_test(test_timer_may_be_armed_and_destroyed_when_in_its_callback),
        cmocka_unit_test(test_run_until_fails_when_time_is_up),
        cmocka_unit_test(test_fd_watch_tells_when_bytes_arrive),
        cmocka_unit_test(test_fd_watch_is_refused_when_the_file_cannot_be_polled),
        cmocka_unit_test(test_signal_runs_on_the_loop_when_raised),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
