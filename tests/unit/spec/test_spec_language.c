// The digest of what plans are written in: what a reader could trip over changes it, what it only
// shows does not.

#include "lib/spec/knobs.h"
#include "lib/spec/language.h"
#include "tests/unit/test.h"

static const struct td_section section = {
    .path = "trainer", .kind = TD_SECTION_PLAIN, .prose = "how"};
static const struct td_knob knob = {.section = "trainer",
                                    .key = "devices",
                                    .type = TD_KNOB_INT,
                                    .fallback = "1",
                                    .min = 1,
                                    .max = 8,
                                    .unit = "ranks",
                                    .values = "a|b",
                                    .prose = "ranks"};

static void digest_of(const struct td_section *s, const struct td_knob *k,
                      char out[TD_DIGEST_HEX]) {
    td_spec_language_of(s, 1, k, 1, out);
}

static void test_language_is_another_when_a_reader_would_refuse_what_is_written(void **state) {
    (void)state;
    char same[TD_DIGEST_HEX], other[TD_DIGEST_HEX];
    struct td_knob others[7] = {knob, knob, knob, knob, knob, knob, knob};
    others[0].key = "device";
    others[1].section = "trainer2";
    others[2].type = TD_KNOB_REAL;
    others[3].min = 2;
    others[4].max = 9;
    others[5].values = "a|b|c";
    others[6].of = TD_KNOB_OF_ALL;
    digest_of(&section, &knob, same);
    for (size_t i = 0; i < TD_COUNTOF(others); i++) {
        digest_of(&section, &others[i], other);
        assert_string_not_equal(same, other);
    }
    const struct td_section choice = {.path = "trainer", .kind = TD_SECTION_CHOICE, .prose = "how"};
    digest_of(&choice, &knob, other);
    assert_string_not_equal(same, other);
    const struct td_knob two[] = {knob, knob};
    td_spec_language_of(&section, 1, two, 2, other);
    assert_string_not_equal(same, other);
}

static void test_language_stays_when_a_default_or_a_text_changes(void **state) {
    (void)state;
    char same[TD_DIGEST_HEX], other[TD_DIGEST_HEX];
    struct td_knob k = knob;
    k.fallback = "2";
    k.unit = NULL;
    k.prose = "processes";
    digest_of(&section, &knob, same);
    digest_of(&section, &k, other);
    assert_string_equal(same, other);
    td_spec_language(other);
    assert_string_not_equal(same, other); // of all rows
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_language_is_another_when_a_reader_would_refuse_what_is_written),
        cmocka_unit_test(test_language_stays_when_a_default_or_a_text_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
