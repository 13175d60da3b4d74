// What a job spec must not be, and what each mistake is answered: a table of documents with the
// field and the words that the answer must have. Then the bounds (size, depth, nodes, memory), the
// scalars of YAML 1.2, overrides, and that all mistakes of a document come in one answer.

#include "tests/unit/test.h"

#include "lib/spec/check.h"
#include "lib/spec/spec.h"

static const char base[] = "model: {name: mlp, layers: [4, 2]}\n"
                           "data: {name: synthetic, batch_size: 8}\n"
                           "optimizer: {name: sgd}\n";

static td_status parse_bytes(const char *text, size_t len, const char *const *overrides,
                             size_t n_overrides) {
    TD_AUTO(td_arena) *a = NULL;
    TD_TRY(td_arena_create(TD_SPEC_ARENA_BYTES, &a));
    struct td_json *tree;
    return td_spec_parse(a, text, len, overrides, n_overrides, &tree);
}

// Consumes s: a bad spec that has a field of that name whose text has that part.
static void expect_field(td_status s, const char *path, const char *part, const char *about) {
    bool found = false;
    for (size_t i = 0; i < td_status_n_fields(s); i++) {
        const char *field, *text;
        td_status_field(s, i, &field, &text);
        found |= strcmp(field, path) == 0 && strstr(text, part);
    }
    bool is_bad_spec = td_status_code(s) == TD_INVALID_ARGUMENT &&
                       td_status_class(s) == TD_CLASS_BAD_SPEC &&
                       strcmp(td_status_reason(s), "SPEC_INVALID") == 0;
    if (!found || !is_bad_spec) {
        for (size_t i = 0; i < td_status_n_fields(s); i++) {
            const char *field, *text;
            td_status_field(s, i, &field, &text);
            print_message("# %s: %s\n", field, text);
        }
        fail_msg("'%s' should get '%s: %s', got: %s", about, path, part, td_status_message(s));
    }
    td_status_free(s);
}

