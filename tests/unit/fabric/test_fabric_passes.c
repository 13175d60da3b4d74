// A pass over a split that a program evaluates itself, as its strategy sees it. It begins on all
// ranks with the first batch, also on those without samples, and ends once. So ddp's buffers are
// those of rank 0 wherever a batch is evaluated.

#include <string.h>

#include "lib/base/files/files.h"
#include "strategies/strategies.h"
#include "tests/unit/test.h"
#include "traind/fabric.h"
#include "traind/spawn.h"
#include "traind/strategy.h"

static struct td_fabric_batch take(struct td_fabric *f, enum td_split split) {
    struct td_fabric_batch batch = {.struct_bytes = sizeof batch};
    assert_ok(td_fabric_next(f, split, &batch));
    return batch;
}

// ---- the hooks ----------------------------------------------------------------------------------
static char seen[512];

static td_status note_hook(struct td_strategy *s, enum td_strategy_hook hook, int64_t batch) {
    static const char *const names[] = {
        [TD_HOOK_TRAIN_START] = "fit",      [TD_HOOK_TRAIN_BATCH_START] = "batch",
        [TD_HOOK_TRAIN_END] = "fit_end",    [TD_HOOK_EVAL_START] = "eval",
        [TD_HOOK_EVAL_END] = "eval_end",    [TD_HOOK_TRAIN_EPOCH_START] = "epoch",
        [TD_HOOK_TRAIN_EPOCH_END] = "",     [TD_HOOK_VALIDATE_START] = "val",
        [TD_HOOK_VALIDATE_END] = "val_end", [TD_HOOK_TEST_START] = "test",
        [TD_HOOK_TEST_END] = "test_end",    [TD_HOOK_PREDICT_START] = "predict",
        [TD_HOOK_PREDICT_END] = "",         [TD_HOOK_EVAL_LOADER_START] = "loader",
    };
    const size_t n = strlen(seen);
    (void)s;
    snprintf(seen + n, sizeof seen - n, "%s:%d ", names[hook], (int)batch);
    return TD_OK;
}

// The loader of each batch that is evaluated.
static char moved[64];

static td_status note_move(struct td_strategy *s, int32_t loader, const struct td_buffer *fields,
                           size_t n_fields, struct td_buffer *out_inputs) {
    const size_t n = strlen(moved);
    (void)s;
    snprintf(moved + n, sizeof moved - n, "%d ", loader);
    memcpy(out_inputs, fields, n_fields * sizeof *fields);
    return TD_OK;
}

static struct td_strategy_ops noting;
static const struct td_plugin_desc noting_desc =
    TD_PLUGIN_DESC(STRATEGY, "noting", "writes down its hooks", &noting);
static const struct td_plugin_desc *const plugins[] = {&noting_desc};

// Alone, two loaders (2 rows and 3 rows), in batches of 2.
static struct td_fabric *note_passes(const char *scratch) {
    const uint16_t tokens[13] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13};
    const struct td_fabric_options o = {.struct_bytes = sizeof o,
                                        .accelerator = "reference",
                                        .strategy = "{name: plugin, strategy: noting}",
                                        .threads = 1,
                                        .quiet = true,
                                        .own_plugins = plugins,
                                        .n_own_plugins = 1};
    char a[256], b[256], section[2048];
    struct td_fabric *f;
    noting = *(const struct td_strategy_ops *)td_strategy_single_device.ops;
    noting.hook = note_hook;
    noting.batch_to_device = note_move;
    snprintf(a, sizeof a, "%s/a.bin", scratch);
    snprintf(b, sizeof b, "%s/b.bin", scratch);
    assert_ok(td_fs_write(a, tokens, 9 * sizeof *tokens, 0600, 0));
    assert_ok(td_fs_write(b, tokens, sizeof tokens, 0600, 0));
    snprintf(section, sizeof section,
             "{name: tokens, train: [%s], val: [%s, %s], val_by_file: true, "
             "block_size: 4, vocab_size: 16, batch_size: 2}",
             a, a, b);
    assert_ok(td_fabric_create(&o, &f));
    assert_ok(td_fabric_setup_module(f, "{name: gpt, n_layer: 1, n_head: 1, n_embd: 8}"));
    assert_ok(td_fabric_setup_optimizers(f, "{name: sgd, lr: 0.1}", NULL));
    assert_ok(td_fabric_setup_dataloaders(f, section));
    assert_ok(td_fabric_setup(f));
    seen[0] = moved[0] = '\0';
    return f;
}

