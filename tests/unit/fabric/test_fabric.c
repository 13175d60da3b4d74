// Fabric, as a program alone has it: what it refuses, and what it keeps.

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fabric/fabric.h"
#include "lib/base/files/files.h"
#include "tests/unit/test.h"
#include "traind/fabric.h"

static const char *const model = "{name: mlp, layers: [8, 16, 4]}";
static const char *const data = "{name: synthetic, samples: 64, features: 8, classes: 4, "
                                "batch_size: 8, shuffle: true}";
static const char *const adam = "{name: adam, lr: 0.01}";

static struct td_fabric_options options_of(const char *dir) {
    return (struct td_fabric_options){.struct_bytes = sizeof(struct td_fabric_options),
                                      .accelerator = "reference",
                                      .threads = 1,
                                      .quiet = true,
                                      .checkpoint_dir = dir,
                                      .trainer = "{log_grad_norm: true}"};
}

static struct td_fabric *create(const struct td_fabric_options *o) {
    struct td_fabric *f = NULL;
    assert_ok(td_fabric_create(o, &f));
    assert_ok(td_fabric_seed_everything(f, 3));
    assert_ok(td_fabric_setup_module(f, model));
    assert_ok(td_fabric_setup_optimizers(f, adam, NULL));
    assert_ok(td_fabric_setup_dataloaders(f, data));
    return f;
}

static struct td_fabric *set_up(const struct td_fabric_options *o) {
    struct td_fabric *f = create(o);
    assert_ok(td_fabric_setup(f));
    return f;
}

static void finish(struct td_fabric *f) {
    assert_ok(td_fabric_finish(f, TD_OK));
    td_fabric_destroy(f);
}

static double step(struct td_fabric *f) {
    struct td_fabric_batch batch = {.struct_bytes = sizeof batch};
    double loss;
    assert_ok(td_fabric_next(f, TD_SPLIT_TRAIN, &batch));
    if (batch.is_over) assert_ok(td_fabric_next(f, TD_SPLIT_TRAIN, &batch));
    assert_ok(td_fabric_forward(f, NULL));
    assert_ok(td_fabric_backward(f));
    assert_ok(td_fabric_optimizer_step(f, NULL, NULL));
    assert_ok(td_fabric_value(f, "loss", &loss));
    return loss;
}

static struct td_fabric_facts facts_of(const struct td_fabric *f) {
    struct td_fabric_facts facts = {.struct_bytes = sizeof facts};
    td_fabric_get_facts(f, &facts);
    return facts;
}

// ---- what cannot be -----------------------------------------------------------------------------
static void test_options_are_refused_by_name(void **state) {
    (void)state;
    struct td_fabric *f;
    struct td_fabric_options o = options_of(NULL);
    o.struct_bytes = 0;
    assert_fails(td_fabric_create(&o, &f), TD_INVALID_ARGUMENT, "struct_bytes");
    o = options_of(NULL);
    o.devices = 2;
    assert_fails(td_fabric_create(&o, &f), TD_INVALID_ARGUMENT,
                 "devices is 2, but this process is alone");
    o = options_of(NULL);
    o.num_nodes = 2;
    assert_fails(td_fabric_create(&o, &f), TD_INVALID_ARGUMENT, "num_nodes is 2");
    o = options_of(NULL);
    o.n_plugins = 1;
    assert_fails(td_fabric_create(&o, &f), TD_INVALID_ARGUMENT,
                 "plugins: 1 of them are given and no list");
}

