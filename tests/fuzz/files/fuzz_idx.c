// Fuzz entry of workloads/datasets/idx_file: any bytes as an idx file, plain or gzipped, read as
// labels (one dimension) and as images (three). A header that is believed promises no more than the
// bound. A body that is read has just the promised length. Any refusal is of class data with the
// four facts. Run by tests/unit/fuzz/files/test_fuzz_idx.c.

#include "tests/fuzz/fuzz.h"

#include "workloads/datasets/idx_file.h"

enum { BODY_MAX = 1 << 20 }; // larger bodies are refused here for the fuzzer's own memory

static bool read_or_refuse(td_status s) {
    if (!s) return true;
    td_fuzz_expect(td_status_class(s) == TD_CLASS_DATA);
    td_fuzz_expect_refusal(s, TD_DATA_LOSS, TD_RESOURCE_EXHAUSTED);
    return false;
}

static void try_dims(const char *path, int n_dims) {
    struct td_idx_file f = {.body_bytes = 0};
    snprintf(f.path, sizeof f.path, "%s", path);
    if (!read_or_refuse(td_idx_read_header(&f, n_dims))) return;
    uint64_t product = 1;
    for (int d = 0; d < n_dims; d++) {
        product *= f.dim[d];
    }
    td_fuzz_expect(f.body_bytes == product && product > 0 && product <= TD_IDX_MAX_BYTES);
    if (product > BODY_MAX) return;
    uint8_t *body = malloc(f.body_bytes);
    td_fuzz_expect(body != NULL);
    (void)read_or_refuse(td_idx_read_body(&f, body));
    free(body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *path = td_fuzz_file(data, size);
    try_dims(path, 1);
    try_dims(path, 3);
    return 0;
}
