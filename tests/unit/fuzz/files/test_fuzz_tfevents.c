// A bounded run of the fuzz entry of event files: a file as it is written, its events alone, and
// mutations of them.

#include "tests/unit/test.h"

#include "tests/fuzz/files/fuzz_tfevents.c"

static const char *const words[] = {"\x2a\x02",     "\x0a\x04loss", "\x10\x07", "\x12\x00\x00",
                                    "\x15\x00\x00", "\xff\xff\xff", "\x0a\x7f", "\x3a\x02\x08\x01",
                                    "\x42\x0a",     "\x4a\x04",     "\x08\x02", "\x22\x04",
                                    "\x3a\x01\xff"};

static void test_records_stand_when_they_are_mutated(void **state) {
    (void)state;
    const struct td_tfscalar scalars[] = {{"train_loss_step", 0.5}, {"lr", 1e-3}, {"", -1}};
    TD_AUTO_BUF file;
    td_buf_init(&file, TD_FUZZ_MAX);
    assert_ok(td_buf_append(&file, "\0", 1)); // as it is
    assert_ok(td_tfevent_version(1, &file));
    assert_ok(td_tfevent_start(2, 3, &file));
    const size_t last = file.len;
    assert_ok(td_tfevent_scalars(3, 4, scalars, TD_COUNTOF(scalars), &file));
    struct td_tfevent event;
    assert_int_equal(td_tfevent_read(file.data + last, file.len - last, &event), file.len - last);
    assert_int_equal(event.step, 4);
    assert_int_equal(event.n, TD_COUNTOF(scalars));
    uint8_t alone[512] = {1};
    const size_t alone_bytes = file.len - last - HEAD - TAIL;
    assert_true(alone_bytes < sizeof alone);
    memcpy(alone + 1, file.data + last + HEAD, alone_bytes);
    // A tensor: "loss", a float without a shape, of the plugin `scalars`.
    static const char tensor[] = "\1\x2a\x21\x0a\x1f\x0a\x04loss\x42\x0a\x08\x01\x12\x00\x2a\x04"
                                 "\0\0\0\x3f\x4a\x0b\x0a\x09\x0a\x07scalars";
    struct td_board_event board;
    struct td_board_scalar scalar;
    bool more;
    assert_ok(td_board_event_read((struct td_str){tensor + 1, sizeof tensor - 2}, &board));
    assert_ok(td_board_event_next(&board, &scalar, &more));
    assert_true(more && scalar.value == 0.5);
    const struct td_fuzz_input corpus[] = {{file.data, file.len},
                                           {alone, 1 + alone_bytes},
                                           {tensor, sizeof tensor - 1},
                                           {"\1", 1},
                                           {"", 0}};
    td_fuzz_arrays(corpus, words, 20000);
}

TD_FUZZ_MAIN(test_records_stand_when_they_are_mutated)
