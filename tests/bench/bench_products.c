// Products of the bench's jobs in fp32, one thread: GFLOP/s of the cpu accelerator, and of three
// plain loops. The compiler of this build vectorized those for the same CPU level (at generic:
// SSE2). That is what there is to compare with where no library is held to that level. One JSON
// line a product. Both in turn, several rounds; the accelerator's packing of weights is in its
// time.
//     bench_products
#include <stdio.h>
#include <time.h>

#include "engine/graph/compile.h"
#include "engine/graph/passes/passes.h"
#include "engine/graph/verify.h"
#include "lib/base/clock.h"
#include "lib/base/machine/proc.h"
#include "lib/plugin/registry.h"
#include "tests/bench/loops.h"
#include "traind/accelerator.h"

enum { ROUNDS = 7 };
#define ROUND_NS   (30 * TD_NS_PER_MS)
#define TIMEOUT_NS (60 * TD_NS_PER_S)

// y (m, n) = x (m, k) w: which of the operands is stored with its dims exchanged.
struct shape {
    const char *name;
    int64_t m, n, k;
    bool trans_a, trans_b;
};
static const struct shape shapes[] = {
    {"mlp fc1 forward", 128, 512, 784, false, true},
    {"mlp fc2 forward", 128, 512, 512, false, true},
    {"mlp fc2 dgrad", 128, 512, 512, false, false},
    {"mlp fc1 wgrad", 512, 784, 128, true, false},
    {"mlp fc2 wgrad", 512, 512, 128, true, false},
    {"gpt qkv forward", 4096, 1152, 384, false, true},
    {"gpt fc forward", 4096, 1536, 384, false, true},
    {"gpt fc2 dgrad", 4096, 1536, 384, false, false},
    {"gpt fc wgrad", 1536, 384, 4096, true, false},
    {"gpt head forward", 4096, 256, 384, false, true},
};

struct product {
    const struct td_accelerator_ops *ops;
    struct td_accelerator *accel;
    struct td_state_table *state;
    struct td_compiled *compiled;
    struct td_bindings bind;
    struct td_executable *exe;
    double scalars[TD_SCALAR_COUNT];
    uint32_t random[TD_RANDOM_WORDS];
    double outputs[1];
    float *x, *w, *y; // of the plain loops
};

static struct td_shape dims(bool trans, int64_t rows, int64_t cols) {
    return (struct td_shape){.n_dims = 2, .dim = {trans ? cols : rows, trans ? rows : cols}};
}

static td_status bind(struct product *p) {
    TD_TRY(td_state_layout(p->state));
    p->bind = (struct td_bindings){.struct_bytes = sizeof p->bind,
                                   .scalars = p->scalars,
                                   .random = p->random,
                                   .outputs = p->outputs};
    for (int role = 0; role < TD_ROLE_COUNT; role++) {
        size_t bytes = TD_MAX(td_state_region_bytes(p->state, (enum td_role)role), 64);
        TD_TRY(p->ops->mem_alloc(p->accel, bytes, &p->bind.region[role]));
    }
    size_t arena_bytes = TD_MAX(p->compiled->program.arena_bytes, 64);
    TD_TRY(p->ops->mem_alloc(p->accel, arena_bytes, &p->bind.arena));
    return p->ops->compile(p->accel, &p->compiled->program, &p->bind, &p->exe);
}

// A program of one node: x comes with each run, w is a parameter.
static td_status make(struct product *p, const struct shape *s) {
    struct td_shape x = dims(s->trans_a, s->m, s->k), w = dims(s->trans_b, s->k, s->n);
    struct td_attrs attrs = {.trans_a = s->trans_a, .trans_b = s->trans_b};
    struct td_init zero = {0};
    td_value in[2], y;
    p->compiled = td_calloc(1, sizeof *p->compiled);
    if (!p->compiled) return td_fail_oom();
    struct td_program *program = &p->compiled->program;
    TD_TRY(td_state_table_create(&p->state));
    TD_TRY(td_graph_create("train", TD_MODE_TRAIN, p->state, &p->compiled->graph));
    struct td_graph *g = p->compiled->graph;
    TD_TRY(td_graph_input(g, "x", TD_F32, &x, &in[0]));
    TD_TRY(td_graph_param(g, "w", TD_F32, &w, zero, &in[1]));
    TD_TRY(td_graph_op(g, TD_OP_MATMUL, in, 2, &attrs, &y));
    TD_TRY(td_graph_verify(g));
    TD_TRY(td_pass_memory(g, NULL, &p->compiled->placement, &program->arena_bytes));
    program->graph = g;
    program->placement = p->compiled->placement;
    snprintf(program->key.step, sizeof program->key.step, "train");
    return bind(p);
}

