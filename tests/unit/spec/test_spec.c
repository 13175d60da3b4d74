// The job spec from end to end: the examples, their canonical form, the plain view of it, plans,
// and the printed reference. What is wrong with a document is test_spec_input.c's.
// Golden files are tests/golden/spec-*.json: what a canonical spec looks like is a promise to
// whoever stores or digests one, so a difference here must be meant; TD_GOLDEN_WRITE=1 writes them
// again.

#include "tests/unit/spec/spec_rig.h"

#include "lib/base/cpu_level.h"
#include "lib/spec/knobs.h"
#include "lib/spec/plan.h"

enum { FILE_MAX = 1 << 20 };

static struct td_json *parse_file(struct td_arena *a, const char *path) {
    TD_AUTO_BUF text;
    td_buf_init(&text, FILE_MAX);
    assert_ok(td_fs_read(path, FILE_MAX, &text));
    return parse_spec(a, td_buf_cstr(&text));
}

static const char minimal[] = "model: {name: mlp, layers: [4, 2]}\n"
                              "data: {name: synthetic, features: 4, classes: 2, batch_size: 8}\n"
                              "optimizer: {name: sgd}\n";

static void assert_same_text(const char *got, const char *path) {
    TD_AUTO_BUF wanted;
    td_buf_init(&wanted, FILE_MAX);
    if (getenv("TD_GOLDEN_WRITE")) assert_ok(td_fs_write(path, got, strlen(got), 0644, 0));
    assert_ok(td_fs_read(path, FILE_MAX, &wanted));
    if (strcmp(got, td_buf_cstr(&wanted)) != 0) {
        fail_msg("this differs from %s:\n%s", path, got);
    }
}

// ---- canonical ----------------------------------------------------------------------------------
static void check_golden(struct td_arena *a, const char *example, const char *golden) {
    TD_AUTO_BUF out;
    td_buf_init(&out, FILE_MAX);
    assert_ok(td_json_print(parse_file(a, example), true, &out));
    assert_ok(td_buf_str(&out, "\n"));
    assert_same_text(td_buf_cstr(&out), golden);
}

static void test_example_fashion_mnist_is_golden_when_canonical(void **state) {
    check_golden(*state, "examples/fashion-mnist.yaml", "tests/golden/spec-fashion-mnist.json");
}

static void test_example_synthetic_is_golden_when_canonical(void **state) {
    check_golden(*state, "examples/synthetic.yaml", "tests/golden/spec-synthetic.json");
}

static void test_canonical_is_unchanged_when_parsed_again(void **state) {
    TD_AUTO_BUF once, twice, thrice;
    td_buf_init(&once, FILE_MAX);
    td_buf_init(&twice, FILE_MAX);
    td_buf_init(&thrice, FILE_MAX);
    struct td_json *tree = parse_file(*state, "examples/fashion-mnist.yaml");
    struct td_json *changes = td_json_new(*state, TD_JSON_OBJECT);
    assert_true(td_json_set(*state, changes, "7", td_json_new_int(*state, 2)));
    assert_true(
        td_json_set(*state, td_json_get(tree, "trainer"), "accumulate_grad_batches", changes));
    assert_ok(td_spec_validate(*state, tree, 0, &tree));
    assert_ok(td_json_print(tree, false, &once));
    assert_non_null(strstr(td_buf_cstr(&once), "{\"0\":1,\"7\":2}"));
    assert_ok(td_json_print(parse_spec(*state, td_buf_cstr(&once)), false, &twice));
    assert_string_equal(td_buf_cstr(&once), td_buf_cstr(&twice));
    struct td_json *json, *again;
    assert_ok(td_json_parse(*state, once.data, once.len, &json));
    assert_ok(td_spec_validate(*state, json, 0, &again));
    assert_ok(td_json_print(again, false, &thrice));
    assert_string_equal(td_buf_cstr(&once), td_buf_cstr(&thrice));
}

