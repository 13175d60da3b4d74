// Pages and the mode of denormals, as this machine has them.

#include <pthread.h>
#include <sys/mman.h>

#include "lib/base/machine/machine.h"
#include "tests/unit/test.h"

static void test_page_is_what_the_kernel_maps(void **state) {
    (void)state;
    size_t page = td_page_bytes();
    assert_true(page >= 4096 && (page & (page - 1)) == 0);
    char *p = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    assert_int_equal(munmap(p + page, page), 0); // only whole pages can go
    p[page - 1] = 1;
    assert_int_equal(munmap(p, page), 0);
}

struct products {
    volatile float tiny, scale, f;
    volatile double d;
};

static void *multiply(void *arg) {
    struct products *p = arg;
    td_denormals_flush();
    p->f = p->tiny * p->scale; // a denormal operand
    p->d = 0x1p-1022;
    p->d = p->d * 0.5; // a denormal result
    return NULL;
}

// In a thread of its own: the mode is the thread's.
static void test_denormals_are_zero_when_a_thread_flushes_them(void **state) {
    (void)state;
    struct products p = {.tiny = 0x1p-140f, .scale = 0x1p100f, .f = 9, .d = 9};
    assert_true(p.tiny * p.scale == 0x1p-40f);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, multiply, &p), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
#if defined(__x86_64__) || defined(__aarch64__)
    assert_true(p.f == 0 && p.d == 0);
#endif
    assert_true(p.tiny * p.scale == 0x1p-40f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_page_is_what_the_kernel_maps),
        cmocka_unit_test(test_denormals_are_zero_when_a_thread_flushes_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
