// A bounded run of the shard reader's fuzz entry: a whole shard, headers with the faults that a
// stranger's file may have, lengths that lie; then mutations of them.

#include "tests/unit/test.h"

#include "tests/fuzz/files/fuzz_safetensors.c"

static const char *const words[] = {
    "\"dtype\"",
    "\"shape\"",
    "\"data_offsets\"",
    "\"F32\"",
    "\"F64\"",
    "\"BF16\"",
    "\"I8\"",
    "\"BOOL\"",
    "[",
    "]",
    "{",
    "}",
    ",",
    "0",
    "-1",
    "8",
    "9223372036854775807",
    "4294967296",
    "1e3",
    "__metadata__",
    "\"a\":",
    "[0,8]",
    "[8,16]",
    "[]",
};

#define GOOD                                                                                       \
    "{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"F32\",\"shape\":[2],"                \
    "\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[8,12]}}"

// The first byte is for the entry: how many bytes of data follow.
static const char *const headers[] = {
    "\x0c" GOOD,
    "\x0c{\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]},"
    "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
    "\x08{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
    "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}",
    "\x08{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}",
    "\x08{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}",
    "\x10{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
    "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]}}",
    "\x08{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}",
    "\x08{\"a\":{\"dtype\":\"F32\",\"shape\":[0,9223372036854775807],\"data_offsets\":[0,0]},"
    "\"z\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]}}",
    "\x0c{\"a\":{\"dtype\":\"U32\",\"shape\":[2],\"data_offsets\":[0,8]},"
    "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[8,12]}}",
    "\x04{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}",
    "\x01[]",
};

static void test_safetensors_stands_when_fed_mutated_shards(void **state) {
    (void)state;
    TD_AUTO_BUF whole;
    td_buf_init(&whole, 4096);
    assert_ok(td_buf_u64le(&whole, sizeof GOOD - 1));
    assert_ok(td_buf_append(&whole, GOOD "0123456789ab", sizeof GOOD - 1 + 12));
    static const char four_gib[] = "\0\0\0\0\1\0\0\0{}",
                      all_ones[] = "\xff\xff\xff\xff\xff\xff\xff\xff{}";
    struct td_fuzz_input corpus[TD_COUNTOF(headers) + 4] = {
        {whole.data, whole.len},
        {four_gib, sizeof four_gib - 1},
        {all_ones, sizeof all_ones - 1},
        {"", 0},
    };
    for (size_t i = 0; i < TD_COUNTOF(headers); i++) {
        corpus[4 + i] = (struct td_fuzz_input){headers[i], strlen(headers[i])};
    }
    td_fuzz_arrays(corpus, words, 8000);
}

TD_FUZZ_MAIN(test_safetensors_stands_when_fed_mutated_shards)
