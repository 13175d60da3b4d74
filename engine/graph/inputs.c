// The inputs of a run (traind/accelerator.h), looked at before any node runs. A dataset, a
// strategy and a loader may each be a stranger's: what they hand over is never asserted.
// Pure functions; nothing is allocated.

#include <inttypes.h>

#include "engine/graph/graph.h"
#include "engine/graph/graph_text.h"
#include "traind/accelerator.h"

static td_status refuse(const struct td_graph *g, uint32_t slot, const struct td_buffer *b) {
    const struct td_value_info *info = td_gv(g, td_graph_input_at(g, slot));
    char shape[96];
    if (b->space != TD_SPACE_HOST) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "step '%s': input %" PRIu32 " ('%s') is not host memory, and this "
                       "accelerator reads no other",
                       g->step, slot, info->name);
    }
    td_shape_text(info->dtype, &info->shape, shape, sizeof shape);
    return td_fail(TD_INVALID_ARGUMENT,
                   "step '%s': input %" PRIu32 " ('%s') has %zu bytes, but %s has %zu", g->step,
                   slot, info->name, b->handle ? b->bytes : 0, shape,
                   td_dtype_bytes(info->dtype) * (size_t)td_shape_elems(&info->shape));
}

td_status td_inputs_check_host(const struct td_graph *g, const struct td_buffer *inputs) {
    if (g->n_inputs && !inputs) {
        return td_fail(TD_INVALID_ARGUMENT, "step '%s': run without inputs", g->step);
    }
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        const struct td_value_info *info = td_gv(g, g->inputs[i].value);
        const size_t bytes = td_dtype_bytes(info->dtype) * (size_t)td_shape_elems(&info->shape);
        const bool is_there = inputs[i].handle && inputs[i].bytes >= bytes;
        if (inputs[i].space != TD_SPACE_HOST || (bytes && !is_there)) {
            return refuse(g, i, &inputs[i]);
        }
    }
    return TD_OK;
}
