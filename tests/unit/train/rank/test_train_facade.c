// A rank one call at a time: the stages in which it is built, then steps by hand. What is called
// out of turn is refused, and the weights are those of the loop.

#include "tests/unit/test.h"

#include <math.h>
#include <string.h>

#include "engine/train/build.h"
#include "engine/train/checkpoint/safetensors.h"
#include "engine/train/rank/data/data.h"
#include "engine/train/rank/group/group.h"
#include "engine/train/rank/programs/batches.h"
#include "engine/train/rank/state/tensor.h"
#include "engine/train/rank/step.h"
#include "tests/unit/train/rank/ranks_rig.h"

enum { WEIGHTS = 64 };

static float weights[RANKS][WEIGHTS];
static double norms[RANKS];

static td_status build(struct run *r, struct td_rank **out_rank) {
    static td_status (*const stages[])(struct td_rank *) = {
        td_rank_setup_environment,
        td_rank_connect,
        td_rank_setup,
        td_rank_pre_dispatch,
    };
    static const enum td_rank_phase phases[] = {TD_PHASE_LOADING_DEVICES, TD_PHASE_LOADING_MODEL,
                                                TD_PHASE_LOADING_WEIGHTS, TD_PHASE_LOADING_KERNELS};
    TD_TRY(td_rank_begin(&r->config, &r->io, &r->events, out_rank));
    for (size_t i = 0; i < TD_COUNTOF(stages); i++) {
        for (size_t other = 0; other < TD_COUNTOF(stages); other++) {
            if (other == i) continue;
            td_status s = stages[other](*out_rank); // changes nothing
            assert_int_equal(td_status_code(s), TD_FAILED_PRECONDITION);
            assert_non_null(strstr(td_status_message(s), "out of turn"));
            td_status_free(s);
        }
        TD_TRY(stages[i](*out_rank));
        assert_int_equal(atomic_load(&r->io.page->phase), phases[i]); // what it was at last
    }
    td_status s = td_rank_connect(*out_rank);
    assert_non_null(strstr(td_status_message(s), "nothing is left to build"));
    td_status_free(s);
    return TD_OK;
}

// training_step, clip_gradients, optimizer_step: forward and backward, the norm, the update.
static td_status step(struct td_rank *r, const struct td_epoch *epoch, int64_t batch) {
    struct td_buffer gathered[TD_DATA_FIELDS], inputs[TD_DATA_FIELDS];
    struct td_rank_run run;
    int64_t n;
    const int64_t offset = batch * r->config->batch_size * r->facts.world_size;
    TD_TRY(td_data_batch(r->data, TD_SPLIT_TRAIN, 0, offset, gathered, &n));
    TD_TRY(td_rank_hook(r, TD_HOOK_TRAIN_BATCH_START, batch));
    TD_TRY(td_rank_move_batch(r, 0, gathered, inputs));
    const struct td_program_key key = td_rank_train_key(r, 0, epoch, batch, n);
    static const uint32_t parts[] = {1 << TD_SEG_FORWARD | 1 << TD_SEG_BACKWARD, 1 << TD_SEG_FINISH,
                                     1 << TD_SEG_APPLY};
    r->scalars[TD_SCALAR_LR] = (double)(float)r->config->optimizer.lr;
    r->scalars[TD_SCALAR_STEP] = (double)(batch + 1);
    td_control_raise(&r->control, r->control.flags, true);
    for (size_t i = 0; i < TD_COUNTOF(parts); i++) {
        TD_TRY(td_rank_queue_segments(r, TD_STEP_TRAIN, &key, inputs, parts[i], &run));
        TD_TRY(td_rank_read(r, &run));
        if (i != 1) continue;
        for (uint32_t o = 0; o < td_graph_n_outputs(run.graph); o++) {
            enum td_output_kind kind;
            td_graph_output_at(run.graph, o, NULL, NULL, &kind);
            if (kind == TD_OUTPUT_NORM) norms[r->config->rank] = r->outputs[o];
        }
    }
    return TD_OK;
}

static td_status refused(td_status s, enum td_code code, const char *text) {
    assert_int_equal(td_status_code(s), code);
    assert_int_equal(td_status_class(s), TD_CLASS_USER_CODE);
    assert_non_null(strstr(td_status_message(s), text));
    td_status_free(s);
    return TD_OK;
}