static void finish(struct td_fabric *f) {
    assert_ok(td_fabric_finish(f, TD_OK));
    td_fabric_destroy(f);
}

static void test_pass_begins_at_its_first_batch_and_ends_where_it_is_over(void **state) {
    struct td_fabric *f = note_passes(*state);
    while (!take(f, TD_SPLIT_VAL).is_over) {}
    assert_string_equal(seen, "val:0 eval:0 loader:0 loader:1 eval_end:3 val_end:3 ");
    seen[0] = '\0';
    while (!take(f, TD_SPLIT_TEST).is_over) {}
    assert_string_equal(seen, "test:0 eval:0 loader:0 loader:1 eval_end:3 test_end:3 ");
    seen[0] = '\0';
    finish(f);
    assert_string_equal(seen, "fit_end:0 ");
}

static void test_pass_ends_where_another_split_is_taken_and_the_rest_is_another(void **state) {
    struct td_fabric *f = note_passes(*state);
    (void)take(f, TD_SPLIT_VAL);
    (void)take(f, TD_SPLIT_VAL);
    (void)take(f, TD_SPLIT_TRAIN);
    assert_string_equal(seen, "val:0 eval:0 loader:0 loader:1 eval_end:2 val_end:2 epoch:0 ");
    seen[0] = '\0';
    assert_int_equal(take(f, TD_SPLIT_VAL).batch_idx, 1);
    assert_string_equal(seen, "val:0 eval:0 loader:1 ");
    (void)take(f, TD_SPLIT_TEST);
    assert_string_equal(seen, "val:0 eval:0 loader:1 eval_end:1 val_end:1 test:0 eval:0 loader:0 ");
    seen[0] = '\0';
    finish(f); // within it
    assert_string_equal(seen, "eval_end:1 test_end:1 fit_end:0 ");
}

static void test_batch_is_moved_as_one_of_its_loader(void **state) {
    struct td_fabric *f = note_passes(*state);
    struct td_fabric_batch batch = {.struct_bytes = sizeof batch};
    while (batch = take(f, TD_SPLIT_VAL), !batch.is_over) {
        assert_ok(td_fabric_evaluate(f, &batch));
    }
    assert_string_equal(moved, "0 1 1 ");
    finish(f);
}

// ---- buffers of ddp -----------------------------------------------------------------------------
enum { WORLD = 2, CHANNELS = 3 };

static td_status running_means(struct td_fabric *f, float (*out)[CHANNELS]) {
    float own[CHANNELS];
    TD_TRY(td_fabric_tensor(f, "bn1.running_mean", own, CHANNELS));
    return td_fabric_all_gather(f, own, sizeof own, out);
}

static td_status expect(struct td_fabric *f, bool alike, const char *when) {
    float of[WORLD][CHANNELS];
    TD_TRY(running_means(f, of));
    if ((memcmp(of[0], of[1], sizeof of[0]) == 0) == alike) return TD_OK;
    return td_fail(TD_INTERNAL, "%s running_mean is %g on rank 0 and %g on rank 1", when,
                   (double)of[0][0], (double)of[1][0]);
}

// n images of 4 x 4, no two alike, and their labels.
static void write_images(const char *scratch, const char *name, int n) {
    for (int is_y = 0; is_y < 2; is_y++) {
        uint8_t file[128 + 8 * 16] = "\x93NUMPY\1\0\x76";
        char path[256], header[119];
        const int len = snprintf(header, sizeof header,
                                 "{'descr': '|u1', 'fortran_order': False, 'shape': (%d,%s)}", n,
                                 is_y ? "" : " 4, 4");
        memset(file + 10, ' ', 117);
        memcpy(file + 10, header, (size_t)len);
        file[127] = '\n';
        for (int i = 0; i < n * 16; i++) {
            file[128 + i] = (uint8_t)(is_y ? i % 4 : i * i);
        }
        snprintf(path, sizeof path, "%s/%s_%s.npy", scratch, name, is_y ? "y" : "x");
        assert_ok(td_fs_write(path, file, 128 + (size_t)n * (is_y ? 1 : 16), 0600, 0));
    }
}

