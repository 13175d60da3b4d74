// Training where state is not host memory. The far device gives the bits of the reference, with one
// rank and with two. So it does where a precision gates steps, where weights come from a file, in
// predictions and generated text, and over a stop and a resume.
// Tags: tsan

#include "tests/unit/test.h"

#include "tests/unit/train/rank/ranks_rig.h"

static const struct job two_ranks = {.accelerator = "far",
                                     .strategy = "ddp",
                                     .precision = "32-true",
                                     .world = RANKS,
                                     .accumulate = 1,
                                     .max_epochs = 3};

struct dirs {
    char far[TD_FS_PATH_BYTES], by_tensor[TD_FS_PATH_BYTES], reference[TD_FS_PATH_BYTES];
};

// The job on all three; returns its steps.
static int64_t run_everywhere(const char *scratch, struct job j, struct dirs *out) {
    assert_ok(td_fs_path(out->far, "%s/far-%d", scratch, (int)j.world));
    assert_ok(td_fs_path(out->by_tensor, "%s/by-tensor-%d", scratch, (int)j.world));
    assert_ok(td_fs_path(out->reference, "%s/reference-%d", scratch, (int)j.world));
    j.accelerator = "far";
    const struct td_train_result far = run_job(&j, out->far);
    j.by_tensor = true;
    const struct td_train_result by_tensor = run_job(&j, out->by_tensor);
    j.by_tensor = false;
    j.accelerator = "reference";
    const struct td_train_result reference = run_job(&j, out->reference);
    assert_int_equal(far.end, TD_LOOP_DONE);
    assert_int_equal(by_tensor.end, TD_LOOP_DONE);
    assert_int_equal(reference.end, TD_LOOP_DONE);
    assert_int_equal(far.step, reference.step);
    assert_int_equal(by_tensor.step, reference.step);
    return far.step;
}

static void compare_everywhere(const char *scratch, struct job j) {
    struct dirs d;
    const int64_t steps = run_everywhere(scratch, j, &d);
    assert_true(steps > 0);
    expect_same(d.far, d.reference, steps);
    expect_same(d.by_tensor, d.reference, steps);
}

// ---- training ----------------------------------------------------------------------------------
static void test_bits_are_the_references_with_one_rank(void **state) {
    struct job j = two_ranks;
    j.strategy = "single_device";
    j.world = 1;
    compare_everywhere(*state, j);
}

static void test_bits_are_the_references_when_two_ranks_average(void **state) {
    struct job j = two_ranks;
    j.accumulate = 2;
    compare_everywhere(*state, j);
}

static void test_bits_are_the_references_when_steps_are_gated(void **state) {
    struct job j = two_ranks;
    j.precision = "16-mixed";
    compare_everywhere(*state, j);
}

// ---- resume ------------------------------------------------------------------------------------
static void resume_after(struct job *j, const char *dir, int64_t step, char *path) {
    assert_ok(td_fs_path(path, "%s/step-%lld", dir, (long long)step));
    j->resume_from = path;
}

// Of a job in one piece, and of one in two.
static void name_parts(const char *scratch, char *whole, char *part, char *rest) {
    assert_ok(td_fs_path(whole, "%s/whole", scratch));
    assert_ok(td_fs_path(part, "%s/part", scratch));
    assert_ok(td_fs_path(rest, "%s/rest", scratch));
}

static void resume(const char *scratch, bool by_tensor) {
    char whole[TD_FS_PATH_BYTES], part[TD_FS_PATH_BYTES], rest[TD_FS_PATH_BYTES];
    char from[TD_FS_PATH_BYTES];
    struct job j = two_ranks;
    name_parts(scratch, whole, part, rest);
    j.by_tensor = by_tensor;
    j.max_epochs = 4;
    const int64_t steps = run_job(&j, whole).step;
    j.max_epochs = 2;
    const int64_t half = run_job(&j, part).step;
    assert_int_equal(half * 2, steps);
    j.max_epochs = 4;
    resume_after(&j, part, half, from);
    assert_int_equal(run_job(&j, rest).step, steps);
    expect_same(whole, rest, steps);
}

