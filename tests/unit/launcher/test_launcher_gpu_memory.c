// Whether the end of a command's stderr says that the memory of its GPU ran out, and what does not.

#include "daemon/launcher/command/gpu_memory.h"

#include <stdio.h>

#include "tests/unit/test.h"

static void test_words_of_frameworks_count_in_the_last_lines(void **state) {
    (void)state;
    static const char *const yes[] = {
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has",
        "Traceback:\ntorch.cuda.OutOfMemoryError: CUDA out of memory. Tried to\n",
        "RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be asynchronously\n",
        "CUDA out of memory\n[rank0]: destroy_process_group() was not called\n",
    };
    static const char *const no[] = {
        "",
        "\n\n",
        "MemoryError\n",
        "RuntimeError: CUDA error: device-side assert triggered\n",
        "RuntimeError: CUDA error: an illegal memory access was encountered\n",
        "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n",
    };
    for (size_t i = 0; i < TD_COUNTOF(yes); i++) {
        assert_true(td_gpu_memory_ran_out(yes[i]));
    }
    for (size_t i = 0; i < TD_COUNTOF(no); i++) {
        assert_false(td_gpu_memory_ran_out(no[i]));
    }
}

static void test_words_long_before_the_end_do_not_count(void **state) {
    (void)state;
    for (int after = 0; after <= 2 * TD_GPU_MEMORY_LINES; after++) {
        char text[1024] = "CUDA out of memory, so half the batch is tried\n";
        size_t len = strlen(text);
        for (int i = 0; i < after; i++) {
            len += (size_t)snprintf(text + len, sizeof text - len, "step\n");
        }
        assert_int_equal(td_gpu_memory_ran_out(text), after < TD_GPU_MEMORY_LINES);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words_of_frameworks_count_in_the_last_lines),
        cmocka_unit_test(test_words_long_before_the_end_do_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
