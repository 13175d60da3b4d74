#ifndef TRAIND_TESTS_UNIT_WORKLOADS_MODULE_RIG_H
#define TRAIND_TESTS_UNIT_WORKLOADS_MODULE_RIG_H

// For tests of modules: opens one with knobs written as JSON (those left out have their defaults),
// records it, and gives what it recorded as text. The text has the ops in order, and the state as
// "name shape init" lines.

#include "tests/unit/test.h"

#include "tests/unit/plugin/knobs_rig.h"
#include "traind/module.h"
#include "workloads/workloads.h"

static inline td_status module_open(const struct td_plugin_desc *desc, const char *knobs_text,
                                    const struct td_field *fields, size_t n_fields,
                                    struct td_module **out_module) {
    const struct td_module_ops *ops = desc->ops;
    TD_AUTO(td_arena) *arena = NULL;
    TD_TRY(td_arena_create(1 << 20, &arena));
    struct td_json *knobs;
    TD_TRY(knobs_of(arena, desc, knobs_text, &knobs));
    return ops->open(knobs, fields, n_fields, out_module);
}

static inline void module_record(const struct td_plugin_desc *desc, const char *knobs,
                                 const struct td_field *fields, enum td_mode mode, int64_t batch,
                                 struct td_state_table *t, struct td_graph **out_graph) {
    const struct td_module_ops *ops = desc->ops;
    struct td_module *m;
    assert_ok(module_open(desc, knobs, fields, 2, &m));
    assert_ok(td_graph_create("train", mode, t, out_graph));
    assert_ok(ops->record(m, *out_graph, batch));
    ops->close(m);
}

// Ops of the graph in order, as one line.
static inline void module_op_names(const struct td_graph *g, char *out, size_t bytes) {
    size_t len = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < td_graph_n_nodes(g) && len < bytes; i++) {
        len += (size_t)snprintf(out + len, bytes - len, "%s%s", i ? " " : "",
                                td_op_name(td_graph_node(g, i)->op));
    }
}

// "fc1.weight 6x12 uniform 0.289", "bn1.running_var 4 const 1 buffer": a line per tensor.
static inline void module_state(const struct td_state_table *t, char *out, size_t bytes) {
    static const char *const kinds[] = {"zero", "const", "uniform", "normal"};
    size_t len = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < td_state_count(t) && len < bytes; i++) {
        const struct td_state_info *s = td_state_at(t, i);
        len += (size_t)snprintf(out + len, bytes - len, "%s ", s->name);
        for (int d = 0; d < s->shape.n_dims && len < bytes; d++) {
            len += (size_t)snprintf(out + len, bytes - len, "%s%lld", d ? "x" : "",
                                    (long long)s->shape.dim[d]);
        }
        double v = s->init.kind == TD_INIT_CONST ? s->init.a : s->init.b;
        if (len < bytes) {
            len += (size_t)snprintf(out + len, bytes - len, " %s", kinds[s->init.kind]);
        }
        if (len < bytes && s->init.kind != TD_INIT_ZERO) {
            len += (size_t)snprintf(out + len, bytes - len, " %.3g", v);
        }
        if (len < bytes) {
            len += (size_t)snprintf(out + len, bytes - len, "%s%s%s\n",
                                    s->role == TD_ROLE_BUFFER ? " buffer" : "",
                                    s->marks & TD_PARAM_NO_DECAY ? " no-decay" : "",
                                    s->marks & TD_PARAM_NOT_HIDDEN ? " not-hidden" : "");
        }
    }
}

#endif
