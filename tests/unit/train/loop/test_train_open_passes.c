// Passes of several training steps that overlap, and updates that come after passes of others. The
// bits are those of a loop that ends each step before it begins the next.
//
// A script is what host code does with each batch, two letters a call: forward, backward, norm,
// update, value, zero; of the step that trains a, or b. The loss of b reads a, that of a reads a
// alone, so each script below moves both by the gradients of one place.

#include "tests/unit/test.h"

#include <stdatomic.h>
#include <string.h>

#include "engine/train/build.h"
#include "tests/unit/train/rank/pair_rig.h"
#include "traind/steps.h"

static const char *script;

static td_status play_call(struct td_steps *s, char call, const char *step) {
    double value;
    switch (call) {
    case 'f':
        return td_steps_forward(s, step);
    case 'b':
        return td_steps_backward_of(s, step);
    case 'n':
        return td_steps_clip_gradients(s, step, &value);
    case 'u':
        return td_steps_optimizer_step(s, step, NULL);
    case 'v':
        return td_steps_value(s, strcmp(step, "first") == 0 ? "loss_a" : "loss_b", &value);
    case 'z':
        return td_steps_zero_grad(s, step);
    default:
        return td_fail(TD_INTERNAL, "the script has '%c'", call);
    }
}

static td_status play_script(struct td_module *m, struct td_steps *s, int64_t batch_idx) {
    (void)m, (void)batch_idx;
    for (const char *c = script; *c; c += 2) {
        TD_TRY(play_call(s, c[0], c[1] == 'a' ? "first" : "second"));
    }
    return TD_OK;
}

static struct td_module_ops played_ops;
static const struct td_plugin_desc played =
    TD_PLUGIN_DESC(MODULE, "pair", "two steps in host code", &played_ops);

static void clip(struct run *r, const char *dir) {
    use_pair(r, dir);
    r->config.optimizer.max_norm = 0.125;
}

static struct job scripted(const char *accelerator, int32_t world, const char *calls, bool keeps) {
    name_steps();
    noise = true;
    played_ops = pair_ops;
    played_ops.training_step = play_script;
    played_ops.keeps_forwards = keeps;
    script = calls;
    return (struct job){.accelerator = accelerator,
                        .strategy = world > 1 ? "ddp" : "single_device",
                        .precision = "32-true",
                        .world = world,
                        .accumulate = 1,
                        .max_epochs = 2,
                        .own = &played,
                        .change = clip};
}

// ---- the same bits ------------------------------------------------------------------------------
static void expect_bits_of_steps_in_turn(const char *scratch, const char *accelerator,
                                         int32_t world, bool by_tensor) {
    static const struct {
        const char *calls;
        bool keeps;
    } rows[] = {
        {"fabafbbbuaub", false},      {"fabafbbbubua", false},      {"fabafbbbnauanbub", false},
        {"fafbbabbuaub", true},       {"fafbbbbaubua", true},       {"fafbbabbnauanbub", true},
        {"favafbvbbavbbbuaub", true}, {"fafbbazafabbbauaub", true}, // forgotten, and computed again
    };
    const int64_t end = world == 1 ? 16 : 8;
    char turns[4096], other[4200];
    struct job j = scripted(accelerator, world, "fbbbubfabaua", false);
    j.by_tensor = by_tensor;
    snprintf(turns, sizeof turns, "%s/%s%d%d", scratch, accelerator, (int)world, by_tensor);
    assert_int_equal(run_job(&j, turns).step, end);
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        j = scripted(accelerator, world, rows[i].calls, rows[i].keeps);
        j.by_tensor = by_tensor;
        snprintf(other, sizeof other, "%s-%zu", turns, i);
        assert_int_equal(run_job(&j, other).step, end);
        expect_same(turns, other, end);
    }
}

static void test_open_forwards_and_late_updates_leave_the_bits(void **state) {
    expect_bits_of_steps_in_turn(*state, "reference", 1, false);
    expect_bits_of_steps_in_turn(*state, "far", 1, false);
    expect_bits_of_steps_in_turn(*state, "far", 1, true);
}

static void test_open_forwards_and_late_updates_leave_the_bits_of_ranks(void **state) {
    expect_bits_of_steps_in_turn(*state, "reference", 2, false);
    expect_bits_of_steps_in_turn(*state, "far", 2, false);
}

