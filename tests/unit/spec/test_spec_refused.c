// The table of refused combinations: each row that a spec can show refuses one, with its reason and
// at its key; each half alone is taken. A row without a case here fails; rows that only a plan can
// see have theirs in tests/scenario/engine/test_s05_refused.py. A second plugin of a kind is
// refused, too.

#include "tests/unit/test.h"

#include "lib/spec/refused.h"
#include "lib/spec/spec.h"

static const char base[] = "model: {name: mlp, layers: [4, 2]}\n"
                           "data: {name: synthetic, batch_size: 8}\n";
#define COMMAND "kind: command\ncommand: [x]\n" // a whole spec of another kind begins with it
static const char usual[] = "optimizer: {name: sgd}\n"; // where a case names none

// In the order of the rows: the combination, and each half of it that is taken alone.
static const struct {
    const char *key, *beside;
    const char *refused, *first, *second; // "": there is no such half
} cases[] = {
    {"trainer.strategy", "trainer.devices", "trainer: {strategy: single_device, devices: 3}",
     "trainer: {strategy: single_device}", "trainer: {strategy: ddp, devices: 3}"},
    {"trainer.strategy", "trainer.num_nodes", "trainer: {strategy: single_device, num_nodes: 2}",
     "trainer: {strategy: single_device, num_nodes: 1}", "trainer: {strategy: ddp, num_nodes: 2}"},
    {"trainer.strategy.static_graph", "", "trainer: {strategy: {name: ddp, static_graph: false}}",
     "trainer: {strategy: {name: ddp, static_graph: true}}", ""},
    {"trainer.strategy.gradient_as_bucket_view", "",
     "trainer: {strategy: {name: ddp, gradient_as_bucket_view: false}}",
     "trainer: {strategy: {name: ddp, gradient_as_bucket_view: true}}", ""},
    {"trainer.strategy.broadcast_buffers", "",
     "trainer: {strategy: {name: ddp, broadcast_buffers: false}}",
     "trainer: {strategy: {name: ddp, broadcast_buffers: true}}", ""},
    {"checkpoint.every_n_train_steps", "checkpoint.every_n_epochs",
     "checkpoint: {every_n_train_steps: 2, every_n_epochs: 1}",
     "checkpoint: {every_n_train_steps: 2, every_n_epochs: 0}",
     "checkpoint: {every_n_train_steps: 0, every_n_epochs: 1}"},
    {"checkpoint.train_time_interval", "checkpoint.every_n_train_steps",
     "checkpoint: {train_time_interval: 2, every_n_train_steps: 1}",
     "checkpoint: {train_time_interval: 2, every_n_train_steps: 0}",
     "checkpoint: {every_n_train_steps: 1}"},
    {"checkpoint.train_time_interval", "checkpoint.every_n_epochs",
     "checkpoint: {train_time_interval: 2, every_n_epochs: 1}",
     "checkpoint: {train_time_interval: 2, every_n_epochs: 0}", "checkpoint: {every_n_epochs: 1}"},
    {"checkpoint.save_top_k", "checkpoint.monitor", "checkpoint: {save_top_k: 2}",
     "checkpoint: {save_top_k: 2, monitor: val_loss}", "checkpoint: {save_top_k: 1}"},
    {"evaluate_from", "checkpoint.monitor", "evaluate_from: best", "evaluate_from: last", ""},
    {"evaluate_from", "checkpoint.save_top_k",
     "evaluate_from: best\ncheckpoint: {monitor: val_loss, save_top_k: 0}",
     "evaluate_from: best\ncheckpoint: {monitor: val_loss, save_top_k: -1}",
     "evaluate_from: last\ncheckpoint: {save_top_k: 0}"},
    {"early_stopping.*", "early_stopping.monitor", "early_stopping: {patience: 5}",
     "early_stopping: {patience: 5, monitor: val_loss}", "early_stopping: {patience: 3}"},
    {"optimizer", "optimizers",
     "optimizer: {name: sgd, lr: 0.5}\noptimizers: [{name: a, match: x, optimizer: adam}]",
     "optimizer: {name: sgd, lr: 0.5}",
     "optimizer: sgd\noptimizers: [{name: a, match: x, optimizer: adam}]"},
    {"lr_scheduler", "optimizers",
     "lr_scheduler: cosine\noptimizers: [{name: a, match: x, optimizer: adam}]",
     "lr_scheduler: cosine",
     "lr_scheduler: constant\noptimizers: [{name: a, match: x, optimizer: adam}]"},
    {"optimizers.*.lr_scheduler", "",
     "optimizers: [{name: a, match: x, optimizer: sgd, lr_scheduler: reduce_on_plateau}]",
     "optimizers: [{name: a, match: x, optimizer: sgd, lr_scheduler: cosine}]", ""},
    {"init_from", "ckpt_path", "init_from: /a\nckpt_path: /b", "init_from: /a", "ckpt_path: /b"},
    {"predict.prompt_tokens", "predict.prompt", "predict: {prompt: a, prompt_tokens: [1]}",
     "predict: {prompt_tokens: [1]}", "predict: {prompt: a}"},
    {"predict.values", "model.loss.name",
     "model: {name: mlp, layers: [4, 2], loss: mse}\npredict: {values: classes}",
     "predict: {values: classes}",
     "model: {name: mlp, layers: [4, 2], loss: mse}\npredict: {values: logits}"},
    {"trainer.sync_batchnorm", "trainer.precision",
     "trainer: {sync_batchnorm: true, precision: bf16-true}",
     "trainer: {sync_batchnorm: true, precision: bf16-mixed}",
     "trainer: {sync_batchnorm: false, precision: bf16-true}"},
    {"trainer.sync_batchnorm", "trainer.precision",
     "trainer: {sync_batchnorm: true, precision: 16-true}",
     "trainer: {sync_batchnorm: true, precision: 16-mixed}",
     "trainer: {sync_batchnorm: false, precision: 16-true}"},
    {"resources.unmanaged_gpus", "resources.gpus_per_rank",
     COMMAND "resources: {unmanaged_gpus: true, gpus_per_rank: 1}",
     COMMAND "resources: {unmanaged_gpus: true}", COMMAND "resources: {gpus_per_rank: 1}"},
    {"resources.gpu", "resources.gpus_per_rank", COMMAND "resources: {gpu: {model: x}}",
     COMMAND "resources: {gpu: {model: x}, gpus_per_rank: 1}", COMMAND "resources: {gpu: null}"},
    {"resources.isolate_gpus", "resources.gpus_per_rank", COMMAND "resources: {isolate_gpus: true}",
     COMMAND "resources: {isolate_gpus: true, gpus_per_rank: 1}", COMMAND},
    {"resources.gpu_names", "resources.gpus_per_rank", COMMAND "resources: {gpu_names: index}",
     COMMAND "resources: {gpu_names: index, gpus_per_rank: 1}", COMMAND},
};

