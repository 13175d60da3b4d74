// Exit codes and classes: what the launcher reads from a code is what the worker meant by it.
// A failure never maps to success, in either direction. A drain is over when it was answered. And
// a rank's memory is what both sides expect, and stays that.

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "lib/attempt/rank_page.h"
#include "lib/attempt/exit_codes.h"
#include "lib/base/clock.h"
#include "tests/unit/test.h"

static void test_class_comes_back_when_it_has_a_code(void **state) {
    (void)state;
    for (int c = 0; c < TD_CLASS_COUNT; c++) {
        int code = td_exit_code_of((enum td_class)c);
        assert_int_not_equal(code, TD_EXIT_DONE);
        if (code != TD_EXIT_BUG) assert_int_equal(td_exit_code_class(code), c);
    }
    assert_int_equal(td_exit_code_of(TD_CLASS_DATA), TD_EXIT_DATA);
    assert_int_equal(td_exit_code_of(TD_CLASS_PREEMPTED), TD_EXIT_STOPPED);
    assert_true(td_exit_code_is_failure(TD_EXIT_ABI) && td_exit_code_is_failure(TD_EXIT_BUG));
    assert_false(td_exit_code_is_failure(TD_EXIT_STOPPED) || td_exit_code_is_failure(1));
}

static void test_class_is_internal_when_the_code_is_unknown(void **state) {
    (void)state;
    assert_int_equal(td_exit_code_class(TD_EXIT_DONE), TD_CLASS_NONE);
    assert_int_equal(td_exit_code_class(1), TD_CLASS_INTERNAL);
    assert_int_equal(td_exit_code_class(139), TD_CLASS_INTERNAL);
    assert_int_equal(td_exit_code_class(TD_EXIT_ABI), TD_CLASS_BAD_SPEC);
}

static void *answer(void *arg) {
    struct td_rank_page *p = arg;
    while (td_rank_page_drain_asked(p) == 0) {}
    td_rank_page_answer_drain(p, td_rank_page_drain_asked(p));
    return NULL;
}

static void test_drain_is_awaited_until_it_is_answered(void **state) {
    (void)state;
    struct td_rank_page p = {0};
    pthread_t launcher;
    assert_int_equal(pthread_create(&launcher, NULL, answer, &p), 0);
    uint32_t asked = td_rank_page_ask_drain(&p);
    assert_ok(td_rank_page_await_drain(&p, asked, TD_TEST_WAIT_NS));
    pthread_join(launcher, NULL);
    assert_fails(td_rank_page_await_drain(&p, td_rank_page_ask_drain(&p), TD_NS_PER_MS),
                 TD_DEADLINE_EXCEEDED, "no metric points");
}

static void test_page_is_made_for_its_rank_and_cannot_change_its_size(void **state) {
    (void)state;
    int fd = -1;
    struct td_rank_page *page = NULL;
    struct td_ring ours, theirs;
    assert_ok(td_rank_page_make(1, 3, &fd, &page, &ours));
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_size, td_rank_page_memory());
    assert_true(st.st_blocks * 512 >= st.st_size); // allocated
    assert_int_equal(ftruncate(fd, 0), -1);
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    assert_int_equal(page->magic, TD_RANK_PAGE_MAGIC);
    assert_int_equal(page->rank, 1);
    assert_int_equal(page->world_size, 3);
    assert_ok(td_ring_attach((char *)page + TD_RANK_PAGE_BYTES,
                             td_rank_page_memory() - TD_RANK_PAGE_BYTES,
                             sizeof(struct td_metric_record), &theirs));
    struct td_metric_record in = {.step = 7}, out = {.step = 0};
    assert_true(td_ring_push(&theirs, &in));
    assert_true(td_ring_pop(&ours, &out));
    assert_int_equal(out.step, 7);
    munmap(page, td_rank_page_memory());
    close(fd);
}

// A rank may write anything there; what differs by more than the type holds has overflowed.
static void test_progress_is_in_its_range_when_the_rank_is_hostile(void **state) {
    (void)state;
    static const int64_t hostile[] = {INT64_MIN, -1, 0, 1, INT64_MAX};
    struct td_rank_page p = {0};
    for (size_t i = 0; i < TD_COUNTOF(hostile); i++) {
        const int64_t v = hostile[i], most = v < 0 ? 0 : v;
        atomic_store(&p.phase, (int32_t)v);
        atomic_store(&p.epoch, v < 0 ? INT32_MIN : (int32_t)v);
        atomic_store(&p.step, v);
        atomic_store(&p.total_steps, v);
        atomic_store(&p.samples, v);
        atomic_store(&p.heartbeat_ns, v);
        atomic_store(&p.collective_seq, v);
        const struct td_rank_progress is = td_rank_page_progress(&p);
        assert_true(is.epoch >= 0);
        assert_int_equal(is.step, TD_MIN(most, (int64_t)INT32_MAX));
        assert_int_equal(is.total_steps, TD_MIN(most, (int64_t)INT32_MAX));
        assert_int_equal(is.samples, most);
        assert_int_equal(is.heartbeat_ns, most);
        assert_int_equal(is.collective_seq, most);
        assert_non_null(td_rank_phase_name(is.phase));
    }
}

static void test_loading_says_what_and_how_far_when_it_is_asked(void **state) {
    (void)state;
    assert_string_equal(td_rank_phase_name(TD_PHASE_LOADING_DATA), "loading");
    assert_string_equal(td_rank_phase_detail(TD_PHASE_LOADING_DATA), "data (2 of 6)");
    assert_string_equal(td_rank_phase_detail(TD_PHASE_LOADING_KERNELS), "kernels (6 of 6)");
    assert_string_equal(td_rank_phase_detail(TD_PHASE_LOADING), "");
    assert_string_equal(td_rank_phase_name(TD_PHASE_PREDICTING), "predicting");
    assert_string_equal(td_rank_phase_detail(TD_PHASE_PREDICTING), "");
    assert_string_equal(td_rank_phase_name(TD_PHASE_LOADING_KERNELS + 1), "unknown");
    assert_string_equal(td_rank_phase_name(-1), "unknown");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_class_comes_back_when_it_has_a_code),
        cmocka_unit_test(test_progress_is_in_its_range_when_the_rank_is_hostile),
        cmocka_unit_test(test_loading_says_what_and_how_far_when_it_is_asked),
        cmocka_unit_test(test_class_is_internal_when_the_code_is_unknown),
        cmocka_unit_test(test_drain_is_awaited_until_it_is_answered),
        cmocka_unit_test(test_page_is_made_for_its_rank_and_cannot_change_its_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
