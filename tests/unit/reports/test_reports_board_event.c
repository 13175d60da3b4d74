// Scalars of TensorBoard's events: both kinds, tensors of each type in each form that they come in,
// and what is none.

#include "daemon/worker/reports/board_event.h"

#include <math.h>

#include "tests/unit/reports/board_rig.h"

static struct td_buf value; // of the event that is read next

static void begin_value(void) {
    td_buf_finish(&value);
    td_buf_init(&value, 1 << 20);
}

// How many scalars the event has; the last one.
static int read_scalars(struct td_board_scalar *out) {
    TD_AUTO_BUF event;
    struct td_board_event e;
    td_buf_init(&event, 1 << 20);
    put_event(&event, 1.5, 7, "loss", &value);
    assert_ok(td_board_event_read((struct td_str){event.data, event.len}, &e));
    assert_true(e.wall_time == 1.5 && e.step == 7);
    for (int n = 0;; n++) {
        bool more;
        assert_ok(td_board_event_next(&e, out, &more));
        if (!more) return n;
        assert_int_equal(out->tag.len, 4);
    }
}

static double only_value(void) {
    struct td_board_scalar s;
    assert_int_equal(read_scalars(&s), 1);
    return s.value;
}

static void assert_no_scalar(void) {
    struct td_board_scalar s;
    assert_int_equal(read_scalars(&s), 0);
}

static void put_tensor(struct td_buf *tensor, uint64_t dtype) {
    td_buf_init(tensor, 1 << 20);
    put_number(tensor, 1, dtype);
    put_text(tensor, 2, ""); // a shape without dimensions
}

static void test_simple_value_is_a_scalar(void **state) {
    (void)state;
    begin_value();
    put_float(&value, 2, 0.25f);
    assert_true(only_value() == 0.25);
    begin_value();
    put_float(&value, 2, NAN);
    assert_true(isnan(only_value()));
}

// In tensor_content; as a field of its own; as a packed one.
static void check_number(uint64_t dtype, unsigned field, const void *content, size_t bytes,
                         double wanted) {
    for (int form = 0; form < 3; form++) {
        TD_AUTO_BUF t;
        TD_AUTO_BUF packed;
        uint64_t bits = 0;
        int64_t wide;
        put_tensor(&t, dtype);
        td_buf_init(&packed, 64);
        memcpy(&bits, content, bytes);
        wide = (int64_t)wanted;
        const bool is_fixed = field == 5 || field == 6;
        if (form == 0) {
            put_bytes(&t, 4, content, bytes);
        } else if (is_fixed && form == 1) {
            put_varint(&t, field << 3 | (bytes == 4 ? FIXED32 : FIXED64));
            assert_ok(td_buf_append(&t, content, bytes));
        } else if (is_fixed) {
            put_bytes(&t, field, content, bytes);
        } else if (form == 1) {
            put_number(&t, field, field == 13 ? bits : (uint64_t)wide);
        } else {
            put_varint(&packed, field == 13 ? bits : (uint64_t)wide);
            put_buf(&t, field, &packed);
        }
        begin_value();
        put_buf(&value, 8, &t);
        if (only_value() != wanted) fail_msg("type %d, form %d", (int)dtype, form);
    }
}

static void test_tensor_of_each_type_is_a_scalar(void **state) {
    (void)state;
    check_number(1, 5, &(float){0.1f}, 4, (double)0.1f);
    check_number(2, 6, &(double){0.1}, 8, 0.1);
    check_number(3, 7, &(int32_t){-70000}, 4, -70000);
    check_number(4, 7, &(uint8_t){200}, 1, 200);
    check_number(5, 7, &(int16_t){-300}, 2, -300);
    check_number(6, 7, &(int8_t){-3}, 1, -3);
    check_number(9, 10, &(int64_t){-5000000000}, 8, -5000000000.0);
    check_number(10, 11, &(uint8_t){1}, 1, 1);
    check_number(14, 13, &(uint16_t){0xc020}, 2, -2.5); // bfloat16
    check_number(17, 7, &(uint16_t){60000}, 2, 60000);
    check_number(19, 13, &(uint16_t){0x3800}, 2, 0.5); // half
    check_number(22, 16, &(uint32_t){4000000000}, 4, 4000000000.0);
    check_number(23, 17, &(uint64_t){5000000000}, 8, 5000000000.0);
}