static td_status parse(struct td_arena *a, const char *more) {
    struct td_json *tree;
    const char *head = strncmp(more, "model:", 6) == 0 ? strchr(base, '\n') + 1 : base;
    const char *optimizer = strncmp(more, "optimizer:", 10) == 0 ? "" : usual;
    const bool is_whole = strncmp(more, COMMAND, sizeof COMMAND - 1) == 0;
    const char *text = is_whole ? td_arena_printf(a, "%s\n", more)
                                : td_arena_printf(a, "%s%s%s\n", head, optimizer, more);
    assert_non_null(text);
    return td_spec_parse(a, text, strlen(text), NULL, 0, &tree);
}

static bool has(const char *text, const char *part) {
    return strstr(text, part) != NULL;
}

// Is a violation's place that of a row's key, whose `*` is any key or item?
static bool is_at(const char *field, const char *key) {
    const size_t len = strcspn(key, "*");
    const char *rest = key[len] ? strpbrk(key + len, ".") : NULL;
    if (!key[len]) return has(field, key);
    // "optimizers.*" is at "optimizers[0]"
    return strncmp(field, key, len - 1) == 0 && (!rest || has(field + len, rest));
}

static void expect_refused(td_status s, const struct td_refused *row) {
    const char *field = "", *text = "";
    assert_int_equal(td_status_class(s), TD_CLASS_BAD_SPEC);
    assert_int_equal(td_status_n_fields(s), 1);
    td_status_field(s, 0, &field, &text);
    const bool says =
        is_at(field, row->key) && has(text, row->why) && (!row->beside || has(text, row->beside));
    if (!says) fail_msg("'%s: %s' is not row %s", field, text, row->key);
    td_status_free(s);
}

