// Manifest: what is written reads back, and what is not whole is refused by name.

#include "tests/unit/test.h"

#include <math.h>

#include "engine/train/checkpoint/manifest.h"

static struct td_state_table *make_state(void) {
    struct td_state_table *t;
    uint32_t weight, other;
    struct td_shape shape = {2, {2, 3}};
    struct td_init zero = {.kind = TD_INIT_ZERO};
    assert_ok(td_state_table_create(&t));
    assert_ok(td_state_add(t, "w", TD_ROLE_PARAM, TD_F32, &shape, zero, 0, &weight));
    assert_ok(td_state_add(t, "w:grad", TD_ROLE_GRAD, TD_F32, &shape, zero, weight, &other));
    assert_ok(td_state_add(t, "w:exp_avg", TD_ROLE_OPTIM, TD_F32, &shape, zero, weight, &other));
    return t;
}

// Of two ranks: sums of "loss" and "error", with room for more.
static const double sums[2 * TD_TALLIES * 2] = {
    [0] = 0.1,  [1] = 3,  [2] = 1.0 / 3,      [3] = 3, // of rank 0
    [16] = 0.7, [17] = 2, [18] = (double)NAN, [19] = 2,
};

static struct td_manifest make_manifest(void) {
    struct td_manifest m = {
        .job = "j",
        .attempt = 3,
        .seed = 4294967295u,
        .progress = {.step = 7,
                     .epoch = 1,
                     .epoch_offset = 640,
                     .epoch_batches = 5,
                     .samples = 1640,
                     .elapsed_ns = 123456789012345,
                     .plateau = {.monitor = "val_loss",
                                 .best = 0.1,
                                 .lr_scale = 0.01,
                                 .bad = 2,
                                 .cooldown = 1,
                                 .has_best = true},
                     .validation_pending = true,
                     .count = {{"disc", 4}, {"gen", 3}},
                     .n_counts = 2},
        .key = {.world_size = 2, .nodes = 2, .threads = 1, .cpu = "oneDNN", .build = "0.1.0+abc"},
        .optimizer = "adamw",
        .schedule = "constant",
        .spec_digest = "00",
        .epoch_metrics =
            {.known = true, .n = 2, .name = {"loss", "error"}, .n_ranks = 2, .sums = sums},
        .best = {.known = true,
                 .monitor = "val_error",
                 .larger_is_better = true,
                 .value = 0.3,
                 .step = 4,
                 .path = "a1/step-4"},
        .n_files = 1,
        .file = {{.name = "model.safetensors", .bytes = 99, .digest = "ab"}},
    };
    td_manifest_add_metric(&m, "val_loss", 1.25, 5);
    td_manifest_add_metric(&m, "val_error", (double)NAN, 5);
    return m;
}

static void test_manifest_reads_back_as_it_was_written(void **state) {
    char path[4096], digest[TD_DIGEST_HEX];
    size_t bytes;
    struct td_state_table *table = make_state();
    struct td_manifest m = make_manifest(), r;
    struct td_arena *a;
    snprintf(path, sizeof path, "%s/manifest.json", (char *)*state);
    assert_ok(td_manifest_write(path, &m, table, &bytes, digest));
    assert_ok(td_arena_create(1 << 20, &a));
    assert_ok(td_manifest_read(a, path, &r));
    assert_string_equal(r.job, "j");
    assert_int_equal(r.attempt, 3);
    assert_true(r.seed == m.seed);
    assert_memory_equal(&r.progress, &m.progress, sizeof m.progress);
    char reason[64];
    td_resume_key_compare(&r.key, &m.key, TD_CPU_GENERIC, reason, sizeof reason);
    assert_string_equal(reason, "");
    assert_int_equal(r.key.nodes, 2);
    assert_int_equal(r.n_files, 1);
    assert_string_equal(r.file[0].name, "model.safetensors");
    assert_true(r.file[0].bytes == 99);
    assert_int_equal(r.n_metrics, 2);
    assert_true(r.metric[0].sum == 1.25 && r.metric[0].count == 5);
    assert_true(isnan(r.metric[1].sum) && r.metric[1].count == 5); // 0 would be the best of all
    assert_true(r.epoch_metrics.known);
    assert_int_equal(r.epoch_metrics.n, 2);
    assert_int_equal(r.epoch_metrics.n_ranks, 2);
    assert_string_equal(r.epoch_metrics.name[1], "error");
    for (size_t i = 0; i < TD_COUNTOF(sums); i++) {
        assert_true(r.epoch_metrics.sums[i] == sums[i] ||
                    (isnan(sums[i]) && isnan(r.epoch_metrics.sums[i])));
    }
    assert_string_equal(r.best.monitor, "val_error");
    assert_string_equal(r.best.path, "a1/step-4");
    assert_true(r.best.known && r.best.larger_is_better && r.best.value == 0.3 && r.best.step == 4);
    td_arena_destroy(a);
    td_state_table_destroy(table);
}

