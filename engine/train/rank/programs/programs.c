// The program cache.

#include "engine/train/rank/programs/programs.h"

#include <stdio.h>
#include <string.h>

#include "traind/op.h"
#include "engine/graph/graph_text.h"
#include "lib/base/clip.h"

struct entry {
    struct td_compiled *compiled;
    struct td_executable *exe; // NULL until bound
    bool sums, updates_alone;  // td_runnable
    int arena;
    bool *slow; // by node: expected to run on plain loops; NULL: none
};

struct td_programs {
    struct td_compile_options options;
    const struct td_accelerator_ops *accel_ops;
    struct entry entry[TD_PROGRAMS_MAX];
    size_t n;
    bool keeps_forwards;
};

td_status td_programs_create(const struct td_compile_options *options, bool keeps_forwards,
                             struct td_programs **out_programs) {
    struct td_programs *p = td_calloc(1, sizeof *p);
    if (!p) return td_fail_oom();
    p->options = *options;
    p->keeps_forwards = keeps_forwards;
    *out_programs = p;
    return TD_OK;
}

void td_programs_destroy(struct td_programs *p) {
    if (!p) return;
    for (size_t i = 0; i < p->n; i++) {
        if (p->entry[i].exe) p->accel_ops->release(p->entry[i].exe);
        td_compiled_destroy(p->entry[i].compiled);
        free(p->entry[i].slow);
    }
    free(p);
}

static bool keys_equal(const struct td_program_key *a, const struct td_program_key *b) {
    return a->batch == b->batch && a->mode == b->mode && a->accumulate == b->accumulate &&
           a->sync == b->sync && a->apply == b->apply && strcmp(a->step, b->step) == 0;
}

static const struct entry *lookup(const struct td_programs *p, const struct td_program_key *key) {
    for (size_t i = 0; i < p->n; i++) {
        if (keys_equal(&p->entry[i].compiled->program.key, key)) return &p->entry[i];
    }
    return NULL;
}

static td_status describe(td_status s, const struct td_program_key *key) {
    return td_status_context(s, "program %s/%s of batch %lld", key->step, td_mode_name(key->mode),
                             (long long)key->batch);
}

// A parameter that a later program names first has no gradient in those before it: it would keep
// its initial values, and nobody would see. The first training program of each step may name some.
// first: how many tensors there were before it.
static td_status check_names(const struct td_programs *p, uint32_t first) {
    const struct td_program_key *last = &p->entry[p->n - 1].compiled->program.key;
    bool trains = false, begins = last->mode == TD_MODE_TRAIN;
    for (size_t i = 0; i + 1 < p->n; i++) {
        const struct td_program_key *k = &p->entry[i].compiled->program.key;
        trains |= k->mode == TD_MODE_TRAIN;
        begins &= k->mode != TD_MODE_TRAIN || strcmp(k->step, last->step) != 0;
    }
    for (uint32_t i = first; trains && !begins && i < td_state_count(p->options.state); i++) {
        const struct td_state_info *t = td_state_at(p->options.state, i);
        if (t->role != TD_ROLE_PARAM) continue;
        return td_status_with_class(
            td_fail(TD_FAILED_PRECONDITION,
                    "the module names the parameter '%s', which it did not name where it trains; "
                    "name the same in each program",
                    t->name),
            TD_CLASS_USER_CODE);
    }
    return TD_OK;
}

// The number of its training step, in the order in which they came.
static int arena_of(const struct td_programs *p, const struct td_program_key *key) {
    int n = 0;
    for (size_t i = 0; i < p->n && p->keeps_forwards && key->mode == TD_MODE_TRAIN; i++) {
        const struct td_program_key *k = &p->entry[i].compiled->program.key;
        if (k->mode != TD_MODE_TRAIN) continue;
        if (strcmp(k->step, key->step) == 0) return p->entry[i].arena;
        n = TD_MAX(n, p->entry[i].arena + 1);
    }
    return n;
}

td_status td_programs_add(struct td_programs *p, const struct td_program_key *key) {
    if (lookup(p, key)) return TD_OK;
    if (p->n == TD_PROGRAMS_MAX) {
        return td_fail(TD_RESOURCE_EXHAUSTED, "a job may have %d programs at most",
                       TD_PROGRAMS_MAX);
    }
    struct td_compile_options options = p->options;
    options.key = *key;
    const uint32_t before = td_state_count(options.state);
    const int arena = arena_of(p, key);
    TD_CHECK(arena < TD_STEPS_MAX);
    td_status s = td_compile(&options, &p->entry[p->n].compiled);
    if (s) return describe(s, key);
    p->entry[p->n].arena = arena;
    p->n++;
    s = check_names(p, before);
    return s ? describe(s, key) : TD_OK;
}

size_t td_programs_arena_bytes(const struct td_programs *p, int i) {
    size_t most = 0;
    for (size_t j = 0; j < p->n; j++) {
        if (p->entry[j].arena != i) continue;
        most = TD_MAX(most, TD_MAX(p->entry[j].compiled->program.arena_bytes, 64));
    }
    return most;
}

