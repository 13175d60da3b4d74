// The 16-bit floats against their definition. Every number goes there and back, and what is
// between two numbers goes to the nearer one, from fp32 and (in one rounding) from fp64.

#include <math.h>

#include "lib/base/floats/half.h"
#include "tests/unit/test.h"

struct format {
    float (*widen)(uint16_t h);
    uint16_t (*of_f32)(float f);
    uint16_t (*of_f64)(double v);
};
static const struct format formats[] = {
    {td_f32_of_bf16, td_bf16_of_f32, td_bf16_of_f64},
    {td_f32_of_f16, td_f16_of_f32, td_f16_of_f64},
};

static void test_numbers_come_back_when_widened_and_narrowed(void **state) {
    (void)state;
    for (size_t f = 0; f < TD_COUNTOF(formats); f++) {
        for (uint32_t h = 0; h < 0x10000; h++) {
            float x = formats[f].widen((uint16_t)h);
            uint16_t back = formats[f].of_f32(x), from_double = formats[f].of_f64((double)x);
            if (isnan(x)) {
                assert_true(isnan(formats[f].widen(back)) && isnan(formats[f].widen(from_double)));
                continue;
            }
            assert_int_equal(back, h);
            assert_int_equal(from_double, h);
        }
    }
}

// Between each number and the next of the same sign: the middle goes to the even one. What is off
// it by the least that fp64 can say goes to the nearer one, though fp32 sees the middle in all
// three.
static void test_the_nearest_is_taken_when_between_two_numbers(void **state) {
    (void)state;
    for (size_t f = 0; f < TD_COUNTOF(formats); f++) {
        for (uint32_t h = 0; h < 0xffff; h++) {
            double low = (double)formats[f].widen((uint16_t)h);
            double high = (double)formats[f].widen((uint16_t)(h + 1));
            if (!isfinite(low) || !isfinite(high) || h == 0x7fff) continue;
            double middle = low / 2 + high / 2;
            uint16_t even = (uint16_t)(h % 2 ? h + 1 : h);
            assert_int_equal(formats[f].of_f32((float)middle), even);
            assert_int_equal(formats[f].of_f64(middle), even);
            assert_int_equal(formats[f].of_f64(nextafter(middle, low)), h);
            assert_int_equal(formats[f].of_f64(nextafter(middle, high)), h + 1);
        }
    }
}

static void test_infinity_comes_when_too_large(void **state) {
    (void)state;
    assert_int_equal(td_f16_of_f32(65519.0f), 0x7bff);
    assert_int_equal(td_f16_of_f32(65520.0f), 0x7c00);
    assert_int_equal(td_f16_of_f64(-1e300), 0xfc00);
    assert_int_equal(td_bf16_of_f64(1e300), 0x7f80);
    assert_int_equal(td_bf16_of_f32(3.4e38f), 0x7f80);
    assert_int_equal(td_bf16_of_f32(-INFINITY), 0xff80);
}

// 1 + 1/1024 is an eighth of the way from 1 to the next bf16 number.
static void test_stochastic_rounding_has_the_value_as_its_mean(void **state) {
    (void)state;
    int up = 0;
    for (uint32_t random = 0; random < 0x10000; random++) {
        uint16_t h = td_bf16_of_f32_random(1 + 1 / 1024.0f, random);
        assert_true(h == 0x3f80 || h == 0x3f81);
        up += h == 0x3f81;
    }
    assert_int_equal(up, 0x10000 / 8);
    assert_int_equal(td_bf16_of_f32_random(1.5f, 0xffff), td_bf16_of_f32(1.5f)); // is exact
    assert_int_equal(td_bf16_of_f32_random(INFINITY, 0xffff), 0x7f80);
    assert_true(isnan(td_f32_of_bf16(td_bf16_of_f32_random(NAN, 0xffff))));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_come_back_when_widened_and_narrowed),
        cmocka_unit_test(test_the_nearest_is_taken_when_between_two_numbers),
        cmocka_unit_test(test_infinity_comes_when_too_large),
        cmocka_unit_test(test_stochastic_rounding_has_the_value_as_its_mean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
