// See the header.

#include "engine/train/loop/predictions.h"

#include <stdio.h>
#include <string.h>

#include "lib/base/fsio.h"

td_status td_predict_path(const struct td_rank *r, const char *name, char *out_path) {
    const struct td_train_config *c = r->config;
    if (c->predict.output) return td_fs_path(out_path, "%s", c->predict.output);
    if (!c->checkpoint.dir) {
        return td_status_with_class(td_fail(TD_FAILED_PRECONDITION,
                                            "there is no place for %s: set predict.output or "
                                            "checkpoint.dir",
                                            name),
                                    TD_CLASS_BAD_SPEC);
    }
    TD_TRY(td_fs_mkdirs(c->checkpoint.dir, 0777));
    return td_fs_path(out_path, "%s/%s", c->checkpoint.dir, name);
}

// Its tensors are "<name>:<rows>", one for each size of batch.
td_status td_predict_columns(const struct td_rank *r, const char *name, int64_t *out_columns) {
    size_t len = strlen(name);
    for (uint32_t i = 0; i < td_state_count(r->state); i++) {
        const struct td_state_info *t = td_state_at(r->state, i);
        if (t->role != TD_ROLE_RESULT || strncmp(t->name, name, len) != 0 || t->name[len] != ':') {
            continue;
        }
        *out_columns = t->shape.dim[0] ? td_shape_elems(&t->shape) / t->shape.dim[0] : 0;
        return TD_OK;
    }
    return td_fail(TD_INVALID_ARGUMENT, "model '%s' has no '%s' to predict with",
                   r->config->model.name, name);
}
