// Plugin registry: every reason to refuse a descriptor, the names in the errors, an older plugin's
// shorter table, and shared objects that are missing, broken, or lie about their name.

#include "lib/plugin/registry.h"
#include "lib/plugin/plugin_files.h"
#include "tests/unit/test.h"
#include "traind/accelerator.h"
#include "traind/collective.h"
#include "traind/dataset.h"
#include "traind/layout.h"
#include "traind/module.h"
#include "traind/precision.h"
#include "traind/strategy.h"

static td_status module_open(const struct td_json *knobs, const struct td_field *fields,
                             size_t n_fields, struct td_module **out_module) {
    (void)knobs, (void)fields, (void)n_fields, (void)out_module;
    return TD_OK;
}
static void module_close(struct td_module *m) {
    (void)m;
}
static td_status module_record(struct td_module *m, struct td_graph *g, int64_t batch) {
    (void)m, (void)g, (void)batch;
    return TD_OK;
}

static const struct td_module_ops good_ops = {
    .struct_bytes = sizeof good_ops,
    .open = module_open,
    .close = module_close,
    .record = module_record,
};
static const struct td_plugin_desc good =
    TD_PLUGIN_DESC(MODULE, "mlp_1", "a module for tests", &good_ops);

static void expect_refusal(struct td_plugin_desc desc, const char *text) {
    td_status s = td_plugin_check(&desc, "'x.so'");
    assert_string_equal(td_status_reason(s), "PLUGIN_REFUSED");
    assert_int_equal(td_status_class(s), TD_CLASS_BAD_SPEC); // the next attempt finds the same
    assert_non_null(strstr(td_status_message(s), "plugin 'x.so': "));
    assert_fails(s, TD_FAILED_PRECONDITION, text);
}

static void test_descriptor_of_an_older_abi_is_refused_with_both_majors(void **state) {
    char text[64];
    struct td_plugin_desc d = good;
    (void)state;
    d.abi_major = TD_ABI_MAJOR - 1;
    snprintf(text, sizeof text, "ABI %d.%d, this traind has %d.%d", TD_ABI_MAJOR - 1, TD_ABI_MINOR,
             TD_ABI_MAJOR, TD_ABI_MINOR);
    expect_refusal(d, text);
}

// Contract 20: what cannot be registered is refused
static void test_descriptor_is_refused_when_anything_is_wrong(void **state) {
    (void)state;
    assert_ok(td_plugin_check(&good, "x"));
    struct td_plugin_desc d = good;
    d.struct_bytes = 8;
    expect_refusal(d, "8 bytes");
    d = good, d.abi_major = TD_ABI_MAJOR + 1;
    expect_refusal(d, "ABI 6.0, this traind has 5.0");
    d = good, d.abi_minor = TD_ABI_MINOR + 1;
    expect_refusal(d, "ABI 5.1");
    d = good, d.kind = (enum td_plugin_kind)77;
    expect_refusal(d, "kind is 77");
    d = good, d.name = "";
    expect_refusal(d, "name");
    d = good, d.name = "UPPER";
    expect_refusal(d, "name");
    d = good, d.name = "../../x";
    expect_refusal(d, "name");
    d = good, d.name = "a_name_of_exactly_32_characters_";
    expect_refusal(d, "1 to 31");
    d = good, d.name = NULL;
    expect_refusal(d, "name");
    d = good, d.summary = NULL;
    expect_refusal(d, "summary");
    d = good, d.ops = NULL;
    expect_refusal(d, "ops");
    assert_fails(td_plugin_check(NULL, "x"), TD_FAILED_PRECONDITION, "no descriptor");
}

static void test_missing_slot_is_named_when_required(void **state) {
    (void)state;
    struct td_module_ops ops = good_ops;
    struct td_plugin_desc d = good;
    d.ops = &ops;
    ops.record = NULL;
    expect_refusal(d, "lacks the required slot 'record'");
    ops = good_ops;
    ops.struct_bytes = offsetof(struct td_module_ops, record); // too old to have it
    expect_refusal(d, "lacks the required slot 'record'");
    ops.struct_bytes = 0;
    expect_refusal(d, "lacks the required slot 'open'");
}

// ---- slots that belong together -----------------------------------------------------------------
// A slot that a check must not call; every one of a table is it.
static void never(void) {
    fail();
}

// A table where all slots are there but one.
static void expect_pair(enum td_plugin_kind kind, size_t ops_bytes, size_t without,
                        const char *text) {
    void (*const slot)(void) = never;
    void (*const none)(void) = NULL;
    _Alignas(uint64_t) char ops[1024];
    assert_true(ops_bytes <= sizeof ops);
    for (size_t at = 0; at < ops_bytes; at += sizeof slot) {
        memcpy(ops + at, at == without ? (const void *)&none : (const void *)&slot, sizeof slot);
    }
    const uint32_t bytes = (uint32_t)ops_bytes;
    memcpy(ops, &bytes, sizeof bytes);
    struct td_plugin_desc d = good;
    d.kind = kind;
    d.ops = ops;
    if (text) {
        expect_refusal(d, text);
    } else {
        assert_ok(td_plugin_check(&d, "x"));
    }
}