static void test_sections_are_checked_as_a_spec_is(void **state) {
    (void)state;
    static const struct {
        const char *model, *optimizer, *names;
    } rows[] = {
        {"{name: mlpp, layers: [8, 4]}", "{name: adam, lr: 0.1}", "mlp"},
        {"{name: mlp, layer: [8, 4]}", "{name: adam, lr: 0.1}", "layers"},
        {"{name: mlp, layers: [8, 4]}", "{name: adam, lr: fast}", "optimizer.lr"},
        {"{name: mlp, layers: [8, 4", "{name: adam, lr: 0.1}", "td_fabric_setup_module"},
        {"{name: plugin, module: nobody}", "{name: adam, lr: 0.1}", "nobody"},
    };
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        struct td_fabric *f;
        const struct td_fabric_options o = options_of(NULL);
        assert_ok(td_fabric_create(&o, &f));
        assert_ok(td_fabric_setup_module(f, rows[i].model));
        assert_ok(td_fabric_setup_optimizers(f, rows[i].optimizer, NULL));
        assert_ok(td_fabric_setup_dataloaders(f, data));
        td_status s = td_fabric_setup(f);
        assert_int_equal(td_status_class(s), TD_CLASS_BAD_SPEC);
        assert_non_null(strstr(td_status_message(s), rows[i].names));
        s = td_fabric_finish(f, s);
        assert_non_null(s);
        td_status_free(s);
        td_fabric_destroy(f);
    }
}

static void test_calls_before_setup_and_twice_are_refused(void **state) {
    (void)state;
    const enum td_code code = TD_FAILED_PRECONDITION;
    const struct td_fabric_options o = options_of(NULL);
    struct td_fabric_batch batch = {.struct_bytes = sizeof batch};
    struct td_fabric *f;
    double v;
    assert_ok(td_fabric_create(&o, &f));
    assert_fails(td_fabric_setup(f), code, "without td_fabric_setup_module");
    assert_fails(td_fabric_barrier(f, "x"), code, "before td_fabric_setup");
    assert_fails(td_fabric_next(f, TD_SPLIT_TRAIN, &batch), code, "before td_fabric_setup");
    assert_ok(td_fabric_setup_module(f, model));
    assert_fails(td_fabric_setup_module(f, model), code, "was called already");
    assert_ok(td_fabric_setup_optimizers(f, adam, NULL));
    assert_ok(td_fabric_setup_dataloaders(f, data));
    assert_ok(td_fabric_setup(f));
    assert_fails(td_fabric_setup(f), code, "was called already");
    assert_fails(td_fabric_seed_everything(f, 1), code, "before td_fabric_setup");
    assert_fails(td_fabric_forward(f, NULL), code, "without a batch");
    assert_fails(td_fabric_forward(f, "gen"), TD_NOT_FOUND, "train");
    assert_fails(td_fabric_no_backward_sync(f, true), code, "accumulates");
    assert_fails(td_fabric_divide_loss(f, 2), code, "accumulates");
    assert_fails(td_fabric_save(f), code, "checkpoint_dir");
    (void)step(f);
    assert_fails(td_fabric_value(f, "lost", &v), TD_NOT_FOUND, "loss");
    assert_fails(td_fabric_broadcast(f, &v, sizeof v, 1), code, "rank 1 of 1");
    (void)step(f); // misuse changed nothing
    finish(f);
}

// Contract 17: ranks of another launcher are refused
static void test_process_of_another_launcher_is_refused_with_the_remedy(void **state) {
    (void)state;
    struct td_fabric *f;
    const struct td_fabric_options o = options_of(NULL);
    setenv("SLURM_STEP_NUM_TASKS", "4", 1);
    assert_fails(td_fabric_create(&o, &f), TD_FAILED_PRECONDITION, "srun started this process");
    setenv("SLURM_STEP_NUM_TASKS", "1", 1);
    assert_ok(td_fabric_create(&o, &f));
    finish(f);
    unsetenv("SLURM_STEP_NUM_TASKS");
    setenv("TORCHELASTIC_RUN_ID", "x", 1);
    assert_fails(td_fabric_create(&o, &f), TD_FAILED_PRECONDITION, "td_spawn");
    unsetenv("TORCHELASTIC_RUN_ID");
}