static void test_json_gives_the_same_when_it_says_the_same_as_yaml(void **state) {
    TD_AUTO_BUF a, b;
    td_buf_init(&a, FILE_MAX);
    td_buf_init(&b, FILE_MAX);
    assert_ok(td_json_print(parse_spec(*state, minimal), false, &a));
    const char *json = "{\n\t\"model\":{\"name\":\"mlp\",\"layers\":[4,2]},\n"
                       "\t\"data\":{\"name\":\"synthetic\",\"features\":4,\"classes\":2,"
                       "\"batch_size\":8},\"optimizer\":{\"name\":\"sgd\"}}";
    assert_ok(td_json_print(parse_spec(*state, json), false, &b));
    assert_string_equal(td_buf_cstr(&a), td_buf_cstr(&b));
}

// Each default is a value that its own row takes: with every required key given, every variant
// parses from its name alone.
static void test_variants_parse_when_only_required_keys_are_given(void **state) {
    static const char *const overrides[] = {
        "data={name: idx, path: /d, batch_size: 1}",
        "optimizer={name: adam}",
        "optimizer={name: adamw}",
        "optimizer={name: lion}",
        "optimizer={name: adafactor}",
        "optimizer={name: muon}",
        "optimizer={name: muon, momentum: 0}", // its nesterov is true
        "lr_scheduler={name: warmup_cosine}",
        "lr_scheduler={name: constant}",
        "lr_scheduler={name: reduce_on_plateau}",
        "model={name: plugin, module: m}",
        "data={name: plugin, dataset: d, batch_size: 1}",
        "trainer.strategy={name: plugin, strategy: s}",
        "trainer.precision={name: plugin, precision: p}",
    };
    for (size_t i = 0; i < TD_COUNTOF(overrides); i++) {
        struct td_json *tree = NULL;
        assert_ok(td_spec_parse(*state, minimal, strlen(minimal), &overrides[i], 1, &tree));
    }
}

// ---- resolved defaults --------------------------------------------------------------------------
static struct td_spec view(struct td_arena *a, const char *extra) {
    const char *text = td_arena_printf(a, "%s%s", minimal, extra);
    struct td_spec s;
    td_spec_read(parse_spec(a, text), &s);
    return s;
}

static void test_max_epochs_is_1000_when_nothing_else_ends_the_job(void **state) {
    assert_int_equal(view(*state, "").trainer.limits.max_epochs, 1000);
    assert_int_equal(view(*state, "trainer: {max_epochs: null}").trainer.limits.max_epochs, 1000);
    assert_int_equal(view(*state, "trainer: {max_steps: 5}").trainer.limits.max_epochs, -1);
    assert_int_equal(view(*state, "trainer: {max_time: 60}").trainer.limits.max_epochs, -1);
    assert_int_equal(view(*state, "trainer: {max_epochs: -1}").trainer.limits.max_epochs, -1);
    assert_int_equal(view(*state, "trainer: {max_epochs: 0}").trainer.limits.max_epochs, 0);
}

static void test_checkpoint_period_is_one_epoch_when_none_is_given(void **state) {
    struct td_spec_checkpoint c = view(*state, "").checkpoint;
    assert_int_equal(c.every_n_epochs, 1);
    assert_int_equal(c.every_n_train_steps, 0);
    c = view(*state, "checkpoint: {every_n_train_steps: 7}").checkpoint;
    assert_int_equal(c.every_n_epochs, 0);
    assert_int_equal(c.every_n_train_steps, 7);
    c = view(*state, "checkpoint: {every_n_epochs: 0}").checkpoint;
    assert_int_equal(c.every_n_epochs, 0);
    assert_int_equal(c.every_n_train_steps, 0);
}

static void test_optimizer_may_be_absent_when_nothing_is_fitted(void **state) {
    const char *text = "model: {name: mlp, layers: [4, 2]}\nstages: [test]\n"
                       "data: {name: synthetic, batch_size: 8}\n";
    struct td_spec s;
    td_spec_read(parse_spec(*state, text), &s);
    assert_string_equal(s.optimizer.name, "sgd");
    assert_int_equal(s.stages, TD_STAGE_TEST);
}