// ---- keys and values ----------------------------------------------------------------------------
static const struct {
    const char *extra; // after base, so on line 4
    const char *path, *part;
} bad_values[] = {
    {"trainer: {devcies: 2}", "trainer.devcies (line 4)", "did you mean devices?"},
    {"trianer: {devices: 2}", "trianer (line 4)", "did you mean trainer?"},
    {"devices: 2", "devices (line 4)", "did you mean trainer.devices?"},
    {"xyzzy: 2", "xyzzy (line 4)", "unknown key; known here: name, kind, seed_everything"},
    {"format: 1", "format (line 4)", "unknown key"},
    {"run: {attempt: 1}", "run (line 4)", "unknown key"},
    {"trainer: {logger: true}", "trainer.logger (line 4)", "the key is loggers"},
    {"trainer: 5", "trainer (line 4)", "expected a map of keys, found 5"},
    {"trainer:", "trainer (line 4)", "found nothing"},
    {"trainer: {devices: 0}", "trainer.devices (line 4)", "from 1 to 1024, or auto, found 0"},
    {"trainer: {devices: -1}", "trainer.devices (line 4)", "found -1"},
    {"trainer: {accumulate_grad_batches: {}}", "trainer.accumulate_grad_batches (line 4)",
     "or a map of up to 64 epochs to such, found"},
    {"trainer: {accumulate_grad_batches: {0: 0}}", "trainer.accumulate_grad_batches.0 (line 4)",
     "expected an integer from 1 to 65536, found 0"},
    {"trainer: {accumulate_grad_batches: {1: 2, 01: 3}}",
     "trainer.accumulate_grad_batches (line 4)", "its keys are epochs, from 0 on"},
    {"trainer: {accumulate_grad_batches: {-1: 2}}", "trainer.accumulate_grad_batches (line 4)",
     "its keys are epochs"},
    {"trainer: {accumulate_grad_batches: {2147483648: 2}}",
     "trainer.accumulate_grad_batches (line 4)", "its keys are epochs"},
    {"trainer: {devices: two}", "trainer.devices (line 4)", "found text 'two'"},
    {"trainer: {devices: 2.0}", "trainer.devices (line 4)", "found 2.0"},
    {"trainer: {devices: [0, 1]}", "trainer.devices (line 4)", "found a list of 2"},
    {"trainer: {devices: 99999999999999999999}", "trainer.devices (line 4)", "found 1e+20"},
    {"trainer:\n  max_epochs: 2147483648", "trainer.max_epochs (line 5)", "2147483648"},
    {"trainer: {num_nodes: 1025}", "trainer.num_nodes (line 4)", "1024"},
    {"trainer: {num_nodes: 200, devices: 8}", "trainer.num_nodes (line 4)", "more than 1024 ranks"},
    {"trainer: {num_nodes: 2}\nresources: {nodes: 3}", "resources.nodes (line 5)", "give one"},
    {"trainer: {num_nodes: 2}\ncheckpoint: {store: fs}", "checkpoint.store (line 5)",
     "all nodes share"},
    {"trainer: {precision: 16-bit}", "trainer.precision (line 4)", "16-mixed"},
    {"trainer: {precision: 33}", "trainer.precision (line 4)",
     "16-true or auto, or a map {name: plugin, precision: NAME, knobs: {...}}, found 33"},
    {"trainer: {precision: {name: plugin, precisoin: x}}", "trainer.precision.precisoin (line 4)",
     "did you mean precision?"},
    {"trainer: {accelerator: cuda}", "trainer.accelerator (line 4)", "not in this release"},
    {"trainer: {accelerator: cpuu}", "trainer.accelerator (line 4)", "did you mean cpu?"},
    {"trainer: {accelerator: 1}", "trainer.accelerator (line 4)",
     "cpu or reference, or a map {name: plugin, accelerator: NAME, knobs: {...}}, found 1"},
    {"trainer: {accelerator: {name: plugin, accelrator: far}}",
     "trainer.accelerator.accelrator (line 4)", "did you mean accelerator?"},
    {"trainer: {accelerator: {name: plugin}}", "trainer.accelerator.accelerator (line 4)",
     "required"},
    {"trainer: {cpu_level: avx}", "trainer.cpu_level (line 4)",
     "expected auto, generic, avx2, avx512, avx512_bf16 or amx, found text 'avx'"},
    {"trainer: {cpu_level: 2}", "trainer.cpu_level (line 4)", "or amx, found 2"},
    {"trainer: {strategy: fsdp}", "trainer.strategy (line 4)", "not in this release"},
    {"trainer: {strategy: ddp_spawn}", "trainer.strategy (line 4)", "the strategy is ddp here"},
    {"trainer: {strategy: ddp_spawn}", "trainer.strategy (line 4)", "td_spawn (docs/fabric.md)"},
    {"trainer: {strategy: plugin}", "trainer.strategy (line 4)", "map {name: plugin, strategy: "},
    {"trainer: {strategy: {name: fsdp}}", "trainer.strategy (line 4)", "not in this release"},
    {"trainer: {strategy: {name: ddp, knobs: {}}}", "trainer.strategy.knobs (line 4)",
     "known here: name, bucket_cap_mb"},
    {"trainer: {strategy: {name: ddp, find_unused_parameters: true}}",
     "trainer.strategy.find_unused_parameters (line 4)", "trainer.find_unused_parameters"},
    {"trainer: {strategy: {name: ddp, bucket_cap_mb: 0}}",
     "trainer.strategy.bucket_cap_mb (line 4)", "found 0"},
    {"trainer: {strategy: {name: single_device, bucket_cap_mb: 1}}",
     "trainer.strategy.name (line 4)", "known: ddp, plugin"},
    {"trainer: {strategy: {name: plugin}}", "trainer.strategy.strategy (line 4)",
     "required: a plugin's name"},
    {"trainer: {strategy: {name: plugin, strategy: auto}}", "trainer.strategy.strategy (line 4)",
     "but not auto, found text 'auto'"},
    {"trainer: {strategy: {name: plugin, strategy: ../x}}", "trainer.strategy.strategy (line 4)",
     "letters a to z, digits and _"},
    {"trainer: {strategy: {name: plugin, strategy: x, knobs: 3}}",
     "trainer.strategy.knobs (line 4)", "expected a map, found 3"},
    {"trainer: {plugins: []}", "trainer.plugins (line 4)", "`plugins`, at the top level"},
    {"plugins: [mine.so]", "plugins[0] (line 4)", "expected an absolute path"},
    {"plugins: /opt/mine.so", "plugins (line 4)", "a list of 0 to 16"},
    {"trainer: {strategy: single_device, devices: 2}", "trainer.strategy (line 4)",
     "trainer.devices 2: single_device takes 1 device"},
    {"trainer: {gradient_clip_val: .nan}", "trainer.gradient_clip_val (line 4)", "not a number"},
    {"trainer: {gradient_clip_val: .inf}", "trainer.gradient_clip_val (line 4)", "found .inf"},
    {"trainer: {gradient_clip_val: -0.5}", "trainer.gradient_clip_val (line 4)", "found -0.5"},
    {"trainer: {gradient_clip_algorithm: max}", "trainer.gradient_clip_algorithm (line 4)",
     "norm or value"},
    {"trainer: {limit_val_batches: 1.5}", "trainer.limit_val_batches (line 4)", "fraction"},
    {"trainer: {limit_val_batches: .nan}", "trainer.limit_val_batches (line 4)", "fraction"},
    {"trainer: {val_check_interval: 0}", "trainer.val_check_interval (line 4)", "above 0"},
    {"trainer: {max_time: 1 hour}", "trainer.max_time (line 4)", "DD:HH:MM:SS"},
    {"trainer: {max_time: '00:24:00:00'}", "trainer.max_time (line 4)", "DD:HH:MM:SS"},
    {"trainer: {max_time: '00:00:00:00'}", "trainer.max_time (line 4)", "DD:HH:MM:SS"},
    {"trainer: {deterministic: yes}", "trainer.deterministic (line 4)", "true or false"},
    {"name: ''", "name (line 4)", "found text ''"},
    {"name: .hidden", "name (line 4)", "a letter or digit first"},
    {"name: a/b", "name (line 4)", "found text 'a/b'"},
    {"name: \"a\\nb\"", "name (line 4)", "found text 'a?b'"},
    {"name: -12", "name (line 4)", "found text '-12'"},
    {"name: a123456789b123456789c123456789d123456789e123456789f123456789g123", "name (line 4)",
     "1 to 63"},
    {"seed_everything: -1", "seed_everything (line 4)", "found -1"},
    {"seed_everything: 4294967296", "seed_everything (line 4)", "to 4294967295"},
    {"stages: []", "stages (line 4)", "found a list of 0"},
    {"stages: fit", "stages (line 4)", "found text 'fit'"},
    {"stages: [fit, fit]", "stages (line 4)", "'fit' is there twice"},
    {"stages: [fit, tset]", "stages[1] (line 4)", "did you mean test?"},
    {"ckpt_path: relative", "ckpt_path (line 4)", "absolute path"},
    {"ckpt_path: /a/../b", "ckpt_path (line 4)", "without '..'"},
    {"ckpt_path: /..", "ckpt_path (line 4)", "without '..'"},
    {"ckpt_path: \"/a\\x01b\"", "ckpt_path (line 4)", "control characters"},
    {"evaluate_from: bets", "evaluate_from (line 4)", "expected best or last, or an absolute path"},
    {"evaluate_from: best", "evaluate_from (line 4)", "best needs checkpoint.monitor"},
    {"evaluate_from: best\ncheckpoint: {monitor: val_loss, save_top_k: 0}",
     "evaluate_from (line 4)", "best needs checkpoints that are kept"},
    {"evaluate_from: best\nstages: [test]\ncheckpoint: {monitor: val_loss}",
     "evaluate_from (line 4)", "best needs fit among the stages"},
    {"ckpt_path: /a\ninit_from: /b", "init_from (line 5)", "set one"},
    {"checkpoint: {every_n_epochs: 1, every_n_train_steps: 2}",
     "checkpoint.every_n_train_steps (line 4)", "set one of the two"},
    {"checkpoint: {save_top_k: 3}", "checkpoint.save_top_k (line 4)", "needs checkpoint.monitor"},
    {"checkpoint: {save_top_k: -2}", "checkpoint.save_top_k (line 4)", "from -1"},
    {"checkpoint: {dirpath: /x}", "checkpoint.dirpath (line 4)", "the key is checkpoint.dir"},
    {"restart: {backoff: [1, -5]}", "restart.backoff[1] (line 4)", "found -5"},
    {"restart: {max: many}", "restart.max (line 4)", "found text 'many'"},
    {"resources: {threads: 0}", "resources.threads (line 4)", "or auto, found 0"},
    {"resources: {memory_bytes: 2gb}", "resources.memory_bytes (line 4)",
     "or with a unit such as 4GiB or 500MB, or auto, found text '2gb'"},
    {"resources: {memory_bytes: 5000TB}", "resources.memory_bytes (line 4)", "found text '5000TB'"},
    {"resources: {memory_bytes: 1..5GB}", "resources.memory_bytes (line 4)", "found text '1..5GB'"},
    {"lr_scheduler: 3", "lr_scheduler (line 4)", "a map of keys with a name, or a name, found 3"},
    {"lr_scheduler: triangle", "lr_scheduler.name (line 4)", "unknown lr_scheduler, found"},
    {"lr_scheduler: {name: triangle}", "lr_scheduler.name (line 4)",
     "known: constant, warmup_cosine, linear, cosine, step"},
    {"lr_scheduler: {name: one_cycle, max_lr: 1}", "lr_scheduler.max_lr (line 4)", "the peak is"},
    {"lr_scheduler: {name: multistep, milestones: []}", "lr_scheduler.milestones (line 4)",
     "a list of 1 to 64"},
    {"lr_scheduler: {name: warmup_stable_decay, num_warmup_steps: 3, num_decay_steps: 4, "
     "num_training_steps: 6}",
     "lr_scheduler.num_decay_steps (line 4)", "7 is above num_training_steps, 6"},
    {"lr_scheduler: {name: cosine}\ntrainer: {max_time: 9}", "lr_scheduler.T_max",
     "auto needs trainer.max_epochs"},
    {"lr_scheduler: {name: reduce_on_plateau, factor: 1}", "lr_scheduler.factor (line 4)",
     "must be below 1"},
    {"lr_scheduler: {name: reduce_on_plateau, monitor: train_loss}",
     "lr_scheduler.monitor (line 4)", "'train_loss' is no metric of the validation"},
    {"early_stopping: {patience: 5}", "early_stopping.patience (line 4)",
     "needs early_stopping.monitor"},
    {"early_stopping: {monitor: val_loss, patience: -1}", "early_stopping.patience (line 4)",
     "from 0"},
    {"early_stopping: {monitor: val_loss, strict: false}", "early_stopping.strict (line 4)",
     "is always refused"},
    {"lr_scheduler: {}", "lr_scheduler.name (line 4)", "required: one of constant"},
    {"optimizers: [{name: a, optimizer: {name: sgd}}]", "optimizers[0].match (line 4)",
     "required: text"},
    {"optimizers: [{name: a, match: x}]", "optimizers[0].optimizer (line 4)",
     "required: a map with the name of an optimizer"},
    {"optimizers: [{name: a, match: x, optimizer: {name: sgd, lr: -1}}]",
     "optimizers[0].optimizer.lr (line 4)", "found -1"},
    {"optimizers: [{name: sixteen-letters-, match: x, optimizer: sgd}]",
     "optimizers[0].name (line 4)", "text of 1 to 15 letters"},
    {"optimizers: [{name: a, match: x, optimizer: sgd}, {name: a, match: y, optimizer: adam}]",
     "optimizers[1].name (line 4)", "'a' is there twice"},
    {"optimizers: [{name: a, match: x, optimizer: {name: sgd, nesterov: true}}]",
     "optimizers[0].optimizer.nesterov (line 4)", "momentum"},
    {"optimizers: [{name: a, match: x, optimizer: {name: muon, lr: 0, adamw_lr: 1}}]",
     "optimizers[0].optimizer.adamw_lr (line 4)", "needs lr above 0"},
    {"optimizers: [{name: a, match: x, optimizer: sgd, lr_scheduler: cosine}]\n"
     "trainer: {max_time: 9}",
     "optimizers[0].lr_scheduler.T_max", "auto needs trainer.max_epochs"},
    {"optimizers: [{name: a, match: x, optimizer: sgd, lr_scheduler: reduce_on_plateau}]",
     "optimizers[0].lr_scheduler (line 4)", "goes with `optimizer` alone"},
    {"optimizers: [{name: a, match: x, optimizer: sgd}]\nlr_scheduler: {name: cosine}",
     "lr_scheduler (line 5)", "is given beside optimizers"},
    {"lr_scheduler: {name: warmup_cosine, warmup_steps: 9, total_steps: 5}",
     "lr_scheduler.warmup_steps (line 4)", "9 is above total_steps, 5"},
    {"lr_scheduler: {name: warmup_cosine}\ntrainer: {max_time: 9}", "lr_scheduler.total_steps",
     "auto needs trainer.max_epochs"},
};

