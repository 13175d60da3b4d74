// What a validation measured, by the names that a monitor uses, and through a checkpoint's metrics.

#include "engine/train/checkpoint/manifest.h"
#include "engine/train/rank/scores/validated.h"
#include "tests/unit/test.h"

static void add(struct td_tallies *t, const char *name, double sum, double count) {
    struct td_tally *item = &t->item[t->n++];
    *item = (struct td_tally){.sum = sum, .count = count};
    snprintf(item->name, sizeof item->name, "%s", name);
}

// Two loaders, of which the second is better, and two metrics.
static struct td_validated measured(void) {
    struct td_validated v = {.n_loaders = 2};
    add(&v.all, "loss", 30, 10);
    add(&v.all, "accuracy", 5, 10);
    add(&v.loader[0], "loss", 28, 7);
    add(&v.loader[0], "accuracy", 2, 7);
    add(&v.loader[1], "loss", 2, 3);
    add(&v.loader[1], "accuracy", 3, 3);
    return v;
}

static void expect(const struct td_validated *v, const char *name, double sum, double count) {
    const struct td_tally *t = td_validated_find(v, name);
    if (!t) fail_msg("there is no %s", name);
    assert_true(t->sum == sum && t->count == count);
}

static void test_metric_is_found_by_the_name_that_a_monitor_has(void **state) {
    (void)state;
    const struct td_validated v = measured();
    expect(&v, "val_loss", 30, 10);
    expect(&v, "val_loss/0", 28, 7);
    expect(&v, "val_accuracy/1", 3, 3);
    static const char *const none[] = {"loss",       "val_loss/2",     "val_loss/",
                                       "val_loss/x", "val_perplexity", "train_loss"};
    for (size_t i = 0; i < TD_COUNTOF(none); i++) {
        assert_null(td_validated_find(&v, none[i]));
    }
}

static void test_loaders_come_back_when_a_checkpoint_is_resumed(void **state) {
    (void)state;
    const struct td_validated v = measured();
    struct td_manifest m = {0};
    td_manifest_add_metric(&m, "train_loss_step", 7, 7);
    td_validated_describe(&v, &m);
    assert_int_equal(m.n_metrics, 7);
    assert_true(td_manifest_metric(&m, "val_loss/1") == 2.0 / 3);
    struct td_validated again;
    td_validated_recall(&again, &m, 2);
    expect(&again, "val_loss", 30, 10);
    expect(&again, "val_loss/0", 28, 7);
    expect(&again, "val_accuracy/1", 3, 3);
    assert_int_equal(again.all.n, 2);
}

// Then nothing ends with the number of a loader, whatever a module calls its metrics.
static void test_names_stay_whole_when_a_split_has_one_loader(void **state) {
    (void)state;
    struct td_validated v = {0};
    struct td_manifest m = {0};
    add(&v.all, "top/1", 4, 8);
    td_validated_describe(&v, &m);
    struct td_validated again;
    td_validated_recall(&again, &m, 1);
    expect(&again, "val_top/1", 4, 8);
    assert_int_equal(again.n_loaders, 0);
}

static void test_a_full_manifest_holds_what_every_loader_gives(void **state) {
    (void)state;
    struct td_validated v = {.n_loaders = TD_LOADERS_MAX};
    struct td_manifest m = {0};
    for (int i = 0; i < TD_TALLIES; i++) {
        char name[8];
        snprintf(name, sizeof name, "m%d", i);
        td_manifest_add_metric(&m, name, i, 1); // of the step, and of the epoch
        td_manifest_add_metric(&m, name, i, 1);
        add(&v.all, name, i, 1);
        for (int k = 0; k < TD_LOADERS_MAX; k++) {
            add(&v.loader[k], name, 10 * k + i, 1);
        }
    }
    td_validated_describe(&v, &m);
    assert_int_equal(m.n_metrics, (3 + TD_LOADERS_MAX) * TD_TALLIES);
    assert_true(td_manifest_metric(&m, "val_m7/7") == 77);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_metric_is_found_by_the_name_that_a_monitor_has),
        cmocka_unit_test(test_loaders_come_back_when_a_checkpoint_is_resumed),
        cmocka_unit_test(test_names_stay_whole_when_a_split_has_one_loader),
        cmocka_unit_test(test_a_full_manifest_holds_what_every_loader_gives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