static void test_precision_has_its_long_name_when_written_short(void **state) {
    static const char *const names[][2] = {{"32", "32-true"},
                                           {"'32'", "32-true"},
                                           {"64", "64-true"},
                                           {"16", "16-mixed"},
                                           {"bf16", "bf16-mixed"}};
    for (size_t i = 0; i < TD_COUNTOF(names); i++) {
        char text[64];
        snprintf(text, sizeof text, "trainer: {precision: %s}", names[i][0]);
        assert_string_equal(view(*state, text).trainer.precision.name, names[i][1]);
    }
}

static void test_max_time_is_seconds_when_written_as_days_and_hours(void **state) {
    assert_int_equal(view(*state, "trainer: {max_time: '01:02:03:04'}").trainer.limits.max_time_s,
                     93784);
    assert_int_equal(view(*state, "trainer: {max_time: 00:00:00:05}").trainer.limits.max_time_s, 5);
}

// ---- the view -----------------------------------------------------------------------------------
static void test_view_has_the_values_when_the_example_is_read(void **state) {
    struct td_spec s;
    td_spec_read(parse_file(*state, "examples/fashion-mnist.yaml"), &s);
    assert_string_equal(s.name, "fashion-mnist-mlp");
    assert_int_equal(s.seed, 1);
    assert_int_equal(s.stages, TD_STAGE_FIT | TD_STAGE_TEST);
    assert_string_equal(s.model.name, "mlp");
    assert_int_equal(td_json_get(s.model.knobs, "layers")->n_children, 4);
    assert_string_equal(s.data.name, "idx");
    assert_int_equal(s.loader.batch_size, 128);
    assert_true(s.loader.shuffle);
    assert_false(s.loader.drop_last);
    assert_string_equal(s.optimizer.name, "adamw");
    assert_true(td_json_real(td_json_get(s.optimizer.knobs, "weight_decay"), 0) == 0.01);
    assert_string_equal(s.trainer.accelerator.name, "cpu");
    assert_false(s.trainer.accelerator.is_plugin);
    assert_string_equal(s.trainer.strategy.name, "ddp");
    assert_false(s.trainer.strategy.is_plugin);
    assert_int_equal(s.plugins->n_children, 0);
    assert_int_equal(s.trainer.devices, 2);
    assert_int_equal(s.trainer.limits.max_epochs, 5);
    assert_true(s.trainer.gradient_clip_val == 0);
    assert_true(s.trainer.limits.val_batches.is_fraction);
    assert_string_equal(s.checkpoint.store, "auto");
    assert_string_equal(s.checkpoint.monitor, "");
    assert_string_equal(s.ckpt_path, "");
    assert_string_equal(s.evaluate_from, "");
    assert_int_equal(s.restart.max, 3);
    assert_int_equal(s.restart.n_backoff, 3);
    assert_int_equal(s.restart.backoff_s[2], 25);
    assert_int_equal(td_spec_ranks(&s), 2);
}

// ---- plugins ------------------------------------------------------------------------------------
static const char with_plugins[] =
    "plugins: [/opt/mine, /opt/skip.so]\n"
    "model: {name: plugin, module: skipnet, knobs: {width: 8, sizes: [1, 2.5], on: true}}\n"
    "data: {name: plugin, dataset: rings, batch_size: 8, shuffle: true, knobs: {n: 3}}\n"
    "optimizer: {name: sgd}\n"
    "trainer: {accelerator: {name: plugin, accelerator: far, knobs: {delay_us: 5, fail_at: 2}},\n"
    "          strategy: {name: plugin, strategy: local_sgd, knobs: {k: 4}},\n"
    "          precision: {name: plugin, precision: half}}\n";

static void test_view_has_name_and_knobs_when_a_part_is_a_plugin(void **state) {
    struct td_spec s;
    td_spec_read(parse_spec(*state, with_plugins), &s);
    assert_int_equal(s.plugins->n_children, 2);
    assert_string_equal(td_json_string(s.plugins->last, ""), "/opt/skip.so");
    const struct {
        struct td_spec_part part;
        const char *name;
        size_t n_knobs;
    } parts[] = {{s.model, "skipnet", 3},
                 {s.data, "rings", 1},
                 {s.trainer.accelerator, "far", 2},
                 {s.trainer.strategy, "local_sgd", 1},
                 {s.trainer.precision, "half", 0}};
    for (size_t i = 0; i < TD_COUNTOF(parts); i++) {
        assert_true(parts[i].part.is_plugin);
        assert_string_equal(parts[i].part.name, parts[i].name);
        assert_int_equal(parts[i].part.knobs->n_children, parts[i].n_knobs);
    }
    assert_int_equal(s.loader.batch_size, 8); // the loader's keys are beside a plugin's own
    assert_true(s.loader.shuffle);
}

