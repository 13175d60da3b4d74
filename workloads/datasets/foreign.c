// See the header.

#include "workloads/datasets/foreign.h"

#include <string.h>

static const struct kind {
    const char *name;
    uint8_t n; // bytes of the sign
    char sign[10];
    bool ends_too; // the file ends with it as well
} kinds[] = {
    {"an array of NumPy (.npy)", 6, "\x93NUMPY", false},
    {"a zip archive (.npz, .zip, .pt)", 4, "PK\3\4", false},
    {"compressed by gzip", 4, "\x1f\x8b\x08\x08", false}, // with a name
    {"compressed by gzip", 4, "\x1f\x8b\x08\x00", false},
    {"compressed by xz", 6,
     "\xfd"
     "7zXZ\0",
     false},
    {"compressed by zstd", 4, "\x28\xb5\x2f\xfd", false},
    {"compressed by bzip2", 10, "BZh91AY&SY", false},
    {"a Parquet file", 4, "PAR1", true},
    {"an Arrow file", 8, "ARROW1\0\0", false},
    {"an HDF5 file", 8, "\x89HDF\r\n\x1a\n", false},
    {"llm.c's tokens", 4, "\x88\xd8\x34\x01", false},           // 20240520
    {"llm.c's tokens", 4, "\xa1\xd9\x34\x01", false},           // 20240801
    {"an llm.c model", 4, "\xc6\xd7\x34\x01", false},           // 20240326
    {"an llm.c optimizer state", 4, "\x8f\xd8\x34\x01", false}, // 20240527
    {"an llm.c evaluation set", 4, "\x8a\xd8\x34\x01", false},  // 20240522
    {"an llm.c tokenizer", 4, "\xc8\xd7\x34\x01", false},       // 20240328
    {"an llm.c debug state", 4, "\xc7\xd7\x34\x01", false},     // 20240327
};

const char *td_foreign_kind(const void *data, size_t bytes) {
    for (size_t i = 0; i < TD_COUNTOF(kinds); i++) {
        const struct kind *k = &kinds[i];
        if (bytes < k->n || memcmp(data, k->sign, k->n) != 0) continue;
        const char *end = (const char *)data + bytes - k->n;
        if (!k->ends_too || memcmp(end, k->sign, k->n) == 0) return k->name;
    }
    return NULL;
}
