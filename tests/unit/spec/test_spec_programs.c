// Specs of kinds command and program: their canonical form, and the plain view of it.

#include "tests/unit/spec/spec_rig.h"

enum { FILE_MAX = 1 << 20 };

static void test_command_has_its_own_keys_alone_when_canonical(void **state) {
    static const char want[] =
        "{\"name\":\"job\",\"kind\":\"command\",\"command\":[\"run\",\"3\"],"
        "\"env\":{\"A\":\"1\",\"B\":\"x\"},\"workdir\":null,\"loggers\":[],\"labels\":{},"
        "\"trainer\":{\"devices\":2,\"num_nodes\":1},\"restart\":{\"max\":3,\"backoff\":[1,5,25],"
        "\"stuck_timeout\":900},\"resources\":{\"nodes\":null,\"labels\":{},\"threads\":\"auto\","
        "\"memory_bytes\":\"auto\",\"processes\":\"auto\",\"open_files\":64,"
        "\"gpus_per_rank\":0,\"gpu\":null,\"isolate_gpus\":false,\"gpu_names\":\"uuid\","
        "\"unmanaged_gpus\":false},"
        "\"metrics_from\":{\"stdout\":null,\"transformers\":\"auto\"},"
        "\"loggers_in\":{\"tensorboard\":null}}";
    struct td_json *tree =
        parse_spec(*state, "kind: command\ncommand: [run, 3]\nenv: {A: 1, B: x}\n"
                           "trainer: {devices: 2}\nresources: {open_files: 64}\n");
    for (int i = 0; i < 2; i++) {
        TD_AUTO_BUF text;
        struct td_spec spec;
        td_buf_init(&text, FILE_MAX);
        assert_ok(td_json_print(tree, false, &text));
        assert_string_equal(td_buf_cstr(&text), want);
        td_spec_read(tree, &spec);
        assert_int_equal(spec.kind, TD_KIND_COMMAND);
        assert_int_equal(td_spec_ranks(&spec), 2);
        assert_int_equal(spec.resources.open_files, 64);
        assert_int_equal(spec.resources.processes, 0);
        assert_int_equal(spec.resources.gpus_per_rank, 0);
        assert_string_equal(spec.resources.gpu_model, "");
        assert_string_equal(spec.trainer.cpu_level, "auto");
        assert_string_equal(spec.model.name, "");
        assert_ok(td_spec_validate(*state, tree, 0, &tree)); // again, and nothing changes
    }
}

static void test_command_asks_for_gpus(void **state) {
    struct td_json *tree = parse_spec(
        *state, "kind: command\ncommand: [run]\nresources: {gpus_per_rank: 2, gpu: {model: "
                "\"*H100*\", memory: 40GiB}, isolate_gpus: true, gpu_names: index}\n");
    struct td_spec spec;
    for (int i = 0; i < 2; i++) {
        td_spec_read(tree, &spec);
        assert_int_equal(spec.resources.gpus_per_rank, 2);
        assert_string_equal(spec.resources.gpu_model, "*H100*");
        assert_true(spec.resources.gpu_memory_bytes == INT64_C(40) << 30);
        assert_true(spec.resources.isolate_gpus && spec.resources.gpu_indexes);
        assert_false(spec.resources.unmanaged_gpus);
        assert_int_equal(spec.trainer.devices, 0);           // auto
        assert_ok(td_spec_validate(*state, tree, 0, &tree)); // again, and nothing changes
    }
}

static void test_program_has_keys_of_its_checkpoints_when_canonical(void **state) {
    static const char want[] =
        "{\"name\":\"job\",\"kind\":\"program\",\"command\":[\"run\"],\"env\":{},"
        "\"workdir\":null,\"ckpt_path\":\"/c\",\"loggers\":[],\"labels\":{},"
        "\"trainer\":{\"devices\":1,\"num_nodes\":1},\"checkpoint\":{\"store\":\"fs\","
        "\"dir\":null},\"restart\":{\"max\":3,\"backoff\":[1,5,25],\"stuck_timeout\":900},"
        "\"resources\":{\"nodes\":null,\"labels\":{},\"threads\":\"auto\","
        "\"memory_bytes\":\"auto\",\"processes\":\"auto\",\"open_files\":\"auto\","
        "\"gpus_per_rank\":0,\"gpu\":null,\"isolate_gpus\":false,\"gpu_names\":\"uuid\","
        "\"unmanaged_gpus\":false}}";
    struct td_json *tree = parse_spec(*state, "kind: program\ncommand: [run]\nckpt_path: /c\n"
                                              "trainer: {devices: 1}\ncheckpoint: {store: fs}\n");
    TD_AUTO_BUF text;
    struct td_spec spec;
    td_buf_init(&text, FILE_MAX);
    assert_ok(td_json_print(tree, false, &text));
    assert_string_equal(td_buf_cstr(&text), want);
    td_spec_read(tree, &spec);
    assert_int_equal(spec.kind, TD_KIND_PROGRAM);
    assert_int_equal(spec.checkpoint.save_top_k, -1); // it says itself what goes
    assert_string_equal(spec.ckpt_path, "/c");
    assert_ok(td_spec_validate(*state, tree, 0, &tree));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_arena(test_command_has_its_own_keys_alone_when_canonical),
        test_in_arena(test_command_asks_for_gpus),
        test_in_arena(test_program_has_keys_of_its_checkpoints_when_canonical),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