// One image is validated, and tested, so rank 1 has none.
static td_status train_a_norm(struct td_fabric *f, const char *scratch) {
    char section[2048];
    static const enum td_split splits[] = {TD_SPLIT_VAL, TD_SPLIT_TEST};
    struct td_fabric_batch batch = {.struct_bytes = sizeof batch};
    TD_TRY(td_fabric_setup_module(f, "{name: convnet, layers: [{name: conv, channels: 3}, "
                                     "batch_norm, relu, flatten, {name: linear, features: 4}]}"));
    TD_TRY(td_fabric_setup_optimizers(f, "{name: sgd, lr: 0.1}", NULL));
    snprintf(section, sizeof section,
             "{name: npy, x: %s/train_x.npy, y: %s/train_y.npy, val_x: %s/val_x.npy, "
             "val_y: %s/val_y.npy, batch_size: 2}",
             scratch, scratch, scratch, scratch);
    TD_TRY(td_fabric_setup_dataloaders(f, section));
    TD_TRY(td_fabric_setup(f));
    for (size_t i = 0; i < TD_COUNTOF(splits); i++) {
        TD_TRY(td_fabric_next(f, TD_SPLIT_TRAIN, &batch));
        TD_TRY(td_fabric_forward(f, NULL));
        TD_TRY(td_fabric_backward(f));
        TD_TRY(td_fabric_optimizer_step(f, NULL, NULL));
        TD_TRY(expect(f, false, "after a step"));
        TD_TRY(td_fabric_next(f, splits[i], &batch));
        TD_TRY(expect(f, true, "within a pass"));
        TD_TRY(td_fabric_evaluate(f, &batch));
    }
    return TD_OK;
}

static td_status be_a_rank(struct td_spawned *self, const void *args, size_t args_bytes) {
    const struct td_fabric_options o = {.struct_bytes = sizeof o,
                                        .accelerator = "reference",
                                        .strategy = "ddp",
                                        .threads = 1,
                                        .quiet = true};
    struct td_fabric *f;
    (void)self, (void)args_bytes;
    TD_TRY(td_fabric_create(&o, &f));
    td_status s = td_fabric_finish(f, train_a_norm(f, args));
    td_fabric_destroy(f);
    return s;
}

static void test_buffers_are_those_of_rank_0_where_a_pass_begins(void **state) {
    write_images(*state, "train", 8);
    write_images(*state, "val", 1);
    assert_ok(td_spawn(&(struct td_spawn_options){.function = "be_a_rank",
                                                  .world_size = WORLD,
                                                  .args = *state,
                                                  .args_bytes = strlen(*state) + 1,
                                                  .timeout_ns = TD_TEST_WAIT_NS},
                       NULL));
}

static const struct td_spawn_function functions[] = {{"be_a_rank", be_a_rank}};

int main(int argc, char **argv) {
    td_status s = td_main(argc, argv, functions, TD_COUNTOF(functions));
    if (s) {
        fprintf(stderr, "%s\n", td_status_message(s));
        td_status_free(s);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            test_pass_begins_at_its_first_batch_and_ends_where_it_is_over, td_test_scratch_make,
            td_test_scratch_remove),
        cmocka_unit_test_setup_teardown(
            test_pass_ends_where_another_split_is_taken_and_the_rest_is_another,
            td_test_scratch_make, td_test_scratch_remove),
        cmocka_unit_test_setup_teardown(test_batch_is_moved_as_one_of_its_loader,
                                        td_test_scratch_make, td_test_scratch_remove),
        cmocka_unit_test_setup_teardown(test_buffers_are_those_of_rank_0_where_a_pass_begins,
                                        td_test_scratch_make, td_test_scratch_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