// Contract 21: each row of the table of combinations is refused
static void test_each_row_refuses_its_combination_and_nothing_else(void **state) {
    (void)state;
    size_t n = 0;
    for (size_t i = 0; i < td_n_refused_rows; i++) {
        const struct td_refused *row = &td_refused_rows[i];
        if (row->by_plan) continue;
        if (n == TD_COUNTOF(cases)) fail_msg("row %s has no case", row->key);
        TD_AUTO(td_arena) *a = NULL;
        assert_ok(td_arena_create(4 * TD_SPEC_ARENA_BYTES, &a));
        assert_string_equal(cases[n].key, row->key);
        assert_string_equal(cases[n].beside, row->beside ? row->beside : "");
        expect_refused(parse(a, cases[n].refused), row);
        assert_ok(parse(a, cases[n].first));
        if (*cases[n].second) assert_ok(parse(a, cases[n].second));
        n++;
    }
    assert_int_equal(n, TD_COUNTOF(cases));
}

// Contract 20: a job has one plugin of a kind
static void test_second_plugin_of_a_kind_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *field, *says;
    } twice[] = {
        {"trainer:\n  accelerator: cpu\n  accelerator: reference", "trainer.accelerator (line 6)",
         "this key is already on line 5"},
        {"trainer: {accelerator: [cpu, reference]}", "trainer.accelerator (line 4)", "a list of 2"},
        {"trainer: {strategy: ddp, strategy: single_device}", "trainer.strategy (line 4)",
         "this key is already on line 4"},
        {"trainer: {strategy: [ddp, single_device]}", "trainer.strategy (line 4)", "a list of 2"},
        {"trainer: {precision: 32, precision: bf16}", "trainer.precision (line 4)",
         "this key is already on line 4"},
        {"trainer: {precision: [32, bf16]}", "trainer.precision (line 4)", "a list of 2"},
        {"trainer: {collective: [{name: trace, dir: /t}, auto]}", "trainer.collective (line 4)",
         "a list of 2"},
        {"comm_hook: {name: bf16}\ncomm_hook: {name: fp16}", "comm_hook (line 5)",
         "this key is already on line 4"},
        {"comm_hook: [{name: bf16}, {name: fp16}]", "comm_hook (line 4)", "a list of 2"},
    };
    for (size_t i = 0; i < TD_COUNTOF(twice); i++) {
        TD_AUTO(td_arena) *a = NULL;
        const char *field = "", *text = "";
        assert_ok(td_arena_create(4 * TD_SPEC_ARENA_BYTES, &a));
        td_status s = parse(a, twice[i].text);
        assert_int_equal(td_status_n_fields(s), 1);
        td_status_field(s, 0, &field, &text);
        assert_string_equal(field, twice[i].field);
        if (!has(text, twice[i].says)) fail_msg("%s: %s", field, text);
        td_status_free(s);
    }
}

static void test_word_fits_only_what_it_says(void **state) {
    (void)state;
    static const struct {
        const char *json, *is;
        bool fits;
    } words[] = {
        {"\"ddp\"", "ddp", true},
        {"{\"name\":\"ddp\"}", "ddp", true},
        {"\"ddp\"", "!ddp", false},
        {"\"zero\"", "!ddp", true},
        {"\"auto\"", "!ddp", false},
        {"2", ">1", true},
        {"1", ">1", false},
        {"\"auto\"", ">1", false},
        {"null", "null", true},
        {"0", "null", false},
        {"false", "false", true},
        {"true", "false", false},
        {"[]", "set", false},
        {"[1]", "set", true},
        {"null", "set", false},
        {"{\"name\":\"none\"}", "set", false},
        {"\"x\"", "set", true},
        {"null", "!ddp", false},
        {"0", "0", true},
        {"0.5", "0", false},
        {"\"0\"", ">0", false},
        {"16", "16-true", false},
    };
    for (size_t i = 0; i < TD_COUNTOF(words); i++) {
        TD_AUTO(td_arena) *a = NULL;
        struct td_json *v;
        assert_ok(td_arena_create(1 << 16, &a));
        assert_ok(td_json_parse(a, words[i].json, strlen(words[i].json), &v));
        if (td_refused_fits(v, words[i].is) == words[i].fits) continue;
        fail_msg("%s and '%s'", words[i].json, words[i].is);
    }
    assert_false(td_refused_fits(NULL, "set"));
}

static void test_reference_has_every_row(void **state) {
    (void)state;
    TD_AUTO_BUF out;
    td_buf_init(&out, 1 << 20);
    assert_ok(td_spec_reference(&out));
    for (size_t i = 0; i < td_n_refused_rows; i++) {
        assert_non_null(strstr(td_buf_cstr(&out), td_refused_rows[i].why));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_row_refuses_its_combination_and_nothing_else),
        cmocka_unit_test(test_second_plugin_of_a_kind_is_refused),
        cmocka_unit_test(test_word_fits_only_what_it_says),
        cmocka_unit_test(test_reference_has_every_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