// ---- what is kept -------------------------------------------------------------------------------
static void test_checkpoint_brings_back_the_position_and_the_bits(void **state) {
    const struct td_fabric_options o = options_of(*state);
    double rest[10], again[10];
    char path[512];
    struct td_fabric *f = set_up(&o);
    for (int i = 0; i < 5; i++) {
        (void)step(f);
    }
    assert_ok(td_fabric_save(f));
    for (size_t i = 0; i < 10; i++) {
        rest[i] = step(f);
    }
    assert_int_equal(facts_of(f).epoch, 1);
    snprintf(path, sizeof path, "%s/step-5", (const char *)*state);
    assert_ok(td_fabric_load(f, path)); // in the process that wrote it
    assert_int_equal(facts_of(f).global_step, 5);
    assert_true(facts_of(f).resumed);
    for (size_t i = 0; i < 10; i++) {
        again[i] = step(f);
    }
    assert_memory_equal(again, rest, sizeof rest);
    finish(f);
    struct td_fabric_options elsewhere = options_of(NULL);
    f = set_up(&elsewhere);
    assert_ok(td_fabric_load(f, path)); // in another
    for (size_t i = 0; i < 10; i++) {
        again[i] = step(f);
    }
    assert_memory_equal(again, rest, sizeof rest);
    finish(f);
}

static void test_save_between_backward_and_step_is_refused(void **state) {
    const struct td_fabric_options o = options_of(*state);
    struct td_fabric_batch batch = {.struct_bytes = sizeof batch};
    struct td_fabric *f = set_up(&o);
    assert_ok(td_fabric_next(f, TD_SPLIT_TRAIN, &batch));
    assert_ok(td_fabric_forward(f, NULL));
    assert_ok(td_fabric_backward(f));
    assert_fails(td_fabric_save(f), TD_FAILED_PRECONDITION, "no optimizer step has used");
    assert_fails(td_fabric_load(f, "/nowhere"), TD_FAILED_PRECONDITION,
                 "no optimizer step has used");
    assert_ok(td_fabric_zero_grad(f, NULL));
    assert_ok(td_fabric_save(f));
    finish(f);
}

static void test_weights_are_loaded_strictly_or_as_far_as_they_fit(void **state) {
    const struct td_fabric_options o = options_of(*state), other = options_of(NULL);
    char path[512];
    struct td_fabric *f = set_up(&o);
    (void)step(f);
    assert_ok(td_fabric_save(f));
    finish(f);
    snprintf(path, sizeof path, "%s/step-1", (const char *)*state);
    for (int strict = 0; strict < 2; strict++) {
        assert_ok(td_fabric_create(&other, &f));
        assert_ok(td_fabric_setup_module(f, "{name: mlp, layers: [8, 16, 16, 4]}"));
        assert_ok(td_fabric_setup_optimizers(f, adam, NULL));
        assert_ok(td_fabric_setup_dataloaders(f, data));
        assert_ok(td_fabric_setup(f));
        if (!strict) {
            assert_ok(td_fabric_load_weights(f, path, false));
            finish(f);
            continue;
        }
        td_status s = td_fabric_load_weights(f, path, true);
        assert_int_equal(td_status_code(s), TD_INVALID_ARGUMENT);
        td_status_free(td_fabric_finish(f, s));
        td_fabric_destroy(f);
    }
}

static void test_evaluation_goes_over_each_sample_once(void **state) {
    (void)state;
    struct td_fabric_options o = options_of(NULL);
    struct td_fabric *f;
    struct td_fabric_batch batch = {.struct_bytes = sizeof batch};
    assert_ok(td_fabric_create(&o, &f)); // without an optimizer
    assert_ok(td_fabric_setup_module(f, model));
    assert_ok(td_fabric_setup_dataloaders(f, "{name: synthetic, samples: 20, features: 8, "
                                             "classes: 4, batch_size: 8}"));
    assert_ok(td_fabric_setup(f));
    for (int pass = 0; pass < 2; pass++) {
        int64_t n = 0, batches = 0;
        for (;;) {
            double loss;
            assert_ok(td_fabric_next(f, TD_SPLIT_VAL, &batch));
            if (batch.is_over) break;
            assert_int_equal(batch.batch_idx, batches++);
            assert_ok(td_fabric_evaluate(f, &batch));
            assert_ok(td_fabric_value(f, "loss", &loss));
            assert_true(isfinite(loss));
            n += batch.n_samples;
        }
        assert_true(n > 0 && n == td_data_length(f->rank->data, TD_SPLIT_VAL));
    }
    assert_fails(td_fabric_next(f, TD_SPLIT_TRAIN, &batch), TD_FAILED_PRECONDITION,
                 "setup_optimizers");
    finish(f);
}