static void test_monitor_of_the_plain_name_is_the_epoch_s(void **state) {
    (void)state;
    struct td_manifest m = {0};
    td_manifest_add_metric(&m, "train_loss_step", 8, 2);
    td_manifest_add_metric(&m, "train_loss_epoch", 9, 3);
    td_manifest_add_metric(&m, "val_loss", 5, 1);
    td_manifest_add_metric(&m, "val_error", 0, 0);
    assert_true(td_manifest_metric(&m, "train_loss") == 3);
    assert_true(td_manifest_metric(&m, "train_loss_epoch") == 3);
    assert_true(td_manifest_metric(&m, "train_loss_step") == 4);
    assert_true(td_manifest_metric(&m, "val_loss") == 5);
    assert_true(isnan(td_manifest_metric(&m, "val_error"))); // a mean over nothing
    assert_true(isnan(td_manifest_metric(&m, "train")));
}

// The checkpoint was refused as damaged, because "value": null is no number.
static void test_manifest_reads_back_when_what_is_monitored_is_infinite(void **state) {
    char path[4096], digest[TD_DIGEST_HEX];
    size_t bytes;
    struct td_state_table *table = make_state();
    struct td_arena *a;
    snprintf(path, sizeof path, "%s/manifest.json", (char *)*state);
    for (int max = 0; max < 2; max++) {
        struct td_manifest m = make_manifest(), r;
        struct td_checkpoint_config config = {
            .dir = "/d/a1", .monitor = "val_score", .monitor_max = max};
        m.best.known = false;
        td_manifest_add_metric(&m, "val_score", (double)INFINITY, 4);
        td_best_offer(&m.best, &config, m.progress.step, td_manifest_metric(&m, "val_score"));
        assert_ok(td_manifest_write(path, &m, table, &bytes, digest));
        assert_ok(td_arena_create(1 << 20, &a));
        assert_ok(td_manifest_read(a, path, &r));
        assert_false(r.best.known);
        td_arena_destroy(a);
    }
    td_state_table_destroy(table);
}

