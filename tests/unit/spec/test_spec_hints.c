// "did you mean": words of Lightning, torch, Hugging Face and shells. Each row of hints.def leads
// to something that there is, no row hides a name that is known, and mistakes get the words below.

#include "tests/unit/test.h"

#include <ctype.h>

#include "lib/spec/hints.h"
#include "lib/spec/spec.h"

// ---- the table ----------------------------------------------------------------------------------
static bool is_choice(const char *where, const char *name) {
    for (size_t i = 0; i < td_n_sections; i++) {
        const char *variant = td_section_variant_of(&td_sections[i], where);
        if (variant && strcmp(variant, name) == 0) return true;
    }
    for (size_t i = 0; i < td_n_knobs; i++) {
        const struct td_knob *k = &td_knobs[i];
        const bool is_enum = k->type == TD_KNOB_ENUM || k->type == TD_KNOB_ENUMS ||
                             k->type == TD_KNOB_ENUM_OR_PLUGIN;
        struct td_knob_choice c;
        const char *at = is_enum && strcmp(k->key, where) == 0 ? k->values : NULL;
        while (at && (at = td_knob_next_choice(at, &c))) {
            const bool is_it = strncmp(c.name.data, name, c.name.len) == 0 && !name[c.name.len];
            if (is_it && !c.is_later) return true;
        }
    }
    return false;
}

static bool is_key(const char *path) {
    const char *dot = strchr(path, '.');
    if (!dot) return td_knob_find("", path) || td_section_find(path);
    char section[32];
    snprintf(section, sizeof section, "%.*s", (int)(dot - path), path);
    if (td_knob_find(section, dot + 1)) return true;
    for (size_t i = 0; i < td_n_sections; i++) {
        const bool is_of_it = td_section_variant_of(&td_sections[i], section);
        if (is_of_it && td_section_knob(&td_sections[i], dot + 1)) return true;
    }
    return false;
}

static void test_each_row_leads_to_what_there_is(void **state) {
    (void)state;
    for (size_t i = 0; i < td_n_hints; i++) {
        const struct td_hint *h = &td_hints[i];
        char meant[64];
        snprintf(meant, sizeof meant, "%.*s", (int)strcspn(h->meant, ","), h->meant);
        const bool is_there = h->where ? is_choice(h->where, meant) : is_key(meant);
        if (!is_there) fail_msg("%s: %s is not there", h->where ? h->where : "a key", meant);
        if (h->where && !strchr(h->meant, ',')) {
            for (const char *at = h->typed; *at; at += *at == '|') {
                const size_t len = strcspn(at, "|");
                char typed[64];
                snprintf(typed, sizeof typed, "%.*s", (int)len, at);
                if (is_choice(h->where, typed)) fail_msg("%s: %s is known", h->where, typed);
                at += len;
            }
        }
    }
}

// ---- what is said -------------------------------------------------------------------------------
static void expect(const char *extra, const char *path, const char *part) {
    TD_AUTO(td_arena) *a = NULL;
    assert_ok(td_arena_create(TD_SPEC_ARENA_BYTES, &a));
    char text[512];
    const bool has_kind = strncmp(extra, "kind", 4) == 0;
    snprintf(text, sizeof text, "%s%s%s%s\n",
             has_kind || strstr(extra, "model:") ? "" : "model: {name: mlp, layers: [4, 2]}\n",
             has_kind || strstr(extra, "data:") ? "" : "data: {name: synthetic, batch_size: 8}\n",
             has_kind || strstr(extra, "optimizer:") ? "" : "optimizer: sgd\n", extra);
    struct td_json *tree;
    td_status s = td_spec_parse(a, text, strlen(text), NULL, 0, &tree);
    const char *field = "", *found = "";
    if (td_status_n_fields(s)) td_status_field(s, 0, &field, &found);
    const bool is_there = strncmp(field, path, strlen(path)) == 0 && strstr(found, part);
    if (!is_there) fail_msg("%s: wanted %s: %s, got %s: %s", extra, path, part, field, found);
    td_status_free(s);
}

