// A strategy that puts a loader of its own around that of a split: batches come from it, in
// training and in evaluations. One that hands on what it gets leaves the bits. What it changes is
// trained. One that gives what no program was recorded for ends the job, and is named.

#include "tests/unit/test.h"

#include <string.h>

#include "engine/train/checkpoint/safetensors.h"
#include "tests/unit/train/rank/ranks_rig.h"

enum { FIELDS_BYTES = 4096 };

enum kind {
    HANDS_ON, // copies of its own
    DOUBLES,  // the inputs
    ONE_LESS,
    NO_FIELD,
    SHORT_FIELD,
    FAR_FIELD,
    FAILS,
    NO_LOADER,
    OTHER_LOADER,
};

static enum kind kind;
static enum td_split spoiled;
// Of the rank whose thread it is.
static _Thread_local struct wrapped {
    enum td_split split;
    const struct td_loader *inner;
    int64_t n_batches;
    float fields[2][2][FIELDS_BYTES / sizeof(float)]; // of two calls
} mine[TD_SPLIT_COUNT];
static int64_t n_batches[RANKS][TD_SPLIT_COUNT];
static _Thread_local int32_t own_rank;

static td_status batch(void *self, int32_t loader, int64_t offset, struct td_buffer *out_fields,
                       int64_t *out_n) {
    struct wrapped *w = self;
    struct td_buffer from[8] = {{0}};
    const bool spoils = w->split == spoiled;
    float(*to)[FIELDS_BYTES / sizeof(float)] = w->fields[w->n_batches++ % 2];
    if (spoils && kind == FAILS) return td_fail(TD_INTERNAL, "the wrapper's own words");
    if (spoils && kind == OTHER_LOADER) loader = 3;
    TD_TRY(w->inner->batch(w->inner->self, loader, offset, from, out_n));
    assert_int_equal(from[0].bytes, (size_t)*out_n * 8 * sizeof(float)); // x has 8 features
    assert_int_equal(from[1].bytes, (size_t)*out_n * sizeof(int32_t));
    for (int i = 0; i < 2; i++) {
        memcpy(to[i], td_buffer_host(from[i]), from[i].bytes);
        out_fields[i] = td_buffer_of_host(to[i], FIELDS_BYTES);
    }
    for (int64_t i = 0; spoils && kind == DOUBLES && i < *out_n * 8; i++) {
        to[0][i] *= 2;
    }
    if (spoils && kind == NO_FIELD) out_fields[1] = (struct td_buffer){0};
    if (spoils && kind == SHORT_FIELD) out_fields[0].bytes = from[0].bytes - 1;
    if (spoils && kind == FAR_FIELD) out_fields[0].space = TD_SPACE_DEVICE;
    *out_n -= spoils && kind == ONE_LESS;
    return TD_OK;
}

static td_status wrapping_wrap_loader(struct td_strategy *s, enum td_split split,
                                      const struct td_loader *inner, struct td_loader *out_loader) {
    (void)s;
    assert_int_equal(out_loader->struct_bytes, sizeof *out_loader);
    if (split == spoiled && kind == NO_LOADER) return TD_OK;
    mine[split] = (struct wrapped){.split = split, .inner = inner};
    out_loader->self = &mine[split];
    out_loader->batch = batch;
    return TD_OK;
}

static const struct td_strategy_ops *base(void) {
    return td_strategy_ddp.ops;
}

static td_status wrapping_open(const struct td_strategy_config *config, struct td_strategy **out) {
    own_rank = config->global_rank;
    return base()->open(config, out);
}

static td_status wrapping_teardown(struct td_strategy *s) {
    for (int i = 0; i < TD_SPLIT_COUNT; i++) {
        n_batches[own_rank][i] = mine[i].n_batches;
    }
    return base()->teardown ? base()->teardown(s) : TD_OK;
}

static struct td_strategy_ops wrapping_ops;
static const struct td_plugin_desc wrapping =
    TD_PLUGIN_DESC(STRATEGY, "wrapping", "ddp, with loaders of its own", &wrapping_ops);

// ---- cases --------------------------------------------------------------------------------------
static void wrap(enum kind how, enum td_split split) {
    kind = how;
    spoiled = split;
    wrapping_ops = *base();
    wrapping_ops.open = wrapping_open;
    wrapping_ops.wrap_loader = wrapping_wrap_loader;
    wrapping_ops.teardown = wrapping_teardown;
}

static struct job job_of(const char *strategy, const char *accelerator, int32_t world) {
    return (struct job){.accelerator = accelerator,
                        .strategy = strategy,
                        .precision = "32-true",
                        .world = world,
                        .accumulate = 1,
                        .max_epochs = 2,
                        .own = &wrapping};
}