static bool reduces_last_bucket(const struct td_graph *g) {
    const uint32_t last = td_state_n_buckets(td_graph_state(g)) - 1;
    for (td_node n = 0; n < td_graph_n_nodes(g); n++) {
        const struct td_node_info *info = td_graph_node(g, n);
        const bool reduces = info->op == TD_OP_ALL_REDUCE || info->op == TD_OP_REDUCE_SCATTER;
        if (reduces && info->attrs.bucket == last) return true;
    }
    return false;
}

static bool is_of_update(const struct td_node_info *node) {
    return node->segment == TD_SEG_FINISH || node->segment == TD_SEG_APPLY;
}

// Whatever is in the arena was written by a node; state, inputs and scalars were not.
static bool updates_alone(const struct td_program *p) {
    TD_AUTO_FREE bool *left = td_calloc(td_graph_n_values(p->graph) + 1, sizeof *left);
    if (!left) return false;
    for (td_node n = 0; n < td_graph_n_nodes(p->graph); n++) {
        const struct td_node_info *node = td_graph_node(p->graph, n);
        for (uint32_t i = 0; i < node->n_outputs && !is_of_update(node); i++) {
            left[node->outputs[i]] = true;
        }
        for (uint32_t i = 0; i < node->n_inputs && is_of_update(node); i++) {
            if (left[node->inputs[i]]) return false;
        }
    }
    return true;
}

td_status td_programs_bind(struct td_programs *p, const struct td_accelerator_ops *ops,
                           struct td_accelerator *accel, const struct td_bindings *bindings,
                           const struct td_buffer arenas[TD_STEPS_MAX]) {
    struct td_bindings b = *bindings;
    p->accel_ops = ops;
    for (size_t i = 0; i < p->n; i++) {
        const struct td_program *program = &p->entry[i].compiled->program;
        if (td_graph_n_outputs(program->graph) > TD_PROGRAM_OUTPUTS) {
            return describe(
                td_fail(TD_INVALID_ARGUMENT, "more than %d outputs", TD_PROGRAM_OUTPUTS),
                &program->key);
        }
        if (p->entry[i].exe) continue;
        b.arena = arenas[p->entry[i].arena];
        td_status s = ops->compile(accel, program, &b, &p->entry[i].exe);
        if (s) return describe(s, &program->key);
        p->entry[i].sums = reduces_last_bucket(program->graph);
        p->entry[i].updates_alone = updates_alone(program);
    }
    return TD_OK;
}

td_status td_programs_prepare(const struct td_programs *p, size_t i, const uint32_t *sets,
                              size_t n) {
    const struct entry *e = &p->entry[i];
    TD_CHECK(i < p->n && e->exe);
    if (!p->accel_ops->prepare) return TD_OK;
    td_status s = p->accel_ops->prepare(e->exe, sets, n);
    return s ? describe(s, &e->compiled->program.key) : TD_OK;
}

bool td_programs_sum(const struct td_programs *p) {
    bool sum = true;
    for (size_t i = 0; i < p->n; i++) {
        const struct td_program_key *k = &p->entry[i].compiled->program.key;
        if (k->mode == TD_MODE_TRAIN && k->sync) sum &= p->entry[i].sums;
    }
    return sum;
}

bool td_programs_have(const struct td_programs *p, enum td_mode mode, td_op_id op) {
    for (size_t i = 0; i < p->n; i++) {
        const struct td_program *program = &p->entry[i].compiled->program;
        const uint32_t n_nodes = program->key.mode == mode ? td_graph_n_nodes(program->graph) : 0;
        for (td_node j = 0; j < n_nodes; j++) {
            if (td_graph_node(program->graph, j)->op == op) return true;
        }
    }
    return false;
}

td_status td_programs_find(const struct td_programs *p, const struct td_program_key *key,
                           struct td_runnable *out_runnable) {
    const struct entry *e = lookup(p, key);
    if (!e || !e->exe) {
        return describe(
            td_fail(TD_FAILED_PRECONDITION, "it was not compiled before the first step"), key);
    }
    *out_runnable = (struct td_runnable){.exe = e->exe,
                                         .graph = e->compiled->graph,
                                         .sums = e->sums,
                                         .updates_alone = e->updates_alone};
    return TD_OK;
}

const struct td_graph *td_programs_graph(const struct td_programs *p, const char *step,
                                         enum td_mode mode) {
    for (size_t i = 0; i < p->n; i++) {
        const struct td_program_key *k = &p->entry[i].compiled->program.key;
        if (k->mode != mode || (step && strcmp(k->step, step) != 0)) continue;
        return p->entry[i].compiled->graph;
    }
    return NULL;
}

