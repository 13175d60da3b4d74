// What an accelerator prepares before the first step: for each program the sets of segments that it
// is run with, whichever plugins take part in a step. They are what the loops then run, no more and
// no less, and where host code has the steps they are all that it may ask for. f forward, b
// backward, n finish, a apply.

#include "tests/unit/test.h"

#include "tests/unit/train/rank/ranks_rig.h"

// ---- far, which is watched ----------------------------------------------------------------------
enum { PROGRAMS = 16 };
static struct {
    struct td_executable *exe;
    struct td_program_key key;
    char sets[64];
    uint32_t prepared, ran; // bit i: the set of segments i
} program[PROGRAMS];
static size_t n_programs, n_prepared, n_runs;
static bool refuses;

static const struct td_accelerator_ops *base(void) {
    return td_accelerator_far.ops;
}

static td_status watched_compile(struct td_accelerator *a, const struct td_program *p,
                                 const struct td_bindings *b, struct td_executable **out) {
    TD_TRY(base()->compile(a, p, b, out));
    assert_true(n_programs < PROGRAMS && !n_prepared);
    memset(&program[n_programs], 0, sizeof program[0]);
    program[n_programs].exe = *out;
    program[n_programs++].key = p->key;
    return TD_OK;
}

// In the order in which they were compiled, after the last of them, and before the first run.
static td_status watched_prepare(struct td_executable *e, const uint32_t *sets, size_t n) {
    char *text = program[n_prepared].sets;
    assert_true(n_prepared < n_programs && program[n_prepared].exe == e && !n_runs);
    for (size_t i = 0; i < n; i++) {
        if (i) *text++ = ' ';
        for (int s = 0; s < TD_SEG_COUNT; s++) {
            if (sets[i] >> s & 1) *text++ = "fbna"[s];
        }
        program[n_prepared].prepared |= 1u << sets[i];
    }
    n_prepared++;
    if (refuses) return td_fail(TD_UNIMPLEMENTED, "no set but all of it");
    return base()->prepare(e, sets, n);
}

static td_status watched_run(struct td_executable *e, uint32_t segments,
                             const struct td_buffer *inputs, td_ticket *out_ticket) {
    n_runs++;
    for (size_t i = 0; i < n_programs; i++) {
        if (program[i].exe == e) program[i].ran |= 1u << (segments & TD_SEGS_ALL);
    }
    return base()->run(e, segments, inputs, out_ticket);
}

static struct td_accelerator_ops watched_ops;
static const struct td_plugin_desc watched =
    TD_PLUGIN_DESC(ACCELERATOR, "watched", "far, which is watched", &watched_ops);

// ---- a strategy with what a case has of it ------------------------------------------------------
enum { POST_BACKWARD = 1, STEP = 2, OWN_UPDATE = 4 };
static struct td_strategy_config of_strategy;
static struct td_strategy_ops own_ops;
static const struct td_plugin_desc own =
    TD_PLUGIN_DESC(STRATEGY, "own", "single_device with slots", &own_ops);

static td_status own_open(const struct td_strategy_config *config, struct td_strategy **out) {
    of_strategy = *config;
    return ((const struct td_strategy_ops *)td_strategy_single_device.ops)->open(config, out);
}

static td_status own_post_backward(struct td_strategy *s) {
    (void)s;
    return TD_OK;
}

static td_status own_step(struct td_strategy *s, enum td_strategy_step kind,
                          struct td_executable *exe, uint32_t segments,
                          const struct td_buffer *inputs, td_ticket *out_ticket) {
    (void)s, (void)kind;
    return of_strategy.accel_ops->run(exe, segments, inputs, out_ticket);
}

// At once the first time, then one after the other.
static td_status own_optimizer_step(struct td_strategy *s, struct td_executable *exe,
                                    uint32_t segments, const struct td_buffer *inputs,
                                    bool *out_stepped, td_ticket *out_ticket) {
    static int n;
    (void)s, (void)out_stepped;
    if (n++ == 0) return of_strategy.accel_ops->run(exe, segments, inputs, out_ticket);
    TD_TRY(of_strategy.accel_ops->run(exe, 1u << TD_SEG_FINISH, inputs, out_ticket));
    return of_strategy.accel_ops->run(exe, 1u << TD_SEG_APPLY, inputs, out_ticket);
}

// ---- cases --------------------------------------------------------------------------------------
struct fit {
    const char *name;
    unsigned slots;
    bool is_timed, counts, is_manual, has_no_norm;
    const char *precision;   // NULL: 32-true
    const char *adds, *ends; // of micro-batches that add to a window, and that end one
};
static const struct fit *fit; // that is tested
static char *scratch;

