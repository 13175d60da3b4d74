// What fails in a batch says where: the stage of an evaluation, the step whose weights it has, and
// the batch; in training the step. On the reference and on far alike.

#include "tests/unit/test.h"

#include <math.h>

#include "lib/base/files/files.h"
#include "tests/unit/train/rank/train_rig.h"

enum { BATCH = 4, STEPS = 2, FAILS_IN = 2 }; // batches of training; the batch, from 1

// ---- a dataset with one bad batch ---------------------------------------------------------------
enum damage { BAD_LABEL, NO_NUMBER, UNREADABLE };
static struct {
    enum damage how;
    enum td_split in;
} damage;

static td_status damaged_gather(struct td_dataset *d, enum td_split split, const int64_t *index,
                                int64_t n, void *const *out) {
    const struct td_dataset_ops *o = td_dataset_synthetic.ops;
    TD_TRY(o->gather(d, split, index, n, out));
    if (split != damage.in || index[0] / BATCH != FAILS_IN - 1) return TD_OK;
    switch (damage.how) {
    case BAD_LABEL:
        ((int32_t *)out[1])[1] = 77;
        return TD_OK;
    case NO_NUMBER:
        ((float *)out[0])[3] = NAN;
        return TD_OK;
    case UNREADABLE:
        break;
    }
    return td_fail(TD_DATA_LOSS, "the file has a hole");
}

static struct td_dataset_ops damaged_ops;
static struct td_plugin_desc damaged;

// ---- a device that fails in an evaluation -------------------------------------------------------
static int runs;
static td_status failing_run(struct td_executable *e, uint32_t segments,
                             const struct td_buffer *inputs, td_ticket *out_ticket) {
    const struct td_accelerator_ops *o = td_accelerator_far.ops;
    if (++runs == STEPS + FAILS_IN) {
        return td_status_with_class(td_fail(TD_INTERNAL, "the device fell off the bus"),
                                    TD_CLASS_DEVICE);
    }
    return o->run(e, segments, inputs, out_ticket);
}

static struct td_accelerator_ops failing_ops;
static struct td_plugin_desc failing;

// ---- cases -------------------------------------------------------------------------------------
static void prepare(struct run *r, unsigned stages, const char *accelerator, const char *dir) {
    damaged_ops = *(const struct td_dataset_ops *)td_dataset_synthetic.ops;
    damaged_ops.gather = damaged_gather;
    damaged = td_dataset_synthetic;
    damaged.name = "damaged";
    damaged.ops = &damaged_ops;
    failing_ops = *(const struct td_accelerator_ops *)td_accelerator_far.ops;
    failing_ops.run = failing_run;
    failing = td_accelerator_far;
    failing.name = "failing";
    failing.ops = &failing_ops;
    runs = 0;
    prepare_run(r, &damaged, "single_device", dir);
    assert_ok(td_registry_add(r->registry, &failing));
    r->config.accelerator = accelerator;
    r->config.data.name = "damaged";
    r->config.data.knobs = knobs(r, &td_dataset_synthetic,
                                 "{\"samples\":96,\"features\":8,\"classes\":4}"); // 12 of others
    r->config.shuffle = false;
    r->config.stages = stages;
    r->config.limits.accumulate[0].batches = 1;
    r->config.limits.max_steps = STEPS;
    r->config.limits.val_check_interval = (struct td_amount){.batches = STEPS};
    r->config.limits.predict_batches = r->config.limits.val_batches;
}

static void expect(struct run *r, enum td_code code, enum td_class class, const char *text) {
    struct td_train_result result;
    td_status s = td_train(&r->config, &r->io, &r->events, &result);
    assert_int_equal(td_status_class(s), class);
    assert_non_null(s);
    print_message("# %s\n", td_status_message(s));
    assert_int_equal(strncmp(td_status_message(s), text, strlen(text)), 0);
    assert_fails(s, code, text);
    dispose(r);
}

static const char *const accelerators[] = {"reference", "far"};

