#ifndef TRAIND_TESTS_UNIT_TRAIN_LOOP_GOLDEN_H
#define TRAIND_TESTS_UNIT_TRAIN_LOOP_GOLDEN_H

// What another program said, as JSON: a file of tests/golden.

#include "lib/base/json.h"
#include "tests/unit/test.h"

// The whole file, in an arena that the caller destroys.
static inline const struct td_json *td_golden_read(const char *path, struct td_arena **out_arena) {
    enum { GOLDEN_BYTES = 1 << 20 };
    TD_AUTO_BUF text;
    struct td_json *root;
    td_buf_init(&text, GOLDEN_BYTES);
    assert_ok(td_fs_read(path, GOLDEN_BYTES, &text));
    assert_ok(td_arena_create(16 * GOLDEN_BYTES, out_arena));
    assert_ok(td_json_parse(*out_arena, text.data, text.len, &root));
    return root;
}

#endif
