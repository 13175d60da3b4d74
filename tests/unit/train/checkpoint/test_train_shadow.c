// Steps go on while a checkpoint is copied from a device: what goes to the host comes from a shadow
// of the state, which no run waits for. The far device makes such a copy when its ticket is waited
// for, so what is saved shows who wrote the shadow too early, or did not wait.
// Tags: tsan

#include "tests/unit/test.h"

#include <semaphore.h>

#include "lib/base/clock.h"
#include "tests/unit/train/rank/ranks_rig.h"

enum { STEPS = 16, SAVED = 4, GO_ON = 3 }; // a save every 4 steps; steps that pass in the first

static const struct td_accelerator_ops *base(void) {
    return td_accelerator_far.ops;
}

// ---- far, whose first checkpoint waits for steps ------------------------------------------------
static struct {
    uint64_t region[TD_ROLE_COUNT], shadow; // handles
    int to_shadow, to_host;                 // queued copies
    pthread_t training;
    td_ticket last_read;
    bool saves;  // the first copy was queued
    bool opened; // the gate
    bool runs;
    _Atomic int read; // runs, since the first save
    sem_t gate;
    int at_gate; // how many were read when the writer went on; -1: it waited in vain
    int frees;   // of the shadow
} seen;

static bool is_region(uint64_t handle) {
    for (int i = 0; i < TD_ROLE_COUNT; i++) {
        if (handle && seen.region[i] == handle) return true;
    }
    return false;
}

static td_status seen_state_alloc(struct td_accelerator *a, const struct td_state_table *state,
                                  enum td_role role, struct td_buffer *out_buffer) {
    TD_TRY(base()->state_alloc(a, state, role, out_buffer));
    seen.region[role] = out_buffer->handle;
    return TD_OK;
}

static void seen_mem_free(struct td_accelerator *a, struct td_buffer b) {
    seen.frees += b.handle == seen.shadow;
    base()->mem_free(a, b);
}

static td_status seen_copy_begin(struct td_accelerator *a, struct td_buffer dst, size_t dst_offset,
                                 struct td_buffer src, size_t src_offset, size_t bytes,
                                 td_ticket *out_ticket) {
    if (is_region(src.handle)) {
        assert_int_equal(dst.space, TD_SPACE_DEVICE);
        assert_true(!seen.shadow || seen.shadow == dst.handle);
        seen.shadow = dst.handle;
        seen.to_shadow++;
    } else {
        assert_int_equal(dst.space, TD_SPACE_HOST);
        assert_int_equal(src.handle, seen.shadow);
        seen.to_host++;
    }
    seen.saves = true;
    return base()->copy_begin(a, dst, dst_offset, src, src_offset, bytes, out_ticket);
}

static td_status seen_run(struct td_executable *e, uint32_t segments,
                          const struct td_buffer *inputs, td_ticket *out_ticket) {
    if (!seen.runs) seen.training = pthread_self();
    seen.runs = true;
    return base()->run(e, segments, inputs, out_ticket);
}

static td_status seen_wait(struct td_accelerator *a, td_ticket ticket, int64_t timeout_ns) {
    if (ticket && !pthread_equal(pthread_self(), seen.training) && !seen.opened) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += TD_TEST_WAIT_NS / TD_NS_PER_S;
        seen.opened = true;
        seen.at_gate = sem_timedwait(&seen.gate, &until) == 0 ? seen.read : -1;
        return base()->wait(a, ticket, timeout_ns);
    }
    TD_TRY(base()->wait(a, ticket, timeout_ns));
    if (!pthread_equal(pthread_self(), seen.training) || ticket <= seen.last_read) return TD_OK;
    seen.last_read = ticket;
    if (seen.saves && ++seen.read == GO_ON) sem_post(&seen.gate);
    return TD_OK;
}

static struct td_accelerator_ops seen_ops;
static struct td_plugin_desc seen_desc;

static void change(struct run *r, const char *dir) {
    (void)dir;
    r->config.data.knobs =
        knobs(r, &td_dataset_synthetic, "{\"samples\":64,\"features\":8,\"classes\":4}");
    r->config.limits.val_batches = (struct td_amount){0};
    r->config.limits.max_epochs = 1; // of 16 batches
    r->config.checkpoint.every_n_train_steps = SAVED;
    r->config.checkpoint.save_top_k = -1; // the next save waits, so none is left out
}

static struct job job_on(const char *accelerator) {
    return (struct job){.accelerator = accelerator,
                        .strategy = "single_device",
                        .precision = "32-true",
                        .world = 1,
                        .accumulate = 1,
                        .max_epochs = 1,
                        .change = change};
}

static void save_while_steps_go_on(const char *scratch, bool by_tensor) {
    char expected[TD_FS_PATH_BYTES], got[TD_FS_PATH_BYTES];
    assert_ok(td_fs_path(expected, "%s/reference", scratch));
    assert_ok(td_fs_path(got, "%s/far", scratch));
    struct job j = job_on("reference");
    assert_int_equal(run_job(&j, expected).step, STEPS);
    memset(&seen, 0, sizeof seen);
    assert_int_equal(sem_init(&seen.gate, 0, 0), 0);
    seen_ops = *base();
    seen_ops.state_alloc = seen_state_alloc;
    seen_ops.mem_free = seen_mem_free;
    seen_ops.copy_begin = seen_copy_begin;
    seen_ops.run = seen_run;
    seen_ops.wait = seen_wait;
    seen_desc = td_accelerator_far;
    seen_desc.name = "seen";
    seen_desc.ops = &seen_ops;
    j = job_on("seen");
    j.own = &seen_desc;
    j.by_tensor = by_tensor;
    assert_int_equal(run_job(&j, got).step, STEPS);
    assert_true(seen.at_gate >= GO_ON); // read while the first checkpoint was not copied yet
    assert_true(seen.to_shadow > seen.to_host);
    assert_int_equal(seen.to_host, STEPS / SAVED * 2); // two files
    assert_int_equal(seen.frees, 1);
    for (int64_t step = SAVED; step <= STEPS; step += SAVED) {
        expect_same(expected, got, step);
    }
    sem_destroy(&seen.gate);
}

static void test_steps_go_on_while_a_checkpoint_is_copied(void **state) {
    save_while_steps_go_on(*state, false);
}

static void test_steps_go_on_while_a_checkpoint_is_copied_by_tensor(void **state) {
    save_while_steps_go_on(*state, true);
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, td_test_scratch_make, td_test_scratch_remove)
    const struct CMUnitTest tests[] = {
        CASE(test_steps_go_on_while_a_checkpoint_is_copied),
        CASE(test_steps_go_on_while_a_checkpoint_is_copied_by_tensor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