static void destroy(struct product *p) {
    p->ops->release(p->exe);
    for (int role = 0; role < TD_ROLE_COUNT; role++) {
        if (p->bind.region[role].bytes) p->ops->mem_free(p->accel, p->bind.region[role]);
    }
    if (p->bind.arena.bytes) p->ops->mem_free(p->accel, p->bind.arena);
    td_compiled_destroy(p->compiled);
    td_state_table_destroy(p->state);
    free(p->x);
    free(p->w);
    free(p->y);
}

static td_status run_once(struct product *p, const struct shape *s, bool plain) {
    const size_t bytes = (size_t)(s->m * s->k) * sizeof *p->x;
    const struct td_buffer inputs[] = {td_buffer_of_host(p->x, bytes)};
    if (!plain) {
        td_ticket ticket;
        TD_TRY(p->ops->run(p->exe, TD_SEGS_ALL, inputs, &ticket));
        return p->ops->wait(p->accel, ticket, TIMEOUT_NS);
    }
    td_bench_loops()->product(s->m, s->n, s->k, p->x, p->w, p->y);
    return TD_OK;
}

// What a neighbour takes of the core does not count.
static int64_t cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * TD_NS_PER_S + t.tv_nsec;
}

// FLOP/s of this thread's processor time over at least one run and some time.
static td_status round_of(struct product *p, const struct shape *s, bool plain, double *out_rate) {
    int64_t n = 0, start = cpu_ns(), now = start;
    for (; n == 0 || now - start < ROUND_NS; n++) {
        TD_TRY(run_once(p, s, plain));
        now = cpu_ns();
    }
    double flops = 2.0 * (double)s->m * (double)s->n * (double)s->k * (double)n;
    *out_rate = flops * 1e9 / (double)TD_MAX(now - start, 1);
    return TD_OK;
}

static void print_rates(const char *key, const double *rate) {
    printf(",\"%s\":[", key);
    for (int i = 0; i < ROUNDS; i++) {
        printf("%s%.2f", i ? "," : "", rate[i] / 1e9);
    }
    printf("]");
}

static td_status measure(struct product *p, const struct shape *s) {
    double ours[ROUNDS], plain[ROUNDS], ignored;
    TD_TRY(make(p, s));
    p->x = td_calloc((size_t)(s->m * s->k), sizeof *p->x);
    p->w = td_calloc((size_t)(s->k * s->n), sizeof *p->w);
    p->y = td_calloc((size_t)(s->m * s->n), sizeof *p->y);
    if (!p->x || !p->w || !p->y) return td_fail_oom();
    TD_TRY(round_of(p, s, false, &ignored)); // pages and packs
    for (int i = 0; i < ROUNDS; i++) {
        TD_TRY(round_of(p, s, false, &ours[i]));
        TD_TRY(round_of(p, s, true, &plain[i]));
    }
    printf("{\"name\":\"product %s\",\"m\":%lld,\"n\":%lld,\"k\":%lld,\"threads\":1,"
           "\"unit\":\"GFLOP/s\"",
           s->name, (long long)s->m, (long long)s->n, (long long)s->k);
    print_rates("ours", ours);
    print_rates("plain", plain);
    printf("}\n");
    fflush(stdout);
    return TD_OK;
}

static td_status measure_all(const char *plugins) {
    TD_AUTO(td_registry) *r = NULL;
    const struct td_plugin_desc *desc;
    const struct td_accel_config config = {.struct_bytes = sizeof config, .n_threads = 1};
    struct product p = {0};
    TD_TRY(bench_hold_level());
    TD_TRY(td_registry_create(plugins, &r));
    TD_TRY(td_registry_find(r, TD_PLUGIN_ACCELERATOR, "cpu", &desc));
    p.ops = desc->ops;
    TD_TRY(p.ops->open(&config, &p.accel));
    td_status s = TD_OK;
    for (size_t i = 0; !s && i < TD_COUNTOF(shapes); i++) {
        struct product one = {.ops = p.ops, .accel = p.accel};
        s = measure(&one, &shapes[i]);
        destroy(&one);
    }
    p.ops->close(p.accel);
    return s;
}

int main(void) {
    char dir[4096], plugins[4200];
    td_status failed = td_proc_self_dir(dir, sizeof dir);
    snprintf(plugins, sizeof plugins, "%s/../../lib/traind", dir);
    if (!failed) failed = measure_all(plugins);
    if (failed) fprintf(stderr, "bench_products: %s\n", td_status_message(failed));
    int code = failed ? 1 : 0;
    td_status_free(failed);
    return code;
}
