// See the header.

#include "engine/train/rank/tensor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/half.h"

static float number_at(const void *data, enum td_dtype dtype, int64_t i) {
    switch (dtype) {
    case TD_F32:
        return ((const float *)data)[i];
    case TD_F64:
        return (float)((const double *)data)[i];
    case TD_BF16:
        return td_f32_of_bf16(((const uint16_t *)data)[i]);
    case TD_F16:
        return td_f32_of_f16(((const uint16_t *)data)[i]);
    case TD_I32:
        return (float)((const int32_t *)data)[i];
    case TD_I64:
        return (float)((const int64_t *)data)[i];
    case TD_U8:
    case TD_BOOL:
        return ((const uint8_t *)data)[i];
    case TD_DTYPE_COUNT:
        break;
    }
    TD_CHECK(false && "a type of a state tensor");
    return 0;
}

static td_status read_at(struct td_rank *r, const struct td_state_info *t, float *out) {
    const struct td_buffer *from = &r->memory.region[t->role];
    const int64_t n = td_shape_elems(&t->shape);
    if (t->dtype == TD_F32) {
        return r->accel_ops->copy(r->accel, td_buffer_of_host(out, t->bytes), 0, *from, t->offset,
                                  t->bytes);
    }
    TD_AUTO_FREE void *data = td_calloc(1, t->bytes ? t->bytes : 1);
    if (!data) return td_fail_oom();
    TD_TRY(r->accel_ops->copy(r->accel, td_buffer_of_host(data, t->bytes), 0, *from, t->offset,
                              t->bytes));
    for (int64_t i = 0; i < n; i++) {
        out[i] = number_at(data, t->dtype, i);
    }
    return TD_OK;
}

td_status td_rank_read_tensor(struct td_rank *r, const char *name, float *out, int64_t n) {
    uint32_t index;
    td_status none = td_state_find(r->state, name, &index);
    if (none) {
        td_status_free(none);
        return td_status_with_class(
            td_fail(TD_NOT_FOUND, "model '%s' has no tensor '%s'", r->config->model.name, name),
            TD_CLASS_USER_CODE);
    }
    const struct td_state_info *t = td_state_at(r->state, index);
    if (n == td_shape_elems(&t->shape)) return read_at(r, t, out);
    return td_status_with_class(td_fail(TD_INVALID_ARGUMENT,
                                        "tensor '%s' has %" PRId64 " elements, not %" PRId64, name,
                                        td_shape_elems(&t->shape), n),
                                TD_CLASS_USER_CODE);
}

td_status td_rank_read_result(struct td_rank *r, const char *name, int64_t n_samples, float *out,
                              int64_t n) {
    char path[64];
    snprintf(path, sizeof path, "%.40s:%" PRId64, name, n_samples);
    return td_rank_read_tensor(r, path, out, n);
}
