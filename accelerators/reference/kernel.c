// What several kernels need to find their operands; contract in kernel.h.

#include "accelerators/reference/kernel.h"

#include <inttypes.h>

int64_t td_ref_broadcast(const struct td_shape *wide, const struct td_shape *x, int64_t i) {
    int64_t at = 0, stride = 1;
    for (int32_t d = wide->n_dims - 1, dx = x->n_dims - 1; dx >= 0; d--, dx--) {
        int64_t pos = i % wide->dim[d];
        i /= wide->dim[d];
        if (x->dim[dx] != 1) at += pos * stride;
        stride *= x->dim[dx];
    }
    return at;
}

td_status td_ref_no_index(const char *one, int64_t index, int64_t row, int64_t bound,
                          const char *many) {
    return td_status_with_class(td_fail(TD_INVALID_ARGUMENT,
                                        "%s %" PRId64 " in row %" PRId64
                                        " is outside the model's %" PRId64 " %s",
                                        one, index, row, bound, many),
                                TD_CLASS_DATA);
}

td_status td_ref_index(const struct ref_call *c, uint32_t operand, int64_t i, int64_t bound,
                       const char *one, const char *many, int64_t *out_index) {
    int64_t index = (int64_t)c->in[operand].x[i];
    if (index < 0 || index >= bound) return td_ref_no_index(one, index, i, bound, many);
    *out_index = index;
    return TD_OK;
}
