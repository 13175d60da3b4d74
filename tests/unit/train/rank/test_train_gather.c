// A gather in the middle of a program: two ranks whose loss is over the samples of both train as
// one rank that has them all.

#include "tests/unit/test.h"

#include <math.h>
#include <string.h>

#include "engine/train/checkpoint/safetensors.h"
#include "tests/unit/train/rank/fields_rig.h"
#include "tests/unit/train/rank/ranks_rig.h"
#include "traind/gather.h"

enum { FEATURES = 8, SAMPLES = 4 };

// ---- a module -----------------------------------------------------------------------------------
// z = x w; the loss is the variance of z over the samples of all ranks, where those of rank 1 count
// twice. Without the gradient of the gather each rank would take those of the others for constants.
static bool gathers_two;    // a collection: z, and its double
static bool gathers_labels; // which are integers, and what the samples count by

// 1 + label of all samples, and 1 where labels arrive as they were sent. They are sent as they are,
// and times an integer that makes most of them no numbers of fp32.
static td_status count_by_label(struct td_graph *g, td_value y, const struct td_shape *one,
                                td_value *out_times, td_value *out_exact) {
    const double times = 8388609, ones[SAMPLES] = {1, 1, 1, 1};
    td_value large, sent, off, alone;
    TD_TRY(td_build_cast(g, y, TD_F64, times, &large));
    TD_TRY(td_build_cast(g, large, TD_I32, 0, &large));
    TD_TRY(td_build_all_gather(g, large, &large));
    TD_TRY(td_build_all_gather(g, y, &y));
    assert_int_equal(td_graph_value(g, y)->dtype, TD_I32);
    TD_TRY(td_build_cast(g, large, TD_F64, 0, &large));
    TD_TRY(td_build_cast(g, y, TD_F64, times, &sent));
    TD_TRY(td_build_sub(g, large, sent, &off));
    TD_TRY(td_build_mul(g, off, off, &off));
    TD_TRY(td_build_mean(g, off, &off));
    TD_TRY(td_build_cast(g, off, TD_F32, 0, &off));
    TD_TRY(td_build_cast(g, y, TD_F32, 0, &y));
    TD_TRY(td_build_reshape(g, y, one, &y));
    TD_TRY(td_build_constant(g, TD_F32, one, ones, &alone));
    TD_TRY(td_build_add(g, y, alone, out_times));
    TD_TRY(td_build_mean(g, alone, &alone));
    return td_build_add(g, off, alone, out_exact);
}

static td_status variance(struct td_graph *g, td_value z, td_value y, int64_t batch,
                          td_value *out_loss) {
    const int64_t all = batch * td_graph_world_size(g);
    const struct td_shape rows = {2, {all, FEATURES}}, row = {2, {1, FEATURES}},
                          one = {2, {all, 1}};
    // One rank has the samples of two by turns.
    const double by_turns[SAMPLES] = {1, 2, 1, 2}, by_rank[SAMPLES] = {1, 1, 2, 2};
    td_value mean, times, exact;
    assert_int_equal(all, SAMPLES);
    TD_TRY(td_build_all_gather(g, z, &z));
    TD_TRY(td_build_reshape(g, z, &rows, &z));
    TD_TRY(td_build_constant(g, TD_F32, &one, all == batch ? by_turns : by_rank, &times));
    if (gathers_labels) TD_TRY(count_by_label(g, y, &one, &times, &exact));
    TD_TRY(td_build_mul(g, z, times, &z));
    TD_TRY(td_build_reduce_mean(g, z, &row, &mean));
    TD_TRY(td_build_sub(g, z, mean, &z));
    TD_TRY(td_build_mul(g, z, z, &z));
    TD_TRY(td_build_mean(g, z, out_loss));
    return gathers_labels ? td_build_mul(g, *out_loss, exact, out_loss) : TD_OK;
}

static td_status spread_record(struct td_module *m, struct td_graph *g, int64_t batch) {
    const struct td_shape in = {2, {batch, FEATURES}}, label = {1, {batch}};
    const struct td_shape square = {2, {FEATURES, FEATURES}};
    const struct td_init random = {TD_INIT_UNIFORM, -0.5, 0.5};
    td_value x, y, w, z, loss, more;
    TD_TRY(td_graph_input(g, m->x.name, m->x.dtype, &in, &x));
    TD_TRY(td_graph_input(g, m->y.name, m->y.dtype, &label, &y));
    TD_TRY(td_graph_param(g, "w", TD_F32, &square, random, &w));
    TD_TRY(td_build_matmul(g, x, w, 0, NULL, &z));
    TD_TRY(variance(g, z, y, batch, &loss));
    if (gathers_two) {
        TD_TRY(td_build_add(g, z, z, &more));
        TD_TRY(variance(g, more, y, batch, &more));
        TD_TRY(td_build_add(g, loss, more, &loss));
    }
    TD_TRY(td_graph_output(g, "loss", loss, TD_OUTPUT_MEAN));
    return td_graph_loss(g, loss);
}

