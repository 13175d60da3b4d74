// Samples that are kept to validate on: torch's random_split, index for index
// (tests/golden/loop.json has what it makes), and what each split is then.

#include "accelerators/reference/reference.h"
#include "engine/train/rank/data/data.h"
#include "tests/unit/test.h"
#include "tests/unit/train/loop/golden.h"

enum { MOST = 64 };

// ---- a dataset of numbers -----------------------------------------------------------------------
static struct {
    int64_t n_train, n_own; // of the others
    size_t n_loaders;
} has;

static td_status numbers_open(const struct td_dataset_config *config,
                              struct td_dataset **out_dataset) {
    (void)config;
    *out_dataset = (struct td_dataset *)&has;
    return TD_OK;
}
static void numbers_close(struct td_dataset *d) {
    (void)d;
}
static size_t numbers_fields(struct td_dataset *d, struct td_field out_fields[8]) {
    (void)d;
    out_fields[0] = (struct td_field){.name = "x", .dtype = TD_I32};
    return 1;
}
static int64_t numbers_length(struct td_dataset *d, enum td_split split) {
    (void)d;
    return split == TD_SPLIT_TRAIN ? has.n_train : has.n_own;
}
// Those of other splits than train are 1000 and more.
static td_status numbers_gather(struct td_dataset *d, enum td_split split, const int64_t *index,
                                int64_t n, void *const *out) {
    for (int64_t i = 0; i < n; i++) {
        assert_in_range(index[i], 0, numbers_length(d, split) - 1);
        ((int32_t *)out[0])[i] = (int32_t)index[i] + (split == TD_SPLIT_TRAIN ? 0 : 1000);
    }
    return TD_OK;
}
static size_t numbers_loaders(struct td_dataset *d, enum td_split split,
                              int64_t out_samples[TD_LOADERS_MAX]) {
    (void)d;
    (void)split;
    out_samples[0] = has.n_own - 1;
    out_samples[1] = 1;
    return has.n_loaders;
}
static const struct td_dataset_ops numbers = {
    .struct_bytes = sizeof(struct td_dataset_ops),
    .open = numbers_open,
    .close = numbers_close,
    .fields = numbers_fields,
    .length = numbers_length,
    .gather = numbers_gather,
    .loaders = numbers_loaders,
};

static struct td_data *open_numbers(int64_t n_train, int64_t n_own) {
    const struct td_dataset_config config = {.struct_bytes = sizeof config};
    struct td_data *d;
    has.n_train = n_train;
    has.n_own = n_own;
    has.n_loaders = 2;
    assert_ok(td_data_open(td_accelerator_reference.ops, NULL, &numbers, &config, 4, &d));
    return d;
}

// What a rank of so many sees of a split, in its order.
static size_t read_all(struct td_data *d, enum td_split split, int32_t rank, int32_t world,
                       int32_t *out) {
    const struct td_sampler_config config = {
        .n_samples = td_data_length(d, split), .world_size = world, .ends = TD_SAMPLER_UNPADDED};
    size_t n_seen = 0;
    assert_ok(td_data_divide(d, split, rank, &config));
    for (int i = 0; i < td_data_n_loaders(d, split); i++) {
        const struct td_sampler *s = td_data_loader(d, split, i);
        for (int64_t at = 0; td_sampler_batches(s, at, 4) > 0; at = td_sampler_next(s, at, 4)) {
            struct td_buffer inputs[TD_DATA_FIELDS];
            int64_t n;
            assert_ok(td_data_batch(d, split, i, at, inputs, &n));
            assert_true(n_seen + (size_t)n <= MOST);
            memcpy(out + n_seen, td_buffer_host(inputs[0]), (size_t)n * sizeof *out);
            n_seen += (size_t)n;
        }
    }
    return n_seen;
}

static void assert_list(const struct td_json *list, const int32_t *seen, size_t n) {
    assert_int_equal(n, list->n_children);
    size_t i = 0;
    for (const struct td_json *v = list->first; v; v = v->next) {
        assert_int_equal(seen[i++], td_json_int(v, -1));
    }
}

static td_status hold_out(struct td_data *d, struct td_amount part, uint64_t seed) {
    const struct td_holdout_config config = {.part = part, .seed = seed};
    return td_data_hold_out(d, &config);
}

static void check_split(const struct td_json *row) {
    const struct td_json *split = td_json_get(row, "val_split");
    const bool is_fraction = split->kind == TD_JSON_REAL;
    const struct td_amount part = {.is_fraction = is_fraction,
                                   .fraction = td_json_real(split, 0),
                                   .batches = td_json_int(split, 0)};
    int32_t seen[MOST];
    TD_AUTO(td_data) *d = open_numbers(td_json_int(td_json_get(row, "n"), 0), 5);
    assert_ok(hold_out(d, part, (uint64_t)td_json_int(td_json_get(row, "seed"), 0)));
    size_t n = read_all(d, TD_SPLIT_TRAIN, 0, 1, seen);
    assert_list(td_json_get(row, "train"), seen, n);
    n = read_all(d, TD_SPLIT_VAL, 0, 1, seen);
    assert_list(td_json_get(row, "val"), seen, n);
}