static void test_document_is_refused_when_a_value_is_wrong(void **state) {
    (void)state;
    for (size_t i = 0; i < TD_COUNTOF(bad_values); i++) {
        char text[1024];
        int n = snprintf(text, sizeof text, "%s%s\n", base, bad_values[i].extra);
        expect_field(parse_bytes(text, (size_t)n, NULL, 0), bad_values[i].path, bad_values[i].part,
                     bad_values[i].extra);
    }
}

// ---- whole documents ----------------------------------------------------------------------------
#define BYTES(s) s, sizeof(s) - 1
static const struct {
    const char *text;
    size_t len;
    const char *path, *part;
} bad_documents[] = {
    {BYTES(""), "", "is empty"},
    {BYTES("# nothing\n"), "", "is empty"},
    {BYTES("---\n"), "line 2", "is empty"},
    {BYTES("just words"), "line 1", "a map of keys, found text 'just words'"},
    {BYTES("[1, 2]"), "line 1", "found a list"},
    {BYTES("{}"), "model", "required: a map with a name, one of mlp"},
    {BYTES("{}"), "optimizer", "required: a map with a name, one of sgd, adam, adamw, lion"},
    {BYTES("model: {name: mlp}"), "model.layers (line 1)", "required: a list of 2 to 64"},
    {BYTES("model: {name: mpl, layers: [1, 2]}"), "model.name (line 1)", "did you mean mlp?"},
    {BYTES("model: {name: 3}"), "model.name (line 1)",
     "one of mlp, convnet, gpt, llama, plugin, found 3"},
    {BYTES("model: mlp"), "model.layers (line 1)", "required"},
    {BYTES("model: {name: mlp, layers: [4]}"), "model.layers (line 1)", "found a list of 1"},
    {BYTES("model: {name: mlp, layers: [4, 0]}"), "model.layers[1] (line 1)", "found 0"},
    {BYTES("model: {name: mlp, layers: [4, [2]]}"), "model.layers[1] (line 1)", "found a list"},
    {BYTES("model: {name: convnet}"), "model.layers (line 1)", "required: a list of 1 to 256"},
    {BYTES("model: {name: convnet, layers: relu}"), "model.layers (line 1)", "found text 'relu'"},
    {BYTES("model: {name: convnet, layers: [rleu]}"), "model.layers[0].name (line 1)",
     "unknown layer, found text 'rleu'; known: conv, batch_norm, relu"},
    {BYTES("model: {name: convnet, layers: [rleu]}"), "model.layers[0].name (line 1)",
     "did you mean relu?"},
    {BYTES("model: {name: convnet, layers: [relu,\n 3]}"), "model.layers[1] (line 2)",
     "expected a map with a name, or a name, found 3"},
    {BYTES("model: {name: convnet, layers: [{channels: 3}]}"), "model.layers[0].name (line 1)",
     "required: one of conv"},
    {BYTES("model: {name: convnet, layers: [conv]}"), "model.layers[0].channels (line 1)",
     "required: an integer"},
    {BYTES("model: {name: convnet, layers: [{name: conv, channels: 3, kernal: 3}]}"),
     "model.layers[0].kernal (line 1)", "did you mean kernel?"},
    {BYTES("model: {name: convnet, layers: [{name: dropout, p: 1}]}"), "model.layers[0].p (line 1)",
     "found 1"},
    {BYTES("model: {name: mlp, loss: msq}"), "model.loss.name (line 1)",
     "unknown loss, found text 'msq'; known: cross_entropy, mse, bce; did you mean mse?"},
    {BYTES("model: {name: gpt, loss: 3}"), "model.loss (line 1)",
     "expected a map with a name, or a name, found 3"},
    {BYTES("model: {name: mlp, loss: {label_smoothing: 0.1}}"), "model.loss.name (line 1)",
     "required: one of cross_entropy, mse, bce"},
    {BYTES("model: {name: mlp, loss: {name: cross_entropy, label_smoothing: 2}}"),
     "model.loss.label_smoothing (line 1)", "a number from 0 to 1, found 2"},
    {BYTES("model: {name: mlp, loss: {name: mse, label_smoothing: 0.1}}"),
     "model.loss.label_smoothing (line 1)", "unknown key; known here: name"},
    {BYTES("model: {name: mlp, loss: mse}\npredict: {values: classes}"), "predict.values (line 2)",
     "a model with loss mse has no classes"},
    {BYTES("loss: mse"), "loss (line 1)", "no such key here: the key is model.loss"},
    {BYTES("model: {name: mlp, label_smoothing: 0.1}"), "model.label_smoothing (line 1)",
     "it is a key of model.loss"},
    {BYTES("layer: {name: relu}"), "layer (line 1)", "unknown key"},
    {BYTES("model: {name: gpt, preset: gpt3}"), "model.preset (line 1)", "did you mean gpt2?"},
    {BYTES("model: {name: gpt, attn_pdrop: 1}"), "model.attn_pdrop (line 1)", "from 0 to 0.99"},
    {BYTES("data: {name: idx, path: x, batch_size: 0}"), "data.batch_size (line 1)", "found 0"},
    {BYTES("optimizer: {name: adam, betas: [0.9]}"), "optimizer.betas (line 1)", "a list of 2"},
    {BYTES("optimizer: {name: adam, betas: [0.9, 1]}"), "optimizer.betas[1] (line 1)", "below 1"},
    {BYTES("optimizer: {name: adam, betas: [.nan, 0]}"), "optimizer.betas[0] (line 1)", ".nan"},
    {BYTES("optimizer: {name: adam, lr: -1e-3}"), "optimizer.lr (line 1)", "found -0.001"},
    {BYTES("optimizer: {name: muon, lr: 0, adamw_lr: 1e-3}"), "optimizer.adamw_lr (line 1)",
     "needs lr above 0"},
    {BYTES("optimizer: {name: muon, adjust_lr_fn: spectral}"), "optimizer.adjust_lr_fn (line 1)",
     "spectral_unclamped"},
    {BYTES("optimizer: {name: adafactor, d: 0.5}"), "optimizer.d (line 1)", "found 0.5"},
    {BYTES("optimizer: {name: sgd, groups: 1}"), "optimizer.groups (line 1)", "0 to 64 maps"},
    {BYTES("optimizer: {name: sgd, groups: [1]}"), "optimizer.groups[0] (line 1)", "a map of keys"},
    {BYTES("optimizer: {name: sgd, groups: [{lr_scale: 2}]}"), "optimizer.groups[0].match (line 1)",
     "required: text"},
    {BYTES("optimizer: {name: sgd, groups: [{match: x}, {match: x, lr_scle: 2}]}"),
     "optimizer.groups[1].lr_scle (line 1)", "did you mean lr_scale?"},
    {BYTES("optimizer: {name: sgd, groups: [{match: x, weight_decay: -1}]}"),
     "optimizer.groups[0].weight_decay (line 1)", "found -1"},
    {BYTES("predict: {prompt: a, prompt_tokens: [1]}"), "predict.prompt_tokens (line 1)",
     "is set beside predict.prompt"},
    {BYTES("optimizer: {name: sgd, lr: 1}\noptimizers: [{name: a, match: x, optimizer: sgd}]"),
     "optimizer (line 1)", "is given beside optimizers: each of those has its own; put it into"},
    {BYTES("optimizer: {name: sgd, nesterov: true}"), "optimizer.nesterov (line 1)", "momentum"},
    {BYTES("optimizer: {name: sgd, betas: [0, 0]}"), "optimizer.betas (line 1)",
     "known here: name, lr, momentum"},
    {BYTES("a: 1\nb: 2\na: 3\n"), "a (line 3)", "already on line 1"},
    {BYTES("trainer:\n  devices: 1\n  devices: 2\n"), "trainer.devices (line 3)", "on line 2"},
    {BYTES("a: &x 1\nb: *x\n"), "line 1", "an anchor (&name) is not taken"},
    {BYTES("a: 1\nb: *x\n"), "line 2", "an alias (*name) is not taken"},
    {BYTES("*x : 1\n"), "line 1", "an alias (*name) is not taken"},
    {BYTES("a: !!str 1\n"), "line 1", "a tag is not taken"},
    {BYTES("a: !x {}\n"), "line 1", "a tag is not taken"},
    {BYTES("a: ! [1]\n"), "line 1", "a tag is not taken"},
    {BYTES("%TAG ! tag:x,2000:\n---\na: 1\n"), "line 1", "%TAG"},
    {BYTES("a:\n  <<: {b: 1}\n"), "line 2", "a merge key (<<) is not taken"},
    {BYTES("? [1]\n: 2\n"), "line 1", "a key must be text"},
    {BYTES("a: 1\n---\nb: 2\n"), "line 2", "a second document begins here"},
    {BYTES("a: 1\n...\nb: 2\n"), "line 3", "column 1"},
    {BYTES("a:\n\tb: 1\n"), "line 2", "indent with spaces"},
    {BYTES("a: [1, 2\nb: 3"), "line 2", "column"},
    {BYTES("a: 'x"), "line 1", "column"},
    {BYTES("a: \"\\ud800\""), "line 1", "column"},
    {BYTES("a: \"b\\0c\""), "line 1", "NUL"},
    {BYTES("\"a\\0b\": 1"), "line 1", "NUL"},
    {BYTES("a: 1\nb: \0\n"), "line 2", "not text: byte 0x00"},
    {BYTES("\x7f"
           "ELF\x02\x01"),
     "line 1", "not text: byte 0x7f"},
    {BYTES("a: \x1b[2J"), "line 1", "not text: byte 0x1b"},
    {BYTES("a: \xff\xfe"), "", "not UTF-8"},
    {BYTES("a: \xed\xa0\x80"), "", "not UTF-8"},
    {BYTES("\xff\xfe"
           "a\0:\0 \0001\0"),
     "line 1", "not text"},
};

