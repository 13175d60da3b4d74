// A strategy that acts between the segments of a step, on a device: what its hooks see and write is
// what the queue has done by then. The bits are those of the same strategy on the reference.

#include "tests/unit/test.h"

#include "tests/unit/ranks_rig.h"

#define TIMEOUT_NS (60 * TD_NS_PER_S)

// ---- a strategy with hooks ----------------------------------------------------------------------
// Of the rank whose thread it is.
static _Thread_local struct {
    struct td_strategy_config config;
    const struct td_state_table *state;
    const struct td_strategy_memory *memory;
    char calls[256];
    size_t n;
} mine;
// Of both, when they are done.
static char calls[RANKS][sizeof mine.calls];

static const struct td_strategy_ops *base(void) {
    return td_strategy_ddp.ops;
}

static void note(char c) {
    assert_true(mine.n + 1 < sizeof mine.calls);
    mine.calls[mine.n++] = c;
}

static td_status hooked_open(const struct td_strategy_config *config, struct td_strategy **out) {
    memset(&mine, 0, sizeof mine);
    mine.config = *config;
    return base()->open(config, out);
}

static td_status hooked_place(struct td_strategy *s, const struct td_state_table *state,
                              struct td_strategy_memory *memory) {
    mine.state = state;
    mine.memory = memory;
    return base()->place(s, state, memory);
}

static td_status hooked_teardown(struct td_strategy *s) {
    memcpy(calls[mine.config.global_rank], mine.calls, sizeof mine.calls);
    return base()->teardown ? base()->teardown(s) : TD_OK;
}

// Each value of a role, times `factor`; with 1 it is looked at alone. Their number that are not 0.
static td_status scale(enum td_role role, float factor, size_t *out_n) {
    const struct td_strategy_config *c = &mine.config;
    float values[64];
    *out_n = 0;
    for (uint32_t i = 0; i < td_state_count(mine.state); i++) {
        const struct td_state_info *t = td_state_at(mine.state, i);
        if (t->role != role) continue;
        const struct td_buffer here = td_buffer_of_host(values, sizeof values);
        const struct td_buffer there = mine.memory->region[role];
        assert_true(t->bytes <= sizeof values && t->dtype == TD_F32);
        TD_TRY(c->accel_ops->copy(c->accel, here, 0, there, t->offset, t->bytes));
        for (size_t k = 0; k < t->bytes / sizeof *values; k++) {
            *out_n += values[k] != 0;
            values[k] *= factor;
        }
        TD_TRY(c->accel_ops->copy(c->accel, there, t->offset, here, 0, t->bytes));
    }
    return TD_OK;
}

static td_status hooked_pre_backward(struct td_strategy *s) {
    size_t n;
    (void)s;
    note('<');
    return scale(TD_ROLE_PARAM, 1, &n);
}

static td_status hooked_post_backward(struct td_strategy *s) {
    size_t n;
    (void)s;
    note('>');
    TD_TRY(scale(TD_ROLE_GRAD, 0.5f, &n));
    assert_true(n > 0); // the backward segment has run
    return TD_OK;
}

static td_status hooked_optimizer_step(struct td_strategy *s, struct td_executable *exe,
                                       const void *const *inputs, td_ticket *out_ticket) {
    const struct td_strategy_config *c = &mine.config;
    size_t n;
    (void)s;
    note('o');
    TD_TRY(c->accel_ops->run(exe, 1u << TD_SEG_FINISH, inputs, out_ticket));
    TD_TRY(c->accel_ops->wait(c->accel, *out_ticket, TIMEOUT_NS));
    TD_TRY(scale(TD_ROLE_PARAM, 0.999f, &n));
    return c->accel_ops->run(exe, 1u << TD_SEG_APPLY, inputs, out_ticket);
}

static struct td_strategy_ops hooked_ops;
static const struct td_plugin_desc hooked =
    TD_PLUGIN_DESC(STRATEGY, "hooked", "ddp, with something to do in each step", &hooked_ops);

// ---- cases -------------------------------------------------------------------------------------
static void change(struct run *r, const char *dir) {
    (void)dir;
    r->config.limits.val_batches = (struct td_amount){0};
}

static int64_t run_hooked(const char *scratch, const char *name, const char *accelerator,
                          bool by_tensor, char dir[TD_FS_PATH_BYTES]) {
    const struct job j = {.accelerator = accelerator,
                          .strategy = "hooked",
                          .precision = "32-true",
                          .world = RANKS,
                          .accumulate = 2,
                          .max_epochs = 3,
                          .own = &hooked,
                          .change = change,
                          .by_tensor = by_tensor};
    assert_ok(td_fs_path(dir, "%s/%s", scratch, name));
    memset(calls, 0, sizeof calls);
    const int64_t steps = run_job(&j, dir).step;
    // 2 batches a window, one window an epoch.
    assert_string_equal(calls[0], "<><>o<><>o<><>o");
    assert_string_equal(calls[1], calls[0]);
    return steps;
}

static void test_hooks_of_a_strategy_leave_the_bits_of_the_reference(void **state) {
    char reference[TD_FS_PATH_BYTES], far[TD_FS_PATH_BYTES], by_tensor[TD_FS_PATH_BYTES];
    hooked_ops = *base();
    hooked_ops.open = hooked_open;
    hooked_ops.place = hooked_place;
    hooked_ops.teardown = hooked_teardown;
    hooked_ops.pre_backward = hooked_pre_backward;
    hooked_ops.post_backward = hooked_post_backward;
    hooked_ops.optimizer_step = hooked_optimizer_step;
    const int64_t steps = run_hooked(*state, "reference", "reference", false, reference);
    assert_int_equal(run_hooked(*state, "far", "far", false, far), steps);
    assert_int_equal(run_hooked(*state, "by-tensor", "far", true, by_tensor), steps);
    expect_same(far, reference, steps);
    expect_same(by_tensor, reference, steps);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_hooks_of_a_strategy_leave_the_bits_of_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
