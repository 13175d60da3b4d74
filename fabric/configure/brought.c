// See the header.

#include "fabric/configure/brought.h"

#include <string.h>

#include "lib/base/files/files.h"
#include "lib/base/files/named.h"
#include "lib/spec/brought.h"

enum { CONFIG_MAX = 1 << 20 };

static td_status bring(struct td_arena *a, const char *path, const struct td_json **io_knobs) {
    TD_AUTO_BUF text;
    td_buf_init(&text, CONFIG_MAX);
    struct td_json *config = NULL;
    td_status s = td_named_read(path, CONFIG_MAX, &text);
    if (td_path_rules_refused(s)) return s;
    if (!s) s = td_json_parse(a, text.data ? text.data : "", text.len, &config);
    if (!s && config->kind != TD_JSON_OBJECT) s = td_fail(TD_DATA_LOSS, "it is no object");
    if (s) {
        s = td_status_context(s, "sizes of the model (mend the file, or copy it again): '%s'",
                              path);
        return td_status_with_class(s, TD_CLASS_DATA);
    }
    return td_spec_bring_sizes(a, *io_knobs, config, path, io_knobs);
}

td_status td_bring_sizes(struct td_arena *a, const struct td_plan *plan,
                         const struct td_json **io_knobs) {
    const struct td_spec *spec = &plan->spec;
    const char *const sources[] = {plan->run.resume_from, spec->ckpt_path, spec->init_from,
                                   spec->evaluate_from};
    char path[TD_FS_PATH_BYTES];
    if (spec->model.is_plugin || !*io_knobs) return TD_OK;
    // Else the model would miss its sizes, and not say why. A later attempt needs it no more.
    const bool begins = plan->run.attempt <= 1 && !*plan->run.resume_from;
    if (begins && *spec->init_from && !td_fs_exists(spec->init_from)) {
        return td_bad_spec("init_from: '%s': No such file or directory", spec->init_from);
    }
    for (size_t i = 0; i < TD_COUNTOF(sources); i++) {
        if (!sources[i] || sources[i][0] != '/') continue;
        TD_TRY(td_fs_path(path, "%s/config.json", sources[i]));
        if (td_fs_exists(path)) return bring(a, path, io_knobs);
    }
    return TD_OK;
}