static void test_canonical_is_unchanged_when_plugins_are_parsed_again(void **state) {
    TD_AUTO_BUF once, twice;
    td_buf_init(&once, FILE_MAX);
    td_buf_init(&twice, FILE_MAX);
    assert_ok(td_json_print(parse_spec(*state, with_plugins), true, &once));
    assert_ok(td_json_print(parse_spec(*state, td_buf_cstr(&once)), true, &twice));
    assert_string_equal(td_buf_cstr(&once), td_buf_cstr(&twice));
}

static void test_canonical_is_the_bare_name_when_a_map_holds_nothing_else(void **state) {
    struct td_spec s = view(*state, "trainer: {strategy: {name: ddp}, precision: {name: bf16}}\n");
    const struct td_json *trainer = td_json_get(s.tree, "trainer");
    assert_string_equal(td_json_string(td_json_get(trainer, "strategy"), ""), "ddp");
    assert_string_equal(td_json_string(td_json_get(trainer, "precision"), ""), "bf16-mixed");
    assert_null(s.trainer.strategy.knobs);
}

static void test_section_takes_defaults_when_it_is_a_bare_name(void **state) {
    TD_AUTO_BUF bare, full;
    td_buf_init(&bare, FILE_MAX);
    td_buf_init(&full, FILE_MAX);
    assert_ok(td_json_print(view(*state, "lr_scheduler: constant\n").tree, true, &bare));
    assert_ok(td_json_print(view(*state, "lr_scheduler: {name: constant}\n").tree, true, &full));
    assert_string_equal(td_buf_cstr(&bare), td_buf_cstr(&full));
}

static void test_bytes_are_counted_when_they_have_a_unit(void **state) {
    static const struct {
        const char *text;
        int64_t bytes;
    } cases[] = {{"4GiB", INT64_C(4) << 30},   {"1.5 GB", 1500000000}, {"2000 kB", 2000000},
                 {"0.5TiB", INT64_C(1) << 39}, {"64MiB", 64 << 20},    {"2097152B", 2 << 20},
                 {"2097152", 2 << 20}};
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        char more[64];
        snprintf(more, sizeof more, "resources: {memory_bytes: %s}", cases[i].text);
        assert_int_equal(view(*state, more).resources.memory_bytes, cases[i].bytes);
    }
}

static void test_cpu_level_takes_auto_and_each_level_by_name(void **state) {
    char more[64];
    assert_string_equal(view(*state, "").trainer.cpu_level, "auto");
    for (int i = 0; i < TD_CPU_LEVEL_COUNT; i++) {
        const char *name = td_cpu_level_name((enum td_cpu_level)i);
        snprintf(more, sizeof more, "trainer: {cpu_level: %s}", name);
        assert_string_equal(view(*state, more).trainer.cpu_level, name);
    }
}

static void test_amount_is_a_count_or_a_share_when_read(void **state) {
    struct td_limits l =
        view(*state, "trainer: {limit_train_batches: 1, limit_val_batches: 0.5}").trainer.limits;
    assert_false(l.train_batches.is_fraction);
    assert_int_equal(l.train_batches.batches, 1);
    assert_true(l.val_batches.is_fraction && l.val_batches.fraction == 0.5);
    assert_true(l.test_batches.is_fraction && l.test_batches.fraction == 1.0);
}