static void test_loaders_follow_one_another_when_there_are_several(void **state) {
    const struct td_fabric_options o = options_of(NULL);
    const uint16_t tokens[13] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13};
    struct td_fabric *f;
    struct td_fabric_batch batch = {.struct_bytes = sizeof batch};
    char a[512], b[512], section[2048];
    snprintf(a, sizeof a, "%s/a.bin", (const char *)*state);
    snprintf(b, sizeof b, "%s/b.bin", (const char *)*state);
    assert_ok(td_fs_write(a, tokens, 9 * sizeof *tokens, 0600, 0)); // 2 rows
    assert_ok(td_fs_write(b, tokens, sizeof tokens, 0600, 0));      // 3 rows
    snprintf(section, sizeof section,
             "{name: tokens, train: [%s], val: [%s, %s], val_by_file: true, block_size: 4, "
             "vocab_size: 16, batch_size: 2}",
             a, a, b);
    assert_ok(td_fabric_create(&o, &f));
    assert_ok(td_fabric_setup_module(f, "{name: gpt, n_layer: 1, n_head: 1, n_embd: 8}"));
    assert_ok(td_fabric_setup_dataloaders(f, section));
    assert_ok(td_fabric_setup(f));
    static const struct {
        int loader;
        int64_t idx, n;
    } due[] = {{0, 0, 2}, {1, 0, 2}, {1, 1, 1}};
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < TD_COUNTOF(due); i++) {
            assert_ok(td_fabric_next(f, TD_SPLIT_VAL, &batch));
            assert_false(batch.is_over);
            assert_int_equal(batch.dataloader_idx, due[i].loader);
            assert_int_equal(batch.batch_idx, due[i].idx);
            assert_int_equal(batch.n_samples, due[i].n);
            assert_ok(td_fabric_evaluate(f, &batch));
        }
        assert_ok(td_fabric_next(f, TD_SPLIT_VAL, &batch));
        assert_true(batch.is_over && batch.dataloader_idx == 0);
    }
    finish(f);
}

static void test_save_after_a_load_writes_what_there_is_and_over_nothing(void **state) {
    const struct td_fabric_options o = options_of(*state);
    char path[512];
    struct td_fabric *f = set_up(&o);
    (void)step(f);
    assert_ok(td_fabric_save(f));
    (void)step(f);
    assert_ok(td_fabric_save(f));
    snprintf(path, sizeof path, "%s/step-1", (const char *)*state);
    assert_ok(td_fabric_load(f, path));
    (void)step(f);
    assert_fails(td_fabric_save(f), TD_FAILED_PRECONDITION, "is there already");
    (void)step(f);
    assert_ok(td_fabric_save(f)); // step-3 is new
    snprintf(path, sizeof path, "%s/step-3/manifest.json", (const char *)*state);
    assert_int_equal(access(path, R_OK), 0);
    finish(f);
}

static void test_fields_of_a_batch_are_there_until_the_second_next(void **state) {
    (void)state;
    const struct td_fabric_options o = options_of(NULL);
    struct td_fabric_batch a = {.struct_bytes = sizeof a}, b = a;
    double before, after;
    struct td_fabric *f = set_up(&o);
    assert_ok(td_fabric_next(f, TD_SPLIT_VAL, &a));
    assert_ok(td_fabric_evaluate(f, &a));
    assert_ok(td_fabric_value(f, "loss", &before));
    assert_ok(td_fabric_next(f, TD_SPLIT_TRAIN, &b));
    assert_ok(td_fabric_evaluate(f, &a));
    assert_ok(td_fabric_value(f, "loss", &after));
    assert_true(before == after);
    finish(f);
}