static void test_document_is_refused_when_it_is_not_a_spec(void **state) {
    (void)state;
    for (size_t i = 0; i < TD_COUNTOF(bad_documents); i++) {
        expect_field(parse_bytes(bad_documents[i].text, bad_documents[i].len, NULL, 0),
                     bad_documents[i].path, bad_documents[i].part, bad_documents[i].text);
    }
}

static void test_document_is_read_when_it_begins_with_a_byte_order_mark(void **state) {
    (void)state;
    char text[512];
    int n = snprintf(text, sizeof text, "\xef\xbb\xbf%s", base);
    assert_ok(parse_bytes(text, (size_t)n, NULL, 0));
    n = snprintf(text, sizeof text, "%%YAML 1.2\n---\n%s...\n", base);
    assert_ok(parse_bytes(text, (size_t)n, NULL, 0));
}

static void test_errors_come_all_at_once_when_there_are_many(void **state) {
    (void)state;
    const char *text = "name: a b\nmodel: {name: mlp, layers: [4, 2], bias: 1}\n"
                       "data: {name: synthetic, batch_size: 8, smaples: 3}\n"
                       "optimizer: {name: sgd, lr: .nan}\ntrainer: {devcies: 2, max_steps: x}\n";
    td_status s = parse_bytes(text, strlen(text), NULL, 0);
    assert_int_equal(td_status_n_fields(s), 6);
    assert_non_null(strstr(td_status_message(s), "6 errors; the first: name (line 1)"));
    td_status_free(s);
}

