// A bounded run of the fuzz entry of event files: a file as it is written, its events alone, and
// mutations of them.

#include "tests/unit/test.h"

#include "tests/fuzz/fuzz_tfevents.c"

static const char *const words[] = {"\x2a\x02",     "\x0a\x04loss", "\x10\x07", "\x12\x00\x00",
                                    "\x15\x00\x00", "\xff\xff\xff", "\x0a\x7f", "\x3a\x02\x08\x01"};

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
    const struct td_fuzz_input corpus[] = {
        {file.data, file.len}, {alone, 1 + alone_bytes}, {"\1", 1}, {"", 0}};
    td_fuzz_arrays(corpus, words, 20000);
}

TD_FUZZ_MAIN(test_records_stand_when_they_are_mutated)
