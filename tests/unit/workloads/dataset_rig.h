#ifndef TRAIND_TESTS_UNIT_WORKLOADS_DATASET_RIG_H
#define TRAIND_TESTS_UNIT_WORKLOADS_DATASET_RIG_H

// For tests of datasets: files in a scratch directory, and opening with knobs written as JSON ($ is
// the directory, knobs left out have their defaults). Also refusals, which must be of class data
// and name file and offset.

#include "tests/unit/test.h"

#include "tests/unit/plugin/knobs_rig.h"
#include "traind/dataset.h"
#include "workloads/workloads.h"

static inline const char *rig_path(const char *dir, const char *name) {
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static inline void rig_write(const char *dir, const char *name, const void *data, size_t bytes) {
    assert_ok(td_fs_write(rig_path(dir, name), data, bytes, 0600, 0));
}

// Knobs with '$' for the directory.
static inline td_status rig_open(const struct td_plugin_desc *desc, const char *dir,
                                 const char *knobs_text, const char *cache_dir,
                                 struct td_dataset **out_dataset) {
    const struct td_dataset_ops *ops = desc->ops;
    TD_AUTO(td_arena) *arena = NULL;
    TD_TRY(td_arena_create(1 << 20, &arena));
    char text[2048] = "";
    size_t len = 0;
    for (const char *p = knobs_text; *p && len < sizeof text - 1; p++) {
        if (*p != '$') text[len++] = *p;
        if (*p == '$') len += (size_t)snprintf(text + len, sizeof text - len, "%s", dir);
        text[len] = '\0';
    }
    struct td_json *knobs;
    TD_TRY(knobs_of(arena, desc, text, &knobs));
    const struct td_dataset_config config = {
        .struct_bytes = sizeof config, .knobs = knobs, .cache_dir = cache_dir};
    return ops->open(&config, out_dataset);
}

// Class data, these words, and file and offset as metadata.
static inline void rig_refuses(td_status s, enum td_code code, const char *text) {
    bool file = false, offset = false;
    for (size_t i = 0; i < td_status_n_meta(s); i++) {
        const char *key, *value;
        td_status_meta(s, i, &key, &value);
        file |= strcmp(key, "file") == 0;
        offset |= strcmp(key, "offset") == 0;
    }
    assert_int_equal(td_status_class(s), TD_CLASS_DATA);
    assert_true(file && (offset || code == TD_NOT_FOUND));
    assert_fails(s, code, text);
}

#endif