static void test_tensor_without_a_number_is_zero(void **state) {
    (void)state;
    TD_AUTO_BUF t;
    put_tensor(&t, 1);
    begin_value();
    put_buf(&value, 8, &t);
    assert_true(only_value() == 0);
}

static void put_plugin(const char *name) {
    TD_AUTO_BUF plugin;
    TD_AUTO_BUF metadata;
    td_buf_init(&plugin, 64);
    td_buf_init(&metadata, 64);
    put_text(&plugin, 1, name);
    put_buf(&metadata, 1, &plugin);
    put_buf(&value, 9, &metadata);
}

static void test_tensor_counts_by_its_plugin_when_it_names_one(void **state) {
    (void)state;
    TD_AUTO_BUF t;
    put_tensor(&t, 1);
    put_float(&t, 5, 3);
    begin_value();
    put_plugin("scalars");
    put_buf(&value, 8, &t);
    assert_true(only_value() == 3);
    begin_value();
    put_buf(&value, 8, &t);
    put_plugin("scalars_of_others");
    assert_no_scalar();
}

static void test_all_else_is_skipped(void **state) {
    (void)state;
    TD_AUTO_BUF text;
    TD_AUTO_BUF shape;
    TD_AUTO_BUF long_shape;
    TD_AUTO_BUF short_content;
    put_tensor(&text, 7);
    put_text(&text, 8, "a text");
    td_buf_init(&shape, 256);
    put_number(&shape, 1, 1);
    put_bytes(&shape, 2, "\x12\x02\x08\x01", 4); // one dimension, of 1
    put_float(&shape, 5, 1);
    td_buf_init(&long_shape, 256);
    put_number(&long_shape, 1, 1);
    put_bytes(&long_shape, 2, "\x12\x02\x08\x03", 4); // one dimension, of 3
    put_bytes(&long_shape, 4, "123412341234", 12);
    put_tensor(&short_content, 1);
    put_bytes(&short_content, 4, "12", 2);
    const struct td_buf *const tensors[] = {&text, &shape, &long_shape, &short_content};
    for (size_t i = 0; i < TD_COUNTOF(tensors); i++) {
        begin_value();
        put_buf(&value, 8, tensors[i]);
        assert_no_scalar();
    }
    begin_value();
    put_text(&value, 5, "\x09histogr."); // a histogram
    assert_no_scalar();
    begin_value(); // a tag alone
    assert_no_scalar();
}

static void test_bytes_that_are_no_event_are_refused(void **state) {
    (void)state;
    struct td_board_event e;
    struct td_board_scalar s;
    bool more;
    assert_fails(td_board_event_read((struct td_str){"\x0a\x7f", 2}, &e), TD_INVALID_ARGUMENT,
                 "an event");
    // A summary whose value is longer than it is.
    assert_ok(td_board_event_read((struct td_str){"\x2a\x02\x0a\x05", 4}, &e));
    assert_fails(td_board_event_next(&e, &s, &more), TD_INVALID_ARGUMENT, "a summary");
    assert_ok(td_board_event_read((struct td_str){NULL, 0}, &e)); // an empty one has nothing
    assert_ok(td_board_event_next(&e, &s, &more));
    assert_false(more);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_simple_value_is_a_scalar),
        cmocka_unit_test(test_tensor_of_each_type_is_a_scalar),
        cmocka_unit_test(test_tensor_without_a_number_is_zero),
        cmocka_unit_test(test_tensor_counts_by_its_plugin_when_it_names_one),
        cmocka_unit_test(test_all_else_is_skipped),
        cmocka_unit_test(test_bytes_that_are_no_event_are_refused),
    };
    const int failed = cmocka_run_group_tests_name("reports_board_event", tests, NULL, NULL);
    td_buf_finish(&value);
    return failed;
}