static void test_bits_are_those_of_one_run_when_resumed(void **state) {
    resume(*state, false);
}

static void test_bits_are_those_of_one_run_when_resumed_by_tensor(void **state) {
    resume(*state, true);
}

// ---- a stop in the middle -----------------------------------------------------------------------
static const struct td_accelerator_ops *base(void) {
    return td_accelerator_far.ops;
}

// Rank 1's page alone says so, in a run of that number.
static struct td_rank_page *stop_page;
static int stop_runs, stop_at;

static td_status stopping_run(struct td_executable *e, uint32_t segments,
                              const struct td_buffer *inputs, td_ticket *out_ticket) {
    if (++stop_runs == stop_at) atomic_store(&stop_page->stop, TD_STOP_CHECKPOINT);
    return base()->run(e, segments, inputs, out_ticket);
}

static struct td_accelerator_ops stopping_ops;
static const struct td_plugin_desc stopping =
    TD_PLUGIN_DESC(ACCELERATOR, "stopping", "far, where a run has a stop asked for", &stopping_ops);

// 8 batches for each rank, and nothing but training.
static void change_length(struct run *r, const char *dir) {
    (void)dir;
    r->config.data.knobs =
        knobs(r, &td_dataset_synthetic, "{\"samples\":64,\"features\":8,\"classes\":4}");
    r->config.limits.val_batches = (struct td_amount){0};
}

static void change_stopping(struct run *r, const char *dir) {
    change_length(r, dir);
    if (r->config.rank != 1) return;
    r->config.accelerator = "stopping";
    stop_page = &r->page;
    stop_runs = 0;
}

static void stop_and_resume(const char *scratch, int32_t accumulate, int at) {
    char whole[TD_FS_PATH_BYTES], part[TD_FS_PATH_BYTES], rest[TD_FS_PATH_BYTES];
    char from[TD_FS_PATH_BYTES];
    struct job j = two_ranks;
    name_parts(scratch, whole, part, rest);
    j.accumulate = accumulate;
    j.max_epochs = 2;
    j.change = change_length;
    const int64_t steps = run_job(&j, whole).step;
    assert_int_equal(steps, 16 / accumulate);

    stopping_ops = *base();
    stopping_ops.run = stopping_run;
    stop_at = at;
    j.own = &stopping;
    j.change = change_stopping;
    const struct td_train_result stopped = run_job(&j, part); // the same step on both
    assert_int_equal(stopped.end, TD_LOOP_STOPPED);
    assert_true(stopped.step > 0 && stopped.step < steps / 2); // within the first epoch

    j.own = NULL;
    j.change = change_length;
    resume_after(&j, part, stopped.step, from);
    assert_int_equal(run_job(&j, rest).step, steps);
    expect_same(whole, rest, steps);
}

static void test_both_ranks_stop_at_one_step_when_one_is_asked(void **state) {
    stop_and_resume(*state, 1, 2);
}

static void test_windows_are_whole_when_stopped_and_resumed(void **state) {
    stop_and_resume(*state, 2, 3); // in the first batch of the second window
}

// ---- weights from a file -----------------------------------------------------------------------
static const char *weights;

static void change_weights(struct run *r, const char *dir) {
    (void)dir;
    r->config.init_from = weights;
    r->config.seed = 2;
}

static void test_bits_are_the_references_when_weights_come_from_a_file(void **state) {
    char first[TD_FS_PATH_BYTES], from[TD_FS_PATH_BYTES];
    struct job j = two_ranks;
    assert_ok(td_fs_path(first, "%s/first", (char *)*state));
    const int64_t steps = run_job(&j, first).step;
    assert_ok(td_fs_path(from, "%s/step-%lld/model.safetensors", first, (long long)steps));
    weights = from;
    j.change = change_weights;
    compare_everywhere(*state, j);
}