static void test_errors_are_counted_when_there_are_more_than_fit(void **state) {
    (void)state;
    TD_AUTO_BUF text;
    td_buf_init(&text, 1 << 16);
    assert_ok(td_buf_str(&text, base));
    for (int i = 0; i < 200; i++) {
        assert_ok(td_buf_printf(&text, "unknown_%d: 1\n", i));
    }
    td_status s = parse_bytes(text.data, text.len, NULL, 0);
    assert_int_equal(td_status_n_fields(s), 64);
    assert_non_null(strstr(td_status_message(s), "200 errors"));
    const char *path, *last;
    td_status_field(s, 63, &path, &last);
    assert_non_null(strstr(last, "136")); // the ones that are not shown
    td_status_free(s);
}

// ---- bounds -------------------------------------------------------------------------------------
// text
// repeated n times between head and tail, which must be refused on `path` with `part`.
static void expect_repeated(const char *head, const char *unit, size_t n, const char *tail,
                            const char *path, const char *part) {
    TD_AUTO_BUF text;
    td_buf_init(&text, TD_SPEC_MAX_BYTES);
    assert_ok(td_buf_str(&text, head));
    for (size_t i = 0; i < n; i++) {
        assert_ok(td_buf_str(&text, unit));
    }
    assert_ok(td_buf_str(&text, tail));
    expect_field(parse_bytes(text.data, text.len, NULL, 0), path, part, head);
}