static void test_trainer_is_refused_what_nobody_acts_on(void **state) {
    (void)state;
    static const struct {
        const char *trainer, *names;
    } rows[] = {{"{precision: bf16-mixed}", "options.trainer has precision, which the options say"},
                {"{devices: 2}", "options.trainer has devices"},
                {"{accumulate_grad_batches: 2}", "the loop is the program's"},
                {"{accumulate: tokens}", "the loop is the program's"},
                {"{limit_val_batches: 0}", "limit_val_batches"},
                {"{fast_dev_run: true}", "fast_dev_run"},
                {"{overfit_batches: 2}", "overfit_batches"}};
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        struct td_fabric_options o = options_of(NULL);
        o.trainer = rows[i].trainer;
        struct td_fabric *f = create(&o);
        td_status s = td_fabric_finish(f, td_fabric_setup(f));
        assert_int_equal(td_status_class(s), TD_CLASS_BAD_SPEC);
        assert_non_null(strstr(td_status_message(s), rows[i].names));
        td_status_free(s);
        td_fabric_destroy(f);
    }
}

// ---- talking ------------------------------------------------------------------------------------
static char seen[256];
static void see(void *arg, const char *name, double value, int64_t step, int64_t epoch) {
    size_t n = strlen(seen);
    snprintf(seen + n, sizeof seen - n, "%s:%s=%g@%lld/%lld ", (const char *)arg, name, value,
             (long long)step, (long long)epoch);
}
static td_status called(struct td_fabric *f, void *arg, const void *what) {
    (void)f;
    see(arg, what, 0, 0, 0);
    return strcmp(what, "bad") == 0 ? td_bad_spec("no") : TD_OK;
}

static void test_loggers_and_callbacks_are_called_in_order(void **state) {
    (void)state;
    static char name_a[] = "a", name_b[] = "b", x[] = "x", y[] = "y", z[] = "z";
    struct td_fabric_options o = options_of(NULL);
    const struct td_fabric_logger loggers[] = {{see, name_a}, {see, name_b}};
    const struct td_fabric_callback callbacks[] = {
        {"on_end", called, x}, {"on_start", called, y}, {"on_end", called, z}};
    const struct td_fabric_value_of both[] = {{"one", 1}, {"two", 2}};
    o.loggers = loggers;
    o.n_loggers = 2;
    o.callbacks = callbacks;
    o.n_callbacks = 3;
    struct td_fabric *f = set_up(&o);
    seen[0] = '\0';
    (void)step(f);
    assert_ok(td_fabric_log_dict(f, both, 2));
    assert_string_equal(seen, "a:one=1@1/0 b:one=1@1/0 a:two=2@1/0 b:two=2@1/0 ");
    seen[0] = '\0';
    assert_ok(td_fabric_call(f, "on_end", "e"));
    assert_ok(td_fabric_call(f, "nobody", "e"));
    assert_fails(td_fabric_call(f, "on_end", "bad"), TD_INVALID_ARGUMENT, "callback 0 at 'on_end'");
    assert_string_equal(seen, "x:e=0@0/0 z:e=0@0/0 x:bad=0@0/0 ");
    assert_ok(td_fabric_log(f, "a_name_that_has_24_bytes", 0));
    char name[TD_METRIC_NAME_BYTES + 1];
    snprintf(name, sizeof name, "%0*d", TD_METRIC_NAME_BYTES, 0);
    assert_fails(td_fabric_log(f, name, 0), TD_FAILED_PRECONDITION, "63 bytes");
    finish(f);
}