static void test_loader_that_hands_batches_on_leaves_the_bits(void **state) {
    static const struct {
        const char *accelerator;
        int32_t world;
    } rows[] = {{"reference", 1}, {"reference", 2}, {"far", 2}};
    wrap(HANDS_ON, TD_SPLIT_TRAIN);
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        char plain[TD_FS_PATH_BYTES], wrapped[TD_FS_PATH_BYTES];
        struct job j = job_of("ddp", rows[i].accelerator, rows[i].world);
        assert_ok(td_fs_path(plain, "%s/plain-%zu", (char *)*state, i));
        assert_ok(td_fs_path(wrapped, "%s/wrapped-%zu", (char *)*state, i));
        memset(n_batches, 0, sizeof n_batches);
        const int64_t step = run_job(&j, plain).step;
        j.strategy = "wrapping";
        assert_int_equal(run_job(&j, wrapped).step, step);
        expect_same(wrapped, plain, step);
        for (int32_t r = 0; r < rows[i].world; r++) {
            assert_true(n_batches[r][TD_SPLIT_TRAIN] >= step);
            assert_true(n_batches[r][TD_SPLIT_VAL] > 0);
        }
    }
}

static void first_weights(const char *dir, int64_t step, float out[8]) {
    char path[TD_FS_PATH_BYTES];
    struct td_safetensors *file;
    assert_ok(td_fs_path(path, "%s/step-%lld/model.safetensors", dir, (long long)step));
    assert_ok(td_safetensors_open(path, &file));
    memcpy(out, td_safetensors_at(file, 0)->data, 8 * sizeof *out);
    td_safetensors_close(file);
}

static void test_what_a_loader_changes_is_trained(void **state) {
    char dir[2][TD_FS_PATH_BYTES];
    float weights[2][8];
    for (int i = 0; i < 2; i++) {
        const struct job j = job_of("wrapping", "reference", 1);
        wrap(i ? DOUBLES : HANDS_ON, TD_SPLIT_TRAIN);
        assert_ok(td_fs_path(dir[i], "%s/%d", (char *)*state, i));
        first_weights(dir[i], run_job(&j, dir[i]).step, weights[i]);
    }
    assert_memory_not_equal(weights[0], weights[1], sizeof weights[0]);
}

static void test_loader_is_named_when_its_batch_cannot_be_trained_on(void **state) {
    static const struct {
        enum kind kind;
        enum td_split split;
        const char *words;
        enum td_class cls;
    } rows[] = {
        {ONE_LESS, TD_SPLIT_TRAIN,
         "the strategy's loader of split train gives 3 samples at sample 0, where the loader that "
         "it wraps has 4",
         TD_CLASS_USER_CODE},
        {ONE_LESS, TD_SPLIT_VAL,
         "the strategy's loader of split val gives 1 sample at sample 0, where the loader that it "
         "wraps has 2",
         TD_CLASS_USER_CODE},
        {NO_FIELD, TD_SPLIT_TRAIN,
         "gives 0 bytes of field 'y' in host memory at sample 0, where 4 samples have 16",
         TD_CLASS_USER_CODE},
        {SHORT_FIELD, TD_SPLIT_TRAIN,
         "gives 127 bytes of field 'x' in host memory at sample 0, where 4 samples have 128",
         TD_CLASS_USER_CODE},
        {FAR_FIELD, TD_SPLIT_VAL,
         "gives 0 bytes of field 'x' in host memory at sample 0, where 2 samples have 64",
         TD_CLASS_USER_CODE},
        {NO_LOADER, TD_SPLIT_TRAIN,
         "strategy 'wrapping' wraps the loader of split train, but gives no loader back",
         TD_CLASS_USER_CODE},
        {OTHER_LOADER, TD_SPLIT_VAL, "a batch at sample 0 of loader 3, where split val has 1",
         TD_CLASS_USER_CODE},
        {FAILS, TD_SPLIT_TRAIN, "the wrapper's own words", TD_CLASS_INTERNAL},
    };
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        struct ranks all;
        const struct job j = job_of("wrapping", "reference", 1);
        wrap(rows[i].kind, rows[i].split);
        start_ranks(&all, &j, *state);
        join_ranks(&all);
        td_status s = all.rank[0].failed;
        assert_non_null(s);
        if (!strstr(td_status_message(s), rows[i].words)) fail_msg("%s", td_status_message(s));
        assert_int_equal(td_status_class(s), rows[i].cls);
        td_status_free(s);
    }
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, td_test_scratch_make, td_test_scratch_remove)
    const struct CMUnitTest tests[] = {
        CASE(test_loader_that_hands_batches_on_leaves_the_bits),
        CASE(test_what_a_loader_changes_is_trained),
        CASE(test_loader_is_named_when_its_batch_cannot_be_trained_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
