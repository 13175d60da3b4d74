// See the header.

#include "engine/train/rank/scores/result.h"

#include "lib/base/files/named_output.h"

td_status td_rank_write_result(const struct td_rank *r, const char *name, const struct td_buf *text,
                               char out_path[TD_FS_PATH_BYTES]) {
    const char *dir = r->config->checkpoint.dir;
    if (!dir) {
        return td_fail(TD_FAILED_PRECONDITION, "there is no place for it: set checkpoint.dir");
    }
    TD_TRY(td_fs_path(out_path, "%s/%s", dir, name));
    TD_TRY(td_named_output_mkdirs(dir, 0777));
    return td_named_output_write(out_path, text->data, text->len, 0666, 0);
}
