#ifndef TRAIND_TESTS_CONFORM_STEP_BENCH_H
#define TRAIND_TESTS_CONFORM_STEP_BENCH_H

// A step of a whole module on one accelerator, for programs that compare what steps leave.

#include "tests/conform/op_bench.h"
#include "tests/unit/graph/step_rig.h"

// Compiles the step twice on an open rig, so that the second adds to what the first wrote, runs
// both, and closes the rig. out: gradients, buffers and the loss of the second.
static inline void bench_accumulate(struct rig *r, const struct step_case *c,
                                    struct td_compile_options *o, struct result *out) {
    void *in[2];
    rig_add(r, o);
    o->key.accumulate = true;
    rig_add(r, o);
    rig_place(r);
    step_batch(c, in);
    rig_run(r, 0, TD_SEGS_ALL, (const void *const *)in);
    rig_run(r, 1, TD_SEGS_ALL, (const void *const *)in);
    out->n = 0;
    for (uint32_t i = 0; i < td_state_count(r->state); i++) {
        const struct td_state_info *s = td_state_at(r->state, i);
        if (s->role != TD_ROLE_GRAD && s->role != TD_ROLE_BUFFER) continue;
        append(out, s->dtype, rig_state(r, i), td_shape_elems(&s->shape));
    }
    append(out, TD_F64, r->program[1].outputs, 1);
    free(in[0]);
    free(in[1]);
    rig_close(r);
}

#endif
