// A strategy sees the precision that it is opened with: its name and its facts. A plan that tries
// another one opens the strategy again, and the comm hook, while data and module stay. So no plugin
// keeps what was closed, and what the precision or the strategy refuses is refused then, too.

#include "tests/unit/test.h"

#include <stdarg.h>
#include <string.h>

#include "comm_hooks/comm_hooks.h"
#include "engine/train/plan/sizes.h"
#include "tests/unit/train/rank/ranks_rig.h"
#include "traind/comm_hook.h"

// ---- plugins that say what is called ------------------------------------------------------------
static char calls[2048];

__attribute__((format(printf, 1, 2))) static void say(const char *fmt, ...) {
    const size_t len = strlen(calls);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(calls + len, sizeof calls - len, fmt, ap);
    va_end(ap);
}

static struct td_strategy_config shown;

static void say_precision(const char *what) {
    struct td_precision_facts facts = {.struct_bytes = sizeof facts};
    assert_non_null(shown.precision_ops);
    assert_ok(shown.precision_ops->facts(shown.precision, &facts));
    say("%s %s %s %s\n", what, shown.precision_name, td_dtype_name(facts.param),
        td_dtype_name(facts.compute));
}

static const struct td_strategy_ops *base(void) {
    return td_strategy_ddp.ops;
}

static td_status reader_open(const struct td_strategy_config *config, struct td_strategy **out) {
    shown = *config;
    say_precision("+strategy");
    return base()->open(config, out);
}

static void reader_close(struct td_strategy *s) {
    if (s) say_precision("-strategy"); // it is there until now
    base()->close(s);
}

static td_status reader_share(struct td_strategy *s, enum td_split split,
                              struct td_strategy_shard *out_shard) {
    (void)s;
    say(" share %s\n", td_split_name(split));
    *out_shard = (struct td_strategy_shard){.n_replicas = shown.world_size};
    return TD_OK;
}

static td_status reader_wrap(struct td_strategy *s, enum td_split split,
                             const struct td_loader *inner, struct td_loader *out_loader) {
    (void)s;
    say(" wrap %s\n", td_split_name(split));
    *out_loader = *inner;
    return TD_OK;
}

static td_status reader_connect(struct td_strategy *s, const struct td_module_ops *ops,
                                struct td_module *module) {
    (void)s, (void)ops, (void)module;
    say(" connect\n");
    return TD_OK;
}

static td_status reader_update(struct td_strategy *s, struct td_executable *exe, uint32_t segments,
                               const struct td_buffer *inputs, bool *out_stepped,
                               td_ticket *out_ticket) {
    (void)s, (void)exe, (void)segments, (void)inputs, (void)out_stepped, (void)out_ticket;
    return td_fail(TD_UNIMPLEMENTED, "nothing runs here");
}

static struct td_strategy_ops reader_ops;
static const struct td_plugin_desc reader =
    TD_PLUGIN_DESC(STRATEGY, "reader", "ddp that reads the precision", &reader_ops);

static const struct td_precision_ops *plain(void) {
    return td_precision_fp16_true.ops;
}

struct td_precision {
    int opened;
};
static int n_opened, last_opened; // 0: none is open

static td_status half_open(const struct td_precision_config *config, struct td_precision **out) {
    (void)config;
    struct td_precision *p = td_calloc(1, sizeof *p);
    if (!p) return td_fail_oom();
    p->opened = last_opened = ++n_opened;
    say("+half\n");
    *out = p;
    return TD_OK;
}

static void half_close(struct td_precision *p) {
    if (!p) return;
    say("-half\n");
    last_opened = 0;
    free(p);
}

static td_status half_facts(struct td_precision *p, struct td_precision_facts *out_facts) {
    assert_int_equal(p->opened, last_opened);
    return plain()->facts(NULL, out_facts); // fp16_true keeps nothing
}

static struct td_precision_ops half_ops;
static const struct td_plugin_desc half =
    TD_PLUGIN_DESC(PRECISION, "half", "fp16_true that says when it is open", &half_ops);

static const struct td_comm_hook_ops *sender(void) {
    return td_comm_hook_bf16.ops;
}

static td_status hook_open(const struct td_comm_hook_config *config, struct td_comm_hook **out) {
    say("+hook\n");
    return sender()->open(config, out);
}

static void hook_close(struct td_comm_hook *h) {
    say("-hook\n");
    sender()->close(h);
}

static struct td_comm_hook_ops hook_ops;
static const struct td_plugin_desc hook =
    TD_PLUGIN_DESC(COMM_HOOK, "heard", "bf16 that says when it is open", &hook_ops);

// ---- cases --------------------------------------------------------------------------------------
// Before prepare: the registry keeps the tables as they are then.
static void fill_tables(void) {
    calls[0] = '\0';
    reader_ops = *base();
    reader_ops.open = reader_open;
    reader_ops.close = reader_close;
    half_ops = *plain();
    half_ops.open = half_open;
    half_ops.close = half_close;
    half_ops.facts = half_facts;
    hook_ops = *sender();
    hook_ops.open = hook_open;
    hook_ops.close = hook_close;
}

static void prepare(struct run *r, int32_t world, const char *precision) {
    prepare_run(r, &reader, "reader", NULL);
    assert_ok(td_registry_add(r->registry, &half));
    assert_ok(td_registry_add(r->registry, &hook));
    r->config.world_size = world;
    r->config.collective = world > 1 ? "shm" : "local";
    r->config.precision = precision;
}

static void plan_with_all(struct run *r, struct td_rank **out) {
    fill_tables();
    reader_ops.process_dataloader = reader_share;
    reader_ops.wrap_loader = reader_wrap;
    reader_ops.connect = reader_connect;
    prepare(r, 2, "half");
    r->config.comm_hook = (struct td_part){"heard", NULL};
    assert_ok(td_rank_create_plan(&r->config, &r->io, &r->events, out));
}

