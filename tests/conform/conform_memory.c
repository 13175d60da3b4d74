// Memory of every accelerator on the host: zeroed, aligned, and no more of it than was asked for. A
// rank's limit is what its plan says, so an accelerator that needs more for a moment, to align, is
// refused where the plan fits.

#include <sys/resource.h>

#include "tests/conform/op_bench.h"

enum { BYTES = 9 << 20, ALIGNMENT = 64 };
// What one allocation may need besides: books, and pages of the heap.
enum { BESIDES = 256 << 10 };

// Bytes that RLIMIT_DATA counts.
static size_t data_bytes(void) {
    char line[128];
    size_t kib = 0;
    FILE *f = fopen("/proc/self/status", "re");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "VmData: %zu kB", &kib) == 1) break;
    }
    fclose(f);
    assert_true(kib > 0);
    return kib << 10;
}

static struct td_accelerator *open_one(const struct td_accelerator_ops *ops) {
    const struct td_accel_config config = {.struct_bytes = sizeof config, .n_threads = 1};
    struct td_accelerator *a = NULL;
    assert_ok(ops->open(&config, &a));
    return a;
}

static void test_memory_is_zeroed_and_aligned(void **state) {
    const struct subject *s = *state;
    struct td_accelerator *a = open_one(s->ops);
    static const size_t lengths[] = {1, 64, 4097, BYTES};
    for (size_t i = 0; i < TD_COUNTOF(lengths); i++) {
        struct td_buffer b;
        assert_ok(s->ops->mem_alloc(a, lengths[i], &b));
        assert_int_equal((uintptr_t)td_buffer_host(b) % ALIGNMENT, 0); // of a device: 0
        assert_true(b.bytes >= lengths[i]);
        TD_AUTO_FREE char *p = malloc(lengths[i]);
        assert_non_null(p);
        struct td_buffer here = td_buffer_of_host(p, lengths[i]);
        assert_ok(s->ops->copy(a, here, 0, b, 0, lengths[i]));
        for (size_t k = 0; k < lengths[i]; k++) {
            assert_int_equal(p[k], 0);
        }
        s->ops->mem_free(a, b);
    }
    s->ops->close(a);
}

static void test_memory_fits_when_the_limit_is_what_is_asked_for(void **state) {
    const struct subject *s = *state;
    struct td_accelerator *a = open_one(s->ops);
    struct rlimit old;
    assert_int_equal(getrlimit(RLIMIT_DATA, &old), 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    const struct rlimit tight = {.rlim_cur = data_bytes() + BYTES + BESIDES,
                                 .rlim_max = old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_DATA, &tight), 0);
#else
    assert_true(data_bytes() + BESIDES > 0); // a sanitizer maps memory of its own
#endif
    struct td_buffer b;
    td_status failed = s->ops->mem_alloc(a, BYTES, &b);
    assert_int_equal(setrlimit(RLIMIT_DATA, &old), 0);
    assert_ok(failed);
    s->ops->mem_free(a, b);
    s->ops->close(a);
}

int main(int argc, char **argv) {
    (void)argc;
    static struct subject subjects[ACCELERATORS];
    static struct CMUnitTest tests[2 * TD_COUNTOF(subjects)];
    struct accelerators here;
    if (!read_environment()) return 1;
    size_t n = 0, n_subjects = 0;
    if (open_accelerators(argv[0], &here)) n_subjects = find_subjects(&here, subjects);
    for (size_t i = 0; i < n_subjects; i++) {
        tests[n++] =
            (struct CMUnitTest){"test_memory_is_zeroed_and_aligned",
                                test_memory_is_zeroed_and_aligned, NULL, NULL, &subjects[i]};
        tests[n++] = (struct CMUnitTest){"test_memory_fits_when_the_limit_is_what_is_asked_for",
                                         test_memory_fits_when_the_limit_is_what_is_asked_for, NULL,
                                         NULL, &subjects[i]};
    }
    int failed = n ? _cmocka_run_group_tests("conform_memory", tests, n, NULL, NULL) : 1;
    close_accelerators(&here);
    return failed;
}
