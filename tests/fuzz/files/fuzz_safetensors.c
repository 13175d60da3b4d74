// Fuzz entry of engine/train/checkpoint/safetensors: any bytes as a shard, and any bytes as the
// header of a shard whose length is right, so that mutations reach what follows it. The tensors
// of a shard that opens fill the end of the file together, each inside it, and are found by name.
// Unless they are foreign they have the size of their shape. Run by
// tests/unit/fuzz/files/test_fuzz_safetensors.c.

#include "tests/fuzz/fuzz.h"

#include "engine/train/checkpoint/safetensors.h"

static unsigned touched; // so that no read is optimized away

static void check(const struct td_safetensors *f) {
    const void *map;
    size_t map_bytes;
    td_safetensors_bytes(f, &map, &map_bytes);
    const uint8_t *begin = map, *end = begin + map_bytes;
    size_t all = 0;
    const uint8_t *first = end;
    for (size_t i = 0; i < td_safetensors_count(f); i++) {
        const struct td_tensor *t = td_safetensors_at(f, i);
        td_fuzz_expect(t && td_safetensors_find(f, t->name) == t);
        const uint8_t *data = t->data;
        td_fuzz_expect(data >= begin && data <= end && t->bytes <= (size_t)(end - data));
        first = data < first ? data : first;
        all += t->bytes;
        size_t bytes = td_dtype_bytes(t->dtype);
        for (int d = 0; d < t->shape.n_dims; d++) {
            td_fuzz_expect(td_size_mul(bytes, (size_t)t->shape.dim[d], &bytes));
        }
        td_fuzz_expect(t->foreign || bytes == t->bytes);
        for (size_t b = 0; b < t->bytes; b++) {
            touched += data[b];
        }
    }
    td_fuzz_expect(first + all == end);
    td_fuzz_expect(!td_safetensors_at(f, td_safetensors_count(f)));
}

static void try_file(const void *data, size_t size) {
    TD_AUTO(td_safetensors) *f = NULL;
    td_status s = td_safetensors_open(td_fuzz_file(data, size), &f);
    if (s) {
        td_fuzz_expect_refusal(s, TD_DATA_LOSS, TD_RESOURCE_EXHAUSTED);
        return;
    }
    check(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    try_file(data, size);
    if (size == 0) return 0;
    // The first byte says how many bytes of data follow the header.
    TD_AUTO_BUF shard;
    td_buf_init(&shard, 8 + size + 256);
    td_fuzz_expect(!td_buf_u64le(&shard, size - 1));
    td_fuzz_expect(!td_buf_append(&shard, data + 1, size - 1));
    for (int i = 0; i < data[0]; i++) {
        td_fuzz_expect(!td_buf_append(&shard, &data[0], 1));
    }
    try_file(shard.data, shard.len);
    return 0;
}