static void test_key_of_another_system_is_recognized(void **state) {
    (void)state;
    expect("seed: 1", "seed", "unknown key, did you mean seed_everything?");
    expect("trainer: {seed: 1}", "trainer.seed", "did you mean seed_everything?");
    expect("epochs: 3", "epochs", "unknown key here, did you mean trainer.max_epochs?");
    expect("trainer: {epochs: 3}", "trainer.epochs", "unknown key, did you mean max_epochs?");
    expect("trainer: {num-epochs: 3}", "trainer.num-epochs", "did you mean max_epochs?");
    expect("num_train_epochs: 3", "num_train_epochs", "trainer.max_epochs?");
    expect("learning_rate: 0.1", "learning_rate", "optimizer.lr?");
    expect("lr: 0.1", "lr", "unknown key here, did you mean optimizer.lr?");
    expect("optimizer: {name: adamw, learning_rate: 1}", "optimizer.learning_rate", "mean lr?");
    expect("batch_size: 1", "batch_size", "data.batch_size?");
    expect("per_device_train_batch_size: 1", "per_device", "data.batch_size?");
    expect("gpus: 1", "gpus", "trainer.devices?");
    expect("trainer: {gradient_accumulation_steps: 2}", "trainer.g", "accumulate_grad_batches?");
    expect("trainer: {max_grad_norm: 2}", "trainer.max_grad_norm", "gradient_clip_val?");
    expect("trainer: {Max_Epochs: 2}", "trainer.Max_Epochs", "did you mean max_epochs?");
    expect("fp16: true", "fp16", "trainer.precision?");
    expect("scheduler: cosine", "scheduler", "did you mean lr_scheduler?");
    expect("resume_from_checkpoint: x", "resume_from_checkpoint", "did you mean ckpt_path?");
    expect("kind: command\ncommand: [a]\nenvironment: {}", "environment", "did you mean env?");
    expect("kind: command\ncmd: [a]\ncommand: [a]", "cmd", "did you mean command?");
    expect("kind: command\ncommand: [a]\nlr: 1", "lr", "unknown key; known here");
    expect("kind: command\ncommand: [a]\nmemory: 1", "memory", "resources.memory_bytes?");
}

static void test_name_of_another_system_is_recognized(void **state) {
    (void)state;
    expect("optimizer: AdamW", "optimizer.name", "did you mean adamw?");
    expect("optimizer: {name: torch.optim.AdamW}", "optimizer.name", "did you mean adamw?");
    expect("optimizer: adamw_torch", "optimizer.name", "did you mean adamw?");
    expect("optimizer: SGD", "optimizer.name", "did you mean sgd?");
    expect("trainer: {precision: fp16}", "trainer.precision", "did you mean 16-mixed?");
    expect("trainer: {precision: FP32}", "trainer.precision", "did you mean 32-true?");
    expect("trainer: {precision: bfloat16}", "trainer.precision", "did you mean bf16-mixed?");
    expect("trainer: {precision: 32_true}", "trainer.precision", "did you mean 32-true?");
    expect("trainer: {strategy: ddp_find_unused_parameters_true}", "trainer.strategy",
           "did you mean ddp, with trainer.find_unused_parameters: true?");
    expect("trainer: {strategy: DDP}", "trainer.strategy", "did you mean ddp?");
    expect("lr_scheduler: CosineAnnealingLR", "lr_scheduler.name", "did you mean cosine?");
    expect("lr_scheduler: {name: ReduceLROnPlateau}", "lr_scheduler.name", "reduce_on_plateau?");
    expect("model: {name: ResNet18}", "model.name", "did you mean convnet?");
    expect("data: {name: MNIST}", "data.name", "did you mean idx?");
    expect("model: {name: mlp, layers: [4, 2], loss: CrossEntropyLoss}", "model.loss",
           "did you mean cross_entropy?");
    expect("model: {name: mlp, layers: [4, 2], activation: ReLU}", "model.activation", "relu?");
    expect("stages: [train]", "stages[0]", "did you mean fit?");
    expect("stages: [eval]", "stages[0]", "did you mean validate?");
    expect("loggers: [TensorBoardLogger]", "loggers[0]", "did you mean tensorboard?");
    expect("checkpoint: {mode: minimize}", "checkpoint.mode", "did you mean min?");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_row_leads_to_what_there_is),
        cmocka_unit_test(test_key_of_another_system_is_recognized),
        cmocka_unit_test(test_name_of_another_system_is_recognized),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