// ---- votes --------------------------------------------------------------------------------------
static atomic_int n_voters;
static _Thread_local int voter; // from 1

// One rank says yes, in the middle of a pass.
static td_status play_votes(struct td_module *m, struct td_steps *s, int64_t batch_idx) {
    bool any = false, all = true;
    if (!voter) voter = ++n_voters;
    TD_TRY(td_steps_forward(s, "first"));
    TD_TRY(td_steps_decide(s, voter == 1, false, &any));
    TD_TRY(td_steps_backward(s));
    TD_TRY(td_steps_decide(s, voter == 1, true, &all));
    if (!any || all) return td_fail(TD_INTERNAL, "any %d, all %d", any, all);
    TD_TRY(td_steps_optimizer_step(s, "first", NULL));
    return play_script(m, s, batch_idx);
}

static void test_ranks_agree_when_one_of_them_votes_otherwise(void **state) {
    const struct job j = scripted("reference", RANKS, "fbbbub", false);
    n_voters = 0;
    played_ops.training_step = play_votes;
    assert_int_equal(run_job(&j, *state).step, 8);
    assert_int_equal(n_voters, RANKS);
}

// ---- memory -------------------------------------------------------------------------------------
static size_t arenas(bool keeps, int *out_n) {
    struct job j = scripted("reference", 1, "", keeps);
    struct rank k;
    struct td_rank *r;
    size_t bytes = 0;
    *out_n = 0;
    prepare_rank(&k, &j, NULL);
    clip(&k.run, NULL);
    assert_ok(td_rank_create(&k.run.config, &k.run.io, &k.run.events, &r));
    for (int i = 0; i < TD_STEPS_MAX; i++) {
        bytes += r->arena_memory[i].bytes;
        *out_n += r->arena_memory[i].bytes != 0;
    }
    td_rank_destroy(r);
    sem_destroy(&k.left);
    dispose(&k.run);
    return bytes;
}

static void test_steps_have_memory_of_their_own_only_where_forwards_are_kept(void **state) {
    (void)state;
    int n;
    const size_t shared = arenas(false, &n);
    assert_int_equal(n, 1);
    assert_true(arenas(true, &n) > shared);
    assert_int_equal(n, 2);
}

// ---- what cannot be -----------------------------------------------------------------------------
static void test_pass_that_was_ended_is_refused_with_what_ended_it(void **state) {
    static const struct {
        const char *calls;
        bool keeps;
        const char *wanted;
    } rows[] = {
        {"ba", true, "backward without a forward"},
        {"fafbba", false, "set keeps_forwards"},
        {"fafbbbubba", true, "an optimizer step has moved what its forward read"},
        {"fabauaba", true, "backward without a forward"},
        {"fababa", true, "a second backward"},
        {"fafbbabbnaub", true, "another optimizer step after the gradients of step 'first'"},
        {"fafbbabbnanb", true, "another norm after the gradients of step 'first'"},
        {"fabanafb", true, "forward after the gradients of step 'first' were clipped"},
        {"fafbbaub", true, "without a backward of it before"},
    };
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        struct job j = scripted("reference", 1, rows[i].calls, rows[i].keeps);
        struct ranks all;
        start_ranks(&all, &j, *state);
        join_ranks(&all);
        td_status s = all.rank[0].failed;
        assert_int_equal(td_status_class(s), TD_CLASS_USER_CODE);
        if (!strstr(td_status_message(s), rows[i].wanted)) {
            fail_msg("%s: '%s' lacks '%s'", rows[i].calls, td_status_message(s), rows[i].wanted);
        }
        td_status_free(s);
    }
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, td_test_scratch_make, td_test_scratch_remove)
    const struct CMUnitTest tests[] = {
        CASE(test_open_forwards_and_late_updates_leave_the_bits),
        CASE(test_open_forwards_and_late_updates_leave_the_bits_of_ranks),
        CASE(test_ranks_agree_when_one_of_them_votes_otherwise),
        CASE(test_steps_have_memory_of_their_own_only_where_forwards_are_kept),
        CASE(test_pass_that_was_ended_is_refused_with_what_ended_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