static void test_rates_can_be_the_callers(void **state) {
    (void)state;
    const struct td_fabric_options o = options_of(NULL);
    struct td_fabric *f = set_up(&o);
    double lr, norm;
    struct td_fabric_batch batch = {.struct_bytes = sizeof batch};
    assert_ok(td_fabric_lr(f, NULL, &lr));
    assert_true(lr == 0.01);
    assert_ok(td_fabric_set_lr(f, "train", 0.5));
    assert_ok(td_fabric_lr(f, NULL, &lr));
    assert_true(lr == 0.5);
    assert_fails(td_fabric_set_lr(f, NULL, -1), TD_FAILED_PRECONDITION, "-1");
    assert_ok(td_fabric_set_lr(f, NULL, (double)NAN));
    assert_ok(td_fabric_lr(f, NULL, &lr));
    assert_true(lr == 0.01);
    assert_fails(td_fabric_clip_gradients(f, NULL, &norm), TD_FAILED_PRECONDITION,
                 "without a backward");
    assert_ok(td_fabric_next(f, TD_SPLIT_TRAIN, &batch));
    assert_ok(td_fabric_forward(f, NULL));
    assert_ok(td_fabric_backward(f));
    assert_ok(td_fabric_clip_gradients(f, NULL, &norm));
    assert_true(norm > 0);
    assert_ok(td_fabric_optimizer_step(f, NULL, NULL));
    finish(f);
}

// ---- facts, seeds and the group -----------------------------------------------------------------
// What options_of(NULL) comes to.
static void say_over_default(void) {
    td_test_over("precision", "fp32");
    td_test_over("strategy", "single_device");
    td_test_over("accelerator", "reference");
}

static td_status count_call(void *arg) {
    ++*(int *)arg;
    return TD_OK;
}

// Contract 7: collectives of one rank are identities
static void test_program_alone_is_rank_0_of_1_and_its_group_gives_back(void **state) {
    (void)state;
    const struct td_fabric_options o = options_of(NULL);
    struct td_fabric *f = set_up(&o);
    const struct td_fabric_facts facts = facts_of(f);
    assert_true(facts.world_size == 1 && facts.is_global_zero && facts.is_set_up);
    assert_true(facts.global_rank == 0 && facts.local_rank == 0 && facts.node_rank == 0);
    assert_int_equal(facts.device, 0);
    assert_string_equal(facts.accelerator, "reference");
    assert_string_equal(facts.strategy, "single_device");
    assert_string_equal(facts.precision, "32-true");
    float x[2] = {1, 2}, y[2] = {0};
    bool decision = true;
    int calls = 0;
    assert_ok(td_fabric_all_reduce(f, x, 2, TD_F32, TD_REDUCE_MEAN));
    assert_ok(td_fabric_broadcast(f, x, sizeof x, 0));
    assert_true(x[0] == 1 && x[1] == 2);
    assert_ok(td_fabric_all_gather(f, x, sizeof x, y));
    assert_memory_equal(x, y, sizeof x);
    assert_ok(td_fabric_barrier(f, "here"));
    assert_ok(td_fabric_reduce_boolean_decision(f, false, true, &decision));
    assert_false(decision);
    assert_ok(td_fabric_rank_zero_first(f, count_call, &calls));
    assert_int_equal(calls, 1);
    finish(f);
    say_over_default();
}

// Contract 17: alone a program is rank 0 of 1, before setup and after it, with every strategy
static void test_program_alone_has_one_rank_with_every_strategy(void **state) {
    (void)state;
    static const char *const strategies[] = {NULL, "single_device", "ddp"};
    for (size_t i = 0; i < TD_COUNTOF(strategies); i++) {
        struct td_fabric_options o = options_of(NULL);
        o.strategy = strategies[i];
        struct td_fabric *f = create(&o);
        for (int is_set_up = 0; is_set_up < 2; is_set_up++) {
            const struct td_fabric_facts facts = facts_of(f);
            assert_true(facts.world_size == 1 && facts.is_global_zero);
            assert_true(!facts.global_rank && !facts.local_rank && !facts.node_rank);
            assert_int_equal(facts.is_set_up, is_set_up);
            if (!is_set_up) assert_ok(td_fabric_setup(f));
        }
        if (o.strategy) assert_string_equal(facts_of(f).strategy, o.strategy);
        finish(f);
        if (o.strategy) td_test_over("strategy", o.strategy);
    }
}

static void losses_of_seed(uint64_t seed, double *out, int n) {
    const struct td_fabric_options o = options_of(NULL);
    struct td_fabric *f = create(&o);
    assert_ok(td_fabric_seed_everything(f, seed));
    assert_ok(td_fabric_setup(f));
    for (int i = 0; i < n; i++) {
        out[i] = step(f);
    }
    finish(f);
}

