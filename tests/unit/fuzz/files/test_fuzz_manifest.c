// A bounded run of the manifest reader's fuzz entry: a written one, a short one, one that points
// elsewhere; then mutations of them.

#include "tests/unit/test.h"

#include "tests/fuzz/files/fuzz_manifest.c"

static const char *const words[] = {
    "\"files\"",
    "\"name\"",
    "\"bytes\"",
    "\"xxh3_128\"",
    "\"metrics\"",
    "\"sum\"",
    "\"count\"",
    "\"step\"",
    "\"progress\"",
    "\"resume_key\"",
    "\"rng\"",
    "\"tensors\"",
    "../",
    "/etc/passwd",
    ".",
    "-1",
    "9223372036854775807",
    "null",
    "[]",
    "{}",
    "[",
    "]",
    "{",
    "}",
    ",",
    "\"cpu\"",
    "\"frozen\"",
};

#define HEAD                                                                                       \
    "{\"format\":1,\"job\":\"j\",\"attempt\":1,\"step\":7,\"epoch\":1,\"progress\":{"              \
    "\"epoch_offset\":64,\"epoch_batches\":5,\"samples\":640,\"validation_pending\":true},"        \
    "\"world_size\":2,\"resume_key\":{\"world_size\":2,\"threads\":1,\"cpu\":\"c\",\"build\":"     \
    "\"b\"},"

static const char whole[] = HEAD
    "\"rng\":{\"seed\":1},\"plateau\":{\"monitor\":\"val_loss\",\"best\":2,\"lr_scale\":1,\"bad\":"
    "0,"
    "\"cooldown\":3},\"early_stopping\":{\"monitor\":\"val_loss\",\"mode\":\"min\",\"best\":"
    "\"inf\",\"value\":1.5,\"wait\":2,\"decided\":true},\"optimizer\":\"adamw\",\"lr_scheduler\":"
    "\"constant\","
    "\"spec_xxh3_128\":\"00\",\"metrics\":{\"val_loss\":{\"sum\":1.25,\"count\":5}},\"files\":[{"
    "\"name\":\"model.safetensors\",\"bytes\":99,\"xxh3_128\":\"ab\"}],\"tensors\":[],\"frozen\":"
    "null,\"plan\":{\"format\":1}}";
static const char short_one[] = HEAD "\"files\":[]}";
static const char elsewhere[] =
    HEAD "\"files\":[{\"name\":\"../../x\",\"bytes\":1,\"xxh3_128\":\"ab\"}]}";
static const char metrics_as_list[] = HEAD "\"files\":[],\"metrics\":[{\"sum\":1},2,3]}";

static void test_manifest_stands_when_fed_mutated_texts(void **state) {
    (void)state;
    const struct td_fuzz_input corpus[] = {
        {whole, sizeof whole - 1},
        {short_one, sizeof short_one - 1},
        {elsewhere, sizeof elsewhere - 1},
        {metrics_as_list, sizeof metrics_as_list - 1},
        {"", 0},
    };
    td_fuzz_arrays(corpus, words, 8000);
}

TD_FUZZ_MAIN(test_manifest_stands_when_fed_mutated_texts)