static void test_read_refuses_what_is_not_a_whole_manifest(void **state) {
    static const struct {
        const char *find, *replace, *why;
    } rows[] = {
        {"\"format\": 1", "\"format\": 2", "format"},
        {"\"step\": 7", "\"step\": -7", "progress"},
        {"\"samples\"", "\"simples\"", "progress"},
        {"\"build\"", "\"bold\"", "resume key"},
        {"\"lr_scale\": 0.01", "\"lr_scale\": -1", "reduce_on_plateau"},
        {"\"bad\": 2", "\"bad\": -2", "reduce_on_plateau"},
        {"\"monitor\": \"val_loss\"", "\"monitor\": \"\"", "reduce_on_plateau"},
        {"\"disc\": 4", "\"disc\": -4", "training steps"},
        {"\"disc\": 4", "\"a_name_too_long_\": 4", "training steps"},
        {"\"steps\": {", "\"steps\": 3, \"s\": {", "training steps"},
        {"\"model.safetensors\",\n      \"bytes\"", "\"../model\",\n      \"bytes\"", "files"},
        {"\"files\": [", "\"files\": 3, \"f\": [", "files"},
        {"\"epoch_metrics\": {", "\"epoch_metrics\": {\"x\": [],", "sums of the epoch"},
        {"\"epoch_metrics\": {", "\"epoch_metrics\": {\"x\": 3,", "sums of the epoch"},
        {"\"epoch_metrics\": {", "\"epoch_metrics\": 3, \"e\": {", "sums of the epoch"},
        {"a1/step-4", "../step-4", "best checkpoint"},
        {"a1/step-4", "a1/step-4/../../x", "best checkpoint"},
        {"a1/step-4", "a1/step-5", "best checkpoint"},
        {"\"mode\": \"max\"", "\"mode\": \"mix\"", "best checkpoint"},
        {"{\n  \"format\"", "\n  \"format\"", "manifest"},
    };
    char path[4096], digest[TD_DIGEST_HEX];
    size_t bytes;
    struct td_state_table *table = make_state();
    struct td_manifest m = make_manifest(), r;
    snprintf(path, sizeof path, "%s/manifest.json", (char *)*state);
    assert_ok(td_manifest_write(path, &m, table, &bytes, digest));
    struct td_buf text;
    td_buf_init(&text, 1 << 20);
    assert_ok(td_fs_read(path, 1 << 20, &text));
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        struct td_buf bad;
        struct td_arena *a;
        const char *at = strstr(td_buf_cstr(&text), rows[i].find);
        assert_non_null(at);
        td_buf_init(&bad, 1 << 20);
        assert_ok(td_buf_append(&bad, text.data, (size_t)(at - text.data)));
        assert_ok(td_buf_str(&bad, rows[i].replace));
        assert_ok(td_buf_str(&bad, at + strlen(rows[i].find)));
        assert_ok(td_fs_write(path, bad.data, bad.len, 0600, 0));
        assert_ok(td_arena_create(1 << 20, &a));
        assert_fails(td_manifest_read(a, path, &r), TD_DATA_LOSS, rows[i].why);
        td_arena_destroy(a);
        td_buf_finish(&bad);
    }
    td_buf_finish(&text);
    td_state_table_destroy(table);
}

// A list that is cut would call a resume exact whose ninth plugin was rebuilt.
static void test_key_holds_every_plugin_that_a_rank_can_load(void **state) {
    static struct td_manifest m, r;
    char path[4096], digest[TD_DIGEST_HEX];
    size_t bytes;
    struct td_state_table *table = make_state();
    struct td_arena *a;
    m = make_manifest();
    for (int i = 0; i < TD_REGISTRY_MAX; i++) {
        struct td_plugin_file *f = &m.key.plugin[m.key.n_plugins++];
        snprintf(f->name, sizeof f->name, "module-m%d", i);
        snprintf(f->digest, sizeof f->digest, "%032d", i);
    }
    snprintf(path, sizeof path, "%s/manifest.json", (char *)*state);
    assert_ok(td_manifest_write(path, &m, table, &bytes, digest));
    assert_ok(td_arena_create(1 << 20, &a));
    assert_ok(td_manifest_read(a, path, &r));
    assert_int_equal(r.key.n_plugins, TD_REGISTRY_MAX);
    assert_string_equal(r.key.plugin[TD_REGISTRY_MAX - 1].digest,
                        m.key.plugin[TD_REGISTRY_MAX - 1].digest);
    td_arena_destroy(a);
    td_state_table_destroy(table);
}