static void test_nesting_is_refused_when_deeper_than_16(void **state) {
    (void)state;
    expect_repeated("a: ", "[", 16, "", "line 1", "nested deeper than 16");
    expect_repeated("a: ", "[", 500000, "", "line 1", "nested deeper than 16");
    expect_repeated("a: ", "{b: ", 200000, "", "line 1", "nested deeper than 16");
    expect_repeated("a:\n", "- ", 500000, "", "line 2", "nested deeper than 16");
    expect_repeated("", "? ", 500000, "", "line 1", "a key must be text");
}

static void test_values_are_refused_when_more_than_10000(void **state) {
    (void)state;
    expect_repeated("a: [", "1,", 10000, "]", "line 1", "more than 10000 values");
    expect_repeated("a: [", "1,", 400000, "]", "line 1", "more than 10000 values");
    expect_repeated("a: [", "1,", 9998, "]", "a (line 1)", "unknown key");
}

static void test_map_is_refused_when_it_has_more_than_256_keys(void **state) {
    (void)state;
    TD_AUTO_BUF text;
    td_buf_init(&text, 1 << 20);
    for (int i = 0; i < 257; i++) {
        assert_ok(td_buf_printf(&text, "k%d: 1\n", i));
    }
    expect_field(parse_bytes(text.data, text.len, NULL, 0), "line 257", "256 keys", "many keys");
}

