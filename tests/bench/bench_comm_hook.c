// Time and bytes of comm hooks over one bucket of 25 MiB, two ranks as threads: JSON lines, beside
// the mean of the whole bucket. The bucket is six square matrices and their biases. Between shared
// memory and its readers a byte costs next to nothing: what a hook adds is its own work, which
// another network would have to earn back.

#include "comm_hooks/comm_hooks.h"
#include "lib/base/clock.h"
#include "lib/base/json.h"
#include "tests/collective_ranks.h"
#include "traind/comm_hook.h"

enum { SIDE = 1024, MATRICES = 6, PART = SIDE * SIDE + SIDE, WORLD = 2, ROUNDS = 9 };
enum { N = MATRICES * PART };

// Bytes of a step by the hook's definition: a matrix goes as two factors, a bias as it is.
#define POWER_BYTES(rank) ((uint64_t)MATRICES * (2 * SIDE * (rank) + SIDE) * sizeof(float))

#define POWER(rank)                                                                                \
    "{\"matrix_approximation_rank\":" rank ",\"start_powerSGD_iter\":2,"                           \
    "\"min_compression_rate\":2,\"use_error_feedback\":true,\"warm_start\":true,"                  \
    "\"orthogonalization_epsilon\":0,\"random_seed\":0}"

static const struct hook_case {
    const char *name, *knobs;
    const struct td_plugin_desc *desc; // NULL: no hook
    uint64_t bytes;                    // of a step
} cases[] = {
    {"none", NULL, NULL, (uint64_t)N * 4},
    {"fp16", NULL, &td_comm_hook_fp16, (uint64_t)N * 2},
    {"bf16", NULL, &td_comm_hook_bf16, (uint64_t)N * 2},
    {"power_sgd, rank 1", POWER("1"), &td_comm_hook_power_sgd, POWER_BYTES(1)},
    {"power_sgd, rank 4", POWER("4"), &td_comm_hook_power_sgd, POWER_BYTES(4)},
};

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static td_status reduce(struct rank_ctx *r, const struct td_comm_hook_ops *ops,
                        struct td_comm_hook *h, const struct td_bucket *b) {
    if (ops) return ops->reduce(h, b);
    TD_TRY(r->ops->all_reduce_bucket(r->c, b));
    return r->ops->wait_buckets(r->c);
}

static td_status time_hook(struct rank_ctx *r, const struct hook_case *c,
                           const struct td_comm_hook_ops *ops, struct td_comm_hook *h,
                           const struct td_bucket *b) {
    int64_t ns[ROUNDS];
    uint64_t before = 0, sent = (uint64_t)N * sizeof(float);
    for (int round = -3; round < ROUNDS; round++) { // the first ones are sent whole, or are cold
        float *x = td_bucket_host(b);
        for (int i = 0; i < N; i++) {
            x[i] = (float)((i * 7 + round + r->rank) % 31) * 0.01f - 0.15f;
        }
        if (ops) before = ops->sent_bytes(h);
        TD_TRY(r->ops->barrier(r->c, "round"));
        const int64_t start = td_mono_now().ns;
        TD_TRY(reduce(r, ops, h, b));
        if (round >= 0) ns[round] = td_mono_now().ns - start;
        if (ops) sent = ops->sent_bytes(h) - before;
    }
    qsort(ns, ROUNDS, sizeof ns[0], by_value);
    if (r->rank) return TD_OK;
    printf(
        "{\"bench\":\"comm_hook\",\"hook\":\"%s\",\"world\":%d,\"bytes\":%zu,\"sent_bytes\":%llu,"
        "\"computed_bytes\":%llu,\"ms\":%.2f,\"ms_min\":%.2f,\"ms_max\":%.2f,\"us_per_mb\":%.1f,"
        "\"n\":%d}\n",
        c->name, (int)WORLD, (size_t)N * sizeof(float), (unsigned long long)sent,
        (unsigned long long)c->bytes, (double)ns[ROUNDS / 2] / 1e6, (double)ns[0] / 1e6,
        (double)ns[ROUNDS - 1] / 1e6,
        (double)ns[ROUNDS / 2] / 1e3 / ((double)N * sizeof(float) / 1e6), (int)ROUNDS);
    fflush(stdout);
    return TD_OK;
}

static td_status run_rank(struct rank_ctx *r, void *arg) {
    const struct hook_case *c = arg;
    const struct td_comm_hook_ops *ops = c->desc ? c->desc->ops : NULL;
    struct td_comm_hook *h = NULL;
    struct td_bucket_tensor tensors[2 * MATRICES];
    struct td_json *knobs = NULL;
    TD_AUTO(td_arena) *arena = NULL;
    TD_TRY(td_arena_create(1 << 20, &arena));
    void *data;
    size_t bytes;
    TD_TRY(r->ops->gradients(r->c, &data, &bytes));
    for (size_t i = 0; i < MATRICES; i++) {
        const size_t at = i * PART * sizeof(float);
        tensors[2 * i] = (struct td_bucket_tensor){"weight", at, {2, {SIDE, SIDE}}};
        tensors[2 * i + 1] =
            (struct td_bucket_tensor){"bias", at + SIDE * SIDE * sizeof(float), {1, {SIDE}}};
    }
    struct td_bucket b = ranks_bucket(data, N, TD_F32, false);
    b.tensors = tensors;
    b.n_tensors = TD_COUNTOF(tensors);
    if (c->knobs) TD_TRY(td_json_parse(arena, c->knobs, strlen(c->knobs), &knobs));
    const struct td_comm_hook_config config = {.struct_bytes = sizeof config,
                                               .rank = r->rank,
                                               .world_size = r->world,
                                               .collective_ops = r->ops,
                                               .collective = r->c,
                                               .knobs = knobs};
    if (ops) TD_TRY(ops->open(&config, &h));
    if (ops) TD_TRY(ops->place(h, &b, 1));
    td_status s = time_hook(r, c, ops, h, &b);
    if (ops) ops->close(h);
    return s;
}

int main(void) {
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        struct ranks rs;
        ranks_init(&rs, &td_collective_shm, WORLD, (size_t)N * sizeof(float));
        ranks_run(&rs, run_rank, td_unconst(&cases[i]));
        ranks_ok(&rs);
        ranks_finish(&rs);
    }
    return 0;
}
