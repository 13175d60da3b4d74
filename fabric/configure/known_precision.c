// See the header.

#include "fabric/configure/known_precision.h"

#include <string.h>

#include "engine/train/checkpoint/manifest.h"
#include "lib/base/files/files.h"

// A name that auto may be; NULL: another one.
static const char *either(const char *name) {
    if (strcmp(name, TD_PRECISION_PLAIN) == 0) return TD_PRECISION_PLAIN;
    return strcmp(name, TD_PRECISION_MIXED) == 0 ? TD_PRECISION_MIXED : NULL;
}

// Of the first checkpoint whose manifest can be read, as choices.c does; NULL: none, or another.
static const char *resumed(struct td_arena *arena, const struct td_train_config *c) {
    for (size_t i = 0; i < c->n_resume_from; i++) {
        char path[TD_FS_PATH_BYTES];
        struct td_manifest m;
        td_status s = td_fs_path(path, "%s/manifest.json", c->resume_from[i]);
        if (!s) s = td_manifest_read(arena, path, &m);
        if (!s) return either(m.key.precision[0] ? m.key.precision : TD_PRECISION_PLAIN);
        td_status_free(s);
    }
    return NULL;
}

const char *td_known_precision(struct td_arena *arena, const struct td_plan *plan,
                               const struct td_train_config *train) {
    const char *asked = plan->spec.trainer.precision.name;
    if (strcmp(asked, TD_PRECISION_AUTO) != 0) return asked;
    const char *name = either(td_json_string(td_json_get(plan->run.frozen, "precision"), ""));
    if (!name) name = resumed(arena, train);
    if (!name) name = either(plan->run.precision);
    bool compares = (train->stages & TD_STAGE_FIT) && !train->deterministic;
    return name ? name : compares ? TD_PRECISION_AUTO : TD_PRECISION_PLAIN;
}