static void test_value_is_refused_when_longer_than_64_kib(void **state) {
    (void)state;
    expect_repeated("a: ", "x", TD_SPEC_MAX_SCALAR + 1, "", "line 1", "at most 65536");
    expect_repeated("name: ", "x", TD_SPEC_MAX_SCALAR, "", "name (line 1)", "1 to 63");
    expect_repeated("name: a\n? ", "x", TD_SPEC_MAX_SCALAR + 1, "", "line 2", "a key of 65537");
}

static void test_aliases_are_refused_when_they_would_explode(void **state) {
    (void)state;
    const char *bomb = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n"
                       "c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: [*c,*c,*c,*c,*c,*c,*c,*c,*c]\n";
    expect_field(parse_bytes(bomb, strlen(bomb), NULL, 0), "line 1", "an anchor", bomb);
}

static void test_spec_is_refused_when_over_1_mib(void **state) {
    (void)state;
    size_t len = TD_SPEC_MAX_BYTES + 1;
    TD_AUTO_FREE char *text = malloc(len);
    assert_non_null(text);
    memset(text, '#', len);
    assert_fails(parse_bytes(text, len, NULL, 0), TD_RESOURCE_EXHAUSTED, "at most 1048576");
    expect_field(parse_bytes(text, len - 1, NULL, 0), "", "is empty", "a comment of 1 MiB");
    text[len - 1] = '\0';
    const char *overrides[] = {text};
    assert_fails(parse_bytes(base, strlen(base), overrides, 1), TD_RESOURCE_EXHAUSTED, "at most");
    static const char *many[TD_SPEC_MAX_OVERRIDES + 1];
    for (size_t i = 0; i < TD_COUNTOF(many); i++) {
        many[i] = "name=x";
    }
    assert_fails(parse_bytes(base, strlen(base), many, TD_COUNTOF(many)), TD_RESOURCE_EXHAUSTED,
                 "257 overrides");
}

static td_status parse_within(size_t max_bytes, const char *text) {
    TD_AUTO(td_arena) *a = NULL;
    TD_TRY(td_arena_create(max_bytes, &a));
    struct td_json *tree;
    static const char *const overrides[] = {"trainer.devices=2", "model.layers=[4, 5]"};
    return td_spec_parse(a, text, strlen(text), overrides, 2, &tree);
}

// Whatever allocation is the first that does not fit, the answer is "out of memory".
static void test_parse_says_out_of_memory_when_the_arena_is_small(void **state) {
    (void)state;
    static const char bad[] = "model: {name: mpl}\ntrainer: {devcies: 2, devices: x}\n";
    for (int i = 0; i < 2; i++) {
        enum td_code wanted = i == 0 ? TD_CODE_OK : TD_INVALID_ARGUMENT;
        size_t bytes = 64;
        for (enum td_code code = TD_RESOURCE_EXHAUSTED; code != wanted; bytes += 48) {
            td_status s = parse_within(bytes, i == 0 ? base : bad);
            code = td_status_code(s);
            td_status_free(s);
            assert_true(code == wanted || code == TD_RESOURCE_EXHAUSTED);
            assert_true(bytes < 1 << 20);
        }
    }
}

// ---- scalars ------------------------------------------------------------------------------------
static void expect_scalar(struct td_arena *a, const char *text, enum td_json_kind kind,
                          double value) {
    const struct td_json *v = td_scalar_resolve(a, text, strlen(text));
    assert_non_null(v);
    if (v->kind != kind) fail_msg("'%s' is of kind %d", text, (int)v->kind);
    if (kind == TD_JSON_INT || kind == TD_JSON_REAL) assert_true(td_json_real(v, 0) == value);
    if (kind == TD_JSON_BOOL) assert_true(v->u.boolean == (value != 0));
    if (kind == TD_JSON_STRING) assert_string_equal(v->u.string.data, text);
}

