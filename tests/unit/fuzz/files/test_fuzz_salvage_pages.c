// A bounded run of the fuzz entry of salvaged pages: rows of a page, of the -wal, of a chain of
// pages, and chains that break or go round.

#include "tests/unit/test.h"

#include "tests/fuzz/files/fuzz_salvage_pages.c"

enum { INPUT_MAX = 1024, N_INPUTS = 6, FRAME_HEAD = 24, FILL = 'x' };
// A row of LONG bytes: its first LOCAL are in its cell, the others fill a page.
enum { LONG = 5000, LOCAL = LONG - (PAGE - 4), LONG_HEAD = 5, LONG_BODY = LONG - 5 - 6 - 8 };

static void begin(struct td_buf *b, uint8_t n_pages, uint8_t n_frames) {
    const uint8_t head[HEAD] = {n_pages, n_frames, 0, FILL};
    td_buf_init(b, INPUT_MAX);
    assert_ok(td_buf_append(b, head, sizeof head));
}

static void piece(struct td_buf *b, uint8_t page, size_t at, const void *data, size_t bytes) {
    const uint8_t head[] = {page, (uint8_t)(at >> 8), (uint8_t)at, (uint8_t)bytes};
    assert_ok(td_buf_append(b, head, sizeof head));
    assert_ok(td_buf_append(b, data, bytes));
}

static void number(struct td_buf *b, uint8_t page, size_t at, uint8_t n) {
    const uint8_t big[] = {0, 0, 0, n};
    piece(b, page, at, big, sizeof big);
}

// A leaf of cells at 0x100, 0x200 and so on.
static void leaf(struct td_buf *b, uint8_t page, size_t at, uint8_t n_cells) {
    uint8_t head[16] = {0x0d, 0, 0, 0, n_cells};
    for (uint8_t i = 0; i < n_cells; i++) {
        head[8 + 2 * i] = (uint8_t)(i + 1);
    }
    piece(b, page, at, head, 8 + 2 * (size_t)n_cells);
}

static void row(struct td_buf *b, uint8_t page, size_t at, const char *key, const char *body) {
    const size_t n_key = strlen(key), n_body = strlen(body);
    const uint8_t cell[] = {(uint8_t)(4 + n_key + n_body + 8), 1, 4, (uint8_t)(13 + 2 * n_key),
                            (uint8_t)(13 + 2 * n_body),        6};
    char text[128];
    piece(b, page, at, cell, sizeof cell);
    const int n = snprintf(text, sizeof text, "%c%s%s", (int)n_key, key, body);
    piece(b, page | ROW, at + sizeof cell, text, (size_t)n);
}

// On page 0; it goes on on page `next`, from 1.
static void long_row(struct td_buf *b, uint8_t next) {
    static char body[LONG_BODY + 1];
    static const uint8_t cell[] = {0x80 | LONG >> 7,
                                   LONG & 0x7f,
                                   1,
                                   LONG_HEAD,
                                   13 + 2 * 6,
                                   0x80 | (13 + 2 * LONG_BODY) >> 7,
                                   (13 + 2 * LONG_BODY) & 0x7f,
                                   6};
    memset(body, FILL, LONG_BODY);
    memcpy(body, "{\"state\":", 9);
    leaf(b, 0, 0, 1);
    piece(b, 0, 0x100, cell, sizeof cell);
    piece(b, 0, 0x100 + sizeof cell, "j-long{\"state\":", 15);
    number(b, 0, 0x103 + LOCAL, next);
    uint8_t digest[8];
    const uint64_t n = (uint64_t)td_db_row_digest("j-long", body);
    for (size_t i = 0; i < sizeof digest; i++) {
        digest[i] = (uint8_t)(n >> (56 - 8 * i));
    }
    piece(b, 1, PAGE - sizeof digest, digest, sizeof digest);
}

static void make_inputs(struct td_buf inputs[N_INPUTS]) {
    struct td_buf *b = inputs;
    begin(b, 1, 0); // three rows, of which one is there already
    leaf(b, 0, 0, 3);
    row(b, 0, 0x100, "j-a1", "{\"state\":\"running\"}");
    row(b, 0, 0x200, "n-b", "{\"cores\":4}");
    row(b, 0, 0x300, KEPT_KEY, "{\"state\":\"other\"}");
    begin(++b, 1, 2); // page 2 is in the -wal alone, and page 1 is newer there
    leaf(b, 0, 0, 1);
    row(b, 0, 0x100, "j-old", "{\"state\":1}");
    for (uint8_t i = 1; i <= 2; i++) {
        number(b, i, 0, i);
        leaf(b, i, FRAME_HEAD, 1);
        row(b, i, FRAME_HEAD + 0x100, i == 1 ? "j-new" : "j-more", "{\"state\":2}");
    }
    begin(++b, 2, 0);
    long_row(b, 2);
    number(b, 1, 0, 0);
    begin(++b, 2, 0); // it goes on nowhere
    long_row(b, 9);
    begin(++b, 2, 0); // it goes round
    long_row(b, 2);
    number(b, 1, 0, 2);
    piece(b, 0, 0x100, "\xc0\x80\x00", 3);
    begin(++b, 0, 0);
}

static const char *const words[] = {
    "\x0d",        "\x80\x80\x01", "\xff\xff\xff\xff", "{\"state\":",
    "{\"cores\":", "j-",           "\x01\x01\x10\x04", "\x06"};

static void test_rows_are_found_when_pages_are_whole_and_none_fails_when_mutated(void **state) {
    (void)state;
    static const uint32_t n_rows[N_INPUTS] = {2, 2, 1, 0, 0, 0};
    struct td_buf inputs[N_INPUTS];
    struct td_fuzz_input corpus[N_INPUTS];
    make_inputs(inputs);
    for (size_t i = 0; i < N_INPUTS; i++) {
        corpus[i] = (struct td_fuzz_input){inputs[i].data, inputs[i].len};
        LLVMFuzzerTestOneInput(corpus[i].data, corpus[i].bytes);
        if (n_found != n_rows[i]) fail_msg("input %zu has %u rows", i, n_found);
    }
    td_fuzz_arrays(corpus, words, 5000);
    for (size_t i = 0; i < N_INPUTS; i++) {
        td_buf_finish(&inputs[i]);
    }
}

TD_FUZZ_MAIN(test_rows_are_found_when_pages_are_whole_and_none_fails_when_mutated)
