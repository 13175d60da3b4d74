#ifndef TRAIND_TESTS_UNIT_TRAIN_RANK_RANKS_RIG_H
#define TRAIND_TESTS_UNIT_TRAIN_RANK_RANKS_RIG_H

// The ranks of an attempt as threads of this process, in one group: each is a run of train_rig.h.

#include <pthread.h>
#include <semaphore.h>

#include "engine/train/build.h"
#include "engine/train/rank/group/group.h"
#include "lib/base/clock.h"
#include "lib/base/files/files.h"
#include "tests/unit/train/rank/train_rig.h"

#ifndef RIG_RANKS // a program of more defines it first
#define RIG_RANKS 2
#endif
enum { RANKS = RIG_RANKS, GROUP_BYTES = 4 << 20, FILE_MAX = 1 << 20 };

struct job {
    const char *accelerator, *strategy, *precision;
    int32_t world;
    int32_t accumulate, max_epochs;
    const char *resume_from;                        // NULL: a fresh start
    const struct td_plugin_desc *own;               // a plugin of the test; NULL: none
    void (*change)(struct run *r, const char *dir); // the rest of a rank; NULL: there is none
    void *(*body)(void *rank);                      // what a rank does; NULL: td_train
    bool by_tensor;                                 // far keeps each tensor in a buffer of its own
};

struct rank {
    struct run run;
    pthread_t thread;
    td_status failed; // the test's
    struct td_train_result result;
    int64_t left_ns; // when td_train returned
    sem_t left;
};

struct ranks {
    struct rank rank[RANKS];
    int32_t world;
    void *group;
};

static inline void *run_rank(void *arg) {
    struct rank *k = arg;
    k->failed = td_train(&k->run.config, &k->run.io, &k->run.events, &k->result);
    k->left_ns = td_mono_now().ns;
    sem_post(&k->left);
    return NULL;
}

// What a rank does instead of a whole run. Its peers are woken when it fails.
typedef td_status rank_fn(struct td_rank *r);

// The rest of a body of a job, which chooses fn.
static inline void *be_a_rank(struct rank *k, rank_fn *fn) {
    struct td_rank *r = NULL;
    k->failed = td_rank_create(&k->run.config, &k->run.io, &k->run.events, &r);
    if (!k->failed) {
        k->failed = fn(r);
        if (k->failed) {
            td_rank_fail(r, k->failed);
        } else {
            k->failed = td_rank_finish(r);
        }
        td_rank_destroy(r);
    }
    sem_post(&k->left);
    return NULL;
}

static inline void prepare_rank(struct rank *k, const struct job *j, const char *dir) {
    static const char small[] = "{\"bucket_first_bytes\":8,\"bucket_cap_bytes\":8}";
    struct td_json *frozen = NULL; // so that there are several buckets
    struct run *r = &k->run;
    prepare_run(r, j->own, j->strategy, dir);
    assert_ok(td_json_parse(r->arena, small, sizeof small - 1, &frozen));
    r->config.frozen = frozen;
    r->config.accelerator = j->accelerator;
    if (j->by_tensor) {
        r->config.accelerator_knobs =
            knobs(r, &td_accelerator_far,
                  "{\"delay_us\":0,\"fail_at\":0,\"copy_delay_us\":0,\"by_tensor\":true}");
    }
    r->config.precision = j->precision;
    r->config.limits.max_epochs = j->max_epochs;
    r->config.limits.accumulate[0].batches = j->accumulate;
    r->config.optimizer.kind = TD_OPTIMIZER_ADAMW;
    r->config.optimizer.attrs =
        (struct td_optim_attrs){.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01};
    r->config.resume_from = &j->resume_from;
    r->config.n_resume_from = j->resume_from ? 1 : 0;
    k->failed = TD_OK;
    k->result = (struct td_train_result){0};
    assert_int_equal(sem_init(&k->left, 0, 0), 0);
}

// The job outlives its ranks.
static inline void start_ranks(struct ranks *all, const struct job *j, const char *dir) {
    assert_true(j->world <= RANKS);
    all->world = j->world;
    all->group = NULL;
    if (j->world > 1) {
        all->group = aligned_alloc(4096, GROUP_BYTES);
        assert_non_null(all->group);
        memset(all->group, 0, GROUP_BYTES);
    }
    for (int32_t i = 0; i < j->world; i++) {
        struct run *r = &all->rank[i].run;
        prepare_rank(&all->rank[i], j, dir);
        r->config.world_size = j->world;
        r->config.rank = i;
        r->config.collective = j->world > 1 ? "shm" : "local";
        r->io.group = all->group;
        r->io.group_bytes = all->group ? (size_t)GROUP_BYTES : 0;
        if (j->change) j->change(r, dir);
    }
    for (int32_t i = 0; i < j->world; i++) {
        struct rank *k = &all->rank[i];
        assert_int_equal(pthread_create(&k->thread, NULL, j->body ? j->body : run_rank, k), 0);
    }
}

static inline void join_ranks(struct ranks *all) {
    for (int32_t i = 0; i < all->world; i++) {
        pthread_join(all->rank[i].thread, NULL);
    }
    for (int32_t i = 0; i < all->world; i++) {
        sem_destroy(&all->rank[i].left);
        dispose(&all->rank[i].run);
    }
    free(all->group);
}

// A whole job, whose ranks end alike: how, and after how many steps. All 0 with a body of its own.
static inline struct td_train_result run_job(const struct job *j, const char *dir) {
    struct ranks all;
    start_ranks(&all, j, dir);
    join_ranks(&all);
    for (int32_t i = 0; i < j->world; i++) {
        assert_ok(all.rank[i].failed);
    }
    for (int32_t i = 1; i < j->world; i++) {
        assert_int_equal(all.rank[i].result.end, all.rank[0].result.end);
        assert_int_equal(all.rank[i].result.step, all.rank[0].result.step);
    }
    return all.rank[0].result;
}

// Of a job that passed. precision: as a spec or its plugin calls it.
static inline void say_over_job(const struct job *j) {
    td_test_over("precision", strcmp(j->precision, "32-true") == 0 ? "fp32" : j->precision);
    td_test_over("strategy", j->strategy);
    td_test_over("accelerator", j->accelerator);
}

// ---- what a job leaves -------------------------------------------------------------------------
static inline void expect_same_file(const char *a, const char *b, const char *name) {
    const char *const dirs[] = {a, b};
    TD_AUTO_BUF left;
    TD_AUTO_BUF right;
    td_buf_init(&left, FILE_MAX);
    td_buf_init(&right, FILE_MAX);
    for (int i = 0; i < 2; i++) {
        char path[TD_FS_PATH_BYTES];
        assert_ok(td_fs_path(path, "%s/%s", dirs[i], name));
        assert_ok(td_fs_read(path, FILE_MAX, i ? &right : &left));
    }
    assert_true(left.len > 0);
    assert_int_equal(left.len, right.len);
    assert_memory_equal(left.data, right.data, left.len);
}

// The checkpoints of a step, in two directories.
static inline void expect_same(const char *a, const char *b, int64_t step) {
    static const char *const names[] = {"model.safetensors", "optimizer.safetensors"};
    for (size_t i = 0; i < TD_COUNTOF(names); i++) {
        char name[64];
        snprintf(name, sizeof name, "step-%lld/%s", (long long)step, names[i]);
        expect_same_file(a, b, name);
    }
}

#endif