// lightning_module_state_dict, optimizer_state: every tensor by its name.
static td_status read_state(struct td_rank *r) {
    float values[WEIGHTS];
    int n_moments = 0;
    TD_TRY(td_rank_optimizer_state(r, 1u << TD_ROLE_OPTIM));
    for (uint32_t i = 0; i < td_state_count(r->state); i++) {
        const struct td_state_info *t = td_state_at(r->state, i);
        const int64_t n = td_shape_elems(&t->shape);
        double size = 0;
        assert_true(n < WEIGHTS);
        if (t->role == TD_ROLE_RESULT) continue;
        TD_TRY(td_rank_read_tensor(r, t->name, values, n));
        TD_TRY(refused(td_rank_read_tensor(r, t->name, values, n + 1), TD_INVALID_ARGUMENT,
                       "elements, not"));
        for (int64_t k = 0; k < n; k++) {
            size += fabs((double)values[k]);
        }
        assert_true(t->role != TD_ROLE_PARAM || size > 0);
        n_moments += t->role == TD_ROLE_OPTIM && size > 0;
    }
    assert_true(n_moments > 0);
    return refused(td_rank_read_tensor(r, "fc9.weight", values, 1), TD_NOT_FOUND,
                   "model 'mlp' has no tensor 'fc9.weight'");
}

static td_status play(struct td_rank *r) {
    const struct td_progress start = {0};
    TD_TRY(td_sampler_set_epoch(td_data_sampler(r->data, TD_SPLIT_TRAIN), 0));
    const struct td_epoch epoch = td_rank_epoch(r, &start);
    TD_TRY(td_rank_hook(r, TD_HOOK_TRAIN_START, -1));
    for (int64_t i = 0; i < epoch.n_batches; i++) {
        TD_TRY(step(r, &epoch, i));
    }
    TD_TRY(td_rank_hook(r, TD_HOOK_TRAIN_END, -1));
    TD_TRY(read_state(r));
    const struct td_buffer *from = &r->memory.region[TD_ROLE_PARAM];
    assert_true(from->bytes <= sizeof weights[0]);
    return r->accel_ops->copy(r->accel, td_buffer_of_host(weights[r->config->rank], from->bytes), 0,
                              *from, 0, from->bytes);
}

static void *play_rank(void *arg) {
    struct rank *k = arg;
    TD_AUTO(td_rank) *r = NULL;
    k->run.config.manual = true; // segments are asked for as by a user's own loop
    td_status s = build(&k->run, &r);
    if (!s) s = play(r);
    if (!s) s = td_rank_finish(r);
    if (s && r) td_rank_fail(r, s);
    k->failed = s;
    sem_post(&k->left);
    return NULL;
}

static void clip(struct run *r, const char *dir) {
    (void)dir;
    r->config.optimizer.max_norm = 0.5;
}

static void test_rank_gives_the_bits_of_the_loop_when_it_is_called_by_hand(void **state) {
    static const struct {
        const char *accelerator, *strategy;
        int32_t world;
    } rows[] = {
        {"reference", "single_device", 1}, {"far", "single_device", 1}, {"reference", "ddp", 2}};
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        char dir[4200], path[4300];
        struct td_safetensors *file;
        struct ranks all;
        struct job j = {.accelerator = rows[i].accelerator,
                        .strategy = rows[i].strategy,
                        .precision = "32-true",
                        .world = rows[i].world,
                        .accumulate = 1,
                        .max_epochs = 1,
                        .change = clip};
        snprintf(dir, sizeof dir, "%s/%zu", (char *)*state, i);
        const struct td_train_result done = run_job(&j, dir);
        j.body = play_rank;
        start_ranks(&all, &j, NULL);
        join_ranks(&all);
        snprintf(path, sizeof path, "%s/step-%lld/model.safetensors", dir, (long long)done.step);
        assert_ok(td_safetensors_open(path, &file));
        const struct td_tensor *t = td_safetensors_at(file, 0);
        for (int32_t rank = 0; rank < j.world; rank++) {
            assert_ok(all.rank[rank].failed);
            assert_memory_equal(weights[rank], t->data, t->bytes);
            assert_true(norms[rank] > 0);
        }
        td_safetensors_close(file);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            test_rank_gives_the_bits_of_the_loop_when_it_is_called_by_hand, td_test_scratch_make,
            td_test_scratch_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
