// Knobs of a section by key: values as they are, what stands for null, and errors that name the
// key.

#include "tests/unit/test.h"

#include "lib/base/json.h"
#include "lib/spec/read.h"
#include "lib/spec/spec.h"

static const char text[] =
    "{\"real\":0.5,\"int\":3,\"auto\":\"auto\",\"null\":null,\"yes\":true,\"word\":\"max\","
    "\"pair\":[0.9,0.99]}";
static const char *const words[] = {"min", "max"};

static struct td_read open_text(struct td_arena *a) {
    struct td_json *tree;
    assert_ok(td_json_parse(a, text, sizeof text - 1, &tree));
    return td_read_begin(tree, "optimizer");
}

static void test_knobs_are_read_when_each_has_its_kind(void **state) {
    (void)state;
    TD_AUTO(td_arena) *a = NULL;
    assert_ok(td_arena_create(1 << 16, &a));
    struct td_read r = open_text(a);
    double pair[2];
    assert_true(td_read_real(&r, "real") == 0.5 && td_read_real(&r, "int") == 3);
    assert_int_equal(td_read_int(&r, "int"), 3);
    assert_true(td_read_bool(&r, "yes"));
    assert_string_equal(td_read_text(&r, "word"), "max");
    assert_int_equal(td_read_choice(&r, "word", words, TD_COUNTOF(words)), 1);
    td_read_reals(&r, "pair", pair, 2);
    assert_true(pair[0] == 0.9 && pair[1] == 0.99);
    assert_int_equal(td_read_list(&r, "pair")->n_children, 2);
    assert_ok(td_read_end(&r));
}

static void test_open_knob_is_what_it_stands_for(void **state) {
    (void)state;
    TD_AUTO(td_arena) *a = NULL;
    assert_ok(td_arena_create(1 << 16, &a));
    struct td_read r = open_text(a);
    assert_true(td_read_real_or(&r, "null", 7) == 7 && td_read_real_or(&r, "real", 7) == 0.5);
    assert_int_equal(td_read_int_or(&r, "null", 8), 8);
    assert_int_equal(td_read_int_or(&r, "auto", 8), 8);
    assert_int_equal(td_read_int_or(&r, "int", 8), 3);
    assert_null(td_read_text_or(&r, "null", NULL));
    assert_string_equal(td_read_text_or(&r, "word", NULL), "max");
    assert_ok(td_read_end(&r));
}

static void read_missing(struct td_read *r) {
    assert_true(td_read_real(r, "lr") == 0);
}
static void read_missing_or(struct td_read *r) {
    assert_true(td_read_real_or(r, "lr", 5) == 0); // null is not the same as nothing
}
static void read_missing_choice(struct td_read *r) {
    assert_int_equal(td_read_choice(r, "lr", words, TD_COUNTOF(words)), 0);
}
static void read_null(struct td_read *r) {
    assert_int_equal(td_read_int(r, "null"), 0);
}
static void read_word(struct td_read *r) {
    assert_int_equal(td_read_int_or(r, "word", 5), 0);
}
static void read_unknown(struct td_read *r) {
    assert_int_equal(td_read_choice(r, "word", words, 1), 0);
}
static void read_triple(struct td_read *r) {
    double three[3] = {1, 1, 1};
    td_read_reals(r, "pair", three, 3);
    assert_true(three[0] == 0 && three[2] == 0);
}

static void test_key_is_named_when_it_cannot_be_read(void **state) {
    (void)state;
    static const struct {
        void (*read)(struct td_read *r);
        const char *words;
    } cases[] = {
        {read_missing, "optimizer.lr is missing"},
        {read_missing_or, "optimizer.lr is missing"},
        {read_missing_choice, "optimizer.lr is missing"},
        {read_null, "optimizer.null is not an integer"},
        {read_word, "optimizer.word is not an integer, auto or null"},
        {read_unknown, "optimizer.word is a name that its reader does not know"},
        {read_triple, "optimizer.pair has not as many numbers"},
    };
    TD_AUTO(td_arena) *a = NULL;
    assert_ok(td_arena_create(1 << 16, &a));
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        struct td_read r = open_text(a);
        cases[i].read(&r);
        assert_true(td_read_real(&r, "gone") == 0 &&
                    td_read_int(&r, "int") == 0); // the first stays
        assert_fails(td_read_end(&r), TD_INTERNAL, cases[i].words);
    }
}

static void test_override_goes_into_what_was_a_name_alone(void **state) {
    (void)state;
    static const char base[] = "model: {name: mlp, layers: [4, 2]}\n"
                               "data: {name: synthetic, batch_size: 2}\n"
                               "optimizer: adam\n";
    static const char *const overrides[] = {"optimizer.lr=0.5"};
    TD_AUTO(td_arena) *a = NULL;
    struct td_json *tree;
    assert_ok(td_arena_create(1 << 22, &a));
    assert_ok(td_spec_parse(a, base, strlen(base), overrides, 1, &tree));
    const struct td_json *optimizer = td_json_get(tree, "optimizer");
    assert_string_equal(td_json_string(td_json_get(optimizer, "name"), ""), "adam");
    assert_float_equal(td_json_real(td_json_get(optimizer, "lr"), 0), 0.5, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_knobs_are_read_when_each_has_its_kind),
        cmocka_unit_test(test_open_knob_is_what_it_stands_for),
        cmocka_unit_test(test_key_is_named_when_it_cannot_be_read),
        cmocka_unit_test(test_override_goes_into_what_was_a_name_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