static const struct td_module_ops spread_ops = {
    .struct_bytes = sizeof spread_ops,
    .open = fields_open,
    .close = fields_close,
    .record = spread_record,
};
static const struct td_plugin_desc spread =
    TD_PLUGIN_DESC(MODULE, "spread", "a variance over all ranks", &spread_ops);

// ---- one rank and two ---------------------------------------------------------------------------
static void use_spread(struct run *r, const char *dir) {
    (void)dir;
    assert_ok(td_registry_add(r->registry, &td_precision_bf16_mixed));
    r->config.model = (struct td_part){"spread", NULL};
    r->config.batch_size = r->config.world_size == 1 ? 4 : 2;
    r->config.limits.val_batches = (struct td_amount){0};
    r->config.optimizer.kind = TD_OPTIMIZER_SGD;
    r->config.optimizer.attrs = (struct td_optim_attrs){0};
    r->config.optimizer.lr = 0.5;
    r->config.optimizer.max_norm = 0;
}

static struct job job_of(const char *accelerator, const char *precision, int32_t world) {
    return (struct job){.accelerator = accelerator,
                        .strategy = world > 1 ? "ddp" : "single_device",
                        .precision = precision,
                        .world = world,
                        .accumulate = 1,
                        .max_epochs = 2,
                        .own = &spread,
                        .change = use_spread};
}

static void train(const char *scratch, const char *accelerator, const char *precision,
                  int32_t world, float out[FEATURES * FEATURES]) {
    char dir[4200], path[4300];
    struct td_safetensors *file;
    const struct job j = job_of(accelerator, precision, world);
    snprintf(dir, sizeof dir, "%s/%s-%s-%d%d%d", scratch, accelerator, precision, (int)world,
             gathers_two, gathers_labels);
    assert_int_equal(run_job(&j, dir).step, 8);
    snprintf(path, sizeof path, "%s/step-8/model.safetensors", dir);
    assert_ok(td_safetensors_open(path, &file));
    const struct td_tensor *t = td_safetensors_at(file, 0);
    assert_int_equal(t->bytes, FEATURES * FEATURES * sizeof(float));
    memcpy(out, t->data, t->bytes);
    td_safetensors_close(file);
}

static void expect_near(const char *scratch, const char *accelerator, const char *precision,
                        float tolerance) {
    float one[FEATURES * FEATURES], two[FEATURES * FEATURES];
    train(scratch, accelerator, precision, 1, one);
    train(scratch, accelerator, precision, 2, two);
    for (int i = 0; i < FEATURES * FEATURES; i++) {
        if (fabsf(one[i] - two[i]) > tolerance) {
            fail_msg("w[%d] on %s is %g with one rank, %g with two", i, accelerator, (double)one[i],
                     (double)two[i]);
        }
    }
}

static void expect_one(const char *scratch, const char *accelerator) {
    expect_near(scratch, accelerator, "32-true", 1e-5F);
    for (int32_t world = 1; world <= 2; world++) {
        const struct job j = job_of(accelerator, "32-true", world);
        say_over_job(&j);
    }
}

// Contract 6: a gather with sync_grads sends each rank the gradients of all
static void test_ranks_train_as_one_when_their_loss_is_over_all_samples(void **state) {
    gathers_two = gathers_labels = false;
    expect_one(*state, "reference");
    expect_one(*state, "far");
}

// Contract 6: a collection is gathered tensor by tensor
static void test_ranks_train_as_one_when_a_collection_is_gathered(void **state) {
    gathers_two = true;
    gathers_labels = false;
    expect_one(*state, "reference");
}

// Contract 6: integers arrive as they are, also where floats have 16 bits
static void test_ranks_train_as_one_when_labels_of_all_are_gathered(void **state) {
    gathers_two = false;
    gathers_labels = true;
    expect_one(*state, "reference");
    expect_one(*state, "far");
    expect_near(*state, "reference", "bf16-mixed", 1e-2F);
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, td_test_scratch_make, td_test_scratch_remove)
    const struct CMUnitTest tests[] = {
        CASE(test_ranks_train_as_one_when_their_loss_is_over_all_samples),
        CASE(test_ranks_train_as_one_when_a_collection_is_gathered),
        CASE(test_ranks_train_as_one_when_labels_of_all_are_gathered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
