// See the header.

#include "engine/train/loop/predictions.h"

#include "engine/train/rank/tensor.h"
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

td_status td_predict_columns(const struct td_rank *r, const char *name, int64_t *out_columns) {
    const int64_t columns = td_rank_result_width(r, name);
    if (columns) {
        *out_columns = columns;
        return TD_OK;
    }
    return td_fail(TD_INVALID_ARGUMENT, "model '%s' has no '%s' to predict with",
                   r->config->model.name, name);
}
