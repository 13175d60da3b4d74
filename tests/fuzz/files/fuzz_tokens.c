// Fuzz entry of workloads/datasets/tokens_file: any bytes as a file of token ids. One that is
// believed has ids below the vocabulary only, all inside the file; a refusal is of class data. Run
// by tests/unit/fuzz/files/test_fuzz_tokens.c.

#include "tests/fuzz/fuzz.h"

#include "workloads/datasets/tokens_file.h"
#include "workloads/datasets/windows.h"

static void read_as(const uint8_t *data, size_t size, int64_t vocab_size, int token_bytes) {
    struct td_tokens t;
    td_status s = td_tokens_read("tokens.bin", data, size, vocab_size, token_bytes, &t);
    if (s) {
        td_fuzz_expect(td_status_class(s) == TD_CLASS_DATA);
        td_fuzz_expect_refusal(s, TD_DATA_LOSS, TD_DATA_LOSS);
        return;
    }
    const uint8_t *first = t.data;
    td_fuzz_expect(first >= data && first + t.n * t.width == data + size);
    for (int64_t i = 0; i < t.n; i++) {
        const int64_t id = td_token_at(t.data, i, t.width);
        td_fuzz_expect(id >= 0 && id < vocab_size);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const int64_t vocabularies[] = {256, 50257, 65536, 200000};
    static const int widths[] = {0, 2, 4, 8};
    for (size_t v = 0; v < TD_COUNTOF(vocabularies); v++) {
        for (size_t w = 0; w < TD_COUNTOF(widths); w++) {
            read_as(data, size, vocabularies[v], widths[w]);
        }
    }
    return 0;
}