static void test_accumulation_is_a_number_or_changes_with_epochs(void **state) {
    struct td_limits l = view(*state, "trainer: {accumulate_grad_batches: 3}").trainer.limits;
    assert_int_equal(l.n_accumulate, 1);
    assert_int_equal(l.accumulate[0].batches, 3);
    l = view(*state, "trainer: {accumulate_grad_batches: {10: 2, 5: 8}}").trainer.limits;
    static const int32_t want[][2] = {{0, 1}, {5, 8}, {10, 2}};
    assert_int_equal(l.n_accumulate, TD_COUNTOF(want));
    for (size_t i = 0; i < TD_COUNTOF(want); i++) {
        assert_int_equal(l.accumulate[i].epoch, want[i][0]);
        assert_int_equal(l.accumulate[i].batches, want[i][1]);
    }
    l = view(*state, "trainer: {accumulate_grad_batches: {0: 4, 2147483647: 1}}").trainer.limits;
    assert_int_equal(l.n_accumulate, 2);
    assert_int_equal(l.accumulate[0].batches, 4);
    assert_int_equal(l.accumulate[1].epoch, INT32_MAX);
}

static void test_slots_cover_the_threads_when_a_rank_asks_for_many(void **state) {
    static const struct {
        int32_t threads, cores, slots, want_slots, want_threads;
    } cases[] = {
        {0, 2, 2, 1, 1},    {0, 16, 4, 1, 4}, {4, 16, 4, 1, 4}, {5, 16, 4, 2, 5},
        {16, 16, 4, 4, 16}, {1, 1, 4, 1, 1},  {3, 2, 2, 3, 3},  {0, 7, 2, 1, 3},
    };
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        struct td_spec s = view(*state, "");
        s.resources.threads = cases[i].threads;
        assert_int_equal(td_spec_slots(&s.resources, cases[i].cores, cases[i].slots),
                         cases[i].want_slots);
        assert_int_equal(td_spec_threads(&s.resources, cases[i].cores, cases[i].slots),
                         cases[i].want_threads);
    }
}

static void test_ranks_are_one_when_devices_are_auto(void **state) {
    struct td_spec s = view(*state, "");
    assert_int_equal(s.trainer.devices, 0);
    assert_int_equal(td_spec_ranks(&s), 1);
}

// ---- overrides ----------------------------------------------------------------------------------
static void test_overrides_replace_and_add_when_given_in_order(void **state) {
    static const char *const overrides[] = {
        "trainer.devices=4",
        "trainer.devices=3",
        "model.layers=[4, 8, 2]",
        "name=again",
        "checkpoint.monitor=\"val_loss\"",
        "init_from=",
        "evaluate_from=best",
        "optimizer={name: adam, lr: 1e-2}",
    };
    struct td_json *tree;
    assert_ok(
        td_spec_parse(*state, minimal, strlen(minimal), overrides, TD_COUNTOF(overrides), &tree));
    struct td_spec s;
    td_spec_read(tree, &s);
    assert_int_equal(s.trainer.devices, 3);
    assert_int_equal(td_json_get(s.model.knobs, "layers")->n_children, 3);
    assert_string_equal(s.name, "again");
    assert_string_equal(s.checkpoint.monitor, "val_loss");
    assert_string_equal(s.init_from, "");
    assert_string_equal(s.evaluate_from, "best");
    assert_string_equal(s.optimizer.name, "adam");
    assert_true(td_json_real(td_json_get(s.optimizer.knobs, "lr"), 0) == 0.01);
}

// ---- plans --------------------------------------------------------------------------------------
static void test_plan_is_the_same_when_joined_from_texts(void **state) {
    static const char choices[] = "{\"bucket_bytes\":1048576}";
    struct td_json *frozen;
    assert_ok(td_json_parse(*state, choices, sizeof choices - 1, &frozen));
    struct td_plan_run run = {.job = "job-\"1\"",
                              .attempt = 2,
                              .world_size = 2,
                              .threads_per_rank = 1,
                              .checkpoint_dir = "/ckpt/job-1/a2",
                              .cache_dir = "/cache",
                              .resume_from = "/ckpt/job-1/a1/step-10",
                              .precision = "bf16-mixed",
                              .frozen = frozen};
    struct td_plan built, read;
    TD_AUTO_BUF spec_json, joined, want, got;
    td_buf_init(&spec_json, FILE_MAX);
    td_buf_init(&joined, FILE_MAX);
    td_buf_init(&want, FILE_MAX);
    td_buf_init(&got, FILE_MAX);
    struct td_json *spec = parse_file(*state, "examples/fashion-mnist.yaml");
    assert_ok(td_json_print(spec, false, &spec_json));
    assert_ok(td_plan_build(*state, spec, &run, &built));
    assert_ok(td_plan_print(&built, &want));
    assert_ok(td_plan_join(td_buf_cstr(&spec_json), &run, choices, &joined));
    assert_ok(td_plan_parse(*state, joined.data, joined.len, &read));
    assert_ok(td_plan_print(&read, &got));
    assert_string_equal(td_buf_cstr(&got), td_buf_cstr(&want));
}