static void test_bad_label_is_named_with_stage_and_batch(void **state) {
    static const struct {
        unsigned stages;
        enum td_split split;
        const char *where;
    } cases[] = {
        {TD_STAGE_FIT, TD_SPLIT_TRAIN, "step 2 (epoch 0): step 'train': node "},
        {TD_STAGE_FIT, TD_SPLIT_VAL,
         "validation at step 2 (epoch 0), batch 2: step 'train': node "},
        {TD_STAGE_VALIDATE, TD_SPLIT_VAL,
         "validation at step 0 (epoch 0), batch 2: step 'train': node "},
        {TD_STAGE_TEST, TD_SPLIT_TEST, "test at step 0 (epoch 0), batch 2: step 'train': node "},
    };
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        for (size_t k = 0; k < TD_COUNTOF(accelerators); k++) {
            struct run r;
            prepare(&r, cases[i].stages, accelerators[k], *state);
            damage.how = BAD_LABEL;
            damage.in = cases[i].split;
            expect(&r, TD_INVALID_ARGUMENT, TD_CLASS_DATA, cases[i].where);
        }
    }
}

static void test_batch_before_the_first_step_is_one_of_the_sanity_check(void **state) {
    static const struct {
        int32_t sanity_batches; // the second is bad
        const char *where;
    } cases[] = {
        {0, "validation at step 2 (epoch 0), batch 2: "},
        {1, "validation at step 2 (epoch 0), batch 2: "},
        {2, "sanity check at step 0 (epoch 0), batch 2: "},
        {-1, "sanity check at step 0 (epoch 0), batch 2: "},
    };
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        struct run r;
        prepare(&r, TD_STAGE_FIT, "far", *state);
        r.config.limits.sanity_batches = cases[i].sanity_batches;
        damage.how = BAD_LABEL;
        damage.in = TD_SPLIT_VAL;
        expect(&r, TD_INVALID_ARGUMENT, TD_CLASS_DATA, cases[i].where);
    }
}

static void test_what_is_no_number_is_named_with_stage_and_batch(void **state) {
    for (size_t k = 0; k < TD_COUNTOF(accelerators); k++) {
        struct run r;
        prepare(&r, TD_STAGE_PREDICT, accelerators[k], *state);
        r.config.detect_anomaly = true;
        damage.how = NO_NUMBER;
        damage.in = TD_SPLIT_PREDICT;
        expect(&r, TD_FAILED_PRECONDITION, TD_CLASS_NUMERIC,
               "predict at step 0 (epoch 0), batch 2: anomaly: ");
    }
}

static void test_batch_that_cannot_be_read_is_named(void **state) {
    static const struct {
        unsigned stage;
        enum td_split split;
        const char *where;
    } cases[] = {
        {TD_STAGE_TEST, TD_SPLIT_TEST, "test at step 0 (epoch 0), batch 2: the file has a hole"},
        {TD_STAGE_PREDICT, TD_SPLIT_PREDICT,
         "predict at step 0 (epoch 0), batch 2: the file has a hole"},
    };
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        struct run r;
        prepare(&r, cases[i].stage, "far", *state);
        damage.how = UNREADABLE;
        damage.in = cases[i].split;
        expect(&r, TD_DATA_LOSS, TD_CLASS_DATA, cases[i].where);
    }
}

static void test_device_that_fails_in_a_validation_names_its_batch(void **state) {
    struct run r;
    prepare(&r, TD_STAGE_FIT, "failing", *state);
    damage.in = TD_SPLIT_COUNT; // none
    expect(&r, TD_INTERNAL, TD_CLASS_DEVICE,
           "validation at step 2 (epoch 0), batch 2: the device fell off the bus");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_bad_label_is_named_with_stage_and_batch),
        test_in_scratch(test_batch_before_the_first_step_is_one_of_the_sanity_check),
        test_in_scratch(test_what_is_no_number_is_named_with_stage_and_batch),
        test_in_scratch(test_batch_that_cannot_be_read_is_named),
        test_in_scratch(test_device_that_fails_in_a_validation_names_its_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
