// See the header. What cannot be cut back is cut when the file is opened again: the sinks
// read up to what is torn.

#include "daemon/launcher/loggers/logger_sink.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/files/files.h"

void td_log_column(const char *metric, char out[TD_LOG_COLUMN_BYTES]) {
    static const char prefix[] = "metric_";
    const char *end = metric;
    while (strncmp(end, prefix, sizeof prefix - 1) == 0) {
        end += sizeof prefix - 1;
    }
    const bool is_ours = strcmp(end, "step") == 0 || strcmp(end, "epoch") == 0;
    snprintf(out, TD_LOG_COLUMN_BYTES, "%s%s", is_ours ? prefix : "", metric);
}

td_status td_log_sink_write(int fd, const char *path, const struct td_buf *bytes, uint64_t at) {
    const ssize_t n = pwrite(fd, bytes->data, bytes->len, (off_t)at);
    if (n == (ssize_t)bytes->len) return TD_OK;
    if (n >= 0) errno = ENOSPC; // a disk that takes a part takes no more
    td_status failed = td_fs_fail("write", path);
    if (ftruncate(fd, (off_t)at) != 0) errno = 0; // the next open cuts it
    return failed;
}