static void test_scalars_follow_yaml_1_2_when_plain(void **state) {
    (void)state;
    static const struct {
        const char *text;
        enum td_json_kind kind;
        double value;
    } cases[] = {
        {"", TD_JSON_NULL, 0},
        {"~", TD_JSON_NULL, 0},
        {"null", TD_JSON_NULL, 0},
        {"NULL", TD_JSON_NULL, 0},
        {"nULL", TD_JSON_STRING, 0},
        {"true", TD_JSON_BOOL, 1},
        {"False", TD_JSON_BOOL, 0},
        {"yes", TD_JSON_STRING, 0},
        {"off", TD_JSON_STRING, 0},
        {"0", TD_JSON_INT, 0},
        {"-12", TD_JSON_INT, -12},
        {"+7", TD_JSON_INT, 7},
        {"010", TD_JSON_INT, 10},
        {"0x1F", TD_JSON_INT, 31},
        {"0o17", TD_JSON_INT, 15},
        {"0x", TD_JSON_STRING, 0},
        {"0o8", TD_JSON_STRING, 0},
        {"-0x1", TD_JSON_STRING, 0},
        {"1_000", TD_JSON_STRING, 0},
        {"12:30", TD_JSON_STRING, 0},
        {"1e3", TD_JSON_REAL, 1000},
        {"1e-3", TD_JSON_REAL, .001},
        {".5", TD_JSON_REAL, .5},
        {"5.", TD_JSON_REAL, 5},
        {"-1.5E+2", TD_JSON_REAL, -150},
        {".", TD_JSON_STRING, 0},
        {"e5", TD_JSON_STRING, 0},
        {"1e", TD_JSON_STRING, 0},
        {"-", TD_JSON_STRING, 0},
        {"infinity", TD_JSON_STRING, 0},
        {"nan", TD_JSON_STRING, 0},
        {"0x1p3", TD_JSON_STRING, 0},
        {"32-true", TD_JSON_STRING, 0},
        {"9223372036854775807", TD_JSON_INT, 9223372036854775807.0},
        {"9223372036854775808", TD_JSON_REAL, 9223372036854775808.0},
    };
    TD_AUTO(td_arena) *a = NULL;
    assert_ok(td_arena_create(1 << 16, &a));
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        expect_scalar(a, cases[i].text, cases[i].kind, cases[i].value);
    }
    const struct td_json *nan = td_scalar_resolve(a, ".nan", 4);
    assert_true(nan->kind == TD_JSON_REAL && nan->u.real != nan->u.real);
}

// ---- overrides ----------------------------------------------------------------------------------
static void test_override_is_refused_when_it_cannot_be_applied(void **state) {
    (void)state;
    static const struct {
        const char *text, *path, *part;
    } cases[] = {
        {"trainer.devcies=4", "trainer.devcies (override 1)", "did you mean devices?"},
        {"trianer.devices=4", "trianer (override 1)", "did you mean trainer?"},
        {"trainer.devices=many", "trainer.devices (override 1)", "found text 'many'"},
        {"trainer.devices=", "trainer.devices (override 1)", "found nothing"},
        {"trainer.devices", "override 1", "not PATH=VALUE"},
        {"=4", "override 1", "not PATH=VALUE"},
        {"", "override 1", "not PATH=VALUE"},
        {".a=4", "override 1", "not PATH=VALUE"},
        {"a..b=4", "override 1", "not PATH=VALUE"},
        {"a.=4", "override 1", "not PATH=VALUE"},
        {"a b=4", "override 1", "not PATH=VALUE"},
        {"a.b.c.d.e.f.g.h.i.j=4", "override 1", "not PATH=VALUE"},
        {"model.layers.1=4", "model.layers (override 1)", "is a list of 2, not a map"},
        {"model.layers=[4, 2", "override 1", "column"},
        {"model.layers=*a", "override 1", "an alias"},
        {"name=a: b", "name (override 1)", "found a map"},
        {"name=a\n---\nb", "override 1", "a second document"},
        {"name=\xff", "", "not UTF-8"},
    };
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        const char *overrides[] = {cases[i].text};
        expect_field(parse_bytes(base, strlen(base), overrides, 1), cases[i].path, cases[i].part,
                     cases[i].text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_document_is_refused_when_a_value_is_wrong),
        cmocka_unit_test(test_document_is_refused_when_it_is_not_a_spec),
        cmocka_unit_test(test_document_is_read_when_it_begins_with_a_byte_order_mark),
        cmocka_unit_test(test_errors_come_all_at_once_when_there_are_many),
        cmocka_unit_test(test_errors_are_counted_when_there_are_more_than_fit),
        cmocka_unit_test(test_nesting_is_refused_when_deeper_than_16),
        cmocka_unit_test(test_values_are_refused_when_more_than_10000),
        cmocka_unit_test(test_map_is_refused_when_it_has_more_than_256_keys),
        cmocka_unit_test(test_value_is_refused_when_longer_than_64_kib),
        cmocka_unit_test(test_aliases_are_refused_when_they_would_explode),
        cmocka_unit_test(test_spec_is_refused_when_over_1_mib),
        cmocka_unit_test(test_parse_says_out_of_memory_when_the_arena_is_small),
        cmocka_unit_test(test_scalars_follow_yaml_1_2_when_plain),
        cmocka_unit_test(test_override_is_refused_when_it_cannot_be_applied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
