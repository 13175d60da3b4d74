// Fuzz entry of workloads/datasets/tokens_file: any bytes as a file of token ids. One that is
// believed has ids below the vocabulary only, all inside the file; a refusal is of class data. Run
// by tests/unit/test_fuzz_tokens.c.

#include "tests/fuzz/fuzz.h"

#include "workloads/datasets/tokens_file.h"
#include "workloads/datasets/windows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const int64_t vocabularies[] = {256, 50257, 65536, 200000};
    for (size_t v = 0; v < TD_COUNTOF(vocabularies); v++) {
        struct td_tokens t;
        td_status s = td_tokens_read("tokens.bin", data, size, vocabularies[v], &t);
        if (s) {
            td_fuzz_expect(td_status_class(s) == TD_CLASS_DATA);
            td_fuzz_expect_refusal(s, TD_DATA_LOSS, TD_DATA_LOSS);
            continue;
        }
        const uint8_t *first = t.data;
        td_fuzz_expect(first >= data && first + t.n * t.width == data + size);
        for (int64_t i = 0; i < t.n; i++) {
            td_fuzz_expect(td_token_at(t.data, i, t.width) < vocabularies[v]);
        }
    }
    return 0;
}
