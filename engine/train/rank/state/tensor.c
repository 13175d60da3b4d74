// See the header.

#include "engine/train/rank/state/tensor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/train/rank/programs/steps.h"
#include "lib/base/floats/floats.h"

static float integer_at(const void *data, enum td_dtype dtype, int64_t i) {
    if (dtype == TD_I32) return (float)((const int32_t *)data)[i];
    if (dtype == TD_I64) return (float)((const int64_t *)data)[i];
    return ((const uint8_t *)data)[i];
}

static td_status read_at(struct td_rank *r, const struct td_state_info *t, float *out) {
    const struct td_buffer *from = &r->memory.region[t->role];
    const int64_t n = td_shape_elems(&t->shape);
    const size_t bytes = td_state_whole_bytes(t);
    if (td_state_is_apart(t)) {
        return td_status_with_class(td_fail(TD_FAILED_PRECONDITION,
                                            "tensor '%s' is in pieces, of which this rank has one",
                                            t->name),
                                    TD_CLASS_USER_CODE);
    }
    if (t->dtype == TD_F32) {
        return r->accel_ops->copy(r->accel, td_buffer_of_host(out, bytes), 0, *from, t->offset,
                                  bytes);
    }
    TD_AUTO_FREE void *data = td_calloc(1, bytes ? bytes : 1);
    if (!data) return td_fail_oom();
    TD_TRY(
        r->accel_ops->copy(r->accel, td_buffer_of_host(data, bytes), 0, *from, t->offset, bytes));
    if (td_is_float(t->dtype)) {
        td_float_convert(t->dtype, data, n, TD_F32, out);
        return TD_OK;
    }
    for (int64_t i = 0; i < n; i++) {
        out[i] = integer_at(data, t->dtype, i);
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

// Its tensors are "<name>:<rows>", one for each size of batch.
int64_t td_rank_result_width(const struct td_rank *r, const char *name) {
    const size_t len = strlen(name);
    for (uint32_t i = 0; i < td_state_count(r->state); i++) {
        const struct td_state_info *t = td_state_at(r->state, i);
        if (t->role != TD_ROLE_RESULT || strncmp(t->name, name, len) != 0 || t->name[len] != ':') {
            continue;
        }
        return t->shape.dim[0] ? td_shape_elems(&t->shape) / t->shape.dim[0] : 0;
    }
    return 0;
}

static td_status clear(struct td_rank *r, const struct td_state_info *t) {
    static const char zeros[1 << 16];
    const struct td_buffer from = td_buffer_of_host(zeros, sizeof zeros);
    for (size_t at = 0; at < t->bytes; at += sizeof zeros) {
        TD_TRY(r->accel_ops->copy(r->accel, r->memory.region[t->role], t->offset + at, from, 0,
                                  TD_MIN(sizeof zeros, t->bytes - at)));
    }
    return TD_OK;
}

td_status td_rank_clear_gradients(struct td_rank *r, const struct td_program_key *key) {
    for (uint32_t i = 0; i < td_state_count(r->state); i++) {
        const struct td_state_info *t = td_state_at(r->state, i);
        if (t->role != TD_ROLE_GRAD) continue;
        const char *param = td_state_at(r->state, t->param)->name;
        if (td_rank_step_trains(r, key, param)) TD_TRY(clear(r, t));
    }
    return TD_OK;
}
