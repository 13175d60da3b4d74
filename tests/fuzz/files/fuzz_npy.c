// Fuzz entry of workloads/datasets/npy_file: any bytes as a NumPy array, or as an archive of one.
// One that is believed has the size of its shape, and all of its elements can be read; a refusal is
// of class data. Run by tests/unit/fuzz/files/test_fuzz_npy.c.

#include "tests/fuzz/fuzz.h"

#include "workloads/datasets/npy_file.h"

static double touched; // so that no read is optimized away

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct td_npy a;
    td_status s = td_npy_open(td_fuzz_file(data, size), "x", NULL, &a);
    if (s) {
        td_fuzz_expect(td_status_class(s) == TD_CLASS_DATA);
        td_fuzz_expect_refusal(s, TD_DATA_LOSS, TD_DATA_LOSS);
        return 0;
    }
    size_t n = 1;
    for (int d = 0; d < a.shape.n_dims; d++) {
        td_fuzz_expect(td_size_mul(n, (size_t)a.shape.dim[d], &n));
    }
    const size_t bytes = n * td_npy_bytes(a.kind);
    const bool is_image = a.image.data != NULL; // decoded, or turned to rows
    const char *begin = is_image ? a.image.data : a.file.data;
    const size_t room = (size_t)(begin - a.data) + (is_image ? a.image.bytes : a.file.bytes);
    td_fuzz_expect(is_image || bytes <= room);
    td_fuzz_expect(!is_image || bytes == room);
    for (size_t i = 0; i < n; i++) {
        float v;
        td_npy_floats(&a, TD_F32, (int64_t)i, 1, &v);
        touched += (double)v;
        if (td_npy_is_integer(a.kind)) touched += (double)td_npy_int(&a, (int64_t)i);
    }
    td_npy_close(&a);
    return 0;
}
