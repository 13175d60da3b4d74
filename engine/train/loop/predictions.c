// See the header.

#include "engine/train/loop/predictions.h"

#include <stdio.h>
#include <string.h>

#include "engine/train/rank/state/tensor.h"
#include "lib/base/clock.h"
#include "lib/base/files/files.h"

static const int64_t HOLD_NS = TD_NS_PER_S / 2; // for a rank that is ending

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
    TD_TRY(td_named_output_mkdirs(c->checkpoint.dir, 0777));
    return td_fs_path(out_path, "%s/%s", c->checkpoint.dir, name);
}

// Where a node was lost, its file server may need a while to notice: then the job waits for itself.
static td_status not_held(td_status s, const char *holder, const char *path) {
    char own[128];
    snprintf(own, sizeof own, "(%s on ", holder);
    if (strcmp(td_status_reason(s), "LOCK_HELD") != 0) {
        return td_status_context(s, "predict.output cannot be locked");
    }
    if (strstr(td_status_message(s), own)) {
        return td_status_with_class(
            td_status_context(s, "an earlier attempt still writes '%s'", path), TD_CLASS_DISK);
    }
    s = td_status_context(s, "predict.output: another job writes '%s'; name another file", path);
    return td_status_with_class(s, TD_CLASS_BAD_SPEC);
}

td_status td_predict_hold(const struct td_rank *r, struct td_named_hold *out_hold) {
    const struct td_train_config *c = r->config;
    const char *path = c->predict.output;
    char holder[80];
    if (!path || !(c->stages & TD_STAGE_PREDICT) || !r->facts.is_global_zero) return TD_OK;
    snprintf(holder, sizeof holder, "job %s", c->job[0] ? c->job : "started by hand");
    td_status s = td_named_output_hold(path, holder, HOLD_NS, out_hold);
    if (!s || td_status_code(s) != TD_UNAVAILABLE) return s ? not_held(s, holder, path) : TD_OK;
    td_events_note(
        r->events,
        "predict.output cannot be locked, so another job that writes it at the same time "
        "is not noticed: %s",
        td_status_message(s));
    td_status_free(s);
    return TD_OK;
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
