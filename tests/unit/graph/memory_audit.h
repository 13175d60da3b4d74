#ifndef TRAIND_TESTS_UNIT_GRAPH_MEMORY_AUDIT_H
#define TRAIND_TESTS_UNIT_GRAPH_MEMORY_AUDIT_H

// Judges a memory plan from outside: liveness is worked out here once more, the slow and obvious
// way. worst_moment is what is alive at once. poison, as the reference's trace, overwrites with NaN
// what nobody will read any more. give_own_places is the plan without any sharing to compare with.

#include "tests/unit/graph/graph_rig.h"

struct audit {
    const struct td_program *p;
    char *arena;
    td_node *last; // by value: last reader among all that share its memory
    bool *born;    // by value
};

static inline td_value home_of(const struct td_program *p, td_value v) {
    return p->placement[v].alias ? p->placement[v].alias : v;
}

static inline size_t bytes_of(const struct td_program *p, td_value v) {
    const struct td_value_info *i = td_graph_value(p->graph, v);
    return (size_t)td_shape_elems(&i->shape) * td_dtype_bytes(i->dtype);
}

static inline void audit_open(struct audit *a, const struct td_program *p) {
    size_t n = td_graph_n_values(p->graph) + 1;
    *a = (struct audit){.p = p, .last = calloc(n, sizeof *a->last), .born = calloc(n, 1)};
    for (td_node i = 0; i < td_graph_n_nodes(p->graph); i++) {
        const struct td_node_info *node = td_graph_node(p->graph, i);
        for (uint32_t k = 0; k < node->n_inputs; k++) {
            a->last[home_of(p, node->inputs[k])] = i;
        }
        for (uint32_t k = 0; k < node->n_outputs; k++) {
            a->last[home_of(p, node->outputs[k])] = i;
        }
    }
    for (uint32_t i = 0; i < td_graph_n_outputs(p->graph); i++) {
        td_value v;
        td_graph_output_at(p->graph, i, NULL, &v, NULL);
        a->last[home_of(p, v)] = td_graph_n_nodes(p->graph);
    }
}

static inline void audit_close(struct audit *a) {
    free(a->last);
    free(a->born);
}

static inline bool in_arena(const struct audit *a, td_value v) {
    return a->p->placement[v].offset != SIZE_MAX && !a->p->placement[v].alias &&
           td_graph_value(a->p->graph, v)->kind == TD_VALUE_NODE;
}

static inline size_t worst_moment(struct audit *a) {
    size_t worst = 0;
    for (td_node n = 0; n < td_graph_n_nodes(a->p->graph); n++) {
        size_t alive = 0;
        for (td_value v = 1; v <= td_graph_n_values(a->p->graph); v++) {
            if (!in_arena(a, v) || td_graph_value(a->p->graph, v)->node > n || a->last[v] < n) {
                continue;
            }
            alive += td_align_up(bytes_of(a->p, v), 64);
        }
        worst = TD_MAX(worst, alive);
    }
    return worst;
}

// After a node: what has no reader any more becomes NaN.
static inline void poison(void *arg, td_node n) {
    struct audit *a = arg;
    for (td_value v = 1; v <= td_graph_n_values(a->p->graph); v++) {
        if (in_arena(a, v) && td_graph_value(a->p->graph, v)->node <= n && a->last[v] == n) {
            memset(a->arena + a->p->placement[v].offset, 0xff, bytes_of(a->p, v));
        }
    }
}

// Every node output in its own place, no sharing at all.
static inline void give_own_places(struct td_compiled *c) {
    size_t at = 0;
    for (td_value v = 1; v <= td_graph_n_values(c->graph); v++) {
        if (td_graph_value(c->graph, v)->kind != TD_VALUE_NODE) continue;
        c->placement[v] = (struct td_placement){.offset = at};
        at += td_align_up(bytes_of(&c->program, v), 64);
    }
    c->program.arena_bytes = at;
}

#endif