static void test_plan_reads_back_when_built_and_printed(void **state) {
    struct td_json *frozen = td_json_new(*state, TD_JSON_OBJECT);
    assert_true(td_json_set(*state, frozen, "bucket_bytes", td_json_new_int(*state, 1 << 20)));
    struct td_json *older = td_json_new(*state, TD_JSON_ARRAY);
    assert_true(td_json_push(older, td_json_new_string(*state, "/ckpt/job-1/a1/step-5")));
    struct td_plan_run run = {.job = "job-1",
                              .attempt = 2,
                              .world_size = 2,
                              .threads_per_rank = 1,
                              .checkpoint_dir = "/ckpt/job-1/a2",
                              .resume_from = "/ckpt/job-1/a1/step-10",
                              .resume_before = older,
                              .frozen = frozen};
    struct td_plan built, read;
    TD_AUTO_BUF once, twice;
    td_buf_init(&once, FILE_MAX);
    td_buf_init(&twice, FILE_MAX);
    struct td_json *spec = parse_file(*state, "examples/fashion-mnist.yaml");
    assert_ok(td_plan_build(*state, spec, &run, &built));
    assert_ok(td_plan_print(&built, &once));
    assert_ok(td_plan_parse(*state, once.data, once.len, &read));
    assert_ok(td_plan_print(&read, &twice));
    assert_string_equal(td_buf_cstr(&once), td_buf_cstr(&twice));
    assert_string_equal(read.run.job, "job-1");
    assert_int_equal(read.run.attempt, 2);
    assert_int_equal(read.run.world_size, 2);
    assert_int_equal(read.run.threads_per_rank, 1);
    assert_string_equal(read.run.checkpoint_dir, "/ckpt/job-1/a2");
    assert_string_equal(read.run.cache_dir, "");
    assert_string_equal(read.run.resume_from, "/ckpt/job-1/a1/step-10");
    assert_int_equal(read.run.resume_before->n_children, 1);
    assert_string_equal(td_json_string(read.run.resume_before->first, ""), "/ckpt/job-1/a1/step-5");
    assert_int_equal(td_json_int(td_json_get(read.run.frozen, "bucket_bytes"), 0), 1 << 20);
    assert_string_equal(read.spec.model.name, "mlp");
    assert_true(read.spec.trainer.limits.train_batches.is_fraction); // 1.0 stays a fraction
}

static void test_plan_takes_defaults_when_written_by_hand(void **state) {
    const char *text = "{\"format\": 1, \"model\": {\"name\": \"mlp\", \"layers\": [4, 2]},"
                       "\"data\": {\"name\": \"synthetic\", \"batch_size\": 4},"
                       "\"optimizer\": {\"name\": \"sgd\"}, \"trainer\": {\"max_steps\": 3}}";
    struct td_plan p;
    assert_ok(td_plan_parse(*state, text, strlen(text), &p));
    assert_string_equal(p.run.job, "");
    assert_int_equal(p.run.attempt, 1);
    assert_int_equal(p.run.world_size, 0);
    assert_int_equal(p.run.threads_per_rank, 0);
    assert_string_equal(p.run.checkpoint_dir, "");
    assert_null(p.run.frozen);
    assert_int_equal(p.spec.trainer.limits.max_steps, 3);
    assert_string_equal(p.spec.name, "job");
}