static void be_watched(struct run *r, const char *dir) {
    (void)dir;
    watched_ops = *base();
    watched_ops.compile = watched_compile;
    watched_ops.prepare = watched_prepare;
    watched_ops.run = watched_run;
    own_ops = *(const struct td_strategy_ops *)td_strategy_single_device.ops;
    own_ops.open = own_open;
    own_ops.post_backward = fit->slots & POST_BACKWARD ? own_post_backward : NULL;
    own_ops.step = fit->slots & STEP ? own_step : NULL;
    own_ops.optimizer_step = fit->slots & OWN_UPDATE ? own_optimizer_step : NULL;
    assert_ok(td_registry_add(r->registry, &watched));
    assert_ok(td_registry_add(r->registry, &own));
    if (fit->is_timed) r->config.trace_dir = scratch;
    if (fit->has_no_norm) r->config.optimizer.max_norm = 0;
    r->config.counts_tokens = fit->counts;
    r->config.manual = r->config.manual_accumulates = fit->is_manual;
    n_programs = n_prepared = n_runs = 0;
}

static td_status nothing(struct td_rank *r) {
    (void)r;
    return TD_OK;
}
static void *only_built(void *rank) {
    return be_a_rank(rank, nothing);
}

static struct job job_of_fit(void) {
    return (struct job){.accelerator = "watched",
                        .strategy = "own",
                        .precision = fit->precision ? fit->precision : "32-true",
                        .world = 1,
                        .accumulate = 2,
                        .max_epochs = 2,
                        .change = be_watched};
}

static const char *expected(const struct td_program_key *key) {
    if (key->mode != TD_MODE_TRAIN) return "fbna";
    return key->apply ? fit->ends : fit->adds;
}

#define BY_HOST_CODE "f fb fbn fbna b bn bna n na a"

static void test_sets_are_those_that_are_run(void **state) {
    static const struct fit rows[] = {
        {.name = "no plugin takes part", .adds = "fbna", .ends = "fbna"},
        {.name = "gate", .precision = "16-mixed", .adds = "fbna", .ends = "fbn a"},
        {.name = "hooks", .slots = POST_BACKWARD, .adds = "f b", .ends = "f b na"},
        {.name = "step", .slots = STEP, .adds = "fb", .ends = "fbna"},
        {.name = "update", .slots = OWN_UPDATE, .adds = "f b", .ends = "f b na n a"},
        {.name = "timeline", .is_timed = true, .adds = "f b n a", .ends = "f b n a"},
        {.name = "timeline of hooks",
         .is_timed = true,
         .slots = POST_BACKWARD,
         .adds = "f b",
         .ends = "f b n a"},
        {.name = "timeline of a step",
         .is_timed = true,
         .slots = STEP,
         .adds = "fb",
         .ends = "fbna"},
        {.name = "gate and hooks",
         .precision = "16-mixed",
         .slots = POST_BACKWARD,
         .adds = "f b",
         .ends = "f b n a"},
        {.name = "tokens", .counts = true, .adds = "fb", .ends = "fb na"},
        {.name = "host code", .is_manual = true, .ends = BY_HOST_CODE},
        {.name = "host code without a norm",
         .is_manual = true,
         .has_no_norm = true,
         .ends = "f fb fbna b bna na"},
        {.name = "host code and hooks",
         .is_manual = true,
         .slots = POST_BACKWARD,
         .ends = "f b n na a"},
        {.name = "host code and a gate",
         .is_manual = true,
         .has_no_norm = true,
         .precision = "16-mixed",
         .ends = "f fb fbn a b bn n"},
    };
    scratch = *state;
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        char dir[TD_FS_PATH_BYTES];
        fit = &rows[i];
        struct job j = job_of_fit();
        if (fit->is_manual) j.body = only_built;
        assert_ok(td_fs_path(dir, "%s/%zu", scratch, i));
        run_job(&j, dir);
        assert_int_equal(n_prepared, n_programs);
        assert_true(n_programs >= 2);
        assert_true(fit->is_manual == !n_runs);
        for (size_t p = 0; p < n_programs; p++) {
            if (strcmp(program[p].sets, expected(&program[p].key)) != 0) {
                fail_msg("%s: program %zu has '%s', not '%s'", fit->name, p, program[p].sets,
                         expected(&program[p].key));
            }
            if (!fit->is_manual) assert_int_equal(program[p].ran, program[p].prepared);
        }
    }
}

static void test_rank_ends_when_an_accelerator_cannot_prepare_a_program(void **state) {
    static const struct fit plain = {.name = "plain"};
    struct ranks all;
    (void)state;
    fit = &plain;
    refuses = true;
    const struct job j = job_of_fit();
    start_ranks(&all, &j, NULL);
    join_ranks(&all);
    assert_fails(all.rank[0].failed, TD_UNIMPLEMENTED,
                 "program train/train of batch 4: no set but all of it");
    assert_int_equal(n_prepared, 1);
    assert_int_equal(n_runs, 0);
    refuses = false;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_sets_are_those_that_are_run),
        cmocka_unit_test(test_rank_ends_when_an_accelerator_cannot_prepare_a_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