static void test_slot_is_refused_when_the_other_of_its_pair_is_missing(void **state) {
    (void)state;
#define ALONE(kind, type, without, other)                                                          \
    expect_pair(TD_PLUGIN_##kind, sizeof(struct type), offsetof(struct type, without),             \
                "has the slot '" #other "' but lacks '" #without "'; it needs both or none")
    ALONE(ACCELERATOR, td_accelerator_ops, host_alloc, host_free);
    ALONE(ACCELERATOR, td_accelerator_ops, host_free, host_alloc);
    ALONE(ACCELERATOR, td_accelerator_ops, choices, adopt_choices);
    ALONE(STRATEGY, td_strategy_ops, build_end, build_begin);
    ALONE(STRATEGY, td_strategy_ops, state_load, state_save);
    ALONE(PRECISION, td_precision_ops, state_save, state_load);
    ALONE(PRECISION, td_precision_ops, own_load, own_save);
#undef ALONE
    expect_pair(TD_PLUGIN_ACCELERATOR, sizeof(struct td_accelerator_ops),
                offsetof(struct td_accelerator_ops, elides), NULL);
}

// ---- the table of knobs -------------------------------------------------------------------------
static void expect_bad_knob(struct td_plugin_knob knob, const char *text) {
    struct td_plugin_knob knobs[] = {{"fine", TD_PLUGIN_KNOB_INT, 1, 2, NULL, "1", NULL, "x"},
                                     knob};
    struct td_plugin_desc d = good;
    d.knobs = knobs;
    d.n_knobs = TD_COUNTOF(knobs);
    expect_refusal(d, text);
}

static void test_table_of_knobs_is_refused_when_a_row_is_wrong(void **state) {
    (void)state;
    const struct td_plugin_knob width = {"width", TD_PLUGIN_KNOB_INT, 1, 8, "pixels", "3", NULL,
                                         "x"};
    struct td_plugin_knob k = width;
    struct td_plugin_desc d = good;
    d.knobs = &k, d.n_knobs = 1;
    assert_ok(td_plugin_check(&d, "x"));
    k = width, k.name = NULL;
    expect_bad_knob(k, "the name of knob 1 of 'mlp_1'");
    k = width, k.name = "2d";
    expect_bad_knob(k, "must be a letter");
    k = width, k.name = "fine";
    expect_bad_knob(k, "knob 'fine' (int) of 'mlp_1': it is there twice");
    k = width, k.type = TD_PLUGIN_KNOB_TYPE_COUNT;
    expect_bad_knob(k, "knob 'width' (unknown) of 'mlp_1': its type");
    k = width, k.min = 9;
    expect_bad_knob(k, "min must not be above max");
    k = width, k.prose = "";
    expect_bad_knob(k, "no prose");
    k = width, k.fallback = "";
    expect_bad_knob(k, "its fallback is empty");
    k = width, k.values = "a|b";
    expect_bad_knob(k, "values must be NULL");
    k = width, k.type = TD_PLUGIN_KNOB_ENUM;
    expect_bad_knob(k, "(enum) of 'mlp_1': values must be names");
    k.values = "a||b";
    expect_bad_knob(k, "values must be names");
    k.type = TD_PLUGIN_KNOB_INTS, k.values = "3..2";
    expect_bad_knob(k, "values must say how many");
    d.n_knobs = TD_PLUGIN_KNOBS_MAX + 1;
    expect_refusal(d, "'mlp_1' says it has 65 knobs; at most 64");
    d.knobs = NULL, d.n_knobs = 1;
    expect_refusal(d, "has no table of them");
}

static void expect_old(enum td_plugin_kind kind, const struct td_layout *layout, const char *text) {
    td_status s = td_plugin_check_layout(kind, layout, "'x.so'");
    assert_string_equal(td_status_reason(s), "PLUGIN_REFUSED");
    assert_fails(s, TD_FAILED_PRECONDITION, text);
}

static void test_shared_object_is_refused_when_it_was_built_for_other_ops(void **state) {
    (void)state;
    const struct td_layout *here = td_layout_here();
    struct td_layout l = *here;
    assert_ok(td_plugin_check_layout(TD_PLUGIN_ACCELERATOR, &l, "x"));
    expect_old(TD_PLUGIN_MODULE, NULL, "which ops it was built for: rebuild it");
    l.ops = "matmul mul ";
    expect_old(TD_PLUGIN_MODULE, &l, "when op 1 was 'mul', here that is 'add': rebuild it");
    char ops[8192];
    snprintf(ops, sizeof ops, "%slast ", here->ops);
    l.ops = ops; // newer than we are
    expect_old(TD_PLUGIN_MODULE, &l, "was 'last', here that is ''");
    l.ops = "matmul add "; // older: every number that it knows is ours
    assert_ok(td_plugin_check_layout(TD_PLUGIN_MODULE, &l, "x"));
    expect_old(TD_PLUGIN_ACCELERATOR, &l, "before the ops 'mul ");
    l = *here, l.dtypes = "f64 ";
    expect_old(TD_PLUGIN_DATASET, &l, "element type 0 was 'f64'");
    l = *here, l.attrs_bytes--;
    expect_old(TD_PLUGIN_STRATEGY, &l, "struct td_attrs had");
    l = *here, l.scalars_bytes /= 2; // of floats
    expect_old(TD_PLUGIN_ACCELERATOR, &l, "td_bindings.scalars had 64 bytes, here it has 128");
    l = *here, l.knob_bytes++;
    expect_old(TD_PLUGIN_MODULE, &l, "td_plugin_knob had");
    l = *here, l.region_bytes -= (uint32_t)sizeof(struct td_buffer); // a role less
    expect_old(TD_PLUGIN_STRATEGY, &l, "td_bindings.region had");
    l = *here, l.region_bytes = 0; // of a build whose layout ended there
    expect_old(TD_PLUGIN_STRATEGY, &l, "before struct td_bindings.region was compared");
    l = *here, l.bucket_tensor_bytes--;
    expect_old(TD_PLUGIN_COLLECTIVE, &l, "td_bucket_tensor had");
    l = *here, l.sum_range_bytes--;
    expect_old(TD_PLUGIN_ACCELERATOR, &l, "td_sum_range had");
    l = *here, l.collective_config_bytes = 0;
    expect_old(TD_PLUGIN_COLLECTIVE, &l, "before struct td_collective_config was compared");
    assert_ok(td_plugin_check_layout(TD_PLUGIN_STRATEGY, &l, "x"));
    l = *here, l.struct_bytes++;
    expect_old(TD_PLUGIN_MODULE, &l, "rebuild it");
}

// An accelerator whose every required slot is set and whose table ends before the optional tail.
static void test_short_table_is_extended_when_the_plugin_is_older(void **state) {
    (void)state;
    struct td_accelerator_ops ops;
    memset(&ops, 0x11, sizeof ops);
    ops.struct_bytes = offsetof(struct td_accelerator_ops, list_choices);
    struct td_plugin_desc d = good;
    d.kind = TD_PLUGIN_ACCELERATOR;
    d.ops = &ops;
    TD_AUTO(td_registry) *r = NULL;
    const struct td_plugin_desc *found;
    assert_ok(td_registry_create(NULL, &r));
    assert_ok(td_registry_add(r, &d));
    assert_ok(td_registry_find(r, TD_PLUGIN_ACCELERATOR, "mlp_1", &found));
    const struct td_accelerator_ops *copy = found->ops;
    assert_int_equal(copy->struct_bytes, sizeof *copy);
    assert_true(copy->release == ops.release);
    assert_true(copy->list_choices == NULL);
}

// Contract 20: names have no case
static void test_name_is_found_when_case_differs(void **state) {
    (void)state;
    TD_AUTO(td_registry) *r = NULL;
    const struct td_plugin_desc *found;
    assert_ok(td_registry_create(NULL, &r));
    assert_ok(td_registry_add(r, &good));
    assert_ok(td_registry_find(r, TD_PLUGIN_MODULE, "MLP_1", &found));
    assert_string_equal(found->name, "mlp_1");
    assert_fails(td_registry_find(r, TD_PLUGIN_DATASET, "mlp_1", &found), TD_NOT_FOUND, "none");
}

// Contract 20: a duplicate is refused
static void test_duplicate_is_refused_when_another_has_the_name(void **state) {
    (void)state;
    struct td_plugin_desc twin = good;
    TD_AUTO(td_registry) *r = NULL;
    assert_ok(td_registry_create(NULL, &r));
    assert_ok(td_registry_add(r, &good));
    assert_ok(td_registry_add(r, &good)); // the very same is no conflict
    assert_fails(td_registry_add(r, &twin), TD_ALREADY_EXISTS, "module named 'mlp_1'");
}

// Contract 20: an unknown name lists the choices
static void test_unknown_name_lists_the_known_when_looked_up(void **state) {
    TD_AUTO(td_registry) *r = NULL;
    const struct td_plugin_desc *found;
    char path[512];
    snprintf(path, sizeof path, "%s/module-broken.so", (char *)*state);
    assert_ok(td_fs_write(path, "no ELF", 6, 0600, 0));
    assert_ok(td_registry_create(*state, &r));
    assert_ok(td_registry_add(r, &good));
    td_status s = td_registry_find(r, TD_PLUGIN_MODULE, "gpt", &found);
    assert_string_equal(td_status_reason(s), "PLUGIN_UNKNOWN");
    assert_int_equal(td_status_class(s), TD_CLASS_BAD_SPEC);
    assert_fails(s, TD_NOT_FOUND, "no module 'gpt'; known are: mlp_1, broken");
    assert_fails(td_registry_find(r, TD_PLUGIN_MODULE, "../x", &found), TD_NOT_FOUND, "'../x'");
    assert_fails(td_registry_find(r, TD_PLUGIN_MODULE, "broken", &found), TD_FAILED_PRECONDITION,
                 "does not load here");
    assert_fails(td_registry_load(r, "broken.so", &found), TD_INVALID_ARGUMENT, "'/'");
    assert_fails(td_registry_load(r, "/no/such.so", &found), TD_FAILED_PRECONDITION, "/no/such.so");
}

static void test_digest_is_another_when_a_file_of_the_directory_is_replaced(void **state) {
    struct td_plugin_files f = {0};
    char path[512], before[TD_DIGEST_HEX];
    assert_false(td_plugin_files_look(&f, "/no/such/directory", ""));
    assert_string_equal(f.digest, "");
    snprintf(path, sizeof path, "%s/module-one.so", (char *)*state);
    assert_ok(td_fs_write(path, "first", 5, 0600, 0));
    assert_true(td_plugin_files_look(&f, *state, ""));
    assert_false(td_plugin_files_look(&f, *state, ""));
    memcpy(before, f.digest, sizeof before);
    assert_ok(td_fs_write(path, "other", 5, 0600, 0)); // as long, another inode
    assert_true(td_plugin_files_look(&f, *state, ""));
    assert_string_not_equal(f.digest, before);
    assert_ok(td_fs_write(path, "first", 5, 0600, 0));
    assert_true(td_plugin_files_look(&f, *state, ""));
    assert_string_equal(f.digest, before); // of bytes, not of times
    assert_int_equal(unlink(path), 0);
    assert_true(td_plugin_files_look(&f, *state, ""));
    assert_string_equal(f.digest, "");
}

static void test_digest_is_another_when_a_file_of_a_further_directory_is_replaced(void **state) {
    struct td_plugin_files f = {0}, alone = {0};
    char dir[512], path[600], more[1200];
    snprintf(dir, sizeof dir, "%s/more", (char *)*state);
    snprintf(path, sizeof path, "%s/mine.so", dir);
    snprintf(more, sizeof more, "/no/such/directory:%s", dir);
    assert_ok(td_fs_mkdirs(dir, 0700));
    assert_false(td_plugin_files_look(&f, *state, more));
    assert_string_equal(f.digest, "");
    assert_ok(td_fs_write(path, "first", 5, 0600, 0));
    assert_true(td_plugin_files_look(&f, *state, more));
    assert_false(td_plugin_files_look(&f, *state, more));
    assert_false(td_plugin_files_look(&alone, *state, ""));
    assert_ok(td_fs_write(path, "other", 5, 0600, 0));
    assert_true(td_plugin_files_look(&f, *state, more));
    assert_int_equal(unlink(path), 0);
    assert_true(td_plugin_files_look(&f, *state, more));
    assert_int_equal(rmdir(dir), 0);
    assert_string_equal(f.digest, "");
}

static td_status make(void *arg) {
    TD_AUTO(td_registry) *r = NULL;
    TD_TRY(td_registry_create(arg, &r));
    return td_registry_add(r, &good);
}

static void test_registry_fails_cleanly_when_out_of_memory(void **state) {
    td_test_failing_allocations(make, *state);
    td_registry_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_descriptor_of_an_older_abi_is_refused_with_both_majors),
        cmocka_unit_test(test_descriptor_is_refused_when_anything_is_wrong),
        cmocka_unit_test(test_missing_slot_is_named_when_required),
        cmocka_unit_test(test_slot_is_refused_when_the_other_of_its_pair_is_missing),
        cmocka_unit_test(test_table_of_knobs_is_refused_when_a_row_is_wrong),
        cmocka_unit_test(test_shared_object_is_refused_when_it_was_built_for_other_ops),
        cmocka_unit_test(test_short_table_is_extended_when_the_plugin_is_older),
        cmocka_unit_test(test_name_is_found_when_case_differs),
        cmocka_unit_test(test_duplicate_is_refused_when_another_has_the_name),
        test_in_scratch(test_unknown_name_lists_the_known_when_looked_up),
        test_in_scratch(test_digest_is_another_when_a_file_of_the_directory_is_replaced),
        test_in_scratch(test_digest_is_another_when_a_file_of_a_further_directory_is_replaced),
        test_in_scratch(test_registry_fails_cleanly_when_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