static void test_seed_decides_every_loss(void **state) {
    (void)state;
    double one[10], again[10], other[10];
    losses_of_seed(5, one, 10);
    losses_of_seed(5, again, 10);
    losses_of_seed(6, other, 10);
    assert_memory_equal(one, again, sizeof one);
    assert_true(one[0] != other[0]);
}

static void print_text(char *out, size_t out_bytes) {
    const struct td_fabric_options o = options_of(NULL);
    struct td_fabric *f = set_up(&o);
    int ends[2];
    fflush(stdout);
    const int stdout_fd = dup(STDOUT_FILENO);
    assert_true(stdout_fd >= 0);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_true(dup2(ends[1], STDOUT_FILENO) >= 0);
    td_status s = td_fabric_print(f, "%d of %s", 7, "ten");
    assert_true(dup2(stdout_fd, STDOUT_FILENO) >= 0); // before anything is asserted
    close(stdout_fd);
    close(ends[1]);
    assert_ok(s);
    const ssize_t n = read(ends[0], out, out_bytes - 1);
    close(ends[0]);
    assert_true(n >= 0);
    out[n] = '\0';
    finish(f);
}

static void test_print_is_one_line_on_stdout(void **state) {
    (void)state;
    char text[64];
    print_text(text, sizeof text);
    assert_string_equal(text, "7 of ten\n");
}

// Contract 10: alone, a pass without sync is a plain one
static void test_passes_without_sync_are_plain_when_the_world_is_one(void **state) {
    (void)state;
    double losses[2][10];
    struct td_fabric_options o = options_of(NULL);
    o.accumulates = true;
    for (int i = 0; i < 2; i++) {
        struct td_fabric *f = set_up(&o);
        assert_ok(td_fabric_no_backward_sync(f, i == 1));
        for (int j = 0; j < 10; j++) {
            losses[i][j] = step(f);
        }
        finish(f);
    }
    assert_true(losses[0][0] != losses[0][9]);
    assert_memory_equal(losses[0], losses[1], sizeof losses[0]);
    say_over_default();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_are_refused_by_name),
        cmocka_unit_test(test_sections_are_checked_as_a_spec_is),
        cmocka_unit_test(test_calls_before_setup_and_twice_are_refused),
        cmocka_unit_test(test_process_of_another_launcher_is_refused_with_the_remedy),
        cmocka_unit_test_setup_teardown(test_checkpoint_brings_back_the_position_and_the_bits,
                                        td_test_scratch_make, td_test_scratch_remove),
        cmocka_unit_test_setup_teardown(test_save_between_backward_and_step_is_refused,
                                        td_test_scratch_make, td_test_scratch_remove),
        cmocka_unit_test_setup_teardown(test_weights_are_loaded_strictly_or_as_far_as_they_fit,
                                        td_test_scratch_make, td_test_scratch_remove),
        cmocka_unit_test(test_evaluation_goes_over_each_sample_once),
        cmocka_unit_test_setup_teardown(test_loaders_follow_one_another_when_there_are_several,
                                        td_test_scratch_make, td_test_scratch_remove),
        cmocka_unit_test_setup_teardown(
            test_save_after_a_load_writes_what_there_is_and_over_nothing, td_test_scratch_make,
            td_test_scratch_remove),
        cmocka_unit_test(test_fields_of_a_batch_are_there_until_the_second_next),
        cmocka_unit_test(test_trainer_is_refused_what_nobody_acts_on),
        cmocka_unit_test(test_loggers_and_callbacks_are_called_in_order),
        cmocka_unit_test(test_rates_can_be_the_callers),
        cmocka_unit_test(test_program_alone_is_rank_0_of_1_and_its_group_gives_back),
        cmocka_unit_test(test_program_alone_has_one_rank_with_every_strategy),
        cmocka_unit_test(test_seed_decides_every_loss),
        cmocka_unit_test(test_print_is_one_line_on_stdout),
        cmocka_unit_test(test_passes_without_sync_are_plain_when_the_world_is_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