static void test_plan_is_refused_when_format_or_json_is_wrong(void **state) {
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"", "not valid JSON"},
        {"{\"format\": 1,", "not valid JSON"},
        {"{}", "format: required"},
        {"{\"format\": 2}", "expected 1, found 2: a newer traind wrote this plan"},
        {"{\"format\": 1, \"run\": {\"atempt\": 1}}", "run.atempt: unknown key, did you mean"},
        {"[]", "a plan is a map of keys, found a list"},
    };
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        struct td_plan p;
        td_status s = td_plan_parse(*state, cases[i].text, strlen(cases[i].text), &p);
        assert_int_equal(td_status_class(s), TD_CLASS_BAD_SPEC);
        assert_string_equal(td_status_reason(s), "SPEC_INVALID");
        bool found = strstr(td_status_message(s), cases[i].part);
        for (size_t f = 0; f < td_status_n_fields(s); f++) {
            const char *path, *text;
            td_status_field(s, f, &path, &text);
            char line[2048];
            snprintf(line, sizeof line, "%s: %s", path, text);
            found |= strstr(line, cases[i].part) != NULL;
        }
        if (!found) fail_msg("case %zu: %s", i, td_status_message(s));
        td_status_free(s);
    }
}

// ---- the reference ------------------------------------------------------------------------------
static void test_reference_is_the_document_when_printed(void **state) {
    (void)state;
    TD_AUTO_BUF out;
    td_buf_init(&out, FILE_MAX);
    assert_ok(td_spec_reference(&out));
    assert_same_text(td_buf_cstr(&out), "docs/job-spec.md");
}

static void test_tables_are_sound_when_every_row_is_visited(void **state) {
    for (size_t i = 0; i < td_n_knobs; i++) {
        const struct td_knob *k = &td_knobs[i];
        assert_non_null(td_section_find(k->section));
        assert_ptr_equal(td_knob_find(k->section, k->key), k); // no row is there twice
        assert_non_null(td_knob_expects(*state, k));
        assert_null(td_knob_later(k->section, k->key));
    }
    for (size_t i = 0; i < td_n_sections; i++) {
        assert_ptr_equal(td_section_find(td_sections[i].path), &td_sections[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_arena(test_example_fashion_mnist_is_golden_when_canonical),
        test_in_arena(test_example_synthetic_is_golden_when_canonical),
        test_in_arena(test_canonical_is_unchanged_when_parsed_again),
        test_in_arena(test_json_gives_the_same_when_it_says_the_same_as_yaml),
        test_in_arena(test_variants_parse_when_only_required_keys_are_given),
        test_in_arena(test_max_epochs_is_1000_when_nothing_else_ends_the_job),
        test_in_arena(test_checkpoint_period_is_one_epoch_when_none_is_given),
        test_in_arena(test_optimizer_may_be_absent_when_nothing_is_fitted),
        test_in_arena(test_precision_has_its_long_name_when_written_short),
        test_in_arena(test_max_time_is_seconds_when_written_as_days_and_hours),
        test_in_arena(test_view_has_the_values_when_the_example_is_read),
        test_in_arena(test_view_has_name_and_knobs_when_a_part_is_a_plugin),
        test_in_arena(test_canonical_is_unchanged_when_plugins_are_parsed_again),
        test_in_arena(test_canonical_is_the_bare_name_when_a_map_holds_nothing_else),
        test_in_arena(test_section_takes_defaults_when_it_is_a_bare_name),
        test_in_arena(test_bytes_are_counted_when_they_have_a_unit),
        test_in_arena(test_cpu_level_takes_auto_and_each_level_by_name),
        test_in_arena(test_amount_is_a_count_or_a_share_when_read),
        test_in_arena(test_accumulation_is_a_number_or_changes_with_epochs),
        test_in_arena(test_slots_cover_the_threads_when_a_rank_asks_for_many),
        test_in_arena(test_ranks_are_one_when_devices_are_auto),
        test_in_arena(test_overrides_replace_and_add_when_given_in_order),
        test_in_arena(test_plan_reads_back_when_built_and_printed),
        test_in_arena(test_plan_is_the_same_when_joined_from_texts),
        test_in_arena(test_plan_takes_defaults_when_written_by_hand),
        test_in_arena(test_plan_is_refused_when_format_or_json_is_wrong),
        cmocka_unit_test(test_reference_is_the_document_when_printed),
        test_in_arena(test_tables_are_sound_when_every_row_is_visited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
