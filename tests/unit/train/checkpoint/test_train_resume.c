// A run that goes on from a checkpoint: which one ranks take that each read for themselves, and
// what the run says of it. Tags: tsan

#include "engine/train/rank/state/resume.h"

#include <string.h>

#include "tests/unit/test.h"

#include "engine/train/build.h"
#include "engine/train/rank/group/group.h"
#include "tests/unit/train/rank/ranks_rig.h"
#include "traind/strategy.h"

// ---- one checkpoint for all ---------------------------------------------------------------------
struct td_strategy {
    char unused;
};

static td_status apart_open(const struct td_strategy_config *config, struct td_strategy **out) {
    static struct td_strategy only;
    (void)config;
    *out = &only;
    return TD_OK;
}

static void apart_close(struct td_strategy *s) {
    (void)s;
}

static td_status apart_environment(struct td_strategy *s, struct td_strategy_facts *out_facts) {
    (void)s;
    out_facts->restore_optimizer = true;
    return TD_OK;
}

static td_status apart_load(struct td_strategy *s, struct td_checkpoint_call *io_call) {
    (void)s;
    io_call->roles = 1u << TD_ROLE_PARAM | 1u << TD_ROLE_BUFFER | 1u << TD_ROLE_OPTIM;
    return TD_OK;
}

static const struct td_strategy_ops apart_ops = {.struct_bytes = sizeof apart_ops,
                                                 .open = apart_open,
                                                 .close = apart_close,
                                                 .environment = apart_environment,
                                                 .load_checkpoint = apart_load};
static const struct td_plugin_desc apart =
    TD_PLUGIN_DESC(STRATEGY, "apart", "every rank reads", &apart_ops);

// What each rank may go on from, newest first; what it took; why it failed.
enum { SOURCES = 2 };
static const char *sources[RANKS][SOURCES];
static char taken[RANKS][TD_FS_PATH_BYTES];
static int64_t begins[RANKS];
static enum td_code failed[RANKS];

static void give_sources(struct run *r, const char *dir) {
    (void)dir;
    r->config.resume_from = sources[r->config.rank];
    r->config.n_resume_from = sources[r->config.rank][1] ? 2 : 1;
}

static void *begin(void *rank) {
    struct rank *k = rank;
    struct td_rank *r = NULL;
    const int32_t i = k->run.config.rank;
    td_status s = td_rank_create(&k->run.config, &k->run.io, &k->run.events, &r);
    failed[i] = td_status_code(s);
    if (!s) {
        begins[i] = r->start.step;
        snprintf(taken[i], sizeof taken[i], "%s", r->restored.path);
        s = td_rank_finish(r);
    }
    td_rank_destroy(r);
    k->failed = s;
    return NULL;
}

static struct job job_of(const char *strategy, int32_t max_epochs) {
    return (struct job){.accelerator = "reference",
                        .strategy = strategy,
                        .precision = "32-true",
                        .world = RANKS,
                        .accumulate = 1,
                        .max_epochs = max_epochs};
}

static void change_seed(struct run *r, const char *dir) {
    (void)dir;
    r->config.seed = 7;
}

// The last checkpoint of a job of its own.
static void save(const char *base, const char *name, int32_t max_epochs, bool other_seed,
                 char out_path[TD_FS_PATH_BYTES]) {
    char dir[TD_FS_PATH_BYTES];
    struct job j = job_of("ddp", max_epochs);
    if (other_seed) j.change = change_seed;
    assert_ok(td_fs_path(dir, "%s/%s", base, name));
    const struct td_train_result done = run_job(&j, dir);
    assert_ok(td_fs_path(out_path, "%s/step-%lld", dir, (long long)done.step));
}

static void begin_all(struct ranks *all) {
    struct job j = job_of("apart", 3);
    j.own = &apart;
    j.change = give_sources;
    j.body = begin;
    start_ranks(all, &j, NULL);
    join_ranks(all);
}

static void test_ranks_that_read_take_the_newest_that_all_of_them_have(void **state) {
    char older[TD_FS_PATH_BYTES], newer[TD_FS_PATH_BYTES], other[TD_FS_PATH_BYTES];
    save(*state, "older", 1, false, older);
    save(*state, "newer", 2, false, newer);
    save(*state, "other", 2, true, other); // the step of the newer, and other bytes
    const struct {
        const char *of[RANKS][SOURCES], *want;
    } cases[] = {
        {{{newer, older}, {newer, older}}, newer},
        {{{newer, older}, {"/nowhere", older}}, older},
        {{{"/nowhere", older}, {newer, older}}, older},
        {{{newer, older}, {older}}, older},
        {{{newer, older}, {other, older}}, older},
    };
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        struct ranks all;
        memcpy(sources, cases[i].of, sizeof sources);
        begin_all(&all);
        for (int k = 0; k < RANKS; k++) {
            assert_ok(all.rank[k].failed);
            assert_string_equal(taken[k], cases[i].want);
            assert_true(begins[k] == begins[0] && begins[k] > 0);
        }
    }
}

static void test_ranks_without_a_checkpoint_in_common_do_not_begin(void **state) {
    char older[TD_FS_PATH_BYTES], newer[TD_FS_PATH_BYTES];
    struct ranks all;
    save(*state, "older", 1, false, older);
    save(*state, "newer", 2, false, newer);
    memset(sources, 0, sizeof sources);
    sources[0][0] = older;
    sources[1][0] = newer;
    begin_all(&all);
    assert_int_equal(failed[1], TD_DATA_LOSS);
    assert_true(failed[0] != TD_CODE_OK);
    for (int k = 0; k < RANKS; k++) {
        td_status_free(all.rank[k].failed);
    }
}

// ---- what is said -------------------------------------------------------------------------------
static void test_no_reason_is_left_out_when_all_are_long(void **state) {
    (void)state;
    static struct td_resume_reasons reasons;
    char all[TD_RESUME_BYTES];
    for (; reasons.n < TD_RESUME_REASONS; reasons.n++) {
        memset(reasons.text[reasons.n], 'a' + (int)reasons.n, TD_RESUME_REASON_BYTES - 1);
    }
    td_resume_join(&reasons, all);
    for (size_t i = 0; i < reasons.n; i++) {
        assert_non_null(strstr(all, reasons.text[i]));
    }
    assert_int_equal(strlen(all), TD_RESUME_REASONS * (TD_RESUME_REASON_BYTES + 1) - 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_ranks_that_read_take_the_newest_that_all_of_them_have,
                                        td_test_scratch_make, td_test_scratch_remove),
        cmocka_unit_test_setup_teardown(test_ranks_without_a_checkpoint_in_common_do_not_begin,
                                        td_test_scratch_make, td_test_scratch_remove),
        cmocka_unit_test(test_no_reason_is_left_out_when_all_are_long),
    };
    return cmocka_run_group_tests_name("train_resume", tests, NULL, NULL);
}