static void test_key_names_what_differs(void **state) {
    (void)state;
    struct td_resume_key a = {.world_size = 4, .nodes = 2, .threads = 1, .cpu = "x", .build = "1"};
    struct td_resume_key b = a;
    char reason[128];
    b.world_size = b.nodes = 1;
    td_resume_key_compare(&a, &b, TD_CPU_AMX, reason, sizeof reason);
    assert_string_equal(reason, "world size 4 -> 1");
    b = a;
    b.nodes = 4;
    td_resume_key_compare(&a, &b, TD_CPU_AMX, reason, sizeof reason);
    assert_string_equal(reason, "nodes x ranks 2 x 2 -> 4 x 1: sums may be added in another order");
    b.nodes = 0; // an older manifest
    td_resume_key_compare(&b, &a, TD_CPU_AMX, reason, sizeof reason);
    assert_string_equal(reason, "");
    b = a;
    b.threads = 4;
    td_resume_key_compare(&a, &b, TD_CPU_AMX, reason, sizeof reason);
    assert_string_equal(reason, "threads per rank 1 -> 4");
    b = a;
    b.cpu[0] = 'y';
    td_resume_key_compare(&a, &b, TD_CPU_AMX, reason, sizeof reason);
    assert_non_null(strstr(reason, "x -> y"));
    b = a;
    b.build[0] = '2';
    td_resume_key_compare(&a, &b, TD_CPU_AMX, reason, sizeof reason);
    assert_string_equal(reason, "build of traind 1 -> 2");
}

static void test_key_names_the_knob_when_the_cpu_level_alone_differs(void **state) {
    (void)state;
    static const struct {
        const char *saved, *now;
        enum td_cpu_level most;
        const char *reason;
    } rows[] = {
        {"lib 1, avx2, caches 32", "lib 1, avx512_bf16, caches 32", TD_CPU_AMX,
         "CPU level avx2 -> avx512_bf16: bits may differ; trainer.cpu_level: avx2 keeps them"},
        {"lib 1, avx512", "lib 1, generic", TD_CPU_AVX512,
         "CPU level avx512 -> generic: bits may differ; trainer.cpu_level: avx512 keeps them"},
        {"lib 1, avx512", "lib 1, avx2", TD_CPU_AVX2,
         "CPU level avx512 -> avx2: bits may differ, and avx512 cannot be had here; a job that "
         "begins with trainer.cpu_level: avx2 keeps them on both"},
        // No knob keeps these.
        {"lib 1, avx2", "lib 2, avx512", TD_CPU_AMX,
         "hardware or its library lib 1, avx2 -> lib 2, avx512"},
        {"lib 1, avx2, caches 32", "lib 1, avx512, caches 48", TD_CPU_AMX,
         "hardware or its library lib 1, avx2, caches 32 -> lib 1, avx512, caches 48"},
        {"lib 1", "lib 1, avx512", TD_CPU_AMX, "hardware or its library lib 1 -> lib 1, avx512"},
        {"avx2,lib", "avx512,lib", TD_CPU_AMX,
         "CPU level avx2 -> avx512: bits may differ; trainer.cpu_level: avx2 keeps them"},
        {"", "lib 1, avx2", TD_CPU_AMX, "hardware or its library  -> lib 1, avx2"},
        {"lib 1, avx2", "lib 1, avx2", TD_CPU_AMX, ""},
    };
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        struct td_resume_key a = {.world_size = 1, .threads = 1}, b = a;
        char reason[256];
        snprintf(a.cpu, sizeof a.cpu, "%s", rows[i].saved);
        snprintf(b.cpu, sizeof b.cpu, "%s", rows[i].now);
        td_resume_key_compare(&a, &b, rows[i].most, reason, sizeof reason);
        assert_string_equal(reason, rows[i].reason);
    }
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, td_test_scratch_make, td_test_scratch_remove)
    const struct CMUnitTest tests[] = {
        CASE(test_manifest_reads_back_as_it_was_written),
        CASE(test_manifest_reads_back_when_what_is_monitored_is_infinite),
        CASE(test_read_refuses_what_is_not_a_whole_manifest),
        cmocka_unit_test(test_monitor_of_the_plain_name_is_the_epoch_s),
        test_in_scratch(test_key_holds_every_plugin_that_a_rank_can_load),
        cmocka_unit_test(test_key_names_what_differs),
        cmocka_unit_test(test_key_names_the_knob_when_the_cpu_level_alone_differs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
