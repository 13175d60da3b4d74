#ifndef TRAIND_TESTS_COLLECTIVE_RANKS_H
#define TRAIND_TESTS_COLLECTIVE_RANKS_H

// Ranks as threads of one test program: a mapping, one group per rank, one function run by all.
// A rank function returns its status; ranks_run hands them back by rank, the test's to free.
// A wait that does not end is the test runner's deadline to catch; every group has its own.

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "collectives/collectives.h"
#include "lib/base/base.h"

enum { RANKS_MAX = 8 };

struct ranks;
struct rank_ctx {
    struct ranks *ranks;
    int32_t rank, world;
    const struct td_collective_ops *ops;
    struct td_collective *c;
};
typedef td_status rank_fn(struct rank_ctx *r, void *arg);

struct ranks {
    const struct td_plugin_desc *backend;
    const struct td_plugin_desc *inner; // of a decorator
    const struct td_json *knobs;        // of a decorator
    int32_t attempt;
    int32_t world;
    int64_t timeout_ns;
    const char *setting; // that sets it; NULL: none
    void *shared;
    size_t shared_bytes;
    bool (*aborted)(void *arg);
    void *aborted_arg;
    rank_fn *fn;
    void *arg;
    struct rank_ctx ctx[RANKS_MAX];
    td_status status[RANKS_MAX];
};

static inline void ranks_init(struct ranks *rs, const struct td_plugin_desc *backend, int32_t world,
                              size_t gradient_bytes) {
    const struct td_collective_ops *ops = backend->ops;
    *rs = (struct ranks){
        .backend = backend, .attempt = 1, .world = world, .timeout_ns = 60 * TD_NS_PER_S};
    rs->shared_bytes = ops->shared_bytes(world, gradient_bytes);
    if (rs->shared_bytes) {
        rs->shared =
            mmap(NULL, rs->shared_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_true(rs->shared != MAP_FAILED);
    }
}

// The same with a decorator around the backend.
static inline void ranks_init_wrapped(struct ranks *rs, const struct td_plugin_desc *decorator,
                                      const struct td_plugin_desc *inner,
                                      const struct td_json *knobs, int32_t world,
                                      size_t gradient_bytes) {
    ranks_init(rs, inner, world, gradient_bytes);
    rs->backend = decorator;
    rs->inner = inner;
    rs->knobs = knobs;
}

static inline void ranks_finish(struct ranks *rs) {
    if (rs->shared) munmap(rs->shared, rs->shared_bytes);
    rs->shared = NULL;
}

static inline struct td_collective_config ranks_config(const struct ranks *rs, int32_t rank) {
    return (struct td_collective_config){.struct_bytes = sizeof(struct td_collective_config),
                                         .rank = rank,
                                         .world_size = rs->world,
                                         .deadline = {rs->timeout_ns, rs->setting},
                                         .shared = rs->shared,
                                         .shared_bytes = rs->shared_bytes,
                                         .aborted = rs->aborted,
                                         .aborted_arg = rs->aborted_arg,
                                         .attempt = rs->attempt,
                                         .inner = rs->inner ? rs->inner->ops : NULL,
                                         .knobs = rs->knobs};
}

static inline void *ranks_main(void *arg) {
    struct rank_ctx *r = arg;
    struct td_collective_config config = ranks_config(r->ranks, r->rank);
    td_status s = r->ops->join(&config, &r->c);
    if (!s) s = r->ranks->fn(r, r->ranks->arg);
    r->ranks->status[r->rank] = s;
    r->ops->leave(r->c);
    return NULL;
}

static inline void ranks_run(struct ranks *rs, rank_fn *fn, void *arg) {
    pthread_t thread[RANKS_MAX];
    rs->fn = fn;
    rs->arg = arg;
    for (int32_t r = 0; r < rs->world; r++) {
        rs->ctx[r] =
            (struct rank_ctx){.ranks = rs, .rank = r, .world = rs->world, .ops = rs->backend->ops};
        assert_int_equal(pthread_create(&thread[r], NULL, ranks_main, &rs->ctx[r]), 0);
    }
    for (int32_t r = 0; r < rs->world; r++) {
        assert_int_equal(pthread_join(thread[r], NULL), 0);
    }
    rs->arg = NULL; // it lives no longer than this call
}

// Fails the test with the message of the first rank that failed.
static inline void ranks_ok(struct ranks *rs) {
    for (int32_t r = 0; r < rs->world; r++) {
        if (rs->status[r]) fail_msg("rank %d: %s", r, td_status_message(rs->status[r]));
    }
}

static inline void ranks_free_statuses(struct ranks *rs) {
    for (int32_t r = 0; r < rs->world; r++) {
        td_status_free(rs->status[r]);
        rs->status[r] = TD_OK;
    }
}

// n elements at data, and control flags right after them.
static inline struct td_bucket ranks_bucket(void *data, int64_t n, enum td_dtype dtype,
                                            bool has_control) {
    const size_t bytes = (size_t)n * td_dtype_bytes(dtype);
    const size_t flags = has_control ? TD_CONTROL_FLAGS * sizeof(float) : 0;
    return (struct td_bucket){.struct_bytes = sizeof(struct td_bucket),
                              .n_buckets = 1,
                              .dtype = dtype,
                              .buffer = td_buffer_of_host(data, bytes + flags),
                              .n = n,
                              .has_control = has_control,
                              .control_offset = has_control ? bytes : 0};
}

// A check inside a rank function, which runs outside of the test's own thread.
#define RANK_CHECK(x)                                                                              \
    do {                                                                                           \
        if (!(x)) return td_fail(TD_INTERNAL, "rank %d: line %d: %s", r->rank, __LINE__, #x);      \
    } while (0)

#endif
