// CPU levels: names, what a processor's answers mean, and that a process keeps to one level.

#include <string.h>

#include "lib/base/cpu_level.h"
#include "tests/unit/test.h"

// A processor with everything up to AMX.
static struct td_cpu_words everything(void) {
    return (struct td_cpu_words){~0u, ~0u, ~0u, ~0u, ~0u, ~UINT64_C(0)};
}

static void test_names_are_read_as_they_are_written(void **state) {
    (void)state;
    enum td_cpu_level level;
    for (int i = 0; i < TD_CPU_LEVEL_COUNT; i++) {
        assert_true(td_cpu_level_parse(td_cpu_level_name((enum td_cpu_level)i), &level));
        assert_int_equal(level, i);
    }
    assert_false(td_cpu_level_parse("avx", &level));
    assert_false(td_cpu_level_parse("", &level));
    assert_false(td_cpu_level_parse("AVX2", &level));
    char names[TD_CPU_LEVEL_NAMES];
    td_cpu_level_names(TD_CPU_AVX2, names);
    assert_string_equal(names, "generic, avx2");
    td_cpu_level_names(TD_CPU_AMX, names);
    assert_string_equal(names, "generic, avx2, avx512, avx512_bf16, amx");
}

static void test_wish_is_taken_or_refused_with_what_is_there(void **state) {
    (void)state;
    enum td_cpu_level level;
    assert_ok(td_cpu_level_read("--cpu-level", "", TD_CPU_AVX512, &level));
    assert_int_equal(level, TD_CPU_AVX512);
    assert_ok(td_cpu_level_read("--cpu-level", "auto", TD_CPU_AVX2, &level));
    assert_int_equal(level, TD_CPU_AVX2);
    assert_ok(td_cpu_level_read("--cpu-level", "avx2", TD_CPU_AMX, &level));
    assert_int_equal(level, TD_CPU_AVX2);
    assert_ok(td_cpu_level_read("--cpu-level", "generic", TD_CPU_GENERIC, &level));
    assert_int_equal(level, TD_CPU_GENERIC);
    td_status s = td_cpu_level_read("--cpu-level", "avx512", TD_CPU_AVX2, &level);
    assert_int_equal(td_status_class(s), TD_CLASS_BAD_SPEC);
    assert_fails(s, TD_INVALID_ARGUMENT,
                 "--cpu-level: this machine has no CPU level avx512; it has generic, avx2");
    s = td_cpu_level_read("TRAIND_CPU_ISA", "sse9", TD_CPU_AVX2, &level);
    assert_int_equal(td_status_class(s), TD_CLASS_BAD_SPEC);
    assert_fails(s, TD_INVALID_ARGUMENT,
                 "TRAIND_CPU_ISA: 'sse9' is no CPU level; this machine has generic, avx2");
    assert_int_equal(level, TD_CPU_GENERIC); // a refusal writes nothing
}

static void test_level_is_the_highest_whose_bits_are_all_there(void **state) {
    (void)state;
    char gap[TD_CPU_GAP_BYTES];
    struct td_cpu_words w = everything();
    assert_int_equal(td_cpu_level_of(&w, gap), TD_CPU_AMX);
    assert_string_equal(gap, "");
    w.leaf7_edx = 0;
    assert_int_equal(td_cpu_level_of(&w, gap), TD_CPU_AVX512_BF16);
    assert_string_equal(gap, "");
    w.leaf7_1_eax = 0;
    assert_int_equal(td_cpu_level_of(&w, gap), TD_CPU_AVX512);
    w.leaf7_ebx &= ~(1u << 16);
    assert_int_equal(td_cpu_level_of(&w, gap), TD_CPU_AVX2);
    assert_string_equal(gap, "");
    w = (struct td_cpu_words){0};
    assert_int_equal(td_cpu_level_of(&w, gap), TD_CPU_GENERIC);
    assert_string_equal(gap, "");
}

static void test_level_below_is_taken_and_said_when_a_flag_is_hidden(void **state) {
    (void)state;
    char gap[TD_CPU_GAP_BYTES];
    struct td_cpu_words w = everything();
    w.leaf1_ecx &= ~(1u << 12);
    assert_int_equal(td_cpu_level_of(&w, gap), TD_CPU_GENERIC);
    assert_string_equal(gap, "avx2 without fma: CPU level generic");
    w = everything();
    w.leaf7_ebx &= ~(1u << 31);
    assert_int_equal(td_cpu_level_of(&w, gap), TD_CPU_AVX2);
    assert_string_equal(gap, "avx512f without avx512vl: CPU level avx2");
    w = everything();
    w.xcr0 = 6;
    assert_int_equal(td_cpu_level_of(&w, gap), TD_CPU_AVX2);
    assert_non_null(strstr(gap, "avx512f without the operating system's support"));
    w.xcr0 = 0;
    assert_int_equal(td_cpu_level_of(&w, gap), TD_CPU_GENERIC);
}

static void test_process_keeps_to_the_level_it_holds(void **state) {
    (void)state;
    const enum td_cpu_level most = td_cpu_level_of_machine(NULL);
    if (most < TD_CPU_AMX) {
        assert_fails(td_cpu_level_hold(TD_CPU_AMX), TD_INVALID_ARGUMENT, "it has generic");
    }
    assert_ok(td_cpu_level_hold(TD_CPU_GENERIC));
    assert_ok(td_cpu_level_hold(TD_CPU_GENERIC));
    assert_int_equal(td_cpu_level(), TD_CPU_GENERIC);
    assert_int_equal(td_cpu_code(), TD_CODE_GENERIC);
    if (most > TD_CPU_GENERIC) {
        assert_fails(td_cpu_level_hold(most), TD_FAILED_PRECONDITION, "a process of its own");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_are_read_as_they_are_written),
        cmocka_unit_test(test_wish_is_taken_or_refused_with_what_is_there),
        cmocka_unit_test(test_level_is_the_highest_whose_bits_are_all_there),
        cmocka_unit_test(test_level_below_is_taken_and_said_when_a_flag_is_hidden),
        cmocka_unit_test(test_process_keeps_to_the_level_it_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