// The first node of an op and type, with the shape of its first result.
static void name_once(const struct td_graph *g, const struct td_kernel_info *k,
                      bool seen[TD_OP_COUNT][TD_DTYPE_COUNT], struct td_clip_list *out) {
    char shape[96] = "";
    if (seen[k->op][k->dtype]) return;
    seen[k->op][k->dtype] = true;
    const struct td_node_info *n = k->node < td_graph_n_nodes(g) ? td_graph_node(g, k->node) : NULL;
    if (n && (n->into || n->n_outputs)) {
        const struct td_value_info *v = td_graph_value(g, n->into ? n->into : n->outputs[0]);
        td_shape_text(v->dtype, &v->shape, shape, sizeof shape);
    }
    td_clip_list_add(out, "%s %s%s%s", td_op_name(k->op), td_dtype_name(k->dtype),
                     *shape ? " to " : "", shape);
}

bool td_programs_kernel(const struct td_programs *p, size_t i, uint32_t j,
                        struct td_kernel_info *out_info) {
    if (i >= p->n || !p->entry[i].exe || !p->accel_ops->kernel_at) return false;
    return p->accel_ops->kernel_at(p->entry[i].exe, j, out_info);
}

uint32_t td_programs_slow(const struct td_programs *p, char *out_text, size_t text_bytes) {
    bool seen[TD_OP_COUNT][TD_DTYPE_COUNT] = {0};
    struct td_clip_list names;
    uint32_t n = 0;
    td_clip_list_init(&names, out_text, text_bytes, ", ");
    for (size_t i = 0; i < p->n; i++) {
        struct td_kernel_info k = {.struct_bytes = sizeof k};
        for (uint32_t j = 0; td_programs_kernel(p, i, j, &k); j++) {
            if (!k.slow) continue;
            name_once(p->entry[i].compiled->graph, &k, seen, &names);
            n++;
        }
    }
    return n;
}

struct preview {
    struct td_programs *programs;
    bool seen[TD_OP_COUNT][TD_DTYPE_COUNT];
    struct td_clip_list names;
    uint32_t n;
    bool full; // memory is out
};

static void note_slow(void *arg, size_t program, td_node node) {
    struct preview *f = arg;
    struct entry *e = &f->programs->entry[program];
    const struct td_graph *g = e->compiled->graph;
    if (node >= td_graph_n_nodes(g)) return;
    const struct td_node_info *info = td_graph_node(g, node);
    td_value first = info->n_inputs ? info->inputs[0] : info->into ? info->into : info->outputs[0];
    const struct td_kernel_info k = {
        .op = info->op, .dtype = td_graph_value(g, first)->dtype, .node = node};
    if (!e->slow) e->slow = td_calloc(td_graph_n_nodes(g), sizeof *e->slow);
    f->full |= !e->slow;
    if (e->slow) e->slow[node] = true;
    name_once(g, &k, f->seen, &f->names);
    f->n++;
}

td_status td_programs_preview_slow(struct td_programs *p, const struct td_accelerator_ops *ops,
                                   struct td_accelerator *accel, char *out_text, size_t text_bytes,
                                   uint32_t *out_n) {
    const struct td_program *programs[TD_PROGRAMS_MAX];
    struct preview f = {.programs = p};
    td_clip_list_init(&f.names, out_text, text_bytes, ", ");
    for (size_t i = 0; i < p->n; i++) {
        programs[i] = &p->entry[i].compiled->program;
        free(td_steal(p->entry[i].slow));
    }
    *out_n = 0;
    if (!ops->slow_nodes) return TD_OK;
    TD_TRY(ops->slow_nodes(accel, programs, p->n, note_slow, &f));
    *out_n = f.n;
    return f.full ? td_fail_oom() : TD_OK;
}

const bool *td_programs_slow_nodes(const struct td_programs *p, size_t i) {
    return i < p->n ? p->entry[i].slow : NULL;
}

static bool has_gradient(const struct td_state_table *state, const struct td_state_info *param) {
    char name[512];
    uint32_t index;
    snprintf(name, sizeof name, "%s:grad", param->name);
    td_status s = td_state_find(state, name, &index);
    td_status_free(s);
    return !s;
}

uint32_t td_programs_unreached(const struct td_programs *p, char *out_text, size_t text_bytes) {
    const struct td_state_table *state = p->options.state;
    const uint32_t n_state = td_programs_graph(p, NULL, TD_MODE_TRAIN) ? td_state_count(state) : 0;
    uint32_t n = 0;
    struct td_clip_list names;
    td_clip_list_init(&names, out_text, text_bytes, ", ");
    for (uint32_t i = 0; i < n_state; i++) {
        const struct td_state_info *t = td_state_at(state, i);
        if (t->role != TD_ROLE_PARAM || has_gradient(state, t)) continue;
        td_clip_list_add(&names, "%s", t->name);
        n++;
    }
    return n;
}

size_t td_programs_count(const struct td_programs *p) {
    return p->n;
}

const struct td_compiled *td_programs_at(const struct td_programs *p, size_t i) {
    return i < p->n ? p->entry[i].compiled : NULL;
}