static size_t parameter_bytes(const struct td_rank *r) {
    return td_state_region_bytes(r->state, TD_ROLE_PARAM);
}

#define DATA " share train\n wrap train\n share val\n wrap val\n share test\n wrap test\n connect\n"

static void expect_calls(const char *text) {
    assert_string_equal(calls, text);
    calls[0] = '\0';
}

static void test_strategy_of_a_run_sees_the_precision_as_the_spec_names_it(void **state) {
    static const struct {
        const char *precision, *calls;
    } rows[] = {
        {"32-true", "+strategy 32-true f32 f32\n-strategy 32-true f32 f32\n"},
        {"bf16-mixed", "+strategy bf16-mixed f32 bf16\n-strategy bf16-mixed f32 bf16\n"},
        {"half", "+half\n+strategy half f16 f16\n-strategy half f16 f16\n-half\n"},
    };
    (void)state;
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        struct run r;
        struct td_train_result result;
        fill_tables();
        prepare(&r, 1, rows[i].precision);
        assert_ok(td_train(&r.config, &r.io, &r.events, &result));
        expect_calls(rows[i].calls);
        dispose(&r);
    }
}

static void test_plan_opens_the_strategy_again_with_each_precision_that_it_tries(void **state) {
    struct run r;
    struct td_rank *rank = NULL;
    struct td_sizes sizes;
    (void)state;
    plan_with_all(&r, &rank);
    expect_calls("+half\n+strategy half f16 f16\n+hook\n" DATA);
    const size_t narrow = parameter_bytes(rank);
    assert_ok(td_rank_replan(rank, "32-true"));
    expect_calls("-hook\n-strategy half f16 f16\n-half\n+strategy 32-true f32 f32\n+hook\n" DATA);
    assert_true(parameter_bytes(rank) > narrow);
    assert_ok(td_sizes_measure(rank, &sizes));
    assert_ok(td_rank_replan(rank, "half"));
    expect_calls("-hook\n-strategy 32-true f32 f32\n+half\n+strategy half f16 f16\n+hook\n" DATA);
    assert_int_equal(parameter_bytes(rank), narrow);
    td_rank_destroy(rank);
    expect_calls("-hook\n-strategy half f16 f16\n-half\n");
    dispose(&r);
}

static void test_plan_that_failed_under_a_precision_can_be_made_under_another(void **state) {
    struct run r;
    struct td_rank *rank = NULL;
    (void)state;
    plan_with_all(&r, &rank);
    calls[0] = '\0';
    assert_fails(td_rank_replan(rank, "quarter"), TD_NOT_FOUND, "quarter");
    expect_calls("-hook\n-strategy half f16 f16\n-half\n");
    assert_ok(td_rank_replan(rank, "half"));
    expect_calls("+half\n+strategy half f16 f16\n+hook\n" DATA);
    assert_fails(td_rank_replan(rank, "quarter"), TD_NOT_FOUND, "quarter");
    td_rank_destroy(rank);
    dispose(&r);
}

// Of a precision that is there from the beginning, and of one that a plan tries.
static void
test_precision_that_skips_steps_is_refused_beside_a_strategy_that_takes_them(void **state) {
    static const char text[] = "strategy 'reader' has an optimizer_step of its own, and precision "
                               "'16-mixed' may skip steps";
    struct run r;
    struct td_rank *rank = NULL;
    struct td_train_result result;
    (void)state;
    fill_tables();
    reader_ops.optimizer_step = reader_update;
    prepare(&r, 1, "16-mixed");
    assert_fails(td_train(&r.config, &r.io, &r.events, &result), TD_INVALID_ARGUMENT, text);
    assert_fails(td_rank_create_plan(&r.config, &r.io, &r.events, &rank), TD_INVALID_ARGUMENT,
                 text);
    r.config.precision = "32-true";
    assert_ok(td_rank_create_plan(&r.config, &r.io, &r.events, &rank));
    assert_fails(td_rank_replan(rank, "16-mixed"), TD_INVALID_ARGUMENT, text);
    td_rank_destroy(rank);
    dispose(&r);
}

// ---- several ranks ------------------------------------------------------------------------------
static void choose_precision(struct run *r, const char *dir) {
    (void)dir;
    if (r->config.rank == 1) r->config.precision = "quarter";
}

// Before it has a strategy, which would wake them.
static void test_peers_are_woken_when_a_rank_fails_at_its_precision(void **state) {
    const struct job j = {.accelerator = "reference",
                          .strategy = "ddp",
                          .precision = "32-true",
                          .world = 2,
                          .accumulate = 1,
                          .max_epochs = 1,
                          .change = choose_precision};
    struct ranks all;
    (void)state;
    const int64_t began = td_mono_now().ns;
    start_ranks(&all, &j, NULL);
    join_ranks(&all);
    assert_true(td_mono_now().ns - began < TD_TEST_WAIT_NS);
    assert_fails(all.rank[1].failed, TD_NOT_FOUND, "quarter");
    assert_int_equal(td_status_code(all.rank[0].failed), TD_ABORTED);
    td_status_free(all.rank[0].failed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strategy_of_a_run_sees_the_precision_as_the_spec_names_it),
        cmocka_unit_test(test_plan_opens_the_strategy_again_with_each_precision_that_it_tries),
        cmocka_unit_test(test_plan_that_failed_under_a_precision_can_be_made_under_another),
        cmocka_unit_test(
            test_precision_that_skips_steps_is_refused_beside_a_strategy_that_takes_them),
        cmocka_unit_test(test_peers_are_woken_when_a_rank_fails_at_its_precision),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