static void test_parts_are_torch_s_when_golden(void **state) {
    (void)state;
    TD_AUTO(td_arena) *a = NULL;
    const struct td_json *root = td_golden_read("tests/golden/loop.json", &a);
    int rows = 0;
    for (const struct td_json *r = td_json_get(root, "splits")->first; r; r = r->next, rows++) {
        check_split(r);
    }
    assert_int_equal(rows, 20);
}

static void check_parts(bool keyed) {
    const struct td_holdout_config config = {.part = {.batches = 10}, .seed = 3, .keyed = keyed};
    int count[2][MOST] = {{0}};
    for (int32_t rank = 0; rank < 3; rank++) {
        TD_AUTO(td_data) *d = open_numbers(MOST, 0);
        int32_t seen[MOST];
        assert_ok(td_data_hold_out(d, &config));
        assert_int_equal(td_data_order_bytes(d), keyed ? 0 : MOST * sizeof(int64_t));
        for (int part = 0; part < 2; part++) {
            const enum td_split split = part ? TD_SPLIT_VAL : TD_SPLIT_TRAIN;
            const size_t n = read_all(d, split, rank, 3, seen);
            for (size_t i = 0; i < n; i++) {
                count[part][seen[i]]++;
            }
        }
    }
    int held_out = 0;
    for (int i = 0; i < MOST; i++) {
        assert_int_equal(count[0][i] + count[1][i], 1);
        held_out += count[1][i];
    }
    assert_int_equal(held_out, 10);
}

static void test_parts_are_disjoint_and_the_same_for_all_ranks(void **state) {
    (void)state;
    check_parts(false);
    check_parts(true);
}

static void test_other_splits_are_the_dataset_s_own_where_it_has_any(void **state) {
    (void)state;
    static const enum td_split others[] = {TD_SPLIT_TEST, TD_SPLIT_PREDICT};
    int32_t seen[MOST], held_out[MOST];
    for (int64_t n_own = 0; n_own <= 3; n_own += 3) {
        TD_AUTO(td_data) *d = open_numbers(20, n_own);
        assert_ok(hold_out(d, (struct td_amount){.batches = 6}, 3));
        assert_int_equal(td_data_length(d, TD_SPLIT_TRAIN), 14);
        assert_int_equal(read_all(d, TD_SPLIT_VAL, 0, 1, held_out), 6);
        assert_int_equal(td_data_n_loaders(d, TD_SPLIT_VAL), 1); // not those of the dataset
        for (size_t i = 0; i < TD_COUNTOF(others); i++) {
            const size_t n = read_all(d, others[i], 0, 1, seen);
            assert_int_equal(n, n_own ? n_own : 6);
            if (n_own) assert_int_equal(seen[0], 1000);
            if (!n_own) assert_memory_equal(seen, held_out, n * sizeof *seen);
        }
        assert_int_equal(td_data_n_loaders(d, TD_SPLIT_TEST), n_own ? 2 : 1);
    }
}

static void test_part_is_refused_when_one_of_both_would_be_empty(void **state) {
    (void)state;
    static const struct {
        int64_t n;
        struct td_amount part;
        const char *what;
    } rows[] = {
        {9, {.is_fraction = true, .fraction = 0.1}, "0.1 of 9 samples is none to validate on"},
        {9, {.is_fraction = true, .fraction = 1}, "1 of 9 samples leaves none to train on"},
        {9, {.batches = 9}, "9 of 9 samples leaves none to train on"},
        {9, {.batches = 10}, "10 of 9 samples leaves none to train on"},
        {0, {.batches = 1}, "1 of 0 samples is none to validate on"},
    };
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        TD_AUTO(td_data) *d = open_numbers(rows[i].n, 0);
        td_status s = hold_out(d, rows[i].part, 0);
        assert_int_equal(td_status_class(s), TD_CLASS_BAD_SPEC);
        assert_fails(s, TD_INVALID_ARGUMENT, rows[i].what);
        assert_int_equal(td_data_length(d, TD_SPLIT_TRAIN), rows[i].n);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_are_torch_s_when_golden),
        cmocka_unit_test(test_parts_are_disjoint_and_the_same_for_all_ranks),
        cmocka_unit_test(test_other_splits_are_the_dataset_s_own_where_it_has_any),
        cmocka_unit_test(test_part_is_refused_when_one_of_both_would_be_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