// ---- predictions and text ----------------------------------------------------------------------
static void change_predict(struct run *r, const char *dir) {
    r->config.data.knobs =
        knobs(r, &td_dataset_synthetic, "{\"samples\":72,\"features\":8,\"classes\":4}");
    r->config.stages = TD_STAGE_FIT | TD_STAGE_PREDICT;
    r->config.limits.predict_batches = r->config.limits.test_batches;
    r->config.predict.values = TD_PREDICT_LOGITS;
    r->config.predict.output = td_arena_printf(r->arena, "%s/out", dir);
}

static void test_predictions_are_the_references(void **state) {
    struct dirs d;
    struct job j = two_ranks;
    j.max_epochs = 1;
    j.change = change_predict;
    run_everywhere(*state, j, &d);
    expect_same_file(d.far, d.reference, "out");
    expect_same_file(d.by_tensor, d.reference, "out");
    j.strategy = "single_device";
    j.world = 1;
    run_everywhere(*state, j, &d);
    expect_same_file(d.far, d.reference, "out");
    expect_same_file(d.by_tensor, d.reference, "out");
}

// A gpt that learns from a file of tokens beside the checkpoints, and then writes on.
static void change_gpt(struct run *r, const char *dir) {
    static const char text[] = "tokens are two bytes each in this file, and there are a few.";
    char path[TD_FS_PATH_BYTES], data[TD_FS_PATH_BYTES + 100];
    assert_ok(td_registry_add(r->registry, &td_module_gpt));
    assert_ok(td_registry_add(r->registry, &td_dataset_tokens));
    assert_ok(td_fs_path(path, "%s.bin", dir));
    assert_ok(td_fs_write(path, text, sizeof text - 1, 0600, 0));
    snprintf(data, sizeof data, "{\"train\":[\"%s\"],\"block_size\":4,\"vocab_size\":32768}", path);
    r->config.data = (struct td_part){"tokens", knobs(r, &td_dataset_tokens, data)};
    r->config.model =
        (struct td_part){"gpt", knobs(r, &td_module_gpt,
                                      "{\"n_layer\":1,\"n_head\":1,\"n_embd\":2,\"n_positions\":4,"
                                      "\"vocab_size\":32768}")};
    struct td_json *prompt = NULL;
    assert_ok(td_json_parse(r->arena, "[1,2]", 5, &prompt));
    r->config.batch_size = 2;
    r->config.limits.val_batches = (struct td_amount){0};
    r->config.stages = TD_STAGE_FIT | TD_STAGE_PREDICT;
    r->config.predict = (struct td_predict_config){
        .output = td_arena_printf(r->arena, "%s/out", dir),
        .prompt_tokens = prompt,
        .max_new_tokens = 12,
        .temperature = 1,
        .seed = 3,
    };
}

static void test_generated_tokens_are_the_references(void **state) {
    struct dirs d;
    struct job j = two_ranks;
    j.strategy = "single_device";
    j.world = 1;
    j.max_epochs = 1;
    j.change = change_gpt;
    run_everywhere(*state, j, &d);
    expect_same_file(d.far, d.reference, "out");
    expect_same_file(d.by_tensor, d.reference, "out");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_bits_are_the_references_with_one_rank),
        test_in_scratch(test_bits_are_the_references_when_two_ranks_average),
        test_in_scratch(test_bits_are_the_references_when_steps_are_gated),
        test_in_scratch(test_bits_are_those_of_one_run_when_resumed),
        test_in_scratch(test_bits_are_those_of_one_run_when_resumed_by_tensor),
        test_in_scratch(test_both_ranks_stop_at_one_step_when_one_is_asked),
        test_in_scratch(test_windows_are_whole_when_stopped_and_resumed),
        test_in_scratch(test_bits_are_the_references_when_weights_come_from_a_file),
        test_in_scratch(test_predictions_are_the_references),
        test_in_scratch(test_generated_tokens_are_the_references),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
